#!/usr/bin/python3 -IB
"""The disk with a volatile cache, as QEMU speaks to it. Prints a line a case."""

import pathlib
import random
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import volatile_disk  # pylint: disable=wrong-import-position

SECTOR = volatile_disk.SECTOR_BYTES
DISK_BYTES = 64 * SECTOR
READ, WRITE, DISC, FLUSH = range(4)
EINVAL = 22


def keeps_all():
    return _Shares(1)


def loses_all():
    return _Shares(0)


class _Shares(random.Random):
    """The share of what is kept is this one; nothing is torn."""

    def __new__(cls, _):
        return super().__new__(cls)

    def __init__(self, share):
        super().__init__(1)
        self._share = share

    def choice(self, options):
        return self._share if len(options) == 3 else super().choice(options)

    def random(self):
        return 0.5


class Client:
    """What QEMU does."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(path))
        assert self._take(18) == b"NBDMAGICIHAVEOPT" + struct.pack(">H", 1)
        self._socket.sendall(struct.pack(">I", 1))
        self._option(8)  # structured replies
        assert self._reply()[1] == 0x80000001
        self._option(7, struct.pack(">IH", 0, 0))
        _, kind, data = self._reply()
        assert kind == 3
        self.bytes, self.flags = struct.unpack(">2xQH", data)
        assert self._reply()[1] == 1

    def _option(self, option, data=b""):
        self._socket.sendall(b"IHAVEOPT" + struct.pack(">II", option, len(data)) + data)

    def _reply(self):
        magic, option, kind, length = struct.unpack(">QIII", self._take(20))
        assert magic == 0x3E889045565A9
        return option, kind, self._take(length)

    def _take(self, count):
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, "the server closed"
            data += more
        return data

    def send(self, kind, offset=0, count=0, data=b"", flags=0):
        self._socket.sendall(struct.pack(">IHH8sQI", 0x25609513, flags, kind, b"handle.."[:8], offset, count) + data)

    def ask(self, kind, offset=0, count=0, data=b"", flags=0):
        """Returns (error, what was read)."""
        self.send(kind, offset, count, data, flags)
        magic, error, handle = struct.unpack(">II8s", self._take(16))
        assert (magic, handle) == (0x67446698, b"handle..")
        return error, self._take(count) if kind == READ and error == 0 else b""

    def write(self, sector, text, sectors=1):
        data = text.encode() * (SECTOR * sectors)
        assert self.ask(WRITE, sector * SECTOR, len(data), data) == (0, b"")

    def read(self, sector, sectors=1):
        """The letters of the sectors, one each."""
        error, data = self.ask(READ, sector * SECTOR, sectors * SECTOR)
        assert error == 0
        letters = ""
        for at in range(0, len(data), SECTOR):
            letter = data[at:at + 1]
            assert data[at:at + SECTOR] == letter * SECTOR, "a sector is torn"
            letters += "-" if letter == b"\0" else letter.decode()
        return letters

    def flush(self):
        assert self.ask(FLUSH) == (0, b"")

    def close(self):
        self._socket.close()


class Bench:
    """A disk of zeros, and a client of it."""

    def __init__(self, dice, **named):
        self._directory = tempfile.TemporaryDirectory()
        directory = pathlib.Path(self._directory.name)
        self.medium = directory / "medium"
        self.medium.write_bytes(bytes(DISK_BYTES))
        self.path = directory / "socket"
        self.disk = volatile_disk.VolatileDisk(self.medium, self.path, dice, **named)
        self.client = Client(self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.disk.close()
        self._directory.cleanup()


def what_was_written_is_read_at_once_and_reaches_the_medium_by_a_flush():
    with Bench(loses_all()) as bench:
        assert bench.client.bytes == DISK_BYTES and bench.client.flags & 4
        bench.client.write(3, "a", 2)
        assert bench.client.read(2, 4) == "-aa-"
        assert bench.medium.read_bytes() == bytes(DISK_BYTES)
        bench.client.flush()
        assert bench.medium.read_bytes()[3 * SECTOR:5 * SECTOR] == b"a" * 2 * SECTOR


def what_was_flushed_is_there_after_a_power_loss_and_the_rest_may_be_lost():
    with Bench(loses_all()) as bench:
        bench.client.write(0, "a", 4)
        bench.client.flush()
        bench.client.write(1, "b", 2)
        bench.disk.cut_power()
        bench.disk.power_on()
        assert bench.client.read(0, 4) == "aaaa"
        assert (bench.disk.sectors_kept, bench.disk.sectors_lost, bench.disk.flushes) == (0, 2, 1)


def what_was_not_flushed_may_be_kept():
    with Bench(keeps_all()) as bench:
        bench.client.write(1, "b", 2)
        bench.client.write(2, "c")
        bench.disk.cut_power()
        bench.disk.power_on()
        assert bench.client.read(0, 4) == "-bc-"


def a_later_write_may_be_kept_without_an_earlier_one_and_a_part_of_one():
    seen = set()
    for seed in range(60):
        with Bench(random.Random(seed)) as bench:
            bench.client.write(0, "a", 2)
            bench.client.write(2, "b", 2)
            bench.disk.cut_power()
            bench.disk.power_on()
            seen.add(bench.client.read(0, 4))
    assert {"aabb", "----", "--bb", "aa--"} <= seen, seen
    assert seen & {"a---", "-a--", "a-bb", "-abb"}, seen


def nothing_is_written_without_power():
    with Bench(keeps_all()) as bench:
        bench.disk.cut_power()
        bench.client.write(0, "a")
        bench.client.flush()
        assert bench.client.read(0) == "-"
        bench.disk.power_on()
        assert bench.client.read(0) == "-"
        bench.client.write(0, "b")
        assert bench.client.read(0) == "b"


def the_power_is_lost_at_a_write_which_is_not_flushed():
    with Bench(keeps_all()) as bench:
        cut_at = []
        cutter = threading.Thread(target=bench.disk.cut_power_at_write, args=(2, 60, lambda: cut_at.append(written)))
        written = 0
        cutter.start()
        while not bench.disk.waits_for_a_write():
            time.sleep(0.001)
        while cutter.is_alive() and written < 1000:
            written += 1
            bench.client.write(written % 4, chr(ord("a") + written % 26))
            cutter.join(0.01)
        cutter.join(60)
        assert not cutter.is_alive() and cut_at == [2] and bench.disk.losses == 1, (cut_at, bench.disk.losses)
        before = bench.client.read(0, 4)
        bench.client.write(0, "Z")
        assert bench.client.read(0, 4) == before


def the_power_is_lost_in_time_without_a_write():
    with Bench(keeps_all()) as bench:
        cut_at = []
        bench.disk.cut_power_at_write(1, 0.01, lambda: cut_at.append(0))
        bench.client.write(0, "a")
        assert cut_at == [0] and bench.client.read(0) == "-" and bench.disk.losses == 0
        bench.disk.power_on()
        bench.client.write(0, "b")
        assert bench.client.read(0) == "b" and cut_at == [0]


def a_disk_that_ignores_flushes_loses_what_it_was_told_to_keep():
    with Bench(loses_all(), ignores_flushes=True) as bench:
        bench.client.write(0, "a")
        bench.client.flush()
        bench.disk.cut_power()
        bench.disk.power_on()
        assert bench.client.read(0) == "-"


def requests_that_are_none_are_refused_and_the_next_ones_answered():
    with Bench(keeps_all()) as bench:
        for refused in ((READ, DISK_BYTES, SECTOR), (READ, 1, SECTOR), (READ, 0, 7), (9, 0, 0)):
            assert bench.client.ask(*refused)[0] == EINVAL, refused
        assert bench.client.ask(WRITE, DISK_BYTES - SECTOR, 2 * SECTOR, bytes(2 * SECTOR))[0] == EINVAL
        assert bench.client.ask(WRITE, 0, SECTOR, bytes(SECTOR), flags=1)[0] == EINVAL  # FUA, which is not offered
        bench.client.write(0, "a")
        assert bench.client.read(0) == "a"


def a_client_that_leaves_in_the_middle_of_a_request_does_not_end_the_disk():
    with Bench(keeps_all()) as bench:
        bench.client.write(0, "a")
        bench.client.send(WRITE, SECTOR, SECTOR, b"half")
        bench.client.close()
        for wrong in (b"\xff" * 64, struct.pack(">I", 1) + b"IHAVEOPT" + struct.pack(">II", 7, 1 << 30)):
            with socket.socket(socket.AF_UNIX) as nonsense:
                nonsense.connect(str(bench.path))
                nonsense.sendall(wrong)
        bench.client = Client(bench.path)
        assert bench.client.read(0, 2) == "a-"
        bench.client.send(DISC)
        bench.client.close()
        bench.client = Client(bench.path)
        bench.client.send(READ, 0, 1 << 31)  # longer than any
        bench.client.close()
        bench.client = Client(bench.path)
        assert bench.client.read(0) == "a"


def main():
    failed = 0
    cases = [case for case in list(globals().values()) if callable(case) and getattr(case, "__module__", "") == "__main__"
             and not isinstance(case, type) and case.__name__ not in ("main", "keeps_all", "loses_all")]
    for case in cases:
        sentence = "a disk with a volatile cache: " + case.__name__.replace("_", " ")
        try:
            case()
            print(f"ok - {sentence}")
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc(file=sys.stdout)
            print(f"not ok - {sentence}")
            failed += 1
    sys.exit(1 if failed else 0)


main()
