"""osprey.mooncake: the methods of Mooncake's store, and their numbers."""

import ctypes
import os
import signal

import numpy as np
import pytest

from conftest import waiting
from osprey import mooncake

URI = os.environ["OSPREY_URI"]
SERVER = int(os.environ["OSPREY_SERVER_PID"])


@pytest.fixture
def store(client):
    made = mooncake.MooncakeDistributedStore()
    assert made.setup("localhost", "http://nowhere/metadata", 512 << 20, 128 << 20, "tcp", "", URI) == 0
    yield made
    assert made.close() == 0


def test_bytes(store):
    assert store.put("k", b"first") == 0
    assert store.put("k", b"second", mooncake.ReplicateConfig()) == 0
    assert store.get("k") == b"first"  # as Mooncake
    assert store.get("absent") == b""
    assert store.put_batch(["a", "b"], [b"1", bytearray(b"2")]) == 0
    assert store.get_batch(["a", "absent", "b"]) == [b"1", b"", b"2"]
    assert store.is_exist("a") == 1
    assert store.batch_is_exist(["a", "absent"]) == [1, 0]
    assert store.get_size("k") == 5
    assert store.get_size("absent") == -704
    assert store.remove("k") == 0
    assert store.remove("k") == -704
    assert store.put("big", b"x" * 1_000_000) == 0
    assert store.get_size("big") == 1_000_000


def test_a_connector_with_registered_memory(store):
    """What a connector of a KV cache does: pages of one registered pool, by address."""
    pages, size = 300, 9000
    pool = np.zeros((pages, size), np.uint8)
    base = pool.ctypes.data
    assert store.register_buffer(base, pool.nbytes) == 0
    pool[:] = np.arange(pages, dtype=np.uint8)[:, None]
    keys, addresses = [f"page{i}" for i in range(pages)], [base + i * size for i in range(pages)]
    assert store.batch_put_from(keys, addresses, [size] * pages) == [0] * pages
    pool[:] = 0
    assert store.batch_get_into([*keys, "absent"], [*addresses, base], [size] * pages + [1]) == [size] * pages + [-704]
    assert (pool == np.arange(pages, dtype=np.uint8)[:, None]).all()
    assert store.put_from("one", addresses[7], 100) == 0
    assert store.get_into("one", addresses[0], size) == 100
    assert (pool[0, :100] == 7).all()
    assert store.get_into("one", addresses[0], 99) == -600
    assert store.unregister_buffer(base) == 0
    assert store.unregister_buffer(base) == -600
    assert store.get_into("one", base, size) == -600


def test_memory_in_use_stays_registered(store):
    memory = np.zeros(1000, np.uint8)
    base, results = memory.ctypes.data, []
    assert store.register_buffer(base, 1000) == 0
    with waiting(SERVER, lambda: results.append(store.put_from("k", base, 1000)), lambda: store._buffers[base].views):
        assert store.unregister_buffer(base) == -600
    assert results == [0]
    assert store.unregister_buffer(base) == 0


@pytest.mark.parametrize("size", [1, 100, 300_000])
def test_get_buffer(store, size):
    store.put("k", b"v" * size)
    buffer = store.get_buffer("k")
    assert buffer.size() == size
    assert bytes(memoryview(buffer)) == b"v" * size
    assert ctypes.string_at(buffer.ptr(), buffer.size()) == b"v" * size
    assert store.get_buffer("absent") is None


@pytest.mark.parametrize("size_before", [7, 500])
def test_get_buffer_of_a_key_that_is_replaced_meanwhile(store, monkeypatch, size_before):
    store.put("k", b"v" * 300)
    monkeypatch.setattr(store, "_size", lambda key: size_before)
    assert bytes(store.get_buffer("k")) == b"v" * 300


def test_errors_are_numbers(store, caplog):
    assert store.put("", b"x") == -400
    assert "empty_key" in caplog.text
    assert store.put("k" * 100_000, b"x") == -400
    assert store.put("k", b"") == -600
    assert store.put_batch(["a", "b"], [b"1"]) == -600
    assert store.batch_put_from(["a", "b"], [5], [5]) == [-600, -600]
    assert store.batch_get_into(["a"], [5], []) == [-600]
    assert store.get("") == b""
    assert store.is_exist("") == -400
    assert store.remove("") == -400
    assert store.get_size("") == -400
    assert store.get_buffer("") is None
    for wrong in ((0, 5), (-1, 5), (5, 0), (2**70, 5), (5, 2**70), (2**63 - 1, 5)):
        assert store.register_buffer(*wrong) == -600
        assert store.get_into("k", *wrong) == -600
    memory = bytearray(10)
    assert store.put_from("k", ctypes.addressof(ctypes.c_char.from_buffer(memory)), 10) == -600  # not registered
    assert store.setup("localhost", "", master_server_addr=URI) == -600  # again


def test_a_server_that_does_not_answer(store, monkeypatch):
    monkeypatch.setattr(mooncake, "DEADLINE_S", 0.2)
    hasty = mooncake.MooncakeDistributedStore()
    assert hasty.setup("localhost", "", master_server_addr=URI) == 0
    os.kill(SERVER, signal.SIGSTOP)
    try:
        assert hasty.put("k", b"1") == -900
    finally:
        os.kill(SERVER, signal.SIGCONT)
    hasty.close()


def test_without_setup(caplog):
    store = mooncake.MooncakeDistributedStore()
    assert store.setup("localhost", "http://x", 1, 1, "tcp", "", "localhost:50051") == -600
    assert "shm:///NAME" in caplog.text
    assert store.put("k", b"1") == -600
    assert store.get("k") == b""
    assert store.get_batch(["a", "b"]) == [b"", b""]
    assert store.batch_get_into(["a"], [5], [5]) == [-600]
    assert store.is_exist("k") == -600
    assert store.get_buffer("k") is None
    assert store.close() == 0
