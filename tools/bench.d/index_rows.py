"""What tools/bench index prints: rows from Google Benchmark's JSON, and from what callgrind counted."""

import collections

import rows

# Updates a second, one core, 10 M keys, batches of 8.
AT_LEAST = {"UpdateBatch/10000000/8/8": 12e6, "UpdateBatch/10000000/100/8": 8e6}


def rates(document):
    """What Google Benchmark's JSON tells: (value, unit) by name."""
    found = {}
    for one in document["benchmarks"]:
        name = one["name"].removesuffix("/iterations:100")
        if one.get("error_occurred"):
            raise ValueError(f"{name}: {one['error_message']}")
        if "bytes_per_second" in one:
            found[name] = (one["bytes_per_second"] / 1e9, "GB/s")
        elif "items_per_second" in one:
            found[name] = (one["items_per_second"], "a second")
        else:
            found[name] = (one["cpu_time"], one["time_unit"])
        for counter, unit in (("reads_per_get", "READs a GET"), ("load", "load"), ("index_bytes_per_key", "index bytes a key")):
            if counter in one:
                found[f"{name}: {counter}"] = (one[counter], unit)
    return found


def rows_of(rounds):
    by_name = collections.defaultdict(list)
    for results in rounds:
        for name, (value, unit) in results.items():
            by_name[name, unit].append(value)
    return [rows.Row(name, unit, values, at_least=AT_LEAST.get(name)) for (name, unit), values in by_name.items()]


def instruction_rows(counted, baseline):
    """One row an operation, beside the baseline unless that is of another compiler. Both texts as tests/benchmarks/count_instructions has them."""
    compiler, *lines = counted.splitlines()
    baseline_compiler, *baseline_lines = baseline.splitlines()
    before = dict(line.split() for line in baseline_lines) if compiler == baseline_compiler else {}
    found = []
    for name, value in (line.split() for line in lines):
        floors = [float(before[name])] if name in before else []
        found.append(rows.Row(f"{name}: instructions", "", [float(value)], "baseline" if floors else "", floors))
    return found
