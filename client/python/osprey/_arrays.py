"""NumPy arrays as values: the header before the elements, and arrays that need no copy.

client/python/README.md has the header's layout.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._core import Buffer
from ._errors import InvalidArgument, make

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"OSPARR1\n"
DIMENSIONS_MAX = 12
HEADER = struct.Struct("<8s16sI4x" + "Q" * DIMENSIONS_MAX)
KINDS = "biufcmM?"  # of NumPy's dtypes: those with a fixed size and no references

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


def header_of(array: np.ndarray[Any, Any]) -> bytes:
    """The header of a value that holds the array."""
    name = array.dtype.str
    if array.dtype.kind not in KINDS or array.dtype.fields is not None or len(name) > 16:
        raise _invalid(f"dtype {array.dtype} is none of numbers, booleans and times: convert it, as by array.view('u1')")
    if array.ndim > DIMENSIONS_MAX:
        raise _invalid(f"the array has {array.ndim} dimensions; at most {DIMENSIONS_MAX} can be stored: reshape it")
    shape = array.shape + (0,) * (DIMENSIONS_MAX - array.ndim)
    return HEADER.pack(MAGIC, name.encode(), array.ndim, *shape)


def described(value: Any, length: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """dtype and shape of a value of `length` bytes, which begins with a header."""
    np = numpy()
    if length < HEADER.size or bytes(value[: len(MAGIC)]) != MAGIC:
        raise _invalid("the value is no array: put_array stores arrays, get returns other values")
    _, name, dimensions, *extents = HEADER.unpack(value[: HEADER.size])
    text = name.rstrip(b"\0").decode("ascii", "replace")
    try:
        dtype = np.dtype(text)
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind not in KINDS or dtype.fields is not None or dimensions > DIMENSIONS_MAX:
        raise _invalid(f"the header of the array is damaged: dtype {text!r}, {dimensions} dimensions")
    shape = tuple(extents[:dimensions])
    size = dtype.itemsize
    for extent in shape:
        size *= extent
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


def in_buffer(buffer: Buffer, shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """The array behind the header's room in the buffer. It is a view: the buffer cannot be released before it."""
    buffer._has_header = True
    count = int(numpy().prod(shape, dtype=object))
    elements = numpy().frombuffer(buffer, "u1", offset=HEADER.size)[: count * dtype.itemsize]
    array: np.ndarray[Any, Any] = elements.view(dtype).reshape(shape)
    return array


def room_of(array: np.ndarray[Any, Any]) -> memoryview | None:
    """Header and elements of an array of in_buffer, as one span. None: another array."""
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
    """An array in a Buffer of its own."""
    dtype = numpy().dtype(dtype)
    header_of(numpy().empty(0, dtype))  # raises for other dtypes
    count = int(numpy().prod(shape, dtype=object))
    return in_buffer(allocate(HEADER.size + max(count * dtype.itemsize, 1)), shape, dtype)
