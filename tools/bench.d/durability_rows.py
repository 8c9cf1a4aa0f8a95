"""What tools/bench durability prints: the targets, which file system was measured, what the disk does by itself, and what was measured beside
a checkpoint."""

import contextlib
import mmap
import os
import statistics
import subprocess
import time

from processes import MeasureError

SIZES = (64, 1 << 10, 64 << 10)
IN_FLIGHT = (1, 16, 256)
IN_MEMORY = ("tmpfs", "ramfs")
READ_BYTES = 1 << 20

# Of PUTs a second, the targets of tools/BENCHMARKS.md.
ASYNC_OF_MEMORY, ASYNC_OF_REDIS = 0.8, 5  # of 64 B, 256 in flight
SYNC_OF_REDIS = 1
SYNC_OF_ASYNC = 0.5


def disk_of(directory):
    """'ext4 on /dev/vda'. MeasureError: a file system in memory."""
    run = subprocess.run(["findmnt", "--noheadings", "--output=FSTYPE,SOURCE", "--target", directory], capture_output=True, text=True,
                         check=False)
    kind, _, source = run.stdout.strip().partition(" ")
    if run.returncode != 0 or not kind:
        raise MeasureError(f"findmnt finds no file system of {directory}; give another by --directory=")
    if kind in IN_MEMORY:
        raise MeasureError(f"{directory} is in memory ({kind}); give a directory of a disk by --directory=")
    return f"{kind} on {source.strip()}"


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


def new_writes(path, size, count):
    """Mean seconds of a write of `size` bytes and its fdatasync, at the end of a new file, as a log has them. Disks that allocate storage
    only when a block is first written take longer for it."""
    data = os.urandom(size)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        began = time.monotonic()
        for number in range(count):
            os.pwrite(descriptor, data, number * size)
            os.fdatasync(descriptor)
        return (time.monotonic() - began) / count
    finally:
        os.close(descriptor)
        os.unlink(path)


@contextlib.contextmanager
def on_cpu(cpu):
    """This thread runs on that CPU. A write to a virtual disk takes twice as long on a CPU that does not have its interrupt."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def direct_read_seconds(paths):
    """As read_seconds, from the disk and not from the page cache."""
    began = time.monotonic()
    with mmap.mmap(-1, READ_BYTES) as buffer:
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
            try:
                offset = 0
                while (got := os.preadv(descriptor, [buffer], offset)) > 0:
                    offset += got
                    if got % mmap.PAGESIZE:
                        break
            finally:
                os.close(descriptor)
    return time.monotonic() - began


def read_seconds(paths):
    """Of reading the files from their first bytes to their last, one after the other."""
    began = time.monotonic()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass
    return time.monotonic() - began


def size_name(size):
    return f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"


def add_puts(found, size, in_flight, measured):
    """One round. `measured`: PUTs a second, and p50 in microseconds, by server."""
    name = f"PUTs of {size_name(size)}, {in_flight} in flight"
    rated = size == SIZES[0] and in_flight == IN_FLIGHT[-1]
    pairs = [("async", "memory", {"at_least": ASYNC_OF_MEMORY} if rated else {}),
             ("async", "Redis everysec", {"at_least": ASYNC_OF_REDIS} if rated else {}),
             ("sync", "Redis always", {"at_least": SYNC_OF_REDIS}),
             ("sync", "async", {"at_least": SYNC_OF_ASYNC} if rated else {})]
    for ours, beside, target in pairs:
        found.add(f"{name}: {ours}", "/s", measured[ours][0], beside, measured[beside][0], **target)
    for ours, beside, _ in pairs:
        found.add(f"    p50: {name}: {ours}", "us", measured[ours][1], beside, measured[beside][1])


def beside_a_checkpoint(spans, begin, end):
    """p99 of the spans (begin, end, p99) that lie in the checkpoint from `begin` to `end`, and of those that are apart from it."""
    within = [p99 for first, last, p99 in spans if first >= begin and last <= end]
    apart = [p99 for first, last, p99 in spans if last < begin or first > end]
    if not within or not apart:
        raise MeasureError(f"{len(within)} spans of PUTs were beside the checkpoint, and {len(apart)} apart from it")
    return within, apart
