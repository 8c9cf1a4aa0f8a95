"""A cluster that parts of tools/bench measure: etcd and kvservers, over shared memory or verbs. It ends with its `with` block."""

import base64
import contextlib
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import time

from processes import END_S_MAX, MeasureError, Process

KEYS = 1000
VALUE_BYTES = 64
MEMORY = "--memory=256MiB"
SYNC_S_MAX = 60


def operations_of(probe, count):
    """p50 of PUTs one at a time in us, PUTs a second with 64 in flight, and p50 of GETs."""
    probe.ask("fill", keys="g", count=KEYS, size=VALUE_BYTES)
    put = probe.ask("put", keys="p", of=KEYS, size=VALUE_BYTES, count=count)
    puts = probe.ask("puts", keys="p", of=KEYS, size=VALUE_BYTES, count=4 * count, depth=64)
    get = probe.ask("get", keys="g", of=KEYS, size=VALUE_BYTES, count=4 * count)
    return put["p50_us"], puts["per_second"], get["p50_us"]


def free_ports(host, count):
    with contextlib.ExitStack() as held:
        return [held.enter_context(socket.create_server((host, 0))).getsockname()[1] for _ in range(count)]


class Cluster:
    """etcd and `replicas` kvservers, all in sync when its block begins. `host`: the address of an RDMA device; none: shared memory."""

    def __init__(self, work, replicas, host=None, flags=(), memory=MEMORY, sync_s_max=SYNC_S_MAX):
        self._work = tempfile.mkdtemp(dir=work)
        self._ids = "abcdefg"[:replicas]
        self._stack = contextlib.ExitStack()
        self._servers = {}
        self._etcd = ""
        self._flags = list(flags)
        self._memory = memory
        self._sync_s_max = sync_s_max
        if host is None:
            self._addresses = {one: (f"{self._work}/{one}", f"{self._work}/{one}.links") for one in self._ids}
        else:
            ports = free_ports(host, 2 * replicas)
            self._addresses = {one: (f"{host}:{ports.pop()}", f"{host}:{ports.pop()}") for one in self._ids}
            key = pathlib.Path(self._work) / "cluster.key"
            key.write_bytes(base64.b64encode(secrets.token_bytes(32)))
            key.chmod(0o600)
            self._flags.append(f"--cluster-key-file={key}")
        self._scheme = "shm" if host is None else "rdma"
        self.uri = f"{self._scheme}://" + ",".join(client for client, _ in self._addresses.values())

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._start_etcd(stack)
            for one in self._ids:
                self.start(one, stack)
            self.await_sync()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        for server in self._servers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
        self._stack.close()

    def _start_etcd(self, stack):
        client, peer = free_ports("127.0.0.1", 2)
        urls = {"listen-client-urls": client, "advertise-client-urls": client, "listen-peer-urls": peer}
        command = ["etcd", f"--data-dir={self._work}/etcd", *(f"--{name}=http://127.0.0.1:{port}" for name, port in urls.items())]
        stack.enter_context(Process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self._etcd = f"etcd://127.0.0.1:{client}/bench"
        self._await(lambda: self._kvcli("create", self._memory, f"--replicas={len(self._ids)}").returncode == 0, "etcd does not answer")

    def _kvcli(self, word, *flags):
        command = ["bazel-bin/tools/kvcli", "cluster", word, self._etcd, *flags]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _await(self, condition, failure):
        deadline = time.monotonic() + self._sync_s_max
        while not condition():
            if time.monotonic() > deadline:
                raise MeasureError(f"{failure} within {self._sync_s_max} s")
            time.sleep(0.02)

    def status(self, name):
        """What `cluster status` says of the shard after NAME=."""
        found = re.search(rf"^shard=.* {name}=(\S*)", self._kvcli("status").stdout, re.MULTILINE)
        return found.group(1) if found else ""

    def start(self, one, stack=None):
        client, links = self._addresses[one]
        command = ["bazel-bin/server/kvserver", f"--cluster={self._etcd}", f"--server-id={one}", self._memory,
                   f"--listen={self._scheme}://{client}", f"--cluster-listen={self._scheme}://{links}", *self._flags]
        process = Process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._servers[one] = (stack or self._stack).enter_context(process)

    def await_sync(self):
        self._await(lambda: self.status("missing") == "0", "the servers were not in sync")

    def pid(self, one):
        return self._servers[one].pid

    def fail_over(self, number):
        """Sends the primary a signal, and returns its name once another one is the primary."""
        primary = self.status("primary")
        os.kill(self.pid(primary), number)
        self._await(lambda: self.status("primary") not in ("", primary), f"no other server took over from {primary}")
        return primary

    def restore(self, one, number):
        self._await(lambda: self.status("missing") != "0", f"server {one} was not dropped")
        if number == signal.SIGSTOP:
            os.kill(self.pid(one), signal.SIGCONT)
        else:
            self._servers[one].wait(END_S_MAX)
            self.start(one)
        self.await_sync()
