"""A binding of libosprey.so by ctypes, as one would begin it: usage: c_library.py LIBRARY SERVER-URI. Prints "ok"."""

import ctypes
import resource
import sys
from ctypes import Structure, byref, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p

OK, ABSENT, OUT_OF_MEMORY, KEY_TOO_LONG = 0, 201, 306, 102


class WriteOptions(Structure):
    _fields_ = [("size", c_size_t), ("deadline_us", c_int64), ("if_version", c_uint64), ("ttl_us", c_int64),
                ("if_absent", ctypes.c_int32), ("reserved", ctypes.c_int32)]


class Bytes(Structure):
    _fields_ = [("data", c_char_p), ("length", c_size_t)]


class Pair(Structure):
    _fields_ = [("key", Bytes), ("value", Bytes)]


Callback = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)


def load(path):
    library = ctypes.CDLL(path)
    results = {"osprey_result_code": c_int, "osprey_result_message": c_char_p, "osprey_result_data": c_void_p,
               "osprey_result_length": c_size_t, "osprey_result_version": c_uint64, "osprey_result_number": c_int64,
               "osprey_result_count": c_size_t, "osprey_error_text": c_char_p, "osprey_result_free": None}
    for name, result in results.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = [c_int if name == "osprey_error_text" else c_void_p]
    library.osprey_result_item.restype = c_void_p
    library.osprey_result_item.argtypes = [c_void_p, c_size_t]
    library.osprey_options_new.restype = c_void_p
    library.osprey_wait.argtypes = [c_void_p, c_int64]
    return library


class Error(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Client:
    def __init__(self, library, uri, options=None):
        self.library = library
        self.handle = c_void_p()
        self.call("osprey_connect", uri.encode(), options, byref(self.handle), of_client=False)

    def call(self, name, *arguments, read=None, of_client=True):
        """Calls, frees the result, raises an Error, or returns read(result)."""
        result = c_void_p()
        handle = [self.handle] if of_client else []
        code = getattr(self.library, name)(*handle, *arguments, byref(result))
        try:
            if code != OK and not read:
                raise Error(code, self.library.osprey_result_message(result).decode())
            return read(result) if read else None
        finally:
            self.library.osprey_result_free(result)

    def bytes_of(self, result):
        code = self.library.osprey_result_code(result)
        if code == ABSENT:
            return None
        if code != OK:
            raise Error(code, self.library.osprey_result_message(result).decode())
        return ctypes.string_at(self.library.osprey_result_data(result), self.library.osprey_result_length(result))

    def put(self, key, value, **options):
        write = WriteOptions(size=ctypes.sizeof(WriteOptions), **options)
        self.call("osprey_put", key, c_size_t(len(key)), value, c_size_t(len(value)), byref(write))

    def get(self, key):
        return self.call("osprey_get", key, c_size_t(len(key)), None, read=self.bytes_of)

    def multi_put(self, pairs):
        array = (Pair * len(pairs))(*[Pair(Bytes(k, len(k)), Bytes(v, len(v))) for k, v in pairs])

        def codes(result):
            items = [self.library.osprey_result_item(result, i) for i in range(self.library.osprey_result_count(result))]
            return [self.library.osprey_result_code(item) for item in items]
        return self.call("osprey_multi_put", array, c_size_t(len(pairs)), None, read=codes)

    def get_many(self, keys):
        """All in flight at once, with callbacks."""
        values = {}

        def ended(context, result):
            values[keys[context or 0]] = self.bytes_of(result)
            self.library.osprey_result_free(result)
        callback = Callback(ended)
        for i, key in enumerate(keys):
            assert self.library.osprey_start_get(self.handle, key, c_size_t(len(key)), None, callback, c_void_p(i)) == OK
        while self.library.osprey_in_flight(self.handle) > 0:
            assert self.library.osprey_wait(self.handle, 1000000) >= 0
        return values

    def close(self):
        assert self.library.osprey_close(self.handle) == OK


def fails(code, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Error as error:
        assert error.code == code and str(error), (error.code, str(error))
    else:
        raise AssertionError("no error %d" % code)


def main(path, uri):
    library = load(path)
    options = c_void_p(library.osprey_options_new())
    library.osprey_options_set_connect_timeout_us(options, c_int64(50000))
    fails(504, Client, library, "shm:///nowhere/osprey", options)
    library.osprey_options_free(options)
    options = c_void_p(library.osprey_options_new())
    library.osprey_options_set_deadline_us(options, c_int64(30000000))  # for 30 MiB on a slow machine
    client = Client(library, uri, options)
    library.osprey_options_free(options)
    binary = bytes(range(256))
    client.put(b"planet", binary)
    assert client.get(b"planet") == binary
    assert client.get(b"moon") is None
    fails(202, client.put, b"planet", b"mars", if_absent=1)
    assert b"already" in library.osprey_error_text(202)
    assert client.multi_put([(b"a", b"1"), (b"k" * 5000, b"2"), (b"c", b"3")]) == [OK, KEY_TOO_LONG, OK]
    assert client.get_many([b"a", b"b", b"c"]) == {b"a": b"1", b"b": None, b"c": b"3"}

    # A value for which this process has no memory is an error number, not the end of the process.
    length = 30 << 20
    client.put(b"long", bytes(length))
    with open("/proc/self/statm", encoding="ascii") as file:
        in_use = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + length // 2, resource.RLIM_INFINITY))
    fails(OUT_OF_MEMORY, client.get, b"long")
    fails(OUT_OF_MEMORY, client.get, b"a")
    client.close()
    print("ok")


main(*sys.argv[1:])
