"""Client processes (fault_load.cc) of the fault tests."""

import os
import signal
import subprocess
import time

import node
from node import ROOT, wait_until

UP_S_MAX = 30
END_S_MAX = 60


def now_ns():
    return time.monotonic_ns()


class Failed(Exception):
    """A row cannot go on."""


class Load:
    """A client process under way."""

    def __init__(self, prefix, number, directory, *, breakable=False, server="", shards=1, flags=()):
        self.number = number
        self.journal = directory / f"{prefix}.{number}"
        self.killed = False
        self.stops = []
        environment = dict(os.environ)
        if breakable:
            environment["LD_PRELOAD"] = str(node.BREAKER)
        server = server or f"rdma://{os.environ['LAB_PEER_IP']}:7411"
        self.process = subprocess.Popen(
            [ROOT / "bazel-bin/tests/faults/fault_load", f"--server={server}", f"--journal={self.journal}",
             f"--prefix={prefix}", f"--number={number}", *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        os.set_blocking(self.process.stdout.fileno(), False)
        self._shards = shards
        self._said = b""
        self._asked = 1
        self.connections = 0
        self.starved_s = 0.0

    def _hear(self):
        self._said += self.process.stdout.read() or b""
        return self._said

    def served(self):
        """The shards that have served all its clients since it was last asked."""
        told = [line.split() for line in self._hear().split(b"\n")[:-1]]
        return {int(words[2]) for words in told if words[:2] == [b"up", b"%d" % self._asked]}

    def is_up(self):
        return len(self.served()) == self._shards

    def ask(self):
        """Which shards serve from now on: see served()."""
        self._asked += 1
        self.tell("up")

    def await_up_again(self):
        """Until all its clients have had an operation done from now on, on each shard."""
        self.ask()
        self.await_up()

    def await_up(self):
        if not wait_until(lambda: self.is_up() or self.process.poll() is not None, UP_S_MAX) or not self.is_up():
            raise Failed(f"client process {self.number} does not come up: {self._hear().decode()}")

    def tell(self, word):
        """"end": the fault is over; "quit": end at once; "up": say so again."""
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def stop_for(self, seconds):
        began = now_ns()
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)
        self.stops.append((began, now_ns()))

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def await_end(self):
        """The errors that it met, a line each; and one if it has more open files than it had."""
        if not wait_until(lambda: self.process.poll() is not None, END_S_MAX):
            self.kill()
            raise Failed(f"client process {self.number} does not end: {self._hear().decode()}")
        lines = [line for line in self._hear().decode().splitlines() if not line.startswith("up ")]
        if self.process.returncode != 0 and not self.killed:
            raise Failed(f"client process {self.number} ended with status {self.process.returncode}: {' '.join(lines)}")
        return [line for line in lines if not self._take_count(line.split())]

    def _take_count(self, words):
        if words[0] == "connections":
            self.connections = int(words[1])
            return True
        if words[0] == "starved":
            # A stop is no fault of the machine.
            self.starved_s = float(words[1]) if not self.stops else 0.0
            return True
        return words[:3] == ["left", "open", "0"]
