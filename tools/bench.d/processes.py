"""Processes that the parts of tools/bench start: servers, probes, perftest's pairs. All end with their `with` block."""

import json
import os
import re
import select
import subprocess
import sys
import time

ANSWER_S_MAX = 180
READY_S_MAX = 180  # to pin memory takes long where the CPU is emulated and shared
END_S_MAX = 10


class MeasureError(Exception):
    """Something could not be measured; the text says what."""


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def on_cpu(cpu, command):
    """`command` bound to a CPU; None: to none."""
    return command if cpu is None else ["taskset", "--cpu-list", str(cpu), *command]


class Process:
    """A child that is ended with its block, and whose words are shown when it fails."""

    def __init__(self, command, cpu=None, **streams):
        self._command = command
        self._child = subprocess.Popen(on_cpu(cpu, command), bufsize=0, **streams)
        self._said = b""  # and not yet asked for

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._child.terminate()
        try:
            self._child.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream:
                stream.close()

    @property
    def pid(self):
        return self._child.pid

    def wait(self, seconds_max):
        """Until it has ended by itself."""
        self._child.wait(seconds_max)

    def cpu_seconds(self):
        """What it has used so far, in user mode and in the kernel."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def line(self, seconds_max):
        """The next line of its standard output."""
        deadline = time.monotonic() + seconds_max
        while b"\n" not in self._said:
            if not select.select([self._child.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise MeasureError(f"{' '.join(self._command)}: nothing said within {seconds_max} s")
            more = os.read(self._child.stdout.fileno(), 65536)
            if not more:
                raise MeasureError(f"{' '.join(self._command)}: ended with status {self._child.wait()}")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()


class Server(Process):
    """A kvserver; `uris` are the addresses at which it is ready, in the order of --listen."""

    def __init__(self, listen, flags=(), cpu=None, ready_s_max=READY_S_MAX):
        command = ["bazel-bin/server/kvserver", "--listen=" + ",".join(listen), *flags]
        super().__init__(command, cpu, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.uris = []
        for _ in listen:
            word, _, uri = self.line(ready_s_max).strip().partition(" ")
            if word != "ready":
                raise MeasureError(f"kvserver said '{word} {uri}'")
            self.uris.append(uri)


class Probe(Process):
    """osprey_probe or competitor_probe: ask() has it measure something and returns what it found."""

    def __init__(self, name, flags, cpu=None):
        super().__init__([f"bazel-bin/tools/bench.d/{name}", *flags], cpu, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, what, **numbers):
        words = [what] + [f"{name}={value}" for name, value in numbers.items()]
        self._child.stdin.write((" ".join(words) + "\n").encode())
        answer = json.loads(self.line(ANSWER_S_MAX))
        if "error" in answer:
            raise MeasureError(answer["error"])
        return answer


# ---- perftest ------------------------------------------------------------------------------------------------------

PERFTEST_PAIRS = 4      # an end that the other missed waits for ever: both are started anew
PERFTEST_ATTEMPTS = 20  # of the client, until its server listens
PERFTEST_S_MAX = 60


def perftest_row(text, size):
    """The numbers of the line for `size` in what ib_*_lat and ib_*_bw print, by the names in the line above it."""
    names = None
    for line in text.splitlines():
        if line.split()[:1] == ["#bytes"]:
            # "#bytes #iterations t_min[usec] … 99% percentile[usec]": a name ends with its unit, or has none.
            names = re.findall(r"#\w+|[\w.%]+(?: \w+)*\[[^\]]*\]", line)
        words = line.split()
        if names and words and words[0] == str(size) and len(words) == len(names):
            return dict(zip(names, map(float, words)))
    raise MeasureError(f"perftest printed no row for {size} bytes:\n{text[-2000:]}")


def latency_us(row):
    return row["t_typical[usec]"]


def messages_per_second(row):
    """From the bandwidth, which has more digits than the rate."""
    return mib_per_second(row) * 2**20 / row["#bytes"]


def mib_per_second(row):
    return row["BW average[MiB/sec]" if "BW average[MiB/sec]" in row else "BW average[MB/sec]"]


def perftest(program, device, address, size, iterations, flags=(), server_cpu=None, client_cpu=None):
    """One run of both ends over rdma_cm; returns its row."""
    command = [program, "--rdma_cm", f"--ib-dev={device}", f"--size={size}", f"--iters={iterations}", "--CPU-freq", *flags]
    said = ""
    for _ in range(PERFTEST_PAIRS):
        with Process(command, server_cpu, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            said = perftest_client(on_cpu(client_cpu, [*command, address]))
        if said:
            return perftest_row(said, size)
    raise MeasureError(f"{' '.join(command)}: the two ends did not meet")


def perftest_client(command):
    """What it printed; nothing if it found no server, or did not end."""
    for _ in range(PERFTEST_ATTEMPTS):
        time.sleep(0.5)
        try:
            client = subprocess.run(command, capture_output=True, text=True, timeout=PERFTEST_S_MAX, check=False)
        except subprocess.TimeoutExpired:
            progress(f"{command[0]} is given up after {PERFTEST_S_MAX} s, and tried again")
            return ""
        if client.returncode == 0:
            return client.stdout
    return ""
