"""What all parts of tools/bench have in common: their flags, building, and what they print at their end."""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

BUILD_S_MAX = 1800


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
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    return flags


def build(targets, flags):
    if flags.no_build:
        return
    if subprocess.run(["bazel", "build", *targets], timeout=BUILD_S_MAX, check=False).returncode != 0:
        sys.exit("bench: the build failed, see above")


def in_guest(script, arguments, seconds_max, lab_flags=()):
    """Runs SCRIPT ARGUMENTS… FILE in the lab's guest; returns what it wrote to FILE."""
    with tempfile.TemporaryDirectory(prefix="osprey-bench.", dir="/tmp") as directory:  # the guest sees it
        path = pathlib.Path(directory) / "found.json"
        command = ["tools/lab", f"--timeout={seconds_max}", *lab_flags, "--", script, *map(str, arguments), str(path)]
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(f"bench: {script} failed in the guest, see above")
        return json.loads(path.read_text(encoding="utf-8"))


def commit():
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or "unknown"


def environment():
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        models = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {"commit": commit(), "kernel": platform.release(), "cpu": models[0] if models else "unknown",
            "cpus": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "command": " ".join(sys.argv)}


def finish(name, flags, more, table, rows):
    """Prints the rows, with what they were measured on, and writes them if asked to."""
    about = environment() | more
    for line in rows.table(table):
        print(line)
    print(", ".join(f"{key} {value}" for key, value in about.items() if not isinstance(value, dict)))
    if flags.json:
        rows.write_json(flags.json, name, about, table)
