"""What a disk does by itself, for tools/bench durability."""

import os
import statistics
import time

READ_BYTES = 1 << 20


def synced_writes(path, size, count):
    """Median seconds of a write of `size` bytes and its fdatasync, over bytes that were written before."""
    data = os.urandom(size)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for number in range(count):
            os.pwrite(descriptor, data, number * size)
        os.fsync(descriptor)
        taken = []
        for number in range(count):
            began = time.monotonic()
            os.pwrite(descriptor, data, number * size)
            os.fdatasync(descriptor)
            taken.append(time.monotonic() - began)
        return statistics.median(taken)
    finally:
        os.close(descriptor)
        os.unlink(path)


def read_seconds(paths):
    """Of reading the files from their first bytes to their last, one after the other."""
    began = time.monotonic()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass
    return time.monotonic() - began
