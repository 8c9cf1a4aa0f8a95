"""A client of a cluster of four shards, of which shard 2 is gone."""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest

import osprey
import osprey.aio

GONE = 2
MANY = 400  # more than may be in flight
URI = os.environ["OSPREY_URI"]


def _keys(shard_of, is_wanted, count):
    names = (f"key{i}" for i in range(100_000))
    return [key for key, _ in zip((name for name in names if is_wanted(shard_of(name))), range(count))]


def test_operations_of_asyncio_wait_for_those_of_their_shard_alone():
    async def run():
        client = await osprey.aio.Client(URI, connect_timeout=60, deadline=60).connect()
        shard_of = client._core.shard_of
        gone = _keys(shard_of, lambda shard: shard == GONE, MANY)
        live = _keys(shard_of, lambda shard: shard != GONE, MANY * 3)
        waiting = [asyncio.ensure_future(client.put(key, b"value")) for key in gone]
        waiting += [asyncio.ensure_future(client.get_many(gone[:2])), asyncio.ensure_future(client.count())]
        await asyncio.sleep(0)
        await asyncio.gather(*(client.put(key, key.encode()) for key in live))
        assert [found.value for found in await client.get_many(live[:10])] == [key.encode() for key in live[:10]]
        # Of one key, in their order, also if they wait.
        numbers = await asyncio.gather(*(client.incr("number" if shard_of("number") != GONE else "count") for _ in range(MANY)))
        assert [number.value for number in numbers] == list(range(1, MANY + 1))
        assert not any(one.done() for one in waiting)
        await client.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, osprey.Closed) for end in ends)

    asyncio.run(run())


def _gone_and_live():
    async def by_shard():
        async with osprey.aio.Client(URI, connect_timeout=60) as client:
            shard_of = client._core.shard_of
            return _keys(shard_of, lambda shard: shard == GONE, MANY), _keys(shard_of, lambda shard: shard != GONE, 5)

    return asyncio.run(by_shard())


@contextlib.contextmanager
def _buffers_of_two_connections(client, gone):
    """Two Buffers; the connection of the second is in use for 8 s."""

    def wait_for(deadline, put, *args):
        def run():
            with pytest.raises(osprey.Error):
                put(*args, deadline=deadline)

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.5)
        return thread

    first = wait_for(2, client.put, gone[0], b"")  # has a connection, so that this is another's:
    other = client.allocate(4)
    first.join()
    holder = wait_for(8, client.put_from, gone[1], other)
    yield client.allocate(4), other
    holder.join()


def test_a_buffer_whose_connection_is_in_use_fails_for_its_items_alone():
    gone, live = _gone_and_live()
    with osprey.Client(URI, connect_timeout=60, deadline=60) as client:
        with _buffers_of_two_connections(client, gone) as (own, other):
            answers = client.put_many_from([(live[0], own), (live[1], other), (live[2], own)], deadline=1)
            assert isinstance(answers[1], osprey.LimitReached) and not answers[1].maybe_applied
            assert answers[0] > 0 and answers[2] > 0
            assert client.get(live[0]).version == answers[0]


def test_a_close_between_two_connections_fails_for_the_items_of_the_second_alone():
    gone, live = _gone_and_live()
    with osprey.Client(URI, connect_timeout=60, deadline=60) as client:
        with _buffers_of_two_connections(client, gone) as (own, other):
            before = client.put(live[4], b"before")
            threading.Timer(1, client.close).start()
            answers = client.put_many_from([(live[3], own), (live[4], other)])
            with pytest.raises(osprey.Closed):
                client.put_many_from([(live[3], own)])
    assert isinstance(answers[1], osprey.Closed) and not answers[1].maybe_applied
    with osprey.Client(URI, connect_timeout=60, deadline=60) as client:
        assert client.get(live[3]).version == answers[0]
        assert client.get(live[4]).version == before


def test_keys_of_one_blocking_call_wait_for_those_of_their_shard_alone():
    gone, live = _gone_and_live()
    found = []

    def watch():
        with osprey.Client(URI, connect_timeout=60, deadline=60) as other:
            end = time.monotonic() + 50
            while len(found) < len(live) and time.monotonic() < end:
                time.sleep(0.01)
                found[:] = [value for value in other.get_many(live) if value is not None and value.value == b"from"]
        os.kill(os.getpid(), signal.SIGINT)

    with osprey.Client(URI, connect_timeout=60, deadline=60) as client:
        room = client.allocate(4)
        memoryview(room)[:] = b"from"
        watcher = threading.Thread(target=watch)
        watcher.start()
        with pytest.raises(KeyboardInterrupt):
            client.put_many_from([(key, room) for key in gone + live])
        watcher.join()
    assert len(found) == len(live)
