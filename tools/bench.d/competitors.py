"""Redis and memcached, which Osprey is measured beside: how each is started, and how its probe finds it."""

import os
import subprocess
import time

from processes import MeasureError, Probe, Process

NAMES = ("redis", "memcached")
START_S_MAX = 30
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
