"""The exceptions of osprey: one class for each kind of failure, and `reason` for the exact one."""


class Error(Exception):
    """An operation failed. The message names what is wrong and the fix.

    reason: the exact reason, such as "server_full". client/README.md has the list.
    maybe_applied: whether a write may have been applied, or may still be, once. False: never.
    bytes_needed: the value's length if a buffer was too small for it, otherwise 0.
    """

    reason: str = "other"
    maybe_applied: bool = False
    bytes_needed: int = 0


class InvalidArgument(Error, ValueError):
    """A key, value, condition, option or address is invalid. Nothing was sent."""


class NotFound(Error):
    """The key is absent, and the operation or its condition needs it."""


class AlreadyExists(Error):
    """if_absent: the key is present."""


class VersionMismatch(Error):
    """if_version: the key has another version."""


class NotANumber(Error):
    """incr: the value is no decimal number."""


class Overflow(Error, OverflowError):
    """incr: the sum leaves the range of a signed 64-bit integer."""


class StaleCursor(Error):
    """The server of the scan was restarted. Begin the scan again."""


class BufferTooSmall(Error):
    """The value does not fit; bytes_needed is its length."""


class BufferInUse(Error, BufferError):
    """A view of the Buffer, or an operation, uses it."""


class ValueChanged(Error):
    """The buffer of a put changed meanwhile. Not applied."""


class LimitReached(Error):
    """A limit of this process or this client is reached. Not started."""


class ServerFull(Error):
    """The server has no room. Not applied."""


class TimedOut(Error, TimeoutError):
    """The deadline passed."""


class Unavailable(Error, ConnectionError):
    """There is no connection to a server that serves."""


class OutcomeUnknown(Error):
    """The server that had the write is gone, or has forgotten it."""


class AuthenticationFailed(Error):
    """Client and server do not have the same key."""


class ServerIncompatible(Error):
    """The server is of another version or no Osprey server, or its answer is invalid."""


class Closed(Error):
    """The Client is closed."""


class Forked(Error):
    """The Client was made before a fork, in the parent process. Over rdma:// also: the parent had a Client at the fork."""


CLASS_OF_REASON: dict[str, type[Error]] = {
    "empty_key": InvalidArgument,
    "key_too_long": InvalidArgument,
    "value_too_long": InvalidArgument,
    "append_too_long": InvalidArgument,
    "bad_condition": InvalidArgument,
    "bad_deadline": InvalidArgument,
    "bad_option": InvalidArgument,
    "bad_buffer": InvalidArgument,
    "bad_array": InvalidArgument,
    "bad_cursor": InvalidArgument,
    "bad_auth_key": InvalidArgument,
    "bad_ttl": InvalidArgument,
    "bad_address": InvalidArgument,
    "not_rdma_address": InvalidArgument,
    "absent": NotFound,
    "present": AlreadyExists,
    "wrong_version": VersionMismatch,
    "not_a_number": NotANumber,
    "overflow": Overflow,
    "stale_cursor": StaleCursor,
    "buffer_too_small": BufferTooSmall,
    "buffer_in_use": BufferInUse,
    "value_changed": ValueChanged,
    "too_many_operations": LimitReached,
    "buffers_used_up": LimitReached,
    "lanes_taken": LimitReached,
    "memlock_too_low": LimitReached,
    "no_thread": LimitReached,
    "server_full": ServerFull,
    "versions_used_up": ServerFull,
    "chain_full": ServerFull,
    "disk_full": ServerFull,
    "deadline": TimedOut,
    "connect_timeout": TimedOut,
    "no_connection": Unavailable,
    "too_few_replicas": Unavailable,
    "no_device": Unavailable,
    "no_listener": Unavailable,
    "refused": Unavailable,
    "shutting_down": Unavailable,
    "unreachable": Unavailable,
    "peer_gone": Unavailable,
    "not_serving": Unavailable,
    "server_gone": OutcomeUnknown,
    "forgotten": OutcomeUnknown,
    "bad_server": ServerIncompatible,
    "version_mismatch": ServerIncompatible,
    "not_osprey": ServerIncompatible,
    "wrong_shard": ServerIncompatible,
    "authentication_failed": AuthenticationFailed,
    "authentication_required": AuthenticationFailed,
    "server_unproven": AuthenticationFailed,
    "closed": Closed,
    "forked": Forked,
}


def make(reason: str, message: str, maybe_applied: bool, bytes_needed: int) -> Error:
    """The exception of a reason, not raised."""
    error = CLASS_OF_REASON.get(reason, Error)(message)
    error.reason = reason
    error.maybe_applied = maybe_applied
    error.bytes_needed = bytes_needed
    return error
