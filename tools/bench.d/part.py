"""What all parts of tools/bench have in common: their flags, building, and what they print at their end."""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile

import processes

BUILD_S_MAX = 1800
# (A probe that died closes its pipe: OSError.)
FAILURES = (processes.MeasureError, OSError, ValueError, KeyError, subprocess.SubprocessError)


def parse(text, add_flags=None):
    """The flags of a part, whose docstring is `text`; `add_flags(parser)` adds its own."""
    description, _, rest = text.partition("\n\n")
    usage, _, epilog = rest.partition("\n\n")
    parser = argparse.ArgumentParser(description=description, usage=usage.removeprefix("usage: "), epilog=epilog,
                                     allow_abbrev=False)
    parser.add_argument("--short", action="store_true", help="fewer rounds: whether it works, not how fast it is")
    parser.add_argument("--json", metavar="DIRECTORY", help="writes what was found there, and pictures")
    parser.add_argument("--no-build", action="store_true", help="uses the programs that bazel-bin has")
    if add_flags:
        add_flags(parser)
    flags = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what was started ends, too
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    return flags


def build(targets, flags):
    if flags.no_build:
        return
    if subprocess.run(["bazel", "build", *targets], timeout=BUILD_S_MAX, check=False).returncode != 0:
        sys.exit("bench: the build failed, see above")


class Failures:
    """What could not be measured. It costs the rows of its own section, and the exit status; the part goes on."""

    def __init__(self, part):
        self._part = part
        self.found = []

    @contextlib.contextmanager
    def section(self, name):
        """Whatever fails in the block ends the block alone, is said at once, and kept for the results."""
        try:
            yield
        except FAILURES as error:
            self.add(name, str(error) or type(error).__name__)

    def add(self, name, reason):
        print(f"bench {self._part}: {name}: {reason}", file=sys.stderr, flush=True)
        self.found.append({"name": name, "reason": reason})


def in_guest(script, arguments, seconds_max, lab_flags=(), failures=None):
    """Runs SCRIPT ARGUMENTS… FILE in the lab's guest; returns what it wrote to FILE. MeasureError: nothing was written."""
    with tempfile.TemporaryDirectory(prefix="osprey-bench.", dir="/tmp") as directory:  # the guest sees it
        path = pathlib.Path(directory) / "found.json"
        command = ["tools/lab", f"--timeout={seconds_max}", *lab_flags, "--", script, *map(str, arguments), str(path)]
        status = subprocess.run(command, check=False).returncode
        failure = f"{script} failed in the guest with status {status}"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise processes.MeasureError(failure if status != 0 else f"{script} wrote no results: {error}") from error
        if status != 0 and failures is not None:
            failures.add("guest", failure)
        return found


def commit():
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def environment():
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {"commit": commit(), "kernel": platform.release(), "cpu": models[0] if models else "unknown",
            "cpus": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "command": " ".join(sys.argv)}


def finish(name, flags, more, table, rows, failures=()):
    """Prints the rows, with what they were measured on, and writes them if asked to. Exits with 1 if something failed."""
    about = environment() | more
    for line in rows.table(table):
        print(line)
    for failure in failures:
        print(f"NOT MEASURED  {failure['name']}: {failure['reason']}")
    print(", ".join(f"{key} {value}" for key, value in about.items() if not isinstance(value, dict)))
    if flags.json:
        rows.write_json(flags.json, name, about, table, failures)
    if failures:
        sys.exit(1)
