"""NumPy arrays as values: the header before the elements, and arrays that need no copy.

client/python/README.md has the header's layout.
"""

from __future__ import annotations

import math
import operator
import re
import struct
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._core import Buffer
from ._errors import InvalidArgument, make

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"OSPARR1\n"
DIMENSIONS_MAX = 12
HEADER = struct.Struct("<8s16sII" + "Q" * DIMENSIONS_MAX)
KINDS = "biufcmM?"  # of NumPy's dtypes: those with a fixed size and no references
# Their dtype.str. NumPy divides by what stands in another, as in M8[1s/0], without a check.
NAME = re.compile(rb"[<>|][biufcmM][0-9]{1,2}(\[[0-9]*[a-zA-Z]+\])?")

assert HEADER.size == 128


def numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise ImportError("arrays need NumPy: install python3-numpy") from error
    return numpy


def _invalid(message: str) -> InvalidArgument:
    error = make("bad_array", message, False, 0)
    assert isinstance(error, InvalidArgument)
    return error


def _size_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int | None:
    """The bytes of an array's elements. None: there is no such array."""
    most = dtype.itemsize * math.prod(max(extent, 1) for extent in shape)  # as NumPy counts
    if len(shape) > DIMENSIONS_MAX or min(shape, default=0) < 0 or most > sys.maxsize - HEADER.size:
        return None
    return dtype.itemsize * math.prod(shape)


def header_of(array: np.ndarray[Any, Any]) -> bytes:
    """The header of a value that holds the array."""
    name = array.dtype.str
    if array.dtype.kind not in KINDS or array.dtype.fields is not None or len(name) > 16:
        raise _invalid(f"dtype {array.dtype} is none of numbers, booleans and times: convert it, as by array.view('u1')")
    if array.ndim > DIMENSIONS_MAX:
        raise _invalid(f"the array has {array.ndim} dimensions; at most {DIMENSIONS_MAX} can be stored: reshape it")
    shape = array.shape + (0,) * (DIMENSIONS_MAX - array.ndim)
    return HEADER.pack(MAGIC, name.encode(), array.ndim, 0, *shape)


def described(value: Any, length: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """dtype and shape of a value of `length` bytes, which begins with a header."""
    np = numpy()
    if length < HEADER.size or bytes(value[: len(MAGIC)]) != MAGIC:
        raise _invalid("the value is no array: put_array stores arrays, get returns other values")
    _, name, dimensions, padding, *extents = HEADER.unpack(value[: HEADER.size])
    name = name.rstrip(b"\0")
    shape = tuple(extents[:dimensions])
    try:
        dtype = np.dtype(name.decode()) if NAME.fullmatch(name) else None
    except TypeError:
        dtype = None
    size = None if dtype is None else _size_of(shape, dtype)
    if dtype is None or size is None or dimensions > DIMENSIONS_MAX or padding or any(extents[dimensions:]):
        raise _invalid(f"the header of the array is damaged: dtype {name!r}, {dimensions} dimensions of {extents}")
    if size != length - HEADER.size:
        raise _invalid(f"the header says {dtype} of {shape}, but {length - HEADER.size} bytes follow it")
    return dtype, shape


def check_out(out: np.ndarray[Any, Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if out.dtype != dtype or out.shape != shape:
        raise _invalid(f"out is {out.dtype} of {out.shape}, but the value is {dtype} of {shape}")


def copied(value: bytes, out: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    """The array of a value, in a new array or in `out`."""
    dtype, shape = described(value, len(value))
    found: np.ndarray[Any, Any] = numpy().ndarray(shape, dtype, buffer=value, offset=HEADER.size)
    if out is None:
        return found.copy()
    check_out(out, dtype, shape)
    out[...] = found
    return out


def room_of(array: np.ndarray[Any, Any]) -> memoryview | None:
    """Header and elements of an array of `allocated`, as one span. None: another array."""
    base: Any = array
    while base is not None and hasattr(base, "base"):
        base = base.base
    buffer = base.obj if isinstance(base, memoryview) else None
    if not isinstance(buffer, Buffer) or not buffer._has_header or not array.flags.c_contiguous:
        return None
    if array.__array_interface__["data"][0] != buffer.address + HEADER.size:
        return None
    return memoryview(buffer)[: HEADER.size + array.nbytes]


def prepared(array: Any) -> tuple[memoryview | None, bytes]:
    """What stores an array: the span that put_from takes, or None and the value that put takes."""
    array = numpy().asarray(array, order="C")
    header = header_of(array)
    room = room_of(array)
    if room is None:
        return None, b"".join((header, memoryview(array.reshape(-1).view("u1"))))
    room[: len(header)] = header
    return room, b""


def allocated(allocate: Callable[[int], Buffer], shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An array in a Buffer of its own, behind its header's room. It is a view: the Buffer cannot be released before it."""
    dtype = numpy().dtype(dtype)
    header_of(numpy().empty(0, dtype))  # raises for other dtypes
    extents = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    size = _size_of(extents, dtype)
    if size is None:
        raise _invalid(f"no array has the shape {extents}: 0 to {DIMENSIONS_MAX} extents, none negative, fit into memory")
    buffer = allocate(HEADER.size + max(size, 1))
    buffer._has_header = True
    elements = numpy().frombuffer(buffer, "u1", offset=HEADER.size)[:size]
    array: np.ndarray[Any, Any] = elements.view(dtype).reshape(extents)
    return array
