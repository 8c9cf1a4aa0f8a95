"""Osprey: a key-value store whose reads are one-sided RDMA READs.

    import osprey

    with osprey.Client("rdma://10.0.0.7:7411") as client:
        client.put("planet", b"saturn")
        found = client.get("planet")
        print(found.value, found.version)

Keys are bytes-like, or str, which is encoded as UTF-8. Values are bytes-like. Times are in seconds, as int or
float. A failed operation raises a subclass of osprey.Error.
"""

from collections.abc import Iterator

from . import _core
from ._core import Item, Number, Value
from ._errors import (
    AlreadyExists,
    AuthenticationFailed,
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

__all__ = [
    "AlreadyExists",
    "AuthenticationFailed",
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

    def __enter__(self) -> "Client":
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
        """The server's statistics, by name. All values are text."""
        lines = self.stats_text(deadline=deadline).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)
