"""Arrays and tensors as values."""

import asyncio
import os
import struct

import numpy as np
import pytest

import osprey
import osprey.aio

SHAPES = [(), (0,), (7,), (3, 0, 2), (100, 200), (2, 1, 3, 1, 2, 1, 2, 1, 2, 1, 2, 1)]


@pytest.mark.parametrize("dtype", ["f4", "f8", ">i4", "u1", "?", "c16", "f2", "M8[ns]"])
@pytest.mark.parametrize("shape", SHAPES)
def test_arrays_come_back(client, dtype, shape):
    array = np.arange(int(np.prod(shape)), dtype="u1").astype(dtype).reshape(shape)
    copyless = client.allocate_array(shape, dtype)
    assert (copyless.shape, copyless.dtype) == (array.shape, array.dtype)
    assert not copyless.astype("u1").any()
    copyless[...] = array
    for given in (array, copyless, np.array(array, order="F")):
        client.put_array("a", given)
        back, out, direct = client.get_array("a"), np.empty(shape, dtype), client.allocate_array(shape, dtype)
        assert client.get_array("a", out=out) is out
        assert client.get_array("a", out=direct) is direct
        for found in (back, out, direct):
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()
            assert found.flags.writeable
        assert len(client.get("a").value) == 128 + array.nbytes


def test_the_header_is_as_documented(client):
    client.put_array("a", np.array([[1, 2, 3]], "<u2"), ttl=100)
    value = client.get("a").value
    assert value == struct.pack("<8s16sI4x12Q", b"OSPARR1\n", b"<u2", 2, 1, 3, *[0] * 10) + b"\1\0\2\0\3\0"
    assert client.ttl("a") > 0


def test_an_array_of_its_own_needs_no_copy(client):
    calls = []

    class Watched(osprey.Client):
        def put(self, *args, **options):
            calls.append("put")
            return super().put(*args, **options)

        def get(self, *args, **options):
            calls.append("get")
            return super().get(*args, **options)

    with Watched(os.environ["OSPREY_URI"], connect_timeout=60, deadline=60) as watched:
        array = watched.allocate_array((50, 60))
        array[...] = 1
        watched.put_array("a", array)
        watched.put_array("part", array[:5])
        assert watched.get_array("a", out=array) is array
        assert calls == []
        watched.put_array("a", array[1:])
        watched.put_array("a", array.T)
        watched.put_array("a", array.copy())
        assert calls == ["put"] * 3
        assert watched.get_array("part").shape == (5, 60)


def test_a_view_of_another_layout_is_filled_in_its_order(client):
    array = client.allocate_array((50, 60))
    stored = np.arange(3000, dtype="f4").reshape(60, 50)
    client.put_array("a", stored)
    client.get_array("a", out=array.T)
    assert (array.T == stored).all()


def test_bytes_before_an_array_in_a_buffer_stay(client):
    bytes_of_buffer = np.frombuffer(client.allocate(1000), "u1")
    bytes_of_buffer[:] = 5
    client.put_array("a", bytes_of_buffer[128:])
    assert (bytes_of_buffer == 5).all()
    assert (client.get_array("a") == 5).all()


def test_an_absent_array(client):
    assert client.get_array("absent") is None
    assert client.get_array("absent", out=np.zeros(3)) is None
    assert client.get_array("absent", out=client.allocate_array(3)) is None


def test_what_does_not_fit_is_refused(client):
    client.put_array("a", np.zeros((2, 3), "f4"))
    for wrong in (((3, 2), "f4"), ((2, 3), "i4"), ((2, 3), ">f4")):
        with pytest.raises(osprey.InvalidArgument, match="out is"):
            client.get_array("a", out=np.zeros(*wrong))
        with pytest.raises(osprey.InvalidArgument, match="out is"):
            client.get_array("a", out=client.allocate_array(*wrong))
    with pytest.raises(osprey.BufferTooSmall):
        client.get_array("a", out=client.allocate_array((1, 2), "f4"))
    for wrong in (np.array([None]), np.array(["text"]), np.zeros(2, "i4,f4"), np.zeros((1,) * 13)):
        with pytest.raises(osprey.InvalidArgument):
            client.put_array("a", wrong)
    for wrong in ("O", "U5", "i4,f4"):
        with pytest.raises(osprey.InvalidArgument):
            client.allocate_array(3, wrong)
    read_only = np.zeros((2, 3), "f4")
    read_only.flags.writeable = False
    with pytest.raises(ValueError):
        client.get_array("a", out=read_only)


def test_damaged_headers_are_refused(client):
    good = client.put_array("a", np.zeros(3, "f4")) and client.get("a").value
    for at, wrong in [(0, b"X"), (8, b"|O8\0"), (8, b"!!!"), (8, b"<f8"), (24, b"\x0d"), (24, b"\xff\xff\xff\xff"), (32, b"\xff" * 8), (32, b"\4")]:
        client.put("a", good[:at] + wrong + good[at + len(wrong) :])
        for out in (None, client.allocate_array(3, "f4")):
            with pytest.raises(osprey.InvalidArgument, match="array|header"):
                client.get_array("a", out=out)
    for wrong in (b"", good[:127], good[:-1], good + b"x"):
        client.put("a", wrong)
        with pytest.raises(osprey.InvalidArgument):
            client.get_array("a")


@pytest.mark.parametrize("dtype", [b"", b"<f4,", b"f4,f4", b"(2**70)f4", b"<f4\n", b"\xff\xfe", b"<M8[9999999999s]", b"M8[", b"<M8[1s/0]", b"4294967297f4", b"9" * 16, b"<f4\0x"])
def test_damaged_dtypes_are_refused(client, dtype):
    client.put("a", struct.pack("<8s16sI4x12Q", b"OSPARR1\n", dtype, 1, *[0] * 12))
    with pytest.raises(osprey.InvalidArgument, match="header"):
        client.get_array("a")


@pytest.mark.parametrize("extents", [(0, 2**63), (2**64 - 1, 0), (2**40, 2**40, 0), (2**61, 0)])
def test_impossible_shapes_are_refused(client, extents):
    padding = [0] * (12 - len(extents))
    client.put("a", struct.pack("<8s16sI4x12Q", b"OSPARR1\n", b"<f8", len(extents), *extents, *padding))
    for out in (None, client.allocate_array((0,), "f8")):
        with pytest.raises(osprey.InvalidArgument, match="header"):
            client.get_array("a", out=out)


def test_what_lies_behind_the_shape_is_zero(client):
    for padding, extents in ((1, [0] * 12), (0, [0, 5] + [0] * 10)):
        client.put("a", struct.pack("<8s16sII12Q", b"OSPARR1\n", b"<f8", 1, padding, *extents))
        with pytest.raises(osprey.InvalidArgument, match="header"):
            client.get_array("a")


@pytest.mark.parametrize("shape", [-1, (-1, 5), (-2, -3), 2**70, (2**40, 2**40), (2**70, 0), (1,) * 13])
def test_shapes_that_no_array_has_are_refused(client, shape):
    async def allocate():
        async with osprey.aio.Client(os.environ["OSPREY_URI"], connect_timeout=60) as asynchronous:
            await asynchronous.allocate_array(shape)

    for call in (lambda: client.allocate_array(shape), lambda: asyncio.run(allocate())):
        with pytest.raises(osprey.InvalidArgument, match="shape"):
            call()
    for wrong in (1.5, (1.5, 2), "3", None):
        with pytest.raises(TypeError):
            client.allocate_array(wrong)
