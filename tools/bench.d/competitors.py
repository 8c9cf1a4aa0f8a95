"""Redis and memcached, which Osprey is measured beside: how each is started, and how its probe finds it."""

import csv
import os
import subprocess
import time

from processes import MeasureError, Probe, Process, on_cpu

NAMES = ("redis", "memcached")
START_S_MAX = 30
BENCHMARK_S_MAX = 120
_TCP_PORTS = {"redis": 6379, "memcached": 11211}


def tcp_address(name, host):
    return f"tcp://{host}:{_TCP_PORTS[name]}"


def unix_address(name, directory):
    return f"unix://{directory}/{name}"


def _command(name, address):
    scheme, _, place = address.partition("://")
    host, _, port = place.partition(":")
    if name == "redis":
        listen = ["--bind", host, "--port", port] if scheme == "tcp" else ["--port", "0", "--unixsocket", place]
        return ["redis-server", *listen, "--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no",
                "--dir", os.environ.get("TMPDIR", "/tmp")]
    listen = ["-l", host, "-p", port] if scheme == "tcp" else ["-s", place]
    return ["memcached", "-u", "root", *listen, "-t", "1", "-m", "256"]


def server(name, address, cpu):
    """A context: in it the server runs, without any file behind it."""
    return Process(_command(name, address), cpu, stdout=subprocess.DEVNULL)


def probe(name, address, cpu, spin=True):
    """A context: a client of the server, which takes a moment to listen."""
    flags = [f"--protocol={name}", f"--address={address}", f"--spin={'true' if spin else 'false'}"]
    deadline = time.monotonic() + START_S_MAX
    while subprocess.run(["bazel-bin/tools/bench.d/competitor_probe", *flags], stdin=subprocess.DEVNULL, check=False,
                         capture_output=time.monotonic() < deadline).returncode != 0:
        if time.monotonic() > deadline:
            raise MeasureError(f"{name} cannot be connected to")
        time.sleep(0.1)
    return Probe("competitor_probe", flags, cpu)


def durable_redis(path, directory, appendfsync, cpu):
    """A context: in it a Redis at the Unix socket `path` logs every write in `directory`, and never rewrites its log."""
    command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "yes", "--appendfsync", appendfsync,
               "--auto-aof-rewrite-percentage", "0", "--daemonize", "no", "--dir", directory]
    return Process(command, cpu, stdout=subprocess.DEVNULL)


def await_redis(path):
    deadline = time.monotonic() + START_S_MAX
    while subprocess.run(["redis-cli", "-s", path, "ping"], capture_output=True, text=True, check=False).stdout != "PONG\n":
        if time.monotonic() > deadline:
            raise MeasureError("redis cannot be connected to")
        time.sleep(0.1)


def redis_sets(path, keys, size, in_flight, count, cpu):
    """SETs by redis-benchmark: a second, and p50 in microseconds. Each connection sends up to 16 at once, and awaits them."""
    pipeline = min(16, in_flight)
    command = ["redis-benchmark", "-s", path, "-t", "set", "-r", str(keys), "-d", str(size), "-n", str(count), "-c",
               str(in_flight // pipeline), "-P", str(pipeline), "--csv"]
    run = subprocess.run(on_cpu(cpu, command), capture_output=True, text=True, timeout=BENCHMARK_S_MAX, check=False)
    if run.returncode != 0:
        raise MeasureError(f"{' '.join(command)}: status {run.returncode}: {run.stderr[-300:]}")
    return benchmark_row(run.stdout)


def benchmark_row(text):
    """Requests a second, and p50 in microseconds, from what redis-benchmark --csv printed."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    for row in csv.DictReader(lines):
        if row.get("test") == "SET" and "rps" in row and "p50_latency_ms" in row:
            return float(row["rps"]), 1e3 * float(row["p50_latency_ms"])
    raise ValueError(f"redis-benchmark told no rate: {text[-300:]}")
