"""Osprey for asyncio.

    import osprey.aio

    async with osprey.aio.Client("rdma://10.0.0.7:7411") as client:
        await client.put("planet", b"saturn")
        found, count = await asyncio.gather(client.get("planet"), client.count())

The operations, their results and errors are those of osprey.Client. One connection serves all tasks of one event loop:
the loop waits for its file descriptor, and no thread takes part. Operations that run together are sent together.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import deque
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from . import _arrays, _core
from ._core import Buffer, Item, Number, Value, ValueInfo
from ._errors import Error, LimitReached, make

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Client"]

_T = TypeVar("_T")
_Bytes = bytes | bytearray | memoryview
_Key = str | _Bytes
_Seconds = float | None

DEADLINE = 1.0  # of the C++ client, where the caller names none


class _Later(NamedTuple):
    """An operation that starts when others have ended."""

    future: asyncio.Future[Any]
    name: str
    args: tuple[Any, ...]
    end: float  # by the loop's clock


class Client:
    """A client of the server at `uri`, for the tasks of one event loop.

    uri, connect_timeout, deadline, auth_key_file, auth_key: as of osprey.Client. `async with` or connect() connects.

    A task that is cancelled, or whose asyncio.timeout passes, stops waiting at once. Its operation runs on to its
    deadline: a write may still be applied, and a Buffer stays in use until then.
    """

    def __init__(
        self,
        uri: str,
        *,
        connect_timeout: _Seconds = None,
        deadline: _Seconds = None,
        auth_key_file: str = "",
        auth_key: bytes = b"",
    ) -> None:
        self._connect = functools.partial(
            _core.AsyncClient,
            uri,
            connect_timeout=connect_timeout,
            deadline=deadline,
            auth_key_file=auth_key_file,
            auth_key=_core.Secret(auth_key),
        )
        self._deadline = DEADLINE if deadline is None else deadline
        self._core: _core.AsyncClient | None = None
        self._is_connecting = False
        self._fileno = -1
        self._later: dict[Hashable, deque[_Later]] = {}  # by _queue_of; none is empty
        self._late_at = math.inf  # no end of what is there is earlier
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- The connection

    async def connect(self) -> Client:
        """Connects. Errors: Unavailable, AuthenticationFailed, InvalidArgument for addresses and options."""
        if self._core is not None or self._is_connecting:
            raise RuntimeError("this Client is connected already")
        self._loop = asyncio.get_running_loop()
        self._is_connecting = True
        try:
            self._core = await self._loop.run_in_executor(None, self._connect)
        finally:
            self._is_connecting = False
        self._fileno = self._core.fileno()
        self._loop.add_reader(self._fileno, self._poll)
        return self

    async def close(self) -> None:
        """Closes the connection. Operations that have not ended raise Closed. May be called again."""
        core, self._core = self._core, None
        if core is None:
            return
        self._loop.remove_reader(self._fileno)
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None
        later = [one for queue in self._later.values() for one in queue]
        self._later.clear()
        self._late_at = math.inf
        closed = self._loop.run_in_executor(None, core.close)
        closed.add_done_callback(functools.partial(self._end_closed, core, later))
        await asyncio.shield(closed)  # operations end, also if this task is cancelled

    def _end_closed(self, core: _core.AsyncClient, later: list[_Later], _: asyncio.Future[None]) -> None:
        self._end(core.poll())
        for one in later:
            if not one.future.done():
                one.future.set_exception(make("closed", "this Client was closed first. Not started", False, 0))

    async def __aenter__(self) -> Client:
        return await self.connect()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # --- Progress

    def _begin(self, name: str, *args: Any) -> asyncio.Future[Any]:
        """Starts the operation of _core.AsyncClient; the last of `args` is its deadline."""
        core = self._core
        if core is None:
            raise make("closed", "this Client is not connected, or closed: use `async with`", False, 0)
        if asyncio._get_running_loop() is not self._loop:
            core.fileno()  # raises Forked in a child
            raise RuntimeError("this Client belongs to another event loop: make one in each")
        future = self._loop.create_future()
        try:
            if self._later and _queue_of(core, name, args) in self._later:
                raise LimitReached  # it starts after those, however little it needs
            getattr(core, name)(future, *args)
        except LimitReached as error:
            if not self._later and core.in_flight == 0:
                future.set_exception(error)
                return future
            wait = self._deadline if args[-1] is None else args[-1]
            queue = self._later.setdefault(_queue_of(core, name, args), deque())
            one = _Later(future, name, args, self._loop.time() + wait)
            queue.append(one)
            self._late_at = min(self._late_at, one.end)
        if self._soon is None:
            self._soon = self._loop.call_soon(self._poll)
        return future

    def _poll(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        core = self._core
        if core is None:
            return
        try:
            ended = core.poll()
        except Exception:
            self._soon = self._loop.call_soon(self._poll)  # it returns them then
            raise
        self._end(ended)
        if self._later:
            self._begin_later(core)
        delay = 0.0 if ended else core.arm()
        if self._later:
            left = max(0.0, self._late_at - self._loop.time())
            delay = left if delay is None else min(delay, left)
        if delay == 0.0:
            self._soon = self._loop.call_soon(self._poll)
        elif delay is not None:
            self._timer = self._loop.call_later(delay, self._poll)

    def _end_late(self) -> None:
        now = self._loop.time()
        if now < self._late_at:
            return
        self._late_at = math.inf
        for queue in self._later.values():
            waiting = list(queue)
            queue.clear()
            for one in waiting:
                if one.future.done():
                    continue
                if one.end <= now:
                    one.future.set_exception(make("deadline", "the deadline passed before the start. Not applied", False, 0))
                else:
                    queue.append(one)
                    self._late_at = min(self._late_at, one.end)

    def _begin_later(self, core: _core.AsyncClient) -> None:
        self._end_late()
        for shards, queue in list(self._later.items()):
            self._begin_queue(core, queue)
            if not queue:
                del self._later[shards]

    def _begin_queue(self, core: _core.AsyncClient, queue: deque[_Later]) -> None:
        while queue:
            one = queue[0]
            if not one.future.done():
                left = max(one.end - self._loop.time(), 1e-9)
                try:
                    getattr(core, one.name)(one.future, *one.args[:-1], left)
                except LimitReached as error:
                    if core.in_flight > 0:
                        return
                    one.future.set_exception(error)
                except Exception as error:
                    one.future.set_exception(error)
            queue.popleft()

    @staticmethod
    def _end(ended: list[tuple[asyncio.Future[Any], Any, bool]]) -> None:
        for future, result, is_error in ended:
            if future.done():
                continue  # cancelled
            if is_error:
                future.set_exception(result)
            else:
                future.set_result(result)

    # --- Operations

    @overload
    async def get(self, key: _Key, default: None = None, *, deadline: _Seconds = None) -> Value | None: ...
    @overload
    async def get(self, key: _Key, default: _T, *, deadline: _Seconds = None) -> Value | _T: ...
    async def get(self, key: _Key, default: Any = None, *, deadline: _Seconds = None) -> Any:
        """The Value of the key, or `default` if the key is absent. Raises TimedOut, Unavailable."""
        found = await self._begin("get", key, deadline)
        return default if found is None else found

    async def put(
        self,
        key: _Key,
        value: _Bytes,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl: _Seconds = None,
        deadline: _Seconds = None,
    ) -> int:
        """Stores value under key, and returns the version of the write. As osprey.Client.put."""
        version: int = await self._begin("put", key, value, if_absent, if_version, ttl, deadline)
        return version

    async def delete(self, key: _Key, *, if_version: int | None = None, deadline: _Seconds = None) -> int | None:
        """Deletes the key, and returns the version of the deletion; None if the key was absent."""
        try:
            version: int = await self._begin("delete", key, if_version, deadline)
            return version
        except Error as error:
            if error.reason == "absent" and if_version is None:
                return None
            raise

    async def exists(self, key: _Key, *, deadline: _Seconds = None) -> bool:
        """Whether the key is present. The value is not read."""
        return bool(await self._begin("exists", key, deadline))

    async def incr(
        self, key: _Key, by: int = 1, *, if_version: int | None = None, deadline: _Seconds = None
    ) -> Number:
        """Adds `by` to the key's number, and returns the Number after it. As osprey.Client.incr."""
        number: Number = await self._begin("incr", key, by, if_version, deadline)
        return number

    async def append(
        self, key: _Key, value: _Bytes, *, if_version: int | None = None, deadline: _Seconds = None
    ) -> int:
        """Appends value to the key's value, and returns the version of the write."""
        version: int = await self._begin("append", key, value, if_version, deadline)
        return version

    async def expire(
        self, key: _Key, ttl: _Seconds, *, if_version: int | None = None, deadline: _Seconds = None
    ) -> int:
        """Sets the key's time to live, in seconds; None: no end. Raises NotFound if the key is absent."""
        version: int = await self._begin("expire", key, ttl, if_version, deadline)
        return version

    async def ttl(self, key: _Key, *, deadline: _Seconds = None) -> float | None:
        """A lower bound of the seconds that the key has to live; None: no end. Raises NotFound."""
        seconds: float | None = await self._begin("ttl", key, deadline)
        return seconds

    async def get_many(self, keys: Iterable[_Key], *, deadline: _Seconds = None) -> list[Value | Error | None]:
        """A list with the result of each key, in their order: a Value, None if it is absent, or an Error."""
        results: list[Value | Error | None] = await self._begin("get_many", _again(keys), deadline)
        return results

    async def put_many(
        self,
        items: Mapping[_Key, _Bytes] | Iterable[tuple[_Key, _Bytes]],
        *,
        if_absent: bool = False,
        ttl: _Seconds = None,
        deadline: _Seconds = None,
    ) -> list[int | Error]:
        """Stores the items. Returns a list with the version of each write, or an Error, in their order."""
        results: list[int | Error] = await self._begin("put_many", _again(items), if_absent, ttl, deadline)
        return results

    async def delete_many(self, keys: Iterable[_Key], *, deadline: _Seconds = None) -> list[int | Error | None]:
        """Deletes the keys. Returns a list with the version of each deletion, None if it was absent, or an Error."""
        results: list[int | Error | None] = await self._begin("delete_many", _again(keys), deadline)
        return results

    async def scan_page(
        self,
        cursor: str,
        *,
        prefix: _Key = b"",
        values: bool = False,
        value_bytes_max: int = 2**64 - 1,
        limit: int = 1000,
        deadline: _Seconds = None,
    ) -> tuple[list[Item], str]:
        """One page of a scan: (items, the next cursor). The first cursor is ""; after the last page it is again."""
        page: tuple[list[Item], str] = await self._begin(
            "scan_page", cursor, prefix, values, value_bytes_max, limit, deadline
        )
        return page

    async def scan(
        self,
        prefix: _Key = b"",
        *,
        values: bool = False,
        value_bytes_max: int = 2**64 - 1,
        page: int = 1000,
        deadline: _Seconds = None,
    ) -> AsyncIterator[Item]:
        """Iterates over the keys with `prefix`, in no order: `async for item in client.scan()`."""
        cursor = ""
        while True:
            items, cursor = await self.scan_page(
                cursor, prefix=prefix, values=values, value_bytes_max=value_bytes_max, limit=page, deadline=deadline
            )
            for item in items:
                yield item
            if not cursor:
                return

    async def count(self, *, deadline: _Seconds = None) -> int:
        """The number of keys, as the server counts them."""
        number: int = await self._begin("count", deadline)
        return number

    async def stats(self, *, deadline: _Seconds = None) -> dict[str, str]:
        """The server's statistics, by name. All values are text."""
        text: str = await self._begin("stats_text", deadline)
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    # --- Without a copy

    def _open(self) -> _core.AsyncClient:
        if self._core is None:
            raise make("closed", "this Client is not connected, or closed: use `async with`", False, 0)
        return self._core

    async def allocate(self, size: int) -> Buffer:
        """A Buffer of `size` bytes, all 0, of this Client. As osprey.Client.allocate."""
        return self._open().allocate(size)

    async def register(self, memory: Any) -> Buffer:
        """A Buffer of the memory of a writable bytes-like object. As osprey.Client.register."""
        return self._open().register(memory)

    def _spans(self, items: Any, writable: bool) -> list[tuple[Any, _core.Span]]:
        """All are checked before one begins, and are in use from now on."""
        core = self._open()
        pairs = list(items.items() if isinstance(items, Mapping) else items)
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            raise TypeError("items must be a dict, or an iterable of tuples (key, buffer)")
        return [(key, core.span(key, memory, writable)) for key, memory in pairs]

    async def get_into(self, key: _Key, target: Any, *, deadline: _Seconds = None) -> ValueInfo | None:
        """Reads the value into target, a Buffer or a view of one. None if the key is absent.

        If the task is cancelled, the Buffer stays in use until the operation has ended.
        """
        info: ValueInfo | None = await self._begin("get_into", key, self._open().span(key, target, True), deadline)
        return info

    async def put_from(
        self,
        key: _Key,
        source: Any,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl: _Seconds = None,
        deadline: _Seconds = None,
    ) -> int:
        """Stores source, a Buffer or a view of one, under key. Returns the version of the write."""
        span = self._open().span(key, source, False)
        version: int = await self._begin("put_from", key, span, if_absent, if_version, ttl, deadline)
        return version

    async def get_many_into(
        self, items: Mapping[_Key, Any] | Iterable[tuple[_Key, Any]], *, deadline: _Seconds = None
    ) -> list[ValueInfo | Error | None]:
        """get_into for each (key, target). Returns a list with the result of each: ValueInfo, None, or an Error."""
        return await _all([self._begin("get_into", key, span, deadline) for key, span in self._spans(items, True)])

    async def put_many_from(
        self,
        items: Mapping[_Key, Any] | Iterable[tuple[_Key, Any]],
        *,
        if_absent: bool = False,
        ttl: _Seconds = None,
        deadline: _Seconds = None,
    ) -> list[int | Error]:
        """put_from for each (key, source). Returns a list with the result of each: the version, or an Error."""
        return await _all(
            [
                self._begin("put_from", key, span, if_absent, None, ttl, deadline)
                for key, span in self._spans(items, False)
            ]
        )

    async def allocate_array(self, shape: int | tuple[int, ...], dtype: Any = "f4") -> np.ndarray[Any, Any]:
        """A NumPy array of zeros in a Buffer of its own, which put_array and get_array use without a copy."""
        return _arrays.allocated(self._open().allocate, shape, dtype)

    async def put_array(
        self,
        key: _Key,
        array: Any,
        *,
        if_absent: bool = False,
        if_version: int | None = None,
        ttl: _Seconds = None,
        deadline: _Seconds = None,
    ) -> int:
        """Stores an array with its dtype and shape. As osprey.Client.put_array."""
        room, value = _arrays.prepared(array)
        if room is None:
            return await self.put(key, value, if_absent=if_absent, if_version=if_version, ttl=ttl, deadline=deadline)
        return await self.put_from(key, room, if_absent=if_absent, if_version=if_version, ttl=ttl, deadline=deadline)

    async def get_array(
        self, key: _Key, *, out: np.ndarray[Any, Any] | None = None, deadline: _Seconds = None
    ) -> np.ndarray[Any, Any] | None:
        """The array that put_array stored, or None if the key is absent. As osprey.Client.get_array."""
        room = None if out is None else _arrays.room_of(out)
        if out is None or room is None:
            found = await self.get(key, deadline=deadline)
            return None if found is None else _arrays.copied(found.value, out)
        info = await self.get_into(key, room, deadline=deadline)
        if info is None:
            return None
        _arrays.check_out(out, *_arrays.described(room, info.length))
        return out


def _queue_of(core: _core.AsyncClient, name: str, args: tuple[Any, ...]) -> Hashable:
    """The limits are those of each shard: operations wait for those of the same shards before them, and for no others."""
    if core.shards == 1:
        return 0
    if name in ("get_many", "put_many", "delete_many"):
        items = args[0]
        keys = [item[0] for item in items] if name == "put_many" and not isinstance(items, Mapping) else items
        shards = frozenset(core.shard_of(key) for key in keys)
        return next(iter(shards)) if len(shards) == 1 else shards
    if name == "scan_page":
        return name, args[0][:3]  # the cursor, which begins with its shard
    if name in ("count", "stats_text"):
        return name
    return core.shard_of(args[0])


def _again(items: Any) -> Any:
    """Arguments of an operation that may start later are read twice: an iterator becomes a list."""
    return list(items) if hasattr(items, "__next__") else items


async def _all(futures: list[asyncio.Future[Any]]) -> list[Any]:
    results: list[Any] = await asyncio.gather(*futures, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Error):
            raise result
    return results
