"""Osprey: a key-value store whose reads are one-sided RDMA READs.

    import osprey

    with osprey.Client("rdma://10.0.0.7:7411") as client:
        client.put("planet", b"saturn")
        found = client.get("planet")
        print(found.value, found.version)

Keys are bytes-like, or str, which is encoded as UTF-8. Values are bytes-like. Times are in seconds, as int or
float. A failed operation raises a subclass of osprey.Error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _arrays, _core
from ._core import Buffer, Item, Number, Value, ValueInfo
from ._errors import (
    AlreadyExists,
    AuthenticationFailed,
    BufferInUse,
    BufferTooSmall,
    Closed,
    Error,
    Forked,
    InvalidArgument,
    LimitReached,
    NotANumber,
    NotFound,
    OutcomeUnknown,
    Overflow,
    ServerFull,
    ServerIncompatible,
    StaleCursor,
    TimedOut,
    Unavailable,
    ValueChanged,
    VersionMismatch,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "AlreadyExists",
    "AuthenticationFailed",
    "Buffer",
    "BufferInUse",
    "BufferTooSmall",
    "Client",
    "Closed",
    "Error",
    "Forked",
    "InvalidArgument",
    "Item",
    "LimitReached",
    "NotANumber",
    "NotFound",
    "Number",
    "OutcomeUnknown",
    "Overflow",
    "ServerFull",
    "ServerIncompatible",
    "StaleCursor",
    "TimedOut",
    "Unavailable",
    "Value",
    "ValueChanged",
    "ValueInfo",
    "VersionMismatch",
]


class Client(_core.Client):
    """A client of the server at `uri`, for all threads of this process.

    uri: "rdma://HOST:PORT" or "shm:///NAME", or the list of a cluster's servers (client/README.md).
    connect_timeout: up to 60; 5 by default. deadline: of every operation without its own, up to 60; 1 by default.
    connections_max: 1 to 4096. Each concurrent operation of a thread has a connection of its own.
    auth_key_file, auth_key: the key that the server must have, too; at most one of the two.

    Every operation takes `deadline`. Ctrl-C ends a wait within some 50 ms; a write that it interrupts may have been
    applied. After a fork, a child must make its own Client: the parent's raises Forked there.

    Results: Value has value (bytes), version and ttl. The version is that of the write, and never repeats.
    The ttl is a lower bound of the seconds to live; None: no end.
    """

    def __init__(
        self,
        uri: str,
        *,
        connect_timeout: float | None = None,
        deadline: float | None = None,
        connections_max: int = 64,
        auth_key_file: str = "",
        auth_key: bytes = b"",
    ) -> None:
        super().__init__(
            uri,
            connect_timeout=connect_timeout,
            deadline=deadline,
            connections_max=connections_max,
            auth_key_file=auth_key_file,
            auth_key=_core.Secret(auth_key),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def scan(
        self,
        prefix: bytes | str = b"",
        *,
        values: bool = False,
        value_bytes_max: int = 2**64 - 1,
        page: int = 1000,
        deadline: float | None = None,
    ) -> Iterator[Item]:
        """Iterates over the keys with `prefix`, in no order, without the server's CPU.

        values: with the values of up to value_bytes_max bytes; longer ones are None.
        page: the number of items fetched at once. deadline: of each page.
        A key that is present from the beginning to the end is found at least once.
        """
        cursor = ""
        while True:
            items, cursor = self.scan_page(
                cursor, prefix=prefix, values=values, value_bytes_max=value_bytes_max, limit=page, deadline=deadline
            )
            yield from items
            if not cursor:
                return

    def stats(self, *, deadline: float | None = None) -> dict[str, str]:
        """The server's statistics, by name. All values are text.

        Of several shards: the sums of counts, values that all of them share, and each of shard k as "shardk.NAME".
        """
        lines = self.stats_text(deadline=deadline).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def allocate_array(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        """A NumPy array of zeros in a Buffer of its own, which put_array and get_array use without a copy."""
        return _arrays.allocated(self.allocate, shape, dtype)

    def put_array(
        self,
        key: bytes | str,
        array: Any,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl: float | None = None,
        deadline: float | None = None,
    ) -> int:
        """Stores an array with its dtype and shape, and returns the version of the write.

        array: a NumPy array, or what numpy.asarray takes, such as a tensor of PyTorch on the CPU. It is stored in C
        order. An array of allocate_array, or its beginning, is sent without a copy. Errors as for put, and
        InvalidArgument for dtypes other than numbers, booleans and times.
        """
        room, value = _arrays.prepared(array)
        if room is None:
            return self.put(key, value, if_absent=if_absent, if_version=if_version, ttl=ttl, deadline=deadline)
        return self.put_from(key, room, if_absent=if_absent, if_version=if_version, ttl=ttl, deadline=deadline)

    def get_array(
        self, key: bytes | str, *, out: np.ndarray[Any, Any] | None = None, deadline: float | None = None
    ) -> np.ndarray[Any, Any] | None:
        """The array that put_array stored, or None if the key is absent.

        out: the array that receives it, of the same dtype and shape, and that is returned; its contents are lost if
        the call fails. One of allocate_array receives it without a copy. Errors as for get_into, and InvalidArgument
        if the value is no array, or out does not fit it.
        """
        room = None if out is None else _arrays.room_of(out)
        if out is None or room is None:
            found = self.get(key, deadline=deadline)
            return None if found is None else _arrays.copied(found.value, out)
        info = self.get_into(key, room, deadline=deadline)
        if info is None:
            return None
        _arrays.check_out(out, *_arrays.described(room, info.length))
        return out
