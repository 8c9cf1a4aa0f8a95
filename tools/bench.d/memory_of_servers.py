"""What tools/bench memory measures of servers over shared memory: connections, long values, new clients, pollers."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import resource
import time

from processes import Probe, Server, progress

# More than either end holds: with a hard limit of 80,000 there are 10,000 connections, else fewer.
DESCRIPTORS_A_CONNECTION = 8
MIB = 1 << 20


class Volume:
    """How much of everything: `short` shows that it works."""

    def __init__(self, short):
        self.rounds = 1 if short else 5
        self.idle = 50 if short else 10_000
        self.puts = 1_000 if short else 10_000
        self.keys = 100_000 if short else 10_000_000
        self.long_mib = 16 if short else 256
        self.rewrites = 20 if short else 300
        self.poller_puts = 50_000 if short else 1_000_000


class Servers:
    """`found.add(name, unit, value, beside, its value, targets)` takes each figure."""

    def __init__(self, directory, volume, found):
        self._socket = f"shm://{directory}/socket"
        self._volume = volume
        self._found = found

    @contextlib.contextmanager
    def _served(self, *flags, probes=1):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(Server([self._socket], flags))
            yield server, *(stack.enter_context(self._probe()) for _ in range(probes))

    def _probe(self):
        return Probe("osprey_probe", [f"--server={self._socket}"])

    def idle_connections(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        count = min(self._volume.idle, most // DESCRIPTORS_A_CONNECTION)
        progress(f"memory: {count:,} idle connections")
        with self._served("--memory=64MiB", f"--connections-max={count + 10}", probes=2) as (server, active, idle):
            active.ask("fill", keys="i", count=1000, size=64)
            files, kib = descriptors(idle), resident_kib(idle)
            alone = [active.ask("put", keys="i", of=1000, size=64, count=self._volume.puts)["p50_us"] for _ in range(self._volume.rounds)]
            idle.ask("fill", keys="s", count=1, size=64)
            idle.ask("spread", keys="s", of=1, size=64, count=count, connections=count, depth=1)
            for number in range(self._volume.rounds):
                beside = active.ask("put", keys="i", of=1000, size=64, count=self._volume.puts)["p50_us"]
                self._found.add(f"PUT of 64 B, p50, beside {count:,} idle connections", "us", beside, "alone", alone[number], at_most=1.15)
            self._found.add("a client's descriptors", "", round((descriptors(idle) - files) / count, 1), at_most=3)
            self._found.add("a client's memory, the mapped table apart", "KiB", (resident_kib(idle) - kib) / count, at_most=64)
            self._found.add("    the server's descriptors a connection", "", descriptors(server) / count)

    def long_values(self):
        progress("memory: long values")  # their shortest times: other load lengthens many of them
        longest = self._volume.long_mib * MIB
        with self._served("--memory=2GiB") as (_, probe):
            for size, name in ((MIB, "1 MiB"), (longest, f"{self._volume.long_mib} MiB")):
                probe.ask("fill", keys="l", count=1, size=size)
                count = 200 if size == MIB else 3
                for _ in range(self._volume.rounds):
                    get = probe.ask("get", keys="l", of=1, size=size, count=count)["min_us"]
                    if size == MIB:
                        put = probe.ask("put", keys="l", of=1, size=size, count=count)["min_us"]
                        self._found.add(f"PUT of {name}, the shortest", "us", put, "GET", get, at_most=3)
                    else:
                        self._found.add(f"GET of {name} as a string", "GB/s", size / get / 1e3, at_least=2)
                        into = probe.ask("bulk-get", keys="l", of=1, size=size, count=count)["mib_per_second"]
                        self._found.add(f"GET of {name} into registered memory", "GB/s", into * MIB / 1e9)
            probe.ask("put", keys="l", of=1, size=4 * MIB, count=self._volume.rewrites)
            for seconds in (0, 5):
                time.sleep(seconds)
                quarantine = int(probe.ask("stats")["quarantine_bytes"])
                self._found.add(f"one key of 4 MiB rewritten {self._volume.rewrites} times: in quarantine {seconds} s later", "MB", quarantine / 1e6)

    def new_clients(self):
        keys = self._volume.keys
        progress(f"memory: new clients of {keys:,} keys")
        with self._served(f"--memory={max(64, keys * 96 // MIB)}MiB") as (_, filler):
            filler.ask("fill", keys="n", count=keys, size=8)
            for _ in range(self._volume.rounds):
                began = time.monotonic()
                with self._probe() as probe:
                    probe.ask("ping", count=1)
                    connected = time.monotonic() - began
                    first = probe.ask("get", keys="n", of=keys, size=8, count=20_000)["p50_us"]
                    for _ in range(5):
                        warm = probe.ask("get", keys="n", of=keys, size=8, count=100_000)["p50_us"]
                self._found.add(f"GET, p50 of a new client's first 20,000, {keys:,} keys", "us", first, "after 500,000 more", warm, at_most=2)
                self._found.add("    started and connected after", "ms", connected * 1e3)

    def pollers(self):
        progress("memory: pollers and clients that spin")
        rates = {}
        for _ in range(self._volume.rounds):
            for count in (1, 2):
                with self._served("--memory=64MiB", f"--pollers={count}", "--poll=busy", probes=2) as (_, *probes):
                    probes[0].ask("fill", keys="i", count=1000, size=64)
                    rates[count] = self._together(probes)
            self._found.add("PUTs a second, 2 pollers and 2 clients that spin", "/s", rates[2], "1 poller", rates[1], at_least=0.9)

    def _together(self, probes):
        def ask(probe):
            return probe.ask("puts", keys="i", of=1000, size=64, depth=32, count=self._volume.poller_puts)["per_second"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return sum(pool.map(ask, probes))


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def resident_kib(process):
    """Without the tables of servers, which all their clients map."""
    total, mapping = 0, ""
    for line in pathlib.Path(f"/proc/{process.pid}/smaps").read_text(encoding="utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            mapping = line
        elif line.startswith("Rss:") and "/memfd:osprey-region" not in mapping:
            total += int(line.split()[1])
    return total
