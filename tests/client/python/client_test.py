"""The operations of osprey.Client, and what wrong arguments raise."""

import asyncio
import gc
import math
import os
import subprocess
import sys
import time

import pytest

import osprey
import osprey.aio
from osprey import _core, _errors

# A leak in each is more than what caches of the interpreter keep.
LEAK_ROUNDS = 400


def test_a_value_comes_back_with_its_version(client):
    version = client.put("planet", b"saturn", ttl=100)
    found = client.get(b"planet")
    assert (found.value, found.version) == (b"saturn", version)
    assert 0 < found.ttl <= 101
    assert bytes(found) == b"saturn"


def test_bytes_like_keys_and_values(client):
    client.put(bytearray(b"k"), memoryview(b"xvalue")[1:])
    assert client.get(memoryview(b"k")).value == b"value"
    client.put("schlüssel", b"\0" * 100_000)
    assert client.get("schlüssel".encode()).value == b"\0" * 100_000


def test_an_absent_key_gives_the_default(client):
    assert client.get("absent") is None
    assert client.get("absent", b"else") == b"else"
    assert client.delete("absent") is None
    assert client.exists("absent") is False
    with pytest.raises(osprey.NotFound):
        client.ttl("absent")


def test_conditions(client):
    version = client.put("k", b"1", if_absent=True)
    with pytest.raises(osprey.AlreadyExists) as caught:
        client.put("k", b"2", if_absent=True)
    assert caught.value.reason == "present"
    assert caught.value.maybe_applied is False
    newer = client.put("k", b"2", if_version=version)
    for call in (
        lambda: client.put("k", b"3", if_version=version),
        lambda: client.delete("k", if_version=version),
        lambda: client.append("k", b"3", if_version=version),
        lambda: client.incr("k", if_version=version),
        lambda: client.expire("k", 5, if_version=version),
    ):
        with pytest.raises(osprey.VersionMismatch):
            call()
    assert client.get("k").value == b"2"
    assert client.delete("k", if_version=newer) > newer
    with pytest.raises(osprey.NotFound):
        client.delete("k", if_version=newer)


def test_numbers_and_appends(client):
    assert int(client.incr("n")) == 1
    assert client.incr("n", -5).value == -4
    client.put("n", str(2**63 - 1).encode())
    with pytest.raises(osprey.Overflow):
        client.incr("n")
    client.put("n", b"x")
    with pytest.raises(osprey.NotANumber):
        client.incr("n")
    client.append("n", b"y")
    assert client.get("n").value == b"xy"


def test_times_to_live(client):
    version = client.put("k", b"")
    assert client.ttl("k") is None
    assert client.expire("k", 50.5) == version
    assert 0 < client.ttl("k") <= 51
    for endless in (None, float("inf")):
        assert client.expire("k", endless) == version
        assert client.ttl("k") is None
    client.put("k", b"", ttl=1e-30)  # not rounded to "no end"
    end = time.monotonic() + 60
    while client.get("k") is not None:
        assert time.monotonic() < end


def test_many_keys_have_a_result_each(client):
    count = 1000  # more than are in flight at once
    versions = client.put_many({f"k{i}": b"%d" % i for i in range(count)})
    assert all(isinstance(version, int) for version in versions)
    found = client.get_many([*(f"k{i}" for i in range(count)), "absent", b""])
    assert [value.value for value in found[:count]] == [b"%d" % i for i in range(count)]
    assert [value.version for value in found[:count]] == versions
    assert found[count] is None
    assert isinstance(found[count + 1], osprey.InvalidArgument)
    again = client.put_many([("k0", b"x"), ("new", b"y")], if_absent=True)
    assert isinstance(again[0], osprey.AlreadyExists)
    assert isinstance(again[1], int)
    deleted = client.delete_many(["k0", "absent"])
    assert isinstance(deleted[0], int)
    assert deleted[1] is None
    assert client.get_many([]) == []


def test_scan_count_and_stats(client):
    client.put_many([(f"a{i}", b"%d" % i) for i in range(25)])
    client.put("b", b"x")
    items = list(client.scan("a", values=True, page=4))
    assert {item.key: item.value for item in items} == {b"a%d" % i: b"%d" % i for i in range(25)}
    assert all(item.value is None for item in client.scan())
    assert client.count() == 26
    stats = client.stats()
    assert stats and all("=" not in name for name in stats)


def test_use_after_close():
    client = osprey.Client(os.environ["OSPREY_URI"])
    client.close()
    client.close()
    for call in (lambda: client.get("k"), lambda: client.put("k", b""), lambda: client.stats(), lambda: list(client.scan())):
        with pytest.raises(osprey.Closed):
            call()


@pytest.mark.parametrize("key", [None, 5, ["k"], memoryview(b"abcd")[::2], "\ud800"])
def test_hostile_keys(client, key):
    for call in (client.get, client.exists, client.delete, client.incr, client.ttl, lambda k: client.put(k, b"")):
        with pytest.raises((TypeError, BufferError, UnicodeEncodeError)):
            call(key)


def test_hostile_arguments(client):
    for wrong in (0, -1, math.nan, math.inf, 61, -math.inf):
        with pytest.raises(osprey.InvalidArgument, match="deadline"):
            client.get("k", deadline=wrong)
    for wrong in (0, -1, math.nan, 1e30):
        with pytest.raises(osprey.InvalidArgument):
            client.put("k", b"", ttl=wrong)
        with pytest.raises(osprey.InvalidArgument):
            client.expire("k", wrong)
    for wrong in (0, -1, 2**48, 2**64):
        with pytest.raises(osprey.Error):
            client.put("k", b"", if_version=wrong)
    for wrong in ("1", True, b"1"):
        with pytest.raises(TypeError, match="deadline"):
            client.get("k", deadline=wrong)
    with pytest.raises(TypeError, match="encode"):
        client.put("k", "text")
    with pytest.raises(TypeError, match=r"\[key\]"):
        client.get_many("key")
    with pytest.raises(TypeError, match="tuples"):
        client.put_many(["ab"])
    with pytest.raises(osprey.InvalidArgument):
        client.get(b"")
    with pytest.raises(osprey.InvalidArgument):
        client.put("k" * 100_000, b"")
    with pytest.raises(osprey.InvalidArgument):
        client.scan_page("no cursor")
    with pytest.raises(TypeError):
        client.incr("k", 2**63)
    assert client.get("k") is None


def test_addresses_that_are_none():
    with pytest.raises(osprey.InvalidArgument, match="shm://") as wrong:
        osprey.Client("http://there")
    assert wrong.value.reason == "bad_address"
    with pytest.raises(osprey.InvalidArgument):
        osprey.Client(os.environ["OSPREY_URI"], connections_max=0)
    with pytest.raises(osprey.Unavailable) as caught:
        osprey.Client("shm:///osprey-no-such-server", connect_timeout=0.1)
    assert caught.value.reason == "no_listener"


INSTANCES_WITHOUT_INIT = """if True:
    import copy, os, osprey
    from osprey import _core

    class Derived(osprey.Buffer):
        pass

    def attempts(client):
        number = client.incr("n")
        (item,) = client.scan("n")
        for made in (osprey.Buffer, osprey.Number, osprey.Item, Derived, _core.Span):
            yield lambda: made.__new__(made)
            yield lambda: made.__mro__[-2].__new__(made)
            yield made
        yield lambda: copy.copy(number)
        yield lambda: copy.copy(item)
        bare = osprey.Client.__new__(osprey.Client)
        for use in (bare.close, lambda: bare.put("k", b""), lambda: bare.get("k"), lambda: bare.connections, lambda: bare.allocate(5)):
            yield use
        bare = _core.AsyncClient.__new__(_core.AsyncClient)
        for use in (bare.poll, bare.close, lambda: bare.in_flight, lambda: bare.span("k", bytearray(5), True)):
            yield use
        for other in (None, number):
            yield lambda: osprey.Client.close(other)
            yield lambda: osprey.Client.get(other, "k")

    with osprey.Client(os.environ["OSPREY_URI"], connect_timeout=60, deadline=60) as client:
        for attempt in attempts(client):
            try:
                print(attempt())
            except TypeError:
                pass
"""


def test_instances_without_init_are_refused(client):
    ended = subprocess.run([sys.executable, "-c", INSTANCES_WITHOUT_INIT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


@pytest.mark.parametrize("wrong", [{"uri": 5}, {"auth_key": "the secret"}, {"connections_max": "5"}, {"timeout": 5}, {"auth_key_file": 5}])
@pytest.mark.parametrize("connect", [lambda arguments: osprey.Client(**arguments), lambda arguments: asyncio.run(osprey.aio.Client(**arguments).connect())])
def test_no_message_has_the_key_of_authentication(connect, wrong):
    arguments = {"uri": os.environ["OSPREY_URI"], "auth_key": b"the secret" * 4, **wrong}
    with pytest.raises(TypeError) as caught:
        connect(arguments)
    assert "secret" not in str(caught.value)


def test_messages_with_bytes_that_are_no_text(client):
    with pytest.raises(osprey.Error, match="no-such"):
        osprey.Client(b"shm:///no-such-\xff", connect_timeout=0.1)
    with pytest.raises(osprey.InvalidArgument, match="no-such"):
        osprey.Client(os.environ["OSPREY_URI"], auth_key_file=b"/no-such-\xff")


def test_every_method_has_a_docstring():
    for name in dir(osprey.Client):
        method = getattr(osprey.Client, name)
        if callable(method) and not name.startswith("_"):
            text = method.__doc__
            if text.startswith(f"{name}("):  # pybind11's signature
                text = text.partition("\n\n")[2]
            assert len(text.split()) >= 4, name


def test_every_reason_has_a_class():
    assert set(_core.reason_names()) <= {*_errors.CLASS_OF_REASON, "null_argument", "in_callback", "out_of_memory"}
    assert len(_core.reason_names()) > 30


def test_objects_do_not_leak(client):
    key, value, text = b"key" * 5, bytes(1000), "t" * 10
    client.put(key, value)

    def work():
        for _ in range(LEAK_ROUNDS):
            client.get(key)
            client.get_many([key, text])
            client.put(bytearray(key), value)
            client.get(text, value)
            with pytest.raises(osprey.InvalidArgument):
                client.put(key, value, ttl=-1)
            list(client.scan(values=True))

    work()
    gc.collect()
    blocks, references = sys.getallocatedblocks(), [sys.getrefcount(it) for it in (key, value, text, None)]
    work()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < LEAK_ROUNDS / 2
    for before, it in zip(references, (key, value, text, None)):
        assert abs(sys.getrefcount(it) - before) < LEAK_ROUNDS / 2
