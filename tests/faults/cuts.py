"""Rows of the fault tests: the network of a cluster is cut, and its etcd ends, under the load of clients (cluster.py).

Clients of two processes go on through all rows. Deadlines of one are short; no operation of the other may fail. At the end
the histories are judged. Between rows the cluster becomes whole again. A row whose fault had no effect is void, and is
done again."""

import os
import time

from cluster import ASK_EVERY_S, FAR, NEAR, ROLES, SERVERS, SHARDS, Cluster
from load import Failed, Load, now_ns
from node import say, wait_until

LONG = os.environ.get("OSPREY_TEST_LONG") == "1"

ATTEMPTS_MAX = 3
BITES_S_MAX = 8       # a right lasts 3 s; with emulated CPUs others have taken over some 5 s after the cut
SERVED_S_MAX = 5      # later, or after the fault's end, all clients are served: as RECOVERY_S_MAX of the other rows
STAYS_S = 1           # the cut, from then on
RIGHT_S = 3
LATE_S_MAX = 1        # what was answered before the right's end may be told so late
IN_FLIGHT_S = 0.5     # likewise of a cut
CLIENTS_CUT_S = 4
ETCD_BACK_S_MAX = 10  # three servers that ask a just started, emulated etcd for everything
PAUSE_MS = 50         # of each client: with more, one emulated CPU is too slow for etcd, server and clients
DOWN_S = 60 if LONG else 10
SHORT_MS, LONG_MS = 1000, 60_000 if LONG else 30_000
BOTH = (1, 2)
LOG_LINES = 20        # of each server, after a failure

ENDED = "the right of this server to serve has ended"


class Void(Failed):
    """The fault had no effect, so the row shows nothing."""


class Cuts:
    """The rows, in one life of the cluster."""

    def __init__(self, own, peer, directory, wanted):
        self._wanted = wanted
        self._cluster = Cluster(own, peer)
        self._directory = directory
        self._loads = []
        self.baseline = self._cluster.resources()
        # Each slot keeps what it once made for clients.
        self.baseline["cq"] = len(SERVERS) * (1 + SHARDS)

    def resources(self):
        return self._cluster.resources()

    # ---- Steps

    def _begin(self):
        """What the shards are before a fault."""
        self._cluster.await_whole()
        shards = self._cluster.shards()
        if not any(primary in FAR for _, primary, _ in shards):
            raise Failed(f"no primary can be cut off: {shards}")
        return shards

    def _await_bite(self, condition, void):
        began = time.monotonic()
        if not wait_until(condition, BITES_S_MAX, ASK_EVERY_S):
            raise Void(f"{void}: {self._cluster.shards()}")
        return time.monotonic() - began

    def _ask(self):
        for load in self._loads:
            load.ask()

    def _served(self):
        """Shards that have served each client since _ask."""
        return set.intersection(*(load.served() for load in self._loads))

    def _await_service(self, when, seconds=SERVED_S_MAX):
        """How long that took."""
        self._ask()
        began = time.monotonic()
        if not wait_until(lambda: len(self._served()) == SHARDS, seconds):
            raise Failed(f"only shards {self._served()} serve all clients {seconds} s {when}: {self._cluster.shards()}")
        return time.monotonic() - began

    def _heal(self, towards, began):
        lost = self._cluster.heal(towards)
        if lost == 0:
            raise Void("no packet was lost")
        return f"{lost} packets lost in {time.monotonic() - began:.1f} s"

    def _logs(self, servers):
        """How long they are."""
        return {server: len(self._cluster.log(server)) for server in servers}

    def _check_logs(self, logs):
        for server, length in logs.items():
            said = self._cluster.log(server)[length:]
            if ENDED not in said:
                raise Failed(f"server {server} does not say that its right has ended: {said}")

    def _others_ended(self, before):
        """Whether those on node 2 are no members any more, and what they served is served on node 1."""
        now = self._cluster.shards()
        return len(now) == SHARDS and all(
            members == {NEAR} and term >= was_term + (was_primary in FAR)
            for (was_term, was_primary, _), (term, _, members) in zip(before, now))

    # ---- The rows. Each returns what to say

    def _cut_off(self, roles, towards):
        """Servers b and c do not reach etcd. They stop, and say so, and server a serves all shards."""
        def row():
            before = self._begin()
            logs = self._logs(FAR)
            began = time.monotonic()
            self._cluster.cut(roles, towards)
            try:
                taken_s = self._await_bite(lambda: self._others_ended(before), "the right of servers b and c has not ended")
                served_s = self._await_service("after it was taken over")
                self._check_logs(logs)
                time.sleep(STAYS_S)
            finally:
                remark = self._heal(towards, began)
            place = ", shard 0 among them" if before[0][1] in FAR else ""
            return f"taken over after {taken_s:.1f} s{place}, served {served_s:.1f} s later; {remark}"
        return row

    def _links_cut(self):
        """All reach etcd and clients. Each primary goes on with those that it reaches."""
        before = self._begin()
        wanted = [(term, primary, {NEAR} if primary == NEAR else FAR) for term, primary, _ in before]
        began = time.monotonic()
        self._cluster.cut(["links"], BOTH)
        try:
            dropped_s = self._await_bite(lambda: self._cluster.shards() == wanted, "no silent server was dropped")
            served_s = self._await_service("after silent servers were dropped")
            time.sleep(STAYS_S)
        finally:
            remark = self._heal(BOTH, began)
        return f"dropped after {dropped_s:.1f} s, served {served_s:.1f} s later; {remark}"

    def _clients_cut(self):
        """Servers do not notice. Clients wait for the shards of servers b and c, and others go on."""
        before = self._begin()
        reached = {shard for shard, (_, primary, _) in enumerate(before) if primary == NEAR}
        began = time.monotonic()
        self._cluster.cut(["clients"], BOTH)
        try:
            time.sleep(IN_FLIGHT_S)
            self._ask()
            time.sleep(CLIENTS_CUT_S - IN_FLIGHT_S)
            # (Operations of the other process that wait for a shard take the places of all others.)
            served, after = [load.served() for load in self._loads], self._cluster.shards()
        finally:
            remark = self._heal(BOTH, began)
        if served[0] != reached or not served[1] <= reached or after != before:
            raise Void(f"shards {served} served all clients of each process, instead of {reached}; {before} became {after}")
        return f"served again after {self._await_service('after the cut'):.1f} s; {remark}"

    def _etcd_down(self):
        """No server serves without a right. Nothing is lost."""
        self._begin()
        logs = self._logs(SERVERS)
        began = time.monotonic()
        self._cluster.kill_etcd()
        try:
            time.sleep(RIGHT_S + LATE_S_MAX)
            self._ask()
            time.sleep(DOWN_S - (time.monotonic() - began))
            served = set.union(*(load.served() for load in self._loads))
        finally:
            self._cluster.start_etcd()
        if served:
            raise Failed(f"shards {served} served clients without etcd")
        self._check_logs(logs)
        self._cluster.await_etcd()
        return f"served again {self._await_service('after etcd was back', ETCD_BACK_S_MAX):.1f} s after etcd"

    def _rows(self):
        everything = list(ROLES)
        # The primary of shard 0 is at node 2 in the first row.
        yield "cluster cut in two", self._cut_off(everything, BOTH)
        yield "cluster cut towards node 2", self._cut_off(everything, (2,))
        yield "cluster cut towards node 1", self._cut_off(everything, (1,))
        yield "cluster cut off from etcd alone", self._cut_off(["etcd"], BOTH)
        yield "cluster cut between servers", self._links_cut
        yield "cluster cut off from clients", self._clients_cut
        yield "cluster without etcd", self._etcd_down

    def _row(self, name, row):
        began = time.monotonic()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                told = row()
                self._await_service("after the fault")
                say(f"ok - {name}: {told} ({time.monotonic() - began:.0f} s)")
                return
            except Void as void:
                say(f"  {name}, attempt {attempt}: void: {void}")
                if attempt == ATTEMPTS_MAX:
                    raise Failed(f"{name}: {void}") from void
            except Failed as failed:
                for server in SERVERS:
                    for line in self._cluster.log(server).splitlines()[-LOG_LINES:]:
                        say(f"  {server}: {line}")
                raise Failed(f"{name}: {failed}") from failed

    # ---- All of them

    def run(self, prefix, demands):
        """As a fault of Faults.row. `demands` of the judgement are added to."""
        self._loads = [Load(prefix, number, self._directory, server=Cluster.CLIENTS, shards=SHARDS,
                            flags=[f"--pause_ms={PAUSE_MS}", f"--deadline_ms={deadline_ms}"])
                       for number, deadline_ms in ((1, SHORT_MS), (2, LONG_MS))]
        for load in self._loads:
            load.await_up()
        for name, row in self._rows():
            if any(word in name for word in self._wanted):
                self._row(name, row)
        demands.append((lambda judgement: judgement["failed_by_process"][0] > 0, "no operation of short deadlines failed"))
        demands.append((lambda judgement: judgement["failed_by_process"][1] == 0, "operations failed that could wait"))
        end_ns = now_ns()
        for load in self._loads:
            load.tell("end")
        return self._loads, end_ns
