"""Tensors of PyTorch: in values, in buffers without a copy, and in the worker processes of a DataLoader."""

import os

import numpy as np
import pytest
import torch

import osprey

URI = os.environ["OSPREY_URI"]
ROWS, COLUMNS = 64, 16


def test_a_tensor_goes_by_its_numpy_view(client):
    tensor = torch.arange(12.0).reshape(3, 4)
    client.put_array("t", tensor.numpy())
    out = client.allocate_array((3, 4), "f4")
    client.get_array("t", out=out)
    assert torch.equal(torch.from_numpy(out), tensor)
    client.put_array("t", tensor + 1)
    assert torch.equal(torch.from_numpy(client.get_array("t")), tensor + 1)


def test_a_bfloat16_goes_by_its_bits(client):
    tensor = torch.linspace(-1, 1, 100).to(torch.bfloat16)
    client.put_array("t", tensor.view(torch.int16).numpy())
    assert torch.equal(torch.from_numpy(client.get_array("t")).view(torch.bfloat16), tensor)


def test_a_tensor_with_a_gradient_is_refused_with_the_mend(client):
    with pytest.raises(RuntimeError, match="detach"):
        client.put_array("t", torch.ones(3, requires_grad=True))


def test_a_buffer_is_a_tensors_memory(client):
    buffer = client.allocate(4 * 100_000)
    tensor = torch.from_numpy(np.frombuffer(buffer, "f4"))
    assert tensor.data_ptr() == buffer.address
    tensor.copy_(torch.arange(100_000.0))
    client.put_from("t", buffer)
    tensor.zero_()
    assert client.get_into("t", buffer).length == len(buffer)
    assert torch.equal(tensor, torch.arange(100_000.0))
    with pytest.raises(osprey.BufferInUse):
        buffer.release()
    del tensor
    buffer.release()


def test_a_tensor_of_frombuffer_keeps_the_buffer_as_any_reference_does(client):
    tensor = torch.frombuffer(client.allocate(400), dtype=torch.float32)
    for _ in range(10):  # one would have the memory of a buffer that is gone
        memoryview(client.allocate(400))[:] = b"x" * 400
    assert not tensor.any()


def test_a_tensors_own_memory_is_registered(client):
    source, target = torch.rand(1000, 100), torch.zeros(1000, 100)
    with client.register(source.numpy()) as registered:
        client.put_from("t", registered)
    with client.register(target.numpy()) as registered:
        client.get_into("t", registered)
    assert torch.equal(source, target)


def test_rows_land_in_one_tensor(client):
    rows = torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)
    keys = [f"row{i}" for i in range(ROWS)]
    client.put_many([(key, row.numpy().tobytes()) for key, row in zip(keys, rows)])
    buffer = client.allocate(4 * rows.numel())
    batch = torch.from_numpy(np.frombuffer(buffer, "f4")).reshape(ROWS, COLUMNS)
    places = [memoryview(buffer)[4 * COLUMNS * i : 4 * COLUMNS * (i + 1)] for i in range(ROWS)]
    results = client.get_many_into(list(zip(reversed(keys), places)))
    assert all(result.length == 4 * COLUMNS for result in results)
    assert torch.equal(batch, rows.flip(0))


class StoredRows(torch.utils.data.Dataset):
    """Each worker process has a Client of its own, made when it is first asked."""

    client = None

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        if self.client is None:
            self.client = osprey.Client(URI, connect_timeout=60, deadline=60)
        return torch.from_numpy(np.frombuffer(self.client.get(f"row{index}").value, "f4").copy())


def test_the_workers_of_a_data_loader_have_their_own_clients(client):
    rows = torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)
    client.put_many([(f"row{i}", row.numpy().tobytes()) for i, row in enumerate(rows)])
    loader = torch.utils.data.DataLoader(StoredRows(), batch_size=16, num_workers=2, multiprocessing_context="spawn")
    assert torch.equal(torch.cat(list(loader)), rows)
