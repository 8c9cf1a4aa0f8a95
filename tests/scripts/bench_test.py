#!/usr/bin/python3 -IB
"""What tools/bench's parts make of what they measured: perftest's output, rows, tables. Prints a line a case."""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "bench.d"))

import competitors  # pylint: disable=wrong-import-position
import durability_rows  # pylint: disable=wrong-import-position
import exact_rows  # pylint: disable=wrong-import-position
import index_rows  # pylint: disable=wrong-import-position
import lab_rows  # pylint: disable=wrong-import-position
import native_rows  # pylint: disable=wrong-import-position
import nic_model  # pylint: disable=wrong-import-position
import part  # pylint: disable=wrong-import-position
import processes  # pylint: disable=wrong-import-position
import rows  # pylint: disable=wrong-import-position

def module_of(path):
    """A program whose name does not end in .py."""
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


count_instructions = module_of(ROOT / "tests/benchmarks/count_instructions")
scale = ROOT / "tests/benchmarks/scale"

READ_LAT = """\
 Dual-port       : OFF\t\tDevice         : rxe0
 local address: LID 0000 QPN 0x0011 PSN 0x6ed2e4
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 256     3000          25.87          28775.08      83.74    \t       289.28      \t1739.64\t\t9770.41 \t\t28502.22
---------------------------------------------------------------------------------------
"""
READ_BW = """\
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 256        20000            9.97               9.77   \t\t     0.040018
"""


def raises(kind, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def row(**more):
    return rows.Row("GET", "µs", [11.0, 30.0, 12.0], "READ", [10.0, 10.0, 10.0], **more)


def the_rate_of_a_benchmark_is_its_bytes_or_else_its_items():
    document = {"benchmarks": [{"name": "Hash/8", "bytes_per_second": 3e9, "items_per_second": 1},
                               {"name": "Split/8/iterations:100", "items_per_second": 5.0, "load": 0.5},
                               {"name": "HashAKey", "cpu_time": 7.5, "time_unit": "ns"}]}
    assert index_rows.rates(document) == {"Hash/8": (3.0, "GB/s"), "Split/8": (5.0, "a second"), "Split/8: load": (0.5, "load"),
                                          "HashAKey": (7.5, "ns")}
    document["benchmarks"][2] |= {"error_occurred": True, "error_message": "full"}
    assert "HashAKey: full" in raises(ValueError, index_rows.rates, document)


def instructions_stand_beside_the_baseline_of_the_same_compiler_alone():
    counted = "compiler gcc 1\nput 110.0\nnew 5.0\n"
    put, new = index_rows.instruction_rows(counted, "compiler gcc 1\nput 100.0\n")
    assert (put.floors, new.floors) == ([100.0], [])
    assert not index_rows.instruction_rows(counted, "compiler gcc 2\nput 100.0\n")[0].floors


def the_throughput_is_read_from_kvbench():
    assert native_rows.kvbench_rate("# x\n[OVERALL], RunTime(ms), 5\n[OVERALL], Throughput(ops/sec), 93073.360\n") == 93073.36
    assert "no throughput" in raises(ValueError, native_rows.kvbench_rate, "nothing")


def the_rates_are_read_from_pollers_benchmark():
    text = ("2 cores; 1000000 keys\n 1 pollers: 2.50 million PUTs/s (1.00 times the first) on 1.00 cores: 2.60 a core\n"
            "   machine ceiling, 2 servers of 1 poller: 4.00 million PUTs/s (1.6 times the first) on 2.00 cores: 2.00 a core\n")
    assert native_rows.pollers_rates(text) == {1: (2.5e6, 2.6e6)}
    assert "no rate" in raises(ValueError, native_rows.pollers_rates, "")


def a_profile_has_what_each_function_spends_itself():
    with tempfile.TemporaryDirectory() as work:
        directory = pathlib.Path(work)
        (directory / "part.1").write_text("events: Ir\nfn=(1) main\n10 5\ncfn=(2) Get(int)\ncalls=1 7\n11 100\n")
        (directory / "part.2").write_text("fn=(2)\n20 30\n+1 4\n* 6\ncfn=(3) memcpy\ncalls=2 9\n-1 50\nfn=(3)\n9 50\n")
        assert count_instructions.spent_in(directory, 1) == {"main": 5}
        assert count_instructions.spent_in(directory, 2) == {"memcpy": 50, "Get(int)": 40}


def a_native_row_keeps_its_rounds_and_its_target():
    found = native_rows.Collected()
    for _ in range(2):
        native_rows.add_once(found, "inline", 0.3, {"redis": 35.0, "memcached": 30.0}, 0.4)
        native_rows.add_batched(found, "inline", 10_000_000, 9e6, 10e6, 20e6)
    redis, memcached, bare, table, _ = found.rows()
    assert (redis.met, memcached.met, bare.met, table.met) == (True, None, None, False)
    assert (redis.values, redis.floors) == ([0.3, 0.3], [35.0, 35.0])


def the_typical_latency_is_read_from_ib_read_lat():
    assert processes.latency_us(processes.perftest_row(READ_LAT, 256)) == 83.74


def the_rate_is_read_from_ib_read_bw_with_all_its_digits():
    found = processes.perftest_row(READ_BW, 256)
    assert processes.mib_per_second(found) == 9.77
    assert round(processes.messages_per_second(found)) == 40018


def an_output_without_the_row_is_an_error_that_shows_it():
    assert "local address" in raises(processes.MeasureError, processes.perftest_row, READ_LAT, 64)
    assert "Unable" in raises(processes.MeasureError, processes.perftest_row, "Unable to init\n", 256)


def a_ratio_is_taken_within_its_round_and_the_median_of_them_is_judged():
    assert row(at_most=1.2).met
    assert not row(at_most=1.1).met
    assert row(at_least=1.1).met is True
    assert row().met is None
    assert (row().as_json()["judged_min"], row().as_json()["judged_max"]) == (1.1, 3.0)


def a_row_without_rounds_or_with_others_than_its_floor_is_refused():
    assert "no round" in raises(ValueError, rows.Row, "GET", "µs", [])
    assert "2 rounds" in raises(ValueError, rows.Row, "GET", "µs", [1, 2], "READ", [1])


def a_table_says_what_was_met_and_what_was_not():
    text = rows.table([row(at_most=1.2), row(at_most=1.1)])
    assert len(text) == 3
    assert text[1].endswith("met") and not text[1].endswith("NOT MET") and text[2].endswith("NOT MET")
    assert "≤ 1.2" in text[1] and "1.10 to 3.00" in text[1]


def what_is_written_can_be_read():
    with tempfile.TemporaryDirectory() as directory:
        rows.write_json(directory, "lab", {"commit": "abc"}, [row(at_most=1.2)])
        found = json.loads((pathlib.Path(directory) / "lab.json").read_text(encoding="utf-8"))
    assert found["environment"] == {"commit": "abc"}
    assert found["rows"][0]["judged_median"] == 1.2 and found["rows"][0]["met"]


def what_fails_costs_its_own_section_and_is_in_the_results_and_the_status():
    failures = part.Failures("made up")
    found = native_rows.Collected()
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for name, error in (("one", None), ("two", processes.MeasureError("SCAN: DEADLINE_EXCEEDED")), ("three", None),
                            ("four", BrokenPipeError("gone")), ("five", subprocess.TimeoutExpired("six", 1))):
            with failures.section(name):
                if error:
                    raise error
                found.add(name, "/s", 1.0)
    assert [line.name for line in found.rows()] == ["one", "three"]
    assert "bench made up: two: SCAN: DEADLINE_EXCEEDED\n" in said.getvalue()
    assert [failure["name"] for failure in failures.found] == ["two", "four", "five"]
    with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(io.StringIO()) as printed:
        flags = argparse.Namespace(json=directory)
        assert raises(SystemExit, part.finish, "made up", flags, {}, found.rows(), rows, failures.found) == "1"
        document = json.loads((pathlib.Path(directory) / "made up.json").read_text(encoding="utf-8"))
    assert [line["name"] for line in document["rows"]] == ["one", "three"]
    assert document["failures"][0] == {"name": "two", "reason": "SCAN: DEADLINE_EXCEEDED"}
    assert "three" in printed.getvalue() and "NOT MEASURED  two: SCAN: DEADLINE_EXCEEDED" in printed.getvalue()


KVSERVER = """#!/bin/sh
echo "ready ${1#--listen=}"
exec sleep 60
"""
# One failed SCAN, as kvbench reports it.
KVBENCH = """#!/bin/sh
case "$*" in *--workload=e*) exit 4 ;; esac
echo "[OVERALL], Throughput(ops/sec), 1000.0"
"""


def a_part_whose_programs_fail_prints_the_rest_and_names_each():
    with tempfile.TemporaryDirectory() as directory:
        copy = pathlib.Path(directory) / "copy"
        (copy / "tools").mkdir(parents=True)
        shutil.copytree(ROOT / "tools" / "bench.d", copy / "tools" / "bench.d")
        native = copy / "tools" / "bench.d" / "native"
        native.write_text(native.read_text(encoding="utf-8").replace("/proc/sys/vm/nr_hugepages", "/nonexistent"), encoding="utf-8")
        for path, text in (("server/kvserver", KVSERVER), ("tools/kvbench", KVBENCH)):
            program = copy / "bazel-bin" / path
            program.parent.mkdir(parents=True)
            program.write_text(text, encoding="utf-8")
            program.chmod(0o755)
        for name, sections in (("native", ("beside competitors", "YCSB E, threads 1, round 1", "pollers")), ("index", ("round 1", "instructions")),
                               ("memory", ("refills", "idle_connections")), ("durability", ("puts", "beside_the_disk", "restarts", "gets")),
                               ("python", ("calls",)),
                               ("cluster", ("operations", "outages")),
                               ("growth", ("memory", "by pollers", "fill", "READs a GET", "guest")), ("lab", ("guest",)),
                               ("exact", ("guest",))):
            ran = subprocess.run([copy / "tools" / "bench.d" / name, "--short", "--no-build", f"--json={directory}"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            assert ran.returncode == 1, (name, ran.stderr)
            document = json.loads((pathlib.Path(directory) / f"{name}.json").read_text(encoding="utf-8"))
            for section in sections:
                assert f"bench {name}: {section}: " in ran.stderr, (name, section, ran.stderr)
                assert section in [failure["name"] for failure in document["failures"]], (name, section)
            if name == "native":
                measured = [f"YCSB {letter}, 16 in flight, 1 thread" for letter in "ABCDF"] + ["YCSB C, 16 in flight, 2 threads"]
                assert [line["name"] for line in document["rows"]] == measured, document["rows"]


def the_rate_of_sets_is_read_from_redis_benchmark():
    printed = ("WARNING: Could not fetch server CONFIG\n"
               '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"\n'
               '"SET","1428.57","0.686","0.448","0.519","1.303","1.303","1.303"\n')
    assert competitors.benchmark_row(printed) == (1428.57, 519.0)
    assert "no rate: ERR" in raises(ValueError, competitors.benchmark_row, "ERR unknown command")


def durable_puts(rates):
    return dict(zip(("memory", "async", "sync", "Redis everysec", "Redis always"), ((rate, 1e6 / rate) for rate in rates)))


def durable_puts_have_targets_beside_memory_and_redis():
    found = native_rows.Collected()
    for size in durability_rows.SIZES:
        for in_flight in durability_rows.IN_FLIGHT:
            durability_rows.add_puts(found, size, in_flight, durable_puts([1000, 850, 20, 180, 10]))
    table = {(line.name, line.floor_name): line for line in found.rows()}
    assert [floor for (name, floor), line in table.items() if line.met is False] == ["Redis everysec", "async"]
    assert sum(line.met is not None for line in table.values()) == 12
    assert table["PUTs of 64 B, 256 in flight: async", "memory"].met
    assert table["PUTs of 1 KiB, 16 in flight: sync", "Redis always"].judged == [2.0]


def puts_beside_a_checkpoint_are_told_from_others():
    spans = [(0, 1, 10), (1, 3, 99), (3, 4, 20), (4, 6, 99), (7, 8, 30)]
    assert durability_rows.beside_a_checkpoint(spans, 2, 5) == ([20], [10, 30])
    assert "0 spans of PUTs were beside" in raises(processes.MeasureError, durability_rows.beside_a_checkpoint, spans, 6.5, 6.7)


def a_data_directory_in_memory_is_not_measured():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        assert f"{directory} is in memory (tmpfs)" in raises(processes.MeasureError, durability_rows.disk_of, directory)
    assert "findmnt finds no file system of /nonexistent" in raises(processes.MeasureError, durability_rows.disk_of, "/nonexistent")


def lab_round(get_us):
    """What the guest's part finds in a round, made up; in the second of two turns all takes twice as long."""

    def of_turns(floor_us, *subjects):
        times = [{"p50_us": us, "reads_per_get": 1.0} for us in (get_us, 2 * get_us)]
        return {"floor": [floor_us, 2 * floor_us]} | {subject: times for subject in subjects}

    return {
        "latencies": {"inline": {"bytes": 256} | of_turns(25.0, "get", "miss", "cold 64", "bare"),
                      "known 64": {"bytes": 112} | of_turns(24.0, "get"),
                      "known 1024": {"bytes": 1072} | of_turns(31.0, "get")},
        "messages": {"one": of_turns(10.0, "ping", "put 64", "put 1024"), "puts": {"per_second": 1}, "multi_put": {"per_second": 1}},
        "rates": {"i 16": {"read_bw": 40000.0, "gets": 38000.0, "multi_get": 39000.0}},
        "bulk": {"1048576": {"read_bw": 200.0, "get": 100.0, "put": 90.0, "hash_us": 1000.0}},
        "competitors": {"64": {f"{name} {kind}{wait}": 100.0 for name in ("redis", "memcached", "osprey")
                          for kind in ("get", "set", "put") for wait in (" spin", " block", "")}},
        "server": {"requests": 0, "cpu_percent": 0.1},
    }


def the_lab_has_a_row_for_each_of_its_targets():
    table = {(line.name, line.floor_name): line for line in lab_rows.rows_of([lab_round(26.0), lab_round(27.0), lab_round(40.0)])}
    inline = table["GET 8 B inline, 1 READ: p50", "ib_read_lat 256 B"]
    assert inline.at_most == 1.10 and inline.met and inline.judged == [1.04, 1.04, 1.08, 1.08, 1.6, 1.6]
    assert table["PUT 64 B: p50", "2 × ib_send_lat 64 B"].floors == 3 * [20.0, 40.0]
    assert table["GET 8 B inline, 16 in flight", "ib_read_bw"].met
    assert not table["GET 1 MiB into registered memory", "ib_read_bw"].met
    # 1 ms a MiB, 100 of them a second.
    assert table["    of it the checksum, 1 MiB", ""].values[0] == 10.0
    assert {line.at_most for line in table.values()} >= {1.10, 2.1, 1.3, 0.35, 1.01, 2.05, 0, 1}


def exact_turn(get_us):
    """What the guest's part of exact finds in a turn, made up."""

    def beside(floor_us, *subjects):
        return {"floor": [floor_us]} | {subject: [{"p50_us": get_us}] for subject in subjects}

    return {
        "latencies": {"inline": {"bytes": 256} | beside(25.0, "get", "miss", "cold 64", "bare"),
                      "known 64": {"bytes": 112} | beside(24.0, "get"), "known 1024": {"bytes": 1072} | beside(31.0, "get")},
        "messages": beside(10.0, "ping", "put 64", "put 1024"),
        "batches": {"multi_get inline": 20.0, "multi_get known 64": 20.0, "multi_put 64": 5.0},
    }


def exact_table(*get_us):
    """Of two rounds with a turn for each latency."""
    return exact_rows.rows_of(2 * [[exact_turn(us) for us in get_us]])


def an_exact_row_is_the_least_turn_of_each_round_to_three_digits():
    table = {line.name: line for line in exact_table(30.0, 26.0, 28.0)}
    assert table["GET inline"].judged == [1.04, 1.04] and table["GET inline"].met
    assert (table["GET cold, 64 B"].judged, table["ping"].floors) == ([0.52, 0.52], [20.0, 20.0])
    assert table["MultiGet of 16 inline, a key"].judged == [0.8, 0.8]
    assert any("1.040 to 1.040" in line for line in rows.table(table.values()))


def exact_rounds_that_differ_by_more_than_half_a_percent_are_named():
    same = exact_rows.rows_of([[exact_turn(26.0)], [exact_turn(26.1)]])
    assert not list(exact_rows.rounds_apart(same))
    apart = list(exact_rows.rounds_apart(exact_rows.rows_of([[exact_turn(26.0)], [exact_turn(26.2)]])))
    assert "the rounds of 'GET inline' are 0.8 % apart; at most 0.5 % are allowed" in apart


def an_exact_row_two_percent_above_its_baseline_is_named():
    baseline = exact_rows.Baseline.parse(exact_rows.Baseline.of("gcc 1", exact_table(26.0)).text())
    assert baseline.measured_with == "gcc 1" and baseline.ratios["GET inline"] == 1.04
    assert not list(exact_rows.above_baseline(exact_table(26.5), baseline, "gcc 2"))
    assert not list(exact_rows.above_baseline(exact_table(20.0), baseline, "gcc 1"))
    above = list(exact_rows.above_baseline(exact_table(26.6), baseline, "gcc 2"))
    assert "'GET inline' is 1.064, 2.3 % above its baseline of 1.040; it was measured with gcc 1, not gcc 2" in above
    assert not any(sentence.startswith("'MultiGet") for sentence in above)


def an_exact_row_without_a_baseline_or_a_baseline_without_its_row_is_named():
    table = exact_table(26.0)
    baseline = exact_rows.Baseline.of("gcc 1", table[1:])
    baseline.ratios["GET of old"] = 1.0
    assert list(exact_rows.above_baseline(table, baseline, "gcc 1")) == [
        f"'{table[0].name}' is not in the baseline; write another by --update",
        "'GET of old' is in the baseline only; write another by --update"]


def the_committed_baseline_has_the_rows_of_exact():
    baseline = exact_rows.Baseline.parse((ROOT / "tools" / "bench.d" / "exact.baseline").read_text(encoding="utf-8"))
    assert list(baseline.ratios) == [line.name for line in exact_table(26.0)]


def the_model_fits_the_published_rates_of_reads():
    nic = nic_model.NICS[0]
    for read_bytes, rate in nic_model.PUBLISHED_READ_RATES.items():
        assert abs(nic_model.messages_per_second(nic, read_bytes) / rate - 1) < 0.02, read_bytes


def the_model_is_limited_by_whatever_is_slowest():
    nic = nic_model.Nic("made up", link_gbit=8, pcie_gb=100, speedup=1)  # 1 GB/s of link
    rate, limit = nic_model.gets_per_second(nic, nic_model.Get("a GET", (914,)))
    assert (limit, round(rate)) == ("link", 1_000_000)
    both, _ = nic_model.gets_per_second(nic, nic_model.Get("a GET", (914, 914)))
    assert round(both) == 500_000
    narrow = nic_model.Nic("made up", link_gbit=1000, pcie_gb=0.1, speedup=100)
    assert nic_model.gets_per_second(narrow, nic_model.Get("a GET", (256,)))[1] == "PCIe"
    slow = nic_model.Nic("made up", link_gbit=1000, pcie_gb=1000, speedup=1)
    assert nic_model.gets_per_second(slow, nic_model.Get("a GET", (8,))) == (1e9 / 19.6, "messages")


def the_model_counts_cores_and_servers():
    assert nic_model.client_cores(20e6, 500) == 10
    assert nic_model.servers_needed(10e6, 100e6, 1e9, 100, 64 * 2**30, 1.22) == (13, "rate")
    assert nic_model.servers_needed(100e6, 100e6, 1e9, 1000, 100e9, 1) == (10, "memory")


def bench(*arguments):
    return subprocess.run([ROOT / "tools" / "bench", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False)


def the_model_runs_by_the_command_of_the_first_page():
    ran = bench("model")
    assert ran.returncode == 0, ran.stderr
    assert "400 Gb/s" in ran.stdout, ran.stdout


def the_help_tells_every_part():
    ran = bench("--help")
    assert ran.returncode == 0, ran.stderr
    for path in (ROOT / "tools" / "bench.d").iterdir():
        if path.is_file() and not path.suffix and path.name[0].islower():
            assert f"\n  {path.name} " in ran.stdout, path.name


def a_part_or_flag_that_is_none_is_status_two_and_measures_nothing():
    for wrong in ("--bogus", "everything", "--json="):
        ran = bench(wrong)
        assert (ran.returncode, ran.stdout) == (2, ""), wrong
        assert ran.stderr.startswith("usage: "), wrong


def a_cluster_on_paper_has_the_constants_of_the_sources_and_names_its_bounds():
    ran = subprocess.run([scale, "--servers=3,64,1000", "--json"], capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    assert (result["known"]["ttl_s"], result["known"]["client_frame_bytes"]) == (3, 5120), result["known"]
    three, many, thousand = result["rows"]
    assert (three["links_a_server"], three["connections_a_client"], three["bounds"]) == (4, 4, []), three
    # 192 copies are three at each server, each with two others.
    assert (many["copies_a_server"], many["links_a_server"]) == (3, 12), many
    assert thousand["links_a_server"] == 4 and len(thousand["bounds"]) == 2, thousand
    for wrong in ("--servers=0", "--servers=many", "--replicas=0", "--record-bytes=-1", "--etcd-mbps=0", "--bogus"):
        ran = subprocess.run([scale, wrong], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (2, ""), wrong


def main():
    cases = [value for value in list(globals().values())
             if callable(value) and getattr(value, "__module__", "") == "__main__"
             and value.__name__ not in ("main", "module_of", "raises", "row", "durable_puts", "lab_round", "exact_turn", "exact_table", "bench")]
    failed = 0
    for case in cases:
        sentence = "tools/bench: " + case.__name__.replace("_", " ")
        try:
            case()
            print(f"ok - {sentence}")
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc(file=sys.stdout)
            print(f"not ok - {sentence}")
            failed += 1
    sys.exit(1 if failed else 0)


main()
