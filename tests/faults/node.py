"""What the fault tests do to one of the two machines, and what they look at there."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BREAKER = ROOT / "bazel-bin/tests/faults/libbreak_queue_pair.so"
CONTROL_PORT = 7400
START_S_MAX = 30
STEP_S = 0.02
PORT = pathlib.Path("/sys/class/infiniband", os.environ.get("LAB_DEVICE", "rxe0"), "ports/1")


def wait_until(condition, seconds, step_s=STEP_S):
    """The first true value of condition(), or the last one after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > until:
            return value
        time.sleep(step_s)


class Node:
    """This machine. Every method can be called from the other one: arguments and results are plain, and never None."""

    def __init__(self):
        self._server = None
        self._programs = {}  # by name, as members of a cluster
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="faults."))
        self._background = None
        self._has_filters = False  # the network device has a place for them

    # ---- The server

    def start_server(self, breakable):
        """Starts kvserver and waits until it is ready; with breakable, SIGUSR1 breaks one of its queue pairs."""
        environment = dict(os.environ)
        if breakable:
            environment["LD_PRELOAD"] = str(BREAKER)
        with open(self._directory / "out", "wb") as out, open(self._directory / "err", "wb") as err:
            self._server = subprocess.Popen(
                [ROOT / "bazel-bin/server/kvserver", f"--listen=rdma://{os.environ['LAB_IP']}:7411", "--memory=64MiB"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        ready = wait_until(lambda: "ready" in self._read("out") or self._server.poll() is not None, START_S_MAX)
        if not ready or self._server.poll() is not None:
            return f"the server does not get ready: {self._read('err')}"
        return ""

    def signal_server(self, name):
        self._server.send_signal(signal.Signals[name])
        return True

    def await_server_end(self, seconds):
        """Its exit status (-9: killed; 1000: it goes on), and the last line that it wrote."""
        wait_until(lambda: self._server.poll() is not None, seconds)
        status = self._server.poll()
        return [1000 if status is None else status, (self._read("err").splitlines() or [""])[-1]]

    # ---- Other programs

    def start(self, name, command):
        """All lives of a program write to one log."""
        with open(self._directory / f"{name}.log", "ab") as log:
            self._programs[name] = subprocess.Popen(command, cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=log)
        return True

    def signal(self, name, what):
        self._programs[name].send_signal(signal.Signals[what])
        return True

    def await_end(self, name, seconds):
        """Its exit status; 1000: it goes on."""
        wait_until(lambda: self._programs[name].poll() is not None, seconds)
        status = self._programs[name].poll()
        return 1000 if status is None else status

    def log(self, name):
        return self._read(f"{name}.log")

    def write_secret(self, name, text):
        """The path of a file that its owner alone can read."""
        path = self._directory / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="ascii")
        return str(path)

    def _read(self, name):
        return (self._directory / name).read_text(encoding="utf-8", errors="replace")

    # ---- What is held

    def resources(self):
        """What RDMA devices hold for anybody here, and what the server's process holds, if it runs."""
        shown = subprocess.run(["rdma", "resource", "show"], stdout=subprocess.PIPE, check=False).stdout.decode()
        held = {}
        for name, count in re.findall(r"(pd|cq|qp|cm_id|mr|ctx) (\d+)", shown):
            held[name] = held.get(name, 0) + int(count)
        if self._server is not None and self._server.poll() is None:
            process = pathlib.Path(f"/proc/{self._server.pid}")
            held["fd"] = len(list((process / "fd").iterdir()))
            status = (process / "status").read_text(encoding="ascii")
            for name, field in (("threads", "Threads"), ("rss_kib", "VmRSS"), ("pinned_kib", "VmPin")):
                held[name] = int(re.search(rf"^{field}:\s+(\d+)", status, re.MULTILINE)[1])
        return held

    # ---- The network

    def shape(self, what):
        """All that leaves this machine goes through netem, with these arguments, from now on."""
        device = os.environ["LAB_NETDEV"]
        return self._run(["tc", "qdisc", "add", "dev", device, "root", "netem", "limit", "10000", *what.split()])

    @staticmethod
    def repeated_packets():
        """How often a device here saw that a packet was missing, or one that it had seen: the network was bad."""
        return sum(int((PORT / "hw_counters" / name).read_text(encoding="ascii"))
                   for name in ("duplicate_request", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err"))

    def unshape(self):
        return self._run(["tc", "qdisc", "del", "dev", os.environ["LAB_NETDEV"], "root"])

    def cut_for(self, seconds):
        """In the background: nothing leaves this machine for so long."""
        device = f"dev {os.environ['LAB_NETDEV']} root"
        self._background = subprocess.Popen(
            ["sh", "-c", f"tc qdisc add {device} netem loss 100% && sleep {seconds}; tc qdisc del {device}"])
        return True

    def add_address(self, address):
        """Until RDMA can be used with it."""
        failed = self._run(["ip", "addr", "add", f"{address}/24", "dev", os.environ["LAB_NETDEV"]])
        if failed:
            return failed
        gid = ":".join(f"{a:02x}{b:02x}" for a, b in zip(*[iter(map(int, address.split(".")))] * 2))
        has_learned = wait_until(lambda: f":ffff:{gid}" in self._gids(), START_S_MAX)
        return "" if has_learned else f"the device does not get the address {address}"

    def refuse(self, senders):
        """From now on what these addresses send is lost on its way to this machine."""
        device = os.environ["LAB_NETDEV"]
        # It stays: its removal takes seconds in a guest without time.
        commands = [] if self._has_filters else [f"qdisc add dev {device} clsact"]
        self._has_filters = True
        commands += [f"filter add dev {device} ingress protocol ip u32 match ip src {sender}/32 action drop"
                     for sender in senders]
        return self._run(["tc", "-batch", "-"], "\n".join(commands))

    def take_all(self):
        """Takes refuse back. How many packets were lost."""
        device = os.environ["LAB_NETDEV"]
        shown = subprocess.run(["tc", "-s", "filter", "show", "dev", device, "ingress"], stdout=subprocess.PIPE,
                               check=True).stdout
        subprocess.run(["tc", "filter", "del", "dev", device, "ingress"], check=True)
        return sum(map(int, re.findall(rb"dropped (\d+)", shown)))

    # ---- The device

    def delete_link(self):
        """In the background: it ends when nobody uses the device any more."""
        self._background = subprocess.Popen(["rdma", "link", "delete", os.environ["LAB_DEVICE"]])
        return True

    def await_background(self, seconds):
        """Whether what was begun in the background has ended well."""
        wait_until(lambda: self._background.poll() is not None, seconds)
        return self._background.poll() == 0

    def add_link(self):
        """Makes the device anew, and waits until it has learned its addresses."""
        failed = self._run(
            ["rdma", "link", "add", os.environ["LAB_DEVICE"], "type", "rxe", "netdev", os.environ["LAB_NETDEV"]])
        if failed:
            return failed
        return "" if wait_until(self._has_addresses, START_S_MAX) else "the device does not get its addresses"

    @staticmethod
    def _has_addresses():
        try:
            state = (PORT / "state").read_text(encoding="ascii")
        except OSError:
            return False
        return "ACTIVE" in state and ":ffff:" in Node._gids()

    @staticmethod
    def _gids():
        """The addresses that the device has learned, a line each. Of its table of 1024 the first ones."""
        try:
            return "".join((PORT / f"gids/{entry}").read_text(encoding="ascii") for entry in range(16))
        except OSError:
            return ""

    @staticmethod
    def _run(command, given=""):
        """What it said, if it failed."""
        done = subprocess.run(command, input=given.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return "" if done.returncode == 0 else f"{' '.join(command)}: {done.stdout.decode()}"

    def end(self):
        """Ends what still runs."""
        for program in filter(None, (self._server, *self._programs.values())):
            if program.poll() is None:
                program.kill()
                program.wait()
        return True


def say(line):
    """To the user, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
