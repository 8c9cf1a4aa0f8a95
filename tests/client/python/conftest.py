"""What the tests share."""

import contextlib
import os
import signal
import threading
import time

import pytest

import osprey


@pytest.fixture
def client():
    with osprey.Client(os.environ["OSPREY_URI"], connect_timeout=60, deadline=60) as made:
        made.delete_many([item.key for item in made.scan()])
        yield made


@contextlib.contextmanager
def _interrupted():
    begun = threading.Event()

    def interrupt():
        begun.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        begun.set()
        yield
    thread.join()


@contextlib.contextmanager
def waiting(server, work, has_begun):
    """The block runs while `work` waits in a thread for the server, which has stopped."""
    thread = threading.Thread(target=work)
    os.kill(server, signal.SIGSTOP)
    try:
        thread.start()
        end = time.monotonic() + 60
        while not has_begun():
            time.sleep(0.001)
            assert time.monotonic() < end
        yield
    finally:
        os.kill(server, signal.SIGCONT)
        thread.join()


@pytest.fixture
def interrupted():
    """A context: Ctrl-C comes in its block, some time after its beginning, and ends it."""
    return _interrupted
