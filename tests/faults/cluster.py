"""A cluster that is spread over the two machines of the fault tests: etcd and server a on node 1, servers b and c on node 2."""

import base64
import json
import math
import pathlib
import subprocess
import tempfile
import time
import urllib.request

from load import Failed
from node import ROOT, wait_until

# Each kind of talk has addresses of its own, 10.0.ROLE.NODE, which can be cut by themselves. Those of the lab
# (10.0.0.NODE) are for the tests' own talk, which is never cut.
ROLES = {"clients": 1, "links": 2, "etcd": 3}
SERVERS = {"a": 1, "b": 2, "c": 2}  # on which node
NEAR, FAR = "a", {"b", "c"}         # beside clients and etcd, and not
SHARDS = 2
CLIENT_PORT, LINK_PORT, ETCD_PORT = 7420, 7520, 2379
PORTS_EACH = 10

WHOLE_S_MAX = 60
STAYS_S = 0.5
ASK_EVERY_S = 0.5  # an emulated etcd answers some tens of requests a second
ETCD_S_MAX = 30
CALL_S_MAX = 2


def address(role, of_node):
    return f"10.0.{ROLES[role]}.{of_node}"


def client_address(server):
    port = CLIENT_PORT + PORTS_EACH * sorted(SERVERS).index(server)
    return f"{address('clients', SERVERS[server])}:{port}"


class Cluster:
    """At first b is the primary of shard 0, and a of shard 1. Later, when the cluster is whole, a is the primary of one shard."""

    URI = f"etcd://{address('etcd', 1)}:{ETCD_PORT}/cuts"
    CLIENTS = "rdma://" + ",".join(map(client_address, SERVERS))

    def __init__(self, own, peer):
        self._nodes = {1: own, 2: peer}
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="cuts."))
        for number, machine in self._nodes.items():
            for role in ROLES:
                self._check(machine.add_address(address(role, number)))
        self._keys = {number: machine.write_secret("cluster.key", "the secret of this test's cluster: 32 B and more\n")
                      for number, machine in self._nodes.items()}
        self.start_etcd()
        self.await_etcd()
        subprocess.run([ROOT / "bazel-bin/tools/kvcli", "cluster", "create", self.URI, "--memory=64MiB", f"--shards={SHARDS}",
                        f"--replicas={len(SERVERS)}", "--min-in-sync=1"], check=True, stdout=subprocess.DEVNULL)
        # The last one to join gets no shard: the others have one each.
        started = []
        for server in (*sorted(FAR), NEAR):
            self.start(server)
            started.append(server)
            self._await(lambda: self.is_whole(started), WHOLE_S_MAX, f"servers {started} do not become whole")

    @staticmethod
    def _check(failed):
        if failed:
            raise Failed(failed)

    def _await(self, condition, seconds, wrong):
        if not wait_until(condition, seconds, ASK_EVERY_S):
            raise Failed(f"{wrong}: {self.shards()}")

    # ---- Processes

    def start_etcd(self):
        url = f"http://{address('etcd', 1)}:{ETCD_PORT}"
        self._nodes[1].start("etcd", ["etcd", f"--data-dir={self._directory}/etcd", f"--listen-client-urls={url}",
                                      f"--advertise-client-urls={url}", "--listen-peer-urls=http://127.0.0.1:2380",
                                      "--logger=zap", "--log-level=warn"])

    def await_etcd(self):
        self._await(lambda: self._read() is not None, ETCD_S_MAX, "etcd does not answer")

    def kill_etcd(self):
        self._nodes[1].signal("etcd", "SIGKILL")
        self._nodes[1].await_end("etcd", ETCD_S_MAX)

    def start(self, server):
        number = SERVERS[server]
        port = LINK_PORT + PORTS_EACH * sorted(SERVERS).index(server)
        self._nodes[number].start(server, [
            str(ROOT / "bazel-bin/server/kvserver"), f"--cluster={self.URI}", f"--server-id={server}", "--memory=72MiB",
            "--poll=event",
            f"--listen=rdma://{client_address(server)}", f"--cluster-listen=rdma://{address('links', number)}:{port}",
            f"--cluster-key-file={self._keys[number]}"])

    def log(self, server):
        return self._nodes[SERVERS[server]].log(server)

    # ---- The network

    def cut(self, roles, towards):
        """From now on what has these roles does not arrive at these nodes."""
        for number in towards:
            self._check(self._nodes[number].refuse([address(role, 3 - number) for role in roles]))

    def heal(self, towards):
        """How many packets were lost."""
        return sum(self._nodes[number].take_all() for number in towards)

    # ---- What etcd says

    def _read(self):
        """(keys of servers, shards) by name; None if etcd does not answer."""
        def coded(text):
            return base64.b64encode(text.encode()).decode()
        question = {"key": coded("/osprey/cuts/"), "range_end": coded("/osprey/cuts0")}
        try:
            with urllib.request.urlopen(f"http://{address('etcd', 1)}:{ETCD_PORT}/v3/kv/range",
                                        json.dumps(question).encode(), timeout=CALL_S_MAX) as answer:
                keys = json.load(answer).get("kvs", [])
        except OSError:
            return None
        servers, shards = {}, {}
        for key in keys:
            _, _, _, kind, *name = base64.b64decode(key["key"]).decode().split("/")
            if kind == "servers":
                servers[name[0]] = int(key["create_revision"])
            elif kind == "shards":
                shards[int(name[0])] = json.loads(base64.b64decode(key["value"]))
        return servers, shards

    def shards(self):
        """(term, primary, members as a set) of each, as far as there is one."""
        _, shards = self._read() or (None, {})
        return [(shard["term"], shard["primary"], {one["server"] for one in shard["in_sync"]}) for _, shard in sorted(shards.items())]

    def primaries(self):
        return [primary for _, primary, _ in self.shards()]

    def terms(self):
        return [term for term, _, _ in self.shards()]

    def is_whole(self, servers=tuple(SERVERS)):
        """All copies are there, of these servers, which run, and primaries are shared out."""
        keys, shards = self._read() or ({}, {})
        primaries = [shard["primary"] for shard in shards.values()]
        return len(shards) == SHARDS and max(map(primaries.count, servers)) <= math.ceil(SHARDS / len(servers)) and all(
            {one["server"] for one in shard["in_sync"] if keys.get(one["server"]) == one["create_revision"]} == set(servers)
            for shard in shards.values())

    def await_whole(self):
        """… and stay so for a moment. How long that took."""
        began = time.monotonic()
        since = None
        while since is None or time.monotonic() - since < STAYS_S:
            if time.monotonic() - began > WHOLE_S_MAX:
                raise Failed(f"the cluster does not become whole: {self._read()}")
            if not self.is_whole():
                since = None
            elif since is None:
                since = time.monotonic()
            time.sleep(ASK_EVERY_S)
        return time.monotonic() - began - STAYS_S

    # ---- What is held

    def resources(self):
        """Of both machines together: a primary has more than other servers, and may be on either."""
        held = {}
        for machine in self._nodes.values():
            for what, count in machine.resources().items():
                held[what] = held.get(what, 0) + count
        return held
