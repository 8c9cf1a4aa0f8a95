"""What tools/bench native prints: rows from what its rounds found, and what other programs printed, taken apart."""

import collections
import re

import rows

# The targets of README.md.
ONCE = {"inline": 1 / 100, "out of line": 1 / 60}  # p50 of a GET ÷ Redis over a Unix socket
BATCHED = {"inline": 1, "out of line": 1}  # GETs a second, batches of 16 ÷ absl::flat_hash_map


def kvbench_rate(text):
    """Operations a second, from kvbench's report."""
    match = re.search(r"^\[OVERALL\], Throughput\(ops/sec\), ([\d.]+)$", text, re.MULTILINE)
    if not match:
        raise ValueError(f"kvbench told no throughput: {text[-300:]}")
    return float(match.group(1))


def pollers_rates(text):
    """PUTs a second, and a second of a core, by number of pollers, from pollers_benchmark's lines."""
    found = {int(count): (float(rate) * 1e6, float(per_core) * 1e6) for count, rate, per_core in
             re.findall(r"^ *(\d+) pollers: ([\d.]+) million PUTs/s .*: ([\d.]+) a core$", text, re.MULTILINE)}
    if not found:
        raise ValueError(f"pollers_benchmark told no rate: {text[-300:]}")
    return found


class Collected:
    """Values by row, each with what it stands beside, in the order in which they first came."""

    def __init__(self):
        self._rows = collections.OrderedDict()

    def add(self, name, unit, value, floor_name="", floor=None, **targets):
        row = self._rows.setdefault((name, floor_name), {"unit": unit, "values": [], "floors": [], "targets": targets})
        row["values"].append(value)
        if floor is not None:
            row["floors"].append(floor)

    def rows(self):
        return [rows.Row(name, row["unit"], row["values"], floor_name, row["floors"], **row["targets"])
                for (name, floor_name), row in self._rows.items()]


def add_once(found, form, osprey, competitors, bare):
    """One at a time: p50 in microseconds. `competitors` by name."""
    for name, p50 in competitors.items():
        target = {"at_most": ONCE[form]} if name == "redis" else {}
        found.add(f"GET, one at a time, {form}", "us", osprey, name, p50, **target)
    found.add(f"GET, one at a time, {form}", "us", osprey, "bare READ of as much", bare)


def add_batched(found, form, keys, gets, finds, copies):
    """A second, in batches."""
    name = f"GETs in batches of 16, {form}, {keys / 1e6:g} M keys"
    found.add(name, "/s", gets, "flat_hash_map", finds, at_least=BATCHED[form])
    found.add(name, "/s", gets, "bare copies", copies)
