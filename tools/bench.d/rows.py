"""The rows that the parts of tools/bench measure: medians of rounds, ratios, spread, targets; as a table and as JSON.

Every part measures in rounds, and in each round everything once, or some in several turns, so that what the machine
does meanwhile befalls all alike. A ratio is taken within a round, or a turn, and its median and extremes over all of them
are what is told.
"""

import dataclasses
import json
import pathlib
import statistics


@dataclasses.dataclass
class Row:
    """One line: `values` of each round, or turn, in `unit`; `floors` what they are compared with, of the same, or none."""

    name: str
    unit: str
    values: list
    floor_name: str = ""
    floors: list = dataclasses.field(default_factory=list)
    at_most: float = None  # targets of the ratio, or of the value where there is no floor
    at_least: float = None
    decimals: int = None  # of the ratio; None: as many as number() gives

    def __post_init__(self):
        if not self.values:
            raise ValueError(f"{self.name}: no round measured it")
        if self.floors and len(self.floors) != len(self.values):
            raise ValueError(f"{self.name}: {len(self.values)} rounds, and {len(self.floors)} of {self.floor_name}")

    @property
    def judged(self):
        """What a target is about, a number for each round."""
        return [v / f for v, f in zip(self.values, self.floors)] if self.floors else list(self.values)

    @property
    def met(self):
        """Whether the median keeps to the targets; None if there are none."""
        if self.at_most is None and self.at_least is None:
            return None
        median = statistics.median(self.judged)
        return (self.at_most is None or median <= self.at_most) and (self.at_least is None or median >= self.at_least)

    def as_json(self):
        return {
            "name": self.name,
            "unit": self.unit,
            "values": self.values,
            "median": statistics.median(self.values),
            "floor_name": self.floor_name,
            "floors": self.floors,
            "judged_median": statistics.median(self.judged),
            "judged_min": min(self.judged),
            "judged_max": max(self.judged),
            "at_most": self.at_most,
            "at_least": self.at_least,
            "met": self.met,
        }


def number(value, decimals=None):
    """Three significant digits or so, without an exponent; or so many decimals."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


def target(row):
    if row.met is None:
        return "", ""
    text = f"≤ {row.at_most:g}" if row.at_most is not None else f"≥ {row.at_least:g}"
    return text, "met" if row.met else "NOT MET"


def table(rows):
    """Lines of text, columns aligned: name, median, floor, ratio with its extremes, target."""
    cells = [("", "median", "beside", "ratio", "min to max", "target", "")]
    for row in rows:
        median = f"{number(statistics.median(row.values))} {row.unit}"
        beside = f"{row.floor_name} {number(statistics.median(row.floors))}" if row.floors else ""
        ratio = number(statistics.median(row.judged), row.decimals) if row.floors else ""
        spread = f"{number(min(row.judged), row.decimals)} to {number(max(row.judged), row.decimals)}"
        cells.append((row.name, median, beside, ratio, spread, *target(row)))
    return columns(cells)


def columns(cells):
    """Lines of text, of lines of cells."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def write_json(directory, part, environment, rows, failures=()):
    """DIRECTORY/PART.json: the environment (device, transport, sizes, commit, command), all rows, and what failed."""
    path = pathlib.Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    document = {"part": part, "environment": environment, "rows": [row.as_json() for row in rows],
                "failures": list(failures)}
    (path / f"{part}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
