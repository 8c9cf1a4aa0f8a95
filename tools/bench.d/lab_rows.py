"""The rows of `tools/bench lab`, of what its rounds found."""

from rows import Row

MIB = 1 << 20


def each(rounds, *path):
    """What lies at `path` in every round."""
    values = []
    for found in rounds:
        for step in path:
            found = found[step]
        values.append(found)
    return values


def beside_reads(rounds):
    """GETs beside bare READs of their length."""
    lengths = rounds[0]["latencies"]["read_bytes"]

    def row(text, get, floor, at_most):
        return Row(text, "µs", each(rounds, "latencies", "get", get, "p50_us"), f"ib_read_lat {lengths[floor]} B",
                   each(rounds, "latencies", "read_lat", floor), at_most=at_most)

    yield Row("bare READ of a Client, 256 B: p50", "µs", each(rounds, "latencies", "bare", "p50_us"),
              f"ib_read_lat {lengths['inline']} B", each(rounds, "latencies", "read_lat", "inline"))
    yield row("GET 8 B inline, 1 READ: p50", "inline", "inline", 1.10)
    yield row("GET 64 B slot known, 1 READ: p50", "known 64", "known 64", 1.10)
    yield row("GET 1 KiB slot known, 1 READ: p50", "known 1024", "known 1024", 1.10)
    yield row("GET of no key, 1 READ: p50", "miss", "inline", 1.10)
    yield row("GET 64 B cold, 2 READs: p50", "cold 64", "inline", 2.1)
    for get, at_most in (("inline", 1.10), ("known 64", 1.01), ("known 1024", 1.01), ("cold 64", 2.05)):
        yield Row(f"READs a GET, {get}", "", each(rounds, "latencies", "get", get, "reads_per_get"), at_most=at_most)


def beside_sends(rounds):
    """Messages beside a SEND there and one back."""
    there_and_back = [2 * half for half in each(rounds, "messages", "send_lat")]
    floor = "2 × ib_send_lat 64 B"
    yield Row("ping: p50", "µs", each(rounds, "messages", "ping", "p50_us"), floor, there_and_back)
    yield Row("PUT 64 B: p50", "µs", each(rounds, "messages", "put", "64", "p50_us"), floor, there_and_back, at_most=1.3)
    yield Row("PUT 1 KiB: p50", "µs", each(rounds, "messages", "put", "1024", "p50_us"))
    yield Row("PUT 64 B, 32 in flight", "a second", each(rounds, "messages", "puts", "per_second"))
    yield Row("PUT 64 B, MultiPut of 64", "a second", each(rounds, "messages", "multi_put", "per_second"))


def rates(rounds):
    for name in rounds[0]["rates"]:
        keys, depth = name.split()
        what = "8 B inline" if keys == "i" else "64 B slot known"
        floor = ("ib_read_bw", each(rounds, "rates", name, "read_bw"))
        yield Row(f"GET {what}, {depth} in flight", "a second", each(rounds, "rates", name, "gets"), *floor, at_least=0.90)
        yield Row(f"GET {what}, MultiGet of {depth}", "a second", each(rounds, "rates", name, "multi_get"), *floor)


def bulk(rounds):
    for size in rounds[0]["bulk"]:
        kib = int(size) >> 10
        text = f"{kib} KiB" if kib < 1024 else f"{kib >> 10} MiB"
        floor = ("ib_read_bw", each(rounds, "bulk", size, "read_bw"))
        gets = each(rounds, "bulk", size, "get")
        yield Row(f"GET {text} into registered memory", "MiB/s", gets, *floor, at_least=0.85)
        hashes = each(rounds, "bulk", size, "hash_us")
        share = [100 * us / 1e6 * mib * MIB / int(size) for us, mib in zip(hashes, gets)]
        yield Row(f"    of it the checksum, {text}", "% of the time", share)
        yield Row(f"PUT {text} from registered memory", "MiB/s", each(rounds, "bulk", size, "put"), *floor)


def rivals(rounds):
    for size in rounds[0]["rivals"]:
        text = f"{size} B" if int(size) < 1024 else f"{int(size) >> 10} KiB"
        for kind, ours in (("get", "GET"), ("set", "PUT")):
            values = each(rounds, "rivals", size, "osprey get" if kind == "get" else "osprey put")
            for name in ("redis", "memcached"):
                for wait in ("spin", "block"):
                    target = 0.35 if kind == "get" and wait == "spin" else None
                    floors = each(rounds, "rivals", size, f"{name} {kind} {wait}")
                    yield Row(f"{ours} {text}: p50", "µs", values, f"{name}, {wait}", floors, at_most=target)


def server(rounds):
    yield Row("requests at the server during GETs", "", each(rounds, "server", "requests"), at_most=0)
    yield Row("CPU of the server during GETs", "% of a core", each(rounds, "server", "cpu_percent"), at_most=1)


def rows_of(rounds):
    return [row for group in (beside_reads, beside_sends, rates, bulk, rivals, server) for row in group(rounds)]
