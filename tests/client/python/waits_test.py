"""Threads, forks, and Ctrl-C in waits."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from conftest import waiting

import osprey
import osprey.aio

URI = os.environ["OSPREY_URI"]
SERVER = int(os.environ["OSPREY_SERVER_PID"])
# The waits below take 60 s unless they are interrupted. Python raises KeyboardInterrupt in either case.
ENDS_EARLY_S = 55


@pytest.fixture
def waiting_client():
    """A connected client whose server has stopped: writes wait."""
    with osprey.Client(URI, connect_timeout=60, deadline=60) as client:
        os.kill(SERVER, signal.SIGSTOP)
        try:
            yield client
        finally:
            os.kill(SERVER, signal.SIGCONT)


def start(address, *flags):
    """A server, and the address at which it listens."""
    server = subprocess.Popen([f"/proc/{SERVER}/exe", f"--listen={address}", "--memory=64MiB", *flags], stdout=subprocess.PIPE)
    ready, listens_at = server.stdout.readline().decode().split()
    assert ready == "ready"
    return server, listens_at


def stop(server):
    server.kill()
    server.wait()
    server.stdout.close()


def end(client, server):
    """The server is gone, and the client knows."""
    stop(server)
    with pytest.raises(osprey.Error):
        client.put("unknown", b"", deadline=0.2)


@contextlib.contextmanager
def own_server(*flags):
    """A server that ends with the block, or before."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        is_rdma = URI.startswith("rdma://")
        server, address = start(f"rdma://{os.environ['LAB_IP']}:0" if is_rdma else f"shm://{directory}/socket", *flags)
        try:
            yield server, address
        finally:
            stop(server)


def test_a_server_with_a_key(tmp_path):
    async def put(address, options):
        async with osprey.aio.Client(address, connect_timeout=60, deadline=60, **options) as client:
            return await client.put("k", b"")

    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef" * 2)
    key.chmod(0o600)
    with own_server(f"--auth-key-file={key}") as (_, address):
        for options in ({"auth_key": key.read_bytes()}, {"auth_key_file": str(key)}):
            with osprey.Client(address, connect_timeout=60, deadline=60, **options) as client:
                assert client.put("k", b"") < asyncio.run(put(address, options))
        for options in ({}, {"auth_key": b"another key of some 32 bytes or more"}):
            with pytest.raises(osprey.AuthenticationFailed):
                osprey.Client(address, connect_timeout=60, **options)


def test_threads_count_together():
    threads, rounds = 4, 50
    with osprey.Client(URI, connect_timeout=60, deadline=60) as client:
        client.delete("sum")
        failures = []

        def work(thread):
            try:
                for i in range(rounds):
                    client.incr("sum")
                    client.put(f"t{thread}", b"%d" % i)
                    assert client.get(f"t{thread}").value == b"%d" % i
            except BaseException as error:
                failures.append(error)

        running = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert failures == []
        assert client.get("sum").value == b"%d" % (threads * rounds)
        assert 1 <= client.connections <= threads


def own_client_gets(key, value):
    """In a forked child. Over RDMA it is refused."""
    is_rdma = URI.startswith("rdma://")
    try:
        with osprey.Client(URI, connect_timeout=60, deadline=60) as own:
            return own.get(key).value == value and not is_rdma
    except osprey.Forked as error:
        return is_rdma and "spawn" in str(error)


def spawned_child_gets(key, value):
    with osprey.Client(URI, connect_timeout=60, deadline=60) as own:
        assert own.get(key).value == value


def test_a_forked_child_must_make_its_own_client():
    client = osprey.Client(URI, connect_timeout=60, deadline=60)
    client.put("k", b"parent")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                client.get("k")
            except osprey.Forked as error:
                assert "child" in str(error)
                client.close()
                del client
                if own_client_gets("k", b"parent"):
                    status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert client.get("k").value == b"parent"  # the child has not closed it
    client.put("k", b"still")
    child = multiprocessing.get_context("spawn").Process(target=spawned_child_gets, args=("k", b"still"))
    child.start()
    child.join()
    assert child.exitcode == 0
    client.close()


def test_the_deadline_of_a_write_that_may_be_applied(waiting_client):
    with pytest.raises(osprey.TimedOut) as caught:
        waiting_client.put("late", b"", deadline=0.2)
    assert caught.value.maybe_applied is True
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("from_buffer", [False, True])
def test_the_wait_for_a_connection_counts_for_the_deadline(from_buffer):
    with osprey.Client(URI, connect_timeout=60, deadline=60, connections_max=1) as client:
        room = client.allocate(10)

        def hold():
            with pytest.raises(osprey.TimedOut):
                client.put_from("k", room, deadline=3)

        with waiting(SERVER, hold, lambda: room.views):
            begin = time.monotonic()
            with pytest.raises(osprey.TimedOut):
                if from_buffer:
                    raise client.put_many_from([("k", room)], deadline=4)[0]
                client.put("k", b"", deadline=4)
            assert time.monotonic() - begin < 6  # not 3 + 4


def in_process(program):
    """The exit status of the Python program, and what it prints."""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def test_no_thread_for_another_connection_is_an_exception():
    program = f"""if True:
        import osprey, resource, threading
        with osprey.Client({URI!r}, connect_timeout=60, deadline=60, connections_max=2) as client:
            release = threading.Event()
            for _ in range(4):  # the stacks of threads that have ended are used again
                threading.Thread(target=release.wait).start()
            room = client.allocate(10)
            thread = threading.Thread(target=lambda: client.put_from("k", room, deadline=5))
            import os, signal, time
            os.kill({SERVER}, signal.SIGSTOP)
            thread.start()
            while not room.views:
                time.sleep(0.001)
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), before[1]))
            for call in (lambda: client.get("k"), lambda: client.put("k", b"")):
                try:
                    call()
                except osprey.LimitReached as error:
                    print(error.reason)
            resource.setrlimit(resource.RLIMIT_AS, before)
            os.kill({SERVER}, signal.SIGCONT)
            release.set()
            thread.join()
            client.get("k")
    """
    try:
        assert in_process(program) == (0, "no_thread\nno_thread\n")
    finally:
        os.kill(SERVER, signal.SIGCONT)


def test_a_daemon_thread_that_waits_does_not_abort_the_end():
    program = f"""if True:
        import os, signal, threading, time, osprey
        client = osprey.Client({URI!r}, connect_timeout=60, deadline=60)

        class Slow:
            def __del__(self):
                time.sleep(0.5)  # some slices of the waits

        slow = Slow()
        os.kill({SERVER}, signal.SIGSTOP)
        threading.Thread(target=client.put, args=("k", b""), daemon=True).start()
        time.sleep(0.2)
    """
    try:
        assert in_process(program) == (0, "")
    finally:
        os.kill(SERVER, signal.SIGCONT)


def test_other_threads_run_during_a_wait(waiting_client):
    ended = threading.Event()

    def wait():
        with pytest.raises(osprey.TimedOut):
            waiting_client.put("k", b"", deadline=1)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    steps = 0
    while not ended.is_set():
        ended.wait(0.01)
        steps += 1
    thread.join()
    assert steps > 5  # with the GIL held it would be 1


def test_other_threads_run_while_a_connection_ends():
    ticks, ended = [0], threading.Event()

    def tick():
        while not ended.is_set():
            ticks[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # a thread runs until it gives the GIL away
    try:
        thread.start()
        for _ in range(20):
            client = osprey.Client(URI, connect_timeout=60, deadline=60)
            client.put("k", bytes(8 << 20))  # so that the end takes a while
            before = ticks[0]
            client.close()
            during = ticks[0] - before
            if during > 0:
                break
        assert during > 0
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        thread.join()


@pytest.mark.parametrize("name", ["put", "put_many", "get", "get_many"])
def test_ctrl_c_ends_a_wait(waiting_client, interrupted, name):
    arguments = {"put": ("k", b""), "put_many": ([("a", b""), ("b", b"")],), "get": ("k",), "get_many": (["a", "b"],)}[name]
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        client = waiting_client
        if name.startswith("get"):  # those wait for nothing but a connection
            server, address = stack.enter_context(own_server())
            client = stack.enter_context(osprey.Client(address, connect_timeout=60, deadline=60))
            end(client, server)
        with interrupted():
            getattr(client, name)(*arguments)
        assert time.monotonic() - begin < ENDS_EARLY_S


@pytest.mark.parametrize("name", ["get", "get_many"])
def test_a_get_waits_for_a_server_that_comes_back(name):
    with own_server() as (server, address), osprey.Client(address, connect_timeout=60, deadline=60) as client:
        client.put("k", b"lost")
        end(client, server)
        later = []
        timer = threading.Timer(0.3, lambda: later.extend(start(address)))  # some slices later
        timer.start()
        try:
            found = client.get("k") if name == "get" else client.get_many(["k", "j"])
        finally:
            timer.join()
            stop(later[0])
    assert found == (None if name == "get" else [None, None])


def test_ctrl_c_ends_a_connect(interrupted):
    begin = time.monotonic()
    with interrupted():
        osprey.Client("shm:///osprey-no-such-server", connect_timeout=60)
    assert time.monotonic() - begin < ENDS_EARLY_S


def test_the_client_works_after_an_interrupted_wait(interrupted):
    with osprey.Client(URI, connect_timeout=60, deadline=60) as client:
        os.kill(SERVER, signal.SIGSTOP)
        try:
            with interrupted():
                client.put("k", b"")
        finally:
            os.kill(SERVER, signal.SIGCONT)
        client.put("k", b"again")
        assert client.get("k").value == b"again"
