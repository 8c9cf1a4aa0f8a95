"""Buffers: values without a copy, and what keeps the memory."""

import gc
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from conftest import waiting

import osprey

URI = os.environ["OSPREY_URI"]
SERVER = int(os.environ["OSPREY_SERVER_PID"])
# A leak in each is more than what caches of the interpreter keep.
LEAK_ROUNDS = 400


@pytest.mark.parametrize("length", [0, 1, 5000, 100_000, 3_000_000])
def test_a_value_goes_through_buffers(client, length):
    source, target = client.allocate(length + 10), client.allocate(length + 10)
    assert source.zero_copy
    array = np.frombuffer(source, np.uint8)
    assert not array.any()
    array[:] = np.arange(len(array), dtype=np.uint8)
    version = client.put_from("k", array[10:], if_absent=True)
    memoryview(target)[:3] = b"abc"
    info = client.get_into("k", memoryview(target)[3 : 3 + length])
    assert (info.length, info.version, info.ttl) == (length, version, None)
    assert bytes(target)[: 3 + length] == b"abc" + array[10:].tobytes()
    assert bytes(target)[3 + length :] == bytes(7)
    assert client.get("k").value == array[10:].tobytes()
    assert client.get_into("absent", target) is None


@pytest.mark.parametrize("length", [100, 200_000])
def test_a_value_that_does_not_fit(client, length):
    buffer = client.allocate(length + 100)
    client.put("k", bytes(length))
    memoryview(buffer)[:] = b"x" * len(buffer)
    with pytest.raises(osprey.BufferTooSmall) as caught:
        client.get_into("k", memoryview(buffer)[: length - 1])
    assert caught.value.bytes_needed == length
    assert bytes(buffer)[length - 1 :] == b"x" * 101


def test_conditions_hold_for_buffers(client):
    buffer = client.allocate(5)
    version = client.put_from("k", buffer, ttl=100)
    assert client.ttl("k") > 0
    with pytest.raises(osprey.AlreadyExists):
        client.put_from("k", buffer, if_absent=True)
    with pytest.raises(osprey.VersionMismatch):
        client.put_from("k", buffer, if_version=version - 1)
    assert client.put_from("k", buffer, if_version=version) > version


def test_many_have_a_result_each(client):
    count, size = 600, 200  # more than are in flight at once
    buffer, other = client.allocate(count * size), client.allocate(size)
    rows = np.frombuffer(buffer, np.uint8).reshape(count, size)
    rows[:] = np.arange(count, dtype=np.uint8)[:, None]
    versions = client.put_many_from((f"k{i}", rows[i]) for i in range(count))
    assert all(isinstance(version, int) for version in versions)
    assert [found.value for found in client.get_many([f"k{i}" for i in range(count)])] == [row.tobytes() for row in rows]
    rows[:] = 0
    results = client.get_many_into([*((f"k{i}", rows[i]) for i in range(count)), ("absent", other), ("k1", memoryview(other)[1:])])
    assert [result.version for result in results[:count]] == versions
    assert (rows == np.arange(count, dtype=np.uint8)[:, None]).all()
    assert results[count] is None
    assert isinstance(results[count + 1], osprey.BufferTooSmall)
    assert client.get_many_into({}) == []
    (again,) = client.put_many_from({"k0": other}, if_absent=True)
    assert isinstance(again, osprey.AlreadyExists)


def test_a_buffer_in_use_is_not_released(client):
    buffer = client.allocate(1000)
    array = np.frombuffer(buffer, np.float32)
    with pytest.raises(osprey.BufferInUse, match="delete the arrays") as caught:
        buffer.release()
    assert isinstance(caught.value, BufferError)
    array[0] = 5  # still there
    del array
    buffer.release()
    buffer.release()
    assert buffer.released
    for use in (lambda: client.put_from("k", buffer), lambda: client.get_into("k", buffer)):
        with pytest.raises(osprey.InvalidArgument, match="released"):
            use()
    with pytest.raises(BufferError, match="released"):
        memoryview(buffer)
    with client.allocate(5) as inner:
        client.put_from("k", inner)
    assert inner.released


def test_a_view_keeps_the_memory(client):
    array = np.frombuffer(client.allocate(3_000_000), np.uint8)
    gc.collect()
    client.close()
    array[:] = 1  # neither the client nor the Buffer is needed
    assert array.sum() == 3_000_000


@pytest.mark.parametrize("is_used", [False, True])
def test_a_close_ends_the_connection_whose_buffer_lives(client, is_used):
    def connections():
        return int(client.stats()["connections"])

    def await_one():  # the server closes its end later
        end = time.monotonic() + 60
        while connections() > 1:
            time.sleep(0.01)
            assert time.monotonic() < end

    await_one()
    other = osprey.Client(URI, connect_timeout=60, deadline=60)
    buffer = other.allocate(100)
    assert connections() == 2
    if is_used:
        with waiting(SERVER, lambda: other.put_from("k", buffer), lambda: buffer.views):
            other.close()
        assert client.get("k").value == bytes(100)
    else:
        other.close()
    assert other.connections == 0
    await_one()
    assert bytes(buffer) == bytes(100)


def test_an_operation_keeps_the_buffer(client):
    """While put_from waits in another thread, neither release nor the last reference ends it."""
    buffer, failures = client.allocate(100_000), []

    def put():
        try:
            client.put_from("k", buffer)
        except BaseException as error:
            failures.append(error)

    os.kill(SERVER, signal.SIGSTOP)
    try:
        thread = threading.Thread(target=put)
        thread.start()
        end = time.monotonic() + 60
        while buffer.views == 0:
            assert time.monotonic() < end
        with pytest.raises(osprey.BufferInUse):
            buffer.release()
    finally:
        os.kill(SERVER, signal.SIGCONT)
    thread.join()
    assert failures == []
    assert buffer.views == 0
    buffer.release()


@pytest.mark.parametrize("many", [False, True])
def test_an_operation_uses_the_buffer_of_registered_memory(client, many):
    memory = bytearray(1000)
    buffer = client.register(memory)
    put = (lambda: client.put_many_from({"k": memory})) if many else (lambda: client.put_from("k", memory))
    with waiting(SERVER, put, lambda: buffer.views):
        with pytest.raises(osprey.BufferInUse):
            buffer.release()
    assert client.get("k").value == memory
    buffer.release()


def test_registered_memory(client):
    memory = bytearray(b"saturn" * 20_000)
    buffer = client.register(memory)
    assert buffer.zero_copy == URI.startswith("rdma://")
    client.put_from("k", buffer)
    assert client.get("k").value == memory
    with pytest.raises(osprey.InvalidArgument, match="already"):
        client.register(memoryview(memory)[5:10])
    with pytest.raises(BufferError):
        memory.clear()  # it cannot move
    client.put("k", b"mars")
    assert client.get_into("k", memoryview(memory)[6:12]).length == 4
    assert memory.startswith(b"saturnmars")
    assert client.get_into("absent", buffer) is None
    with pytest.raises(osprey.BufferTooSmall) as caught:
        client.get_into("k", memoryview(memory)[:3])
    assert caught.value.bytes_needed == 4
    assert client.put_many_from({"many": memory, "part": memoryview(memory)[:2]})
    assert client.get("part").value == b"sa"
    buffer.release()
    memory.clear()
    array = np.zeros(100, np.float32)
    with client.register(array) as buffer:
        client.put_from("array", array)
        array[:] = 1
        client.get_into("array", array)
    assert not array.any()


def test_hostile_buffers(client):
    buffer = client.allocate(100)
    for use in (client.get_into, client.put_from):
        with pytest.raises(osprey.InvalidArgument, match="allocate"):
            use("k", bytearray(5))
        with pytest.raises(TypeError):
            use("k", 5)
        with pytest.raises((BufferError, ValueError)):
            use("k", np.frombuffer(buffer, np.uint8)[::2])
    with pytest.raises((BufferError, TypeError)):
        client.get_into("k", b"read-only")
    with pytest.raises((BufferError, TypeError)):
        client.register(b"read-only")
    for wrong in (0, -1, 2**63, "5"):
        with pytest.raises((osprey.Error, TypeError)):
            client.allocate(wrong)
    with pytest.raises(osprey.Error):
        client.allocate(2**60)
    with pytest.raises(TypeError, match="tuples"):
        client.get_many_into(["ab"])
    with osprey.Client(URI, connect_timeout=60) as stranger:
        with pytest.raises(osprey.InvalidArgument, match="this Client"):
            stranger.get_into("k", buffer)
    with pytest.raises(TypeError):
        osprey.Buffer()
    client.close()
    with pytest.raises(osprey.Closed):
        client.get_into("k", buffer)


def test_each_thread_has_its_buffers(client):
    failures = []

    def work(number):
        try:
            buffer = client.allocate(70_000)
            for i in range(50):
                memoryview(buffer)[:] = bytes([number * 50 + i]) * 70_000
                client.put_from(f"t{number}", buffer)
                client.get_into(f"t{number}", buffer)
                assert bytes(buffer) == bytes([number * 50 + i]) * 70_000
                shared.append(client.get_into("shared", memoryview(common)[number * 10 : number * 10 + 10]))
        except BaseException as error:
            failures.append(error)

    client.put("shared", b"0123456789")
    common, shared = client.allocate(40), []
    running = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert failures == []
    assert len(shared) == 200
    assert bytes(common) == b"0123456789" * 4


def test_a_buffer_outlives_its_connection(client, interrupted):
    """Ctrl-C closes the connection that registered it; the next operation works all the same."""
    buffer = client.allocate(100_000)
    client.put_from("k", buffer)
    os.kill(SERVER, signal.SIGSTOP)
    try:
        with interrupted():
            client.put_from("k", buffer)
    finally:
        os.kill(SERVER, signal.SIGCONT)
    memoryview(buffer)[:] = b"x" * 100_000
    client.put_from("k", buffer)
    assert client.get("k").value == b"x" * 100_000
    client.put("k", b"y" * 100_000)
    client.get_into("k", buffer)
    assert bytes(buffer) == b"y" * 100_000
    buffer.release()


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_released_memory_is_given_back(client):
    def work(rounds):
        for _ in range(rounds):
            buffer = client.allocate(8 << 20)
            memoryview(buffer)[:] = b"x" * len(buffer)
            client.put_from("k", buffer)
            del buffer
            client.register(bytearray(1 << 20))

    work(2)
    before = resident()
    work(20)
    assert resident() - before < 64 << 20


def test_buffers_do_not_leak_objects(client):
    buffer, key = client.allocate(1000), b"key" * 5

    def work():
        for _ in range(LEAK_ROUNDS):
            client.put_from(key, buffer)
            client.get_into(key, memoryview(buffer)[:])
            client.get_many_into([(key, buffer), ("absent", buffer)])
            with pytest.raises(osprey.BufferTooSmall):
                client.get_into(key, memoryview(buffer)[:5])
            client.allocate(10)

    work()
    gc.collect()
    blocks, references = sys.getallocatedblocks(), [sys.getrefcount(it) for it in (key, buffer, None)]
    work()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < LEAK_ROUNDS / 2
    for before, it in zip(references, (key, buffer, None)):
        assert abs(sys.getrefcount(it) - before) < LEAK_ROUNDS / 2
    buffer.release()
