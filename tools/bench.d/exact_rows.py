"""The rows of `tools/bench exact`, of what its rounds found, and how they are compared with the baseline of an earlier run."""

import dataclasses
import statistics

from rows import Row

DECIMALS = 3
ROUNDS_APART_MAX = 0.005    # rounds that differ more did not measure the same thing
ABOVE_BASELINE_MAX = 0.02


def rows_of(rounds):
    return [*beside_reads(rounds), *beside_sends(rounds)]


def least(rounds, *path):
    """For each round, of its turns: some take 1 % longer, by the state of the guest's allocators."""

    def at(turn):
        for step in path:
            turn = turn[step]
        return turn

    return [min(at(turn) for turn in turns) for turns in rounds]


def beside_reads(rounds):
    """GETs beside bare READs of their length."""

    def row(text, size, values, at_most=None, reads=1):
        floor_name = f"{'' if reads == 1 else f'{reads} × '}ib_read_lat {rounds[0][0]['latencies'][size]['bytes']} B"
        floors = [reads * us for us in least(rounds, "latencies", size, "floor", 0)]
        return Row(text, "µs", values, floor_name, floors, at_most=at_most, decimals=DECIMALS)

    def latency(text, size, subject, at_most=None, reads=1):
        return row(text, size, least(rounds, "latencies", size, subject, 0, "p50_us"), at_most, reads)

    def batch(text, size, subject):
        return row(text, size, least(rounds, "batches", subject))

    yield latency("bare READ of a client, 256 B", "inline", "bare")
    yield latency("GET inline", "inline", "get", 1.05)
    yield latency("GET, location cached, 64 B", "known 64", "get", 1.06)
    yield latency("GET, location cached, 1 KiB", "known 1024", "get", 1.08)
    yield latency("GET of an absent key", "inline", "miss", 1.05)
    yield latency("GET cold, 64 B", "inline", "cold 64", 1.04, reads=2)
    yield batch("MultiGet of 16 inline, a key", "inline", "multi_get inline")
    yield batch("MultiGet of 16, location cached, 64 B, a key", "known 64", "multi_get known 64")


def beside_sends(rounds):
    """Messages beside a SEND there and one back; both ends sleep until one arrives."""
    there_and_back = [2 * half for half in least(rounds, "messages", "floor", 0)]

    def row(text, values):
        return Row(text, "µs", values, "2 × ib_send_lat -e 64 B", there_and_back, decimals=DECIMALS)

    ping, put, put_1024 = (least(rounds, "messages", name, 0, "p50_us") for name in ("ping", "put 64", "put 1024"))
    yield row("ping", ping)
    yield row("PUT 64 B", put)
    yield row("PUT 1 KiB", put_1024)
    yield row("MultiPut of 16, 64 B, a key", least(rounds, "batches", "multi_put 64"))
    yield Row("PUT 64 B ÷ ping", "µs", put, "ping", ping, at_most=1.10, decimals=DECIMALS)


# ---- The baseline --------------------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Baseline:
    """A file: a line that names what it was measured with, then a line a row, "RATIO NAME"."""

    measured_with: str
    ratios: dict

    @classmethod
    def of(cls, measured_with, rows):
        return cls(measured_with, {row.name: statistics.median(row.judged) for row in rows})

    @classmethod
    def parse(cls, text):
        measured_with, *lines = text.splitlines() or [""]
        return cls(measured_with, {name: float(ratio) for ratio, _, name in (line.partition(" ") for line in lines)})

    def text(self):
        return "\n".join([self.measured_with, *(f"{ratio:.4f} {name}" for name, ratio in self.ratios.items())]) + "\n"


def rounds_apart(rows):
    """Yields a sentence for each row whose rounds differ."""
    for row in rows:
        apart = max(row.judged) / min(row.judged) - 1
        if apart > ROUNDS_APART_MAX:
            yield f"the rounds of '{row.name}' are {100 * apart:.1f} % apart; at most {100 * ROUNDS_APART_MAX:g} % are allowed"


def above_baseline(rows, baseline, measured_with):
    """Yields a sentence for each row that is worse than in the baseline, or not in it."""
    now = Baseline.of(measured_with, rows).ratios
    hint = "" if measured_with == baseline.measured_with else f"; it was measured with {baseline.measured_with}, not {measured_with}"
    for name in [*now, *(name for name in baseline.ratios if name not in now)]:
        if name not in now or name not in baseline.ratios:
            yield f"'{name}' is {'in the baseline only' if name not in now else 'not in the baseline'}; write another by --update"
        elif now[name] > baseline.ratios[name] * (1 + ABOVE_BASELINE_MAX):
            more = 100 * (now[name] / baseline.ratios[name] - 1)
            yield f"'{name}' is {now[name]:.3f}, {more:.1f} % above its baseline of {baseline.ratios[name]:.3f}{hint}"
