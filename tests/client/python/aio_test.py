"""osprey.aio: its operations, cancellation, timeouts, and that no thread takes part."""

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest

import osprey
import osprey.aio

URI = os.environ["OSPREY_URI"]
SERVER = int(os.environ["OSPREY_SERVER_PID"])
LEAK_ROUNDS = 400


def with_client(test):
    """The test is a coroutine function of a connected Client and an empty server."""

    async def main(**fixtures):
        async with osprey.aio.Client(URI, connect_timeout=60, deadline=60) as client:
            await client.delete_many([item.key async for item in client.scan()])
            await test(client, **fixtures)

    def run(**fixtures):
        asyncio.run(main(**fixtures))

    parameters = list(inspect.signature(test).parameters.values())
    run.__signature__ = inspect.Signature(parameters[1:])
    run.__name__ = test.__name__
    return run


@contextlib.contextmanager
def stopped_server():
    os.kill(SERVER, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(SERVER, signal.SIGCONT)


@with_client
async def test_operations(client):
    version = await client.put("k", b"1", ttl=100)
    found = await client.get("k")
    assert (found.value, found.version) == (b"1", version)
    assert 0 < await client.ttl("k") <= 101
    assert await client.expire("k", None) == version
    assert await client.ttl("k") is None
    assert int(await client.incr("k", 5)) == 6
    await client.append("k", b"7")
    assert (await client.get("k")).value == b"67"
    assert await client.exists("k") is True
    assert await client.exists("absent") is False
    assert await client.get("absent") is None
    assert await client.get("absent", b"else") == b"else"
    assert await client.delete("absent") is None
    assert isinstance(await client.delete("k"), int)
    assert await client.count() == 0
    assert (await client.stats())["transport"]


@with_client
async def test_errors_are_those_of_the_blocking_client(client):
    version = await client.put("k", b"1", if_absent=True)
    for call, error in (
        (lambda: client.put("k", b"2", if_absent=True), osprey.AlreadyExists),
        (lambda: client.put("k", b"2", if_version=version + 1), osprey.VersionMismatch),
        (lambda: client.delete("absent", if_version=version), osprey.NotFound),
        (lambda: client.ttl("absent"), osprey.NotFound),
        (lambda: client.incr("absent", if_version=version), osprey.NotFound),
        (lambda: client.get(b""), osprey.InvalidArgument),
        (lambda: client.get("k", deadline=0), osprey.InvalidArgument),
        (lambda: client.get(5), TypeError),
        (lambda: client.put("k", "text"), TypeError),
        (lambda: client.get_many("key"), TypeError),
        (lambda: client.scan_page("no cursor"), osprey.InvalidArgument),
        (lambda: client.get_into("k", bytearray(5)), osprey.InvalidArgument),
    ):
        with pytest.raises(error):
            await call()
    await client.put("k", b"x")
    with pytest.raises(osprey.NotANumber):
        await client.incr("k")


@with_client
async def test_more_tasks_than_operations_at_once(client):
    """Those above the limit start when others end."""
    count = 3000
    versions = await asyncio.gather(*(client.put(f"k{i}", b"%d" % i) for i in range(count)))
    found = await asyncio.gather(*(client.get(f"k{i}") for i in range(count)))
    assert [value.value for value in found] == [b"%d" % i for i in range(count)]
    assert [value.version for value in found] == versions
    many = await client.get_many(f"k{i}" for i in range(count))
    assert [value.version for value in many] == versions
    assert {item.key async for item in client.scan("k1")} == {b"k%d" % i for i in range(count) if str(i)[0] == "1"}
    results = await client.put_many([("k0", b"x"), ("new", b"y")], if_absent=True)
    assert isinstance(results[0], osprey.AlreadyExists) and isinstance(results[1], int)
    assert await client.delete_many(["absent"]) == [None]


@with_client
async def test_buffers_and_arrays(client):
    count, size = 600, 100_000
    buffer = await client.allocate(size * 3)
    rows = np.frombuffer(buffer, np.uint8).reshape(3, size)
    rows[0] = 7
    await client.put_from("k", rows[0])
    info, absent = await asyncio.gather(client.get_into("k", rows[1]), client.get_into("absent", rows[2]))
    assert info.length == size and absent is None
    assert (rows[1] == 7).all()
    small = await client.allocate(count * 10)
    parts = [memoryview(small)[i * 10 : i * 10 + 10] for i in range(count)]
    assert all(isinstance(version, int) for version in await client.put_many_from((f"p{i}", parts[i]) for i in range(count)))
    results = await client.get_many_into([*((f"p{i}", parts[i]) for i in range(count)), ("k", small)])
    assert all(isinstance(result, osprey.ValueInfo) for result in results[:count])
    assert isinstance(results[count], osprey.BufferTooSmall)
    with await client.register(bytearray(b"mine")) as mine:
        await client.put_from("m", mine)
    assert (await client.get("m")).value == b"mine"
    array = await client.allocate_array((5, 6), "i8")
    array[...] = 3
    await client.put_array("a", array)
    assert await client.get_array("a", out=array) is array
    assert ((await client.get_array("a")) == 3).all()
    assert await client.get_array("absent") is None


@with_client
async def test_items_are_checked_before_one_begins(client):
    buffer = await client.allocate(10)
    await client.put("k", b"saturn")
    for begin in (client.get_many_into, client.put_many_from):
        for wrong, error in ((("k", 5), TypeError), ((5, buffer), TypeError), (("k", bytearray(5)), osprey.InvalidArgument)):
            with pytest.raises(error):
                await begin([("k", buffer), wrong])
            assert buffer.views == 0 and client._core.in_flight == 0
    assert (await client.get("k")).value == b"saturn"
    buffer.release()


@with_client
async def test_memory_is_in_use_while_its_operation_waits(client):
    memory = bytearray(1000)
    registered, allocated = await client.register(memory), await client.allocate(1000)
    with stopped_server():
        puts = [asyncio.create_task(client.put_from("k", memory))]
        puts += [asyncio.create_task(client.put(f"k{i}", b"")) for i in range(600)]  # more than are in flight at once
        puts.append(asyncio.create_task(client.put_from("late", allocated)))
        await asyncio.sleep(0.05)
        for buffer in (registered, allocated):
            with pytest.raises(osprey.BufferInUse):
                buffer.release()
    await asyncio.gather(*puts)
    registered.release()
    allocated.release()


@with_client
async def test_an_exception_as_a_result_is_made_ends_its_operation_alone(client, monkeypatch):
    def no_memory(*args):
        raise MemoryError("for a test")

    await client.put("k", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(osprey._errors, "make", no_memory)
        both = asyncio.gather(client.ttl("absent"), client.get("k"), return_exceptions=True)
        failed, found = await asyncio.wait_for(both, 60)
    assert isinstance(failed, MemoryError) and found.value == b"1"
    with pytest.raises(osprey.NotFound):
        await client.ttl("absent")


@with_client
async def test_a_poll_that_fails_is_repeated(client):
    core, failures, ended = client._core, [MemoryError("for a test")], []

    class Failing:
        def poll(self):
            ended.extend(core.poll())
            if ended and failures:
                raise failures.pop()
            returned = ended[:]
            ended.clear()
            return returned

        def __getattr__(self, name):
            return getattr(core, name)

    logged = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(context["exception"]))
    client._core = Failing()
    assert await asyncio.wait_for(client.get("absent"), 60) is None
    client._core = core
    assert [type(error) for error in logged] == [MemoryError]


@with_client
async def test_a_cancelled_task_stops_waiting_at_once(client):
    buffer = await client.allocate(100_000)
    with stopped_server():
        begin = time.monotonic()
        task = asyncio.create_task(client.put("k", b"1"))
        from_buffer = asyncio.create_task(client.put_from("b", buffer))
        await asyncio.sleep(0.05)
        assert not task.done()
        task.cancel()
        from_buffer.cancel()
        for cancelled in (task, from_buffer):
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        assert time.monotonic() - begin < 55  # not the deadline
        with pytest.raises(osprey.BufferInUse):  # the operation goes on
            buffer.release()
    end = time.monotonic() + 60
    while buffer.views:
        await asyncio.sleep(0.01)
        assert time.monotonic() < end
    buffer.release()
    assert (await client.get("k")).value == b"1"


@with_client
async def test_timeouts(client):
    with stopped_server():
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.put("k", b"1")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.incr("n"), 0.05)
        with pytest.raises(osprey.TimedOut) as caught:
            await client.put("k", b"1", deadline=0.05)
        assert caught.value.maybe_applied
        assert time.monotonic() - begin < 55


@with_client
async def test_the_loop_runs_meanwhile_and_no_thread_is_made(client):
    before, steps = threading.active_count(), 0
    with stopped_server():
        waiting = [asyncio.create_task(client.put(f"k{i}", b"", deadline=0.5)) for i in range(20)]
        while not all(task.done() for task in waiting):
            await asyncio.sleep(0.01)
            steps += 1
    assert steps > 5
    assert threading.active_count() == before
    for task in waiting:
        with pytest.raises(osprey.TimedOut):
            await task


@with_client
async def test_an_idle_client_takes_no_time(client):
    await client.put("k", b"1")
    await asyncio.sleep(0.1)
    polls, core = 0, client._core

    class Counted:
        def poll(self):
            nonlocal polls
            polls += 1
            return core.poll()

        def __getattr__(self, name):
            return getattr(core, name)

    client._core = Counted()
    await asyncio.sleep(0.5)
    client._core = core
    assert polls < 50


@with_client
async def test_what_is_late_in_the_queue_is_not_started(client):
    deadlines = [60.0] * 600 + [0.1] * 10  # more than are in flight at once, and what waits behind them
    with stopped_server():
        puts = [
            asyncio.ensure_future(client.put(f"k{i}", b"", deadline=deadline)) for i, deadline in enumerate(deadlines)
        ]
        late = await asyncio.gather(*puts[600:], return_exceptions=True)
        assert not any(put.done() for put in puts[:600]), "each ends by its own deadline"
    assert all(isinstance(result, osprey.TimedOut) for result in late)
    assert all("before the start" in str(result) and not result.maybe_applied for result in late)
    assert all(await asyncio.gather(*puts[:600]))


def test_close_ends_what_waits():
    async def main():
        client = osprey.aio.Client(URI, connect_timeout=60, deadline=60)
        with pytest.raises(osprey.Closed):
            await client.get("k")
        await client.connect()
        with pytest.raises(RuntimeError):
            await client.connect()
        buffer = await client.allocate(5)
        with stopped_server():
            waiting = [asyncio.create_task(client.put(f"k{i}", b"1")) for i in range(600)]
            await asyncio.sleep(0.05)
            await client.close()
            await client.close()
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, osprey.Closed) for result in results)
        assert {result.maybe_applied for result in results} == {True, False}
        with pytest.raises(osprey.Closed):
            await client.get("k")
        assert bytes(buffer) == bytes(5)
        buffer.release()

    asyncio.run(main())


def test_a_client_may_connect_again():
    async def main():
        client = osprey.aio.Client(URI, connect_timeout=60, deadline=60)
        for _ in range(3):
            async with client:
                await client.get("k")  # (wait_for would give the loop a turn more)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_two_connects_at_once_make_one_connection():
    async def main():
        client = osprey.aio.Client(URI, connect_timeout=60, deadline=60)
        both = await asyncio.gather(client.connect(), client.connect(), return_exceptions=True)
        assert both[0] is client and isinstance(both[1], RuntimeError)
        await client.get("k")
        await client.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_close_that_is_cancelled_ends_what_waits():
    async def main():
        client = await osprey.aio.Client(URI, connect_timeout=60, deadline=60).connect()
        with stopped_server():
            waiting = [asyncio.create_task(client.put(f"k{i}", b"1")) for i in range(600)]
            await asyncio.sleep(0.05)
            closing = asyncio.create_task(client.close())
            await asyncio.sleep(0)
            closing.cancel()
            results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
        assert all(isinstance(result, osprey.Closed) for result in results)

    asyncio.run(main())


def test_a_client_belongs_to_its_loop_and_process():
    async def main():
        client = osprey.aio.Client(URI, connect_timeout=60, deadline=60)
        await client.connect()

        def elsewhere():
            with pytest.raises(RuntimeError, match="loop"):
                asyncio.run(client.get("k"))
            ends.append(True)

        ends = []
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert ends == [True]
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    client._begin("get", "k", None)
                except osprey.Forked:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert await client.get("absent") is None
        await client.close()

    asyncio.run(main())


def test_no_server():
    async def main():
        with pytest.raises(osprey.Unavailable):
            async with osprey.aio.Client("shm:///osprey-no-such-server", connect_timeout=0.1):
                pass

    asyncio.run(main())


@with_client
async def test_objects_do_not_leak(client):
    key, value, buffer = b"key" * 5, bytes(1000), await client.allocate(1000)

    async def work():
        for _ in range(LEAK_ROUNDS):
            await client.put(key, value)
            await client.get(key)
            await client.get_many([key, "absent"])
            await client.get_into(key, buffer)
            with pytest.raises(osprey.NotFound):
                await client.ttl("absent")

    await work()
    gc.collect()
    blocks, references = sys.getallocatedblocks(), [sys.getrefcount(it) for it in (key, value, buffer, None)]
    await work()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < LEAK_ROUNDS / 2
    for before, it in zip(references, (key, value, buffer, None)):
        assert abs(sys.getrefcount(it) - before) < LEAK_ROUNDS / 2
