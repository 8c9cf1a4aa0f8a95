"""A store with the methods of Mooncake's, on an Osprey server: to try Osprey in a cache connector by its import.

    from osprey.mooncake import MooncakeDistributedStore  # was: from mooncake.store import ...

    store = MooncakeDistributedStore()
    store.setup("localhost", "", protocol="rdma", master_server_addr="10.0.0.7:7411")
    store.put("hello", b"world")

Methods return 0 or a length, or the negative numbers of Mooncake's errors. What is different is in
client/python/README.md. Each failure is logged as `osprey.mooncake`, with its reason.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Sequence
from typing import Any

from . import AlreadyExists, Buffer, BufferTooSmall, Client, Error, InvalidArgument, LimitReached, NotFound, ServerFull
from . import OutcomeUnknown, TimedOut, Unavailable

__all__ = ["MooncakeDistributedStore", "ReplicateConfig"]

INTERNAL_ERROR = -1
NO_AVAILABLE_HANDLE = -200
INVALID_KEY = -400
INVALID_PARAMS = -600
OBJECT_NOT_FOUND = -704
RPC_FAIL = -900

DEADLINE_S = 10.0  # of an operation; for the largest values, too

_log = logging.getLogger("osprey.mooncake")


class ReplicateConfig:
    """Taken and ignored: the server's cluster decides on replicas."""

    def __init__(self) -> None:
        self.replica_num = 1
        self.with_soft_pin = False
        self.with_hard_pin = False
        self.preferred_segment = ""


def _number_of(error: Error) -> int:
    _log.warning("%s: %s", error.reason, error)
    if isinstance(error, NotFound):
        return OBJECT_NOT_FOUND
    if error.reason in ("empty_key", "key_too_long"):
        return INVALID_KEY
    if isinstance(error, (InvalidArgument, BufferTooSmall, BufferError)):
        return INVALID_PARAMS
    if isinstance(error, (ServerFull, LimitReached)):
        return NO_AVAILABLE_HANDLE
    if isinstance(error, (TimedOut, Unavailable, OutcomeUnknown)):
        return RPC_FAIL
    return INTERNAL_ERROR


def _written(result: int | Error) -> int:
    """As Mooncake's put: the first write of a key stays, and a later one is no error."""
    if isinstance(result, Error) and not isinstance(result, AlreadyExists):
        return _number_of(result)
    return 0


def _are_as_many(keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> bool:
    if len(keys) == len(buffer_ptrs) == len(sizes):
        return True
    _log.warning(
        "%d keys, %d pointers and %d sizes: as many as keys are needed", len(keys), len(buffer_ptrs), len(sizes)
    )
    return False


def _memory(address: int, size: int) -> Any:
    if not 0 < address < address + size <= sys.maxsize:
        error = InvalidArgument(f"{size} bytes at address {address} are no memory")
        error.reason = "bad_buffer"
        raise error
    return (ctypes.c_ubyte * size).from_address(address)


class MooncakeDistributedStore:
    """The store. All methods but setup and close may be called by several threads."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._buffers: dict[int, Buffer] = {}

    def setup(
        self,
        local_hostname: str,
        metadata_server: str = "",
        global_segment_size: int = 0,
        local_buffer_size: int = 0,
        protocol: str = "rdma",
        rdma_devices: str = "",
        master_server_addr: str = "",
        engine: object = None,
    ) -> int:
        """Connects to the Osprey server at master_server_addr: HOST:PORT with protocol "rdma", or an Osprey URI.

        The other arguments are taken and ignored. Returns 0, or a negative number.
        """
        uri = master_server_addr
        if "://" not in uri:
            if protocol != "rdma":
                _log.warning("protocol %r: Osprey has rdma, or give a URI such as shm:///NAME as master_server_addr", protocol)
                return INVALID_PARAMS
            uri = "rdma://" + uri
        if self._client is not None:
            _log.warning("setup was called already: call close first")
            return INVALID_PARAMS
        try:
            self._client = Client(uri, deadline=DEADLINE_S)
        except Error as error:
            return _number_of(error)
        return 0

    def close(self) -> int:
        """Closes the connections and unregisters all buffers. Returns 0."""
        for address in list(self._buffers):
            self.unregister_buffer(address)
        if self._client is not None:
            self._client.close()
            self._client = None
        return 0

    def _ready(self) -> Client:
        if self._client is None:
            error = InvalidArgument("the store is not set up: call setup")
            error.reason = "bad_option"
            raise error
        return self._client

    # --- Bytes

    def put(self, key: str, value: bytes | bytearray | memoryview, config: object = None) -> int:
        """Stores value, unless the key is present. Returns 0, or a negative number."""
        return self.put_batch([key], [value], config)

    def put_batch(
        self, keys: Sequence[str], values: Sequence[bytes | bytearray | memoryview], config: object = None
    ) -> int:
        """put for each key. Returns 0, or the negative number of the first that failed."""
        if len(keys) != len(values) or not all(len(value) for value in values):
            _log.warning("%d keys and %d values: as many as keys are needed, and none may be empty", len(keys), len(values))
            return INVALID_PARAMS
        try:
            results = self._ready().put_many(list(zip(keys, values)), if_absent=True)
        except Error as error:
            return _number_of(error)
        return next((number for number in map(_written, results) if number < 0), 0)

    def get(self, key: str) -> bytes:
        """The value; b"" if the key is absent, or an error."""
        return self.get_batch([key])[0]

    def get_batch(self, keys: Sequence[str]) -> list[bytes]:
        """The value of each key; b"" where it is absent, or an error."""
        try:
            results = self._ready().get_many(keys)
        except Error as error:
            _number_of(error)
            return [b""] * len(keys)
        values = []
        for result in results:
            if isinstance(result, Error):
                _number_of(result)
            values.append(b"" if result is None or isinstance(result, Error) else result.value)
        return values

    # --- Without a copy

    def get_buffer(self, key: str) -> Buffer | None:
        """The value in an osprey.Buffer of its length, which has ptr() and size(). None if the key is absent."""
        try:
            client = self._ready()
            size = self._size(key)
            while size > 0:
                buffer = client.allocate(size)
                try:
                    info = client.get_into(key, buffer)
                except BufferTooSmall as error:  # it was replaced
                    size = error.bytes_needed
                    continue
                size = 0 if info is None else info.length
                if size == len(buffer):
                    return buffer
        except Error as error:
            _number_of(error)
        return None

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Registers memory for put_from and get_into. It must stay until unregister_buffer."""
        try:
            self._buffers[buffer_ptr] = self._ready().register(_memory(buffer_ptr, size))
        except Error as error:
            return _number_of(error)
        return 0

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """Reverses register_buffer. INVALID_PARAMS for another address, or while an operation uses it."""
        buffer = self._buffers.get(buffer_ptr)
        if buffer is None:
            _log.warning("no buffer is registered at address %d", buffer_ptr)
            return INVALID_PARAMS
        try:
            buffer.release()
        except Error as error:
            return _number_of(error)
        del self._buffers[buffer_ptr]
        return 0

    def put_from(self, key: str, buffer_ptr: int, size: int, config: object = None) -> int:
        """put of registered memory. Returns 0, or a negative number."""
        return self.batch_put_from([key], [buffer_ptr], [size], config)[0]

    def batch_put_from(
        self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int], config: object = None
    ) -> list[int]:
        """put_from for each key."""
        if not _are_as_many(keys, buffer_ptrs, sizes):
            return [INVALID_PARAMS] * len(keys)
        try:
            memories = map(_memory, buffer_ptrs, sizes)
            return [_written(result) for result in self._ready().put_many_from(list(zip(keys, memories)), if_absent=True)]
        except Error as error:
            return [_number_of(error)] * len(keys)

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """Reads the value into registered memory. Returns its length, or a negative number."""
        return self.batch_get_into([key], [buffer_ptr], [size])[0]

    def batch_get_into(self, keys: Sequence[str], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """get_into for each key."""
        if not _are_as_many(keys, buffer_ptrs, sizes):
            return [INVALID_PARAMS] * len(keys)
        try:
            results = self._ready().get_many_into(list(zip(keys, map(_memory, buffer_ptrs, sizes))))
        except Error as error:
            return [_number_of(error)] * len(keys)
        lengths = []
        for result in results:
            if result is None:
                lengths.append(OBJECT_NOT_FOUND)
            else:
                lengths.append(_number_of(result) if isinstance(result, Error) else result.length)
        return lengths

    # --- Keys

    def is_exist(self, key: str) -> int:
        """1 if the key is present, 0 if not, or a negative number."""
        try:
            return int(self._ready().exists(key))
        except Error as error:
            return _number_of(error)

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        """is_exist for each key."""
        return [self.is_exist(key) for key in keys]

    def remove(self, key: str, force: bool = False) -> int:
        """Deletes the key. Returns 0, or a negative number: OBJECT_NOT_FOUND if it is absent."""
        try:
            return OBJECT_NOT_FOUND if self._ready().delete(key) is None else 0
        except Error as error:
            return _number_of(error)

    def _size(self, key: str) -> int:
        """0 if the key is absent. Long values are not read: one byte is too small for them."""
        client = self._ready()
        with client.allocate(1) as room:
            try:
                info = client.get_into(key, room)
            except BufferTooSmall as error:
                return error.bytes_needed
        return 0 if info is None else info.length

    def get_size(self, key: str) -> int:
        """The length of the value, or a negative number."""
        try:
            return self._size(key) or OBJECT_NOT_FOUND
        except Error as error:
            return _number_of(error)
