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


def turns(rounds, *path):
    """Likewise of lists, one in every round, with a turn's find each."""
    return [found for of_round in each(rounds, *path) for found in of_round]


def beside_reads(rounds):
    """GETs beside bare READs of their length."""

    def found(floor, subject, figure):
        return [answer[figure] for answer in turns(rounds, "latencies", floor, subject)]

    def row(text, floor, subject, at_most=None):
        size = rounds[0]["latencies"][floor]["bytes"]
        return Row(text, "µs", found(floor, subject, "p50_us"), f"ib_read_lat {size} B", turns(rounds, "latencies", floor, "floor"),
                   at_most=at_most)

    yield row("bare READ of a Client, 256 B: p50", "inline", "bare")
    yield row("GET 8 B inline, 1 READ: p50", "inline", "get", 1.10)
    yield row("GET 64 B slot known, 1 READ: p50", "known 64", "get", 1.10)
    yield row("GET 1 KiB slot known, 1 READ: p50", "known 1024", "get", 1.10)
    yield row("GET of no key, 1 READ: p50", "inline", "miss", 1.10)
    yield row("GET 64 B cold, 2 READs: p50", "inline", "cold 64", 2.1)
    for name, floor, subject, at_most in (("inline", "inline", "get", 1.10), ("known 64", "known 64", "get", 1.01),
                                          ("known 1024", "known 1024", "get", 1.01), ("cold 64", "inline", "cold 64", 2.05)):
        yield Row(f"READs a GET, {name}", "", found(floor, subject, "reads_per_get"), at_most=at_most)


def beside_sends(rounds):
    """Messages beside a SEND there and one back."""
    there_and_back = [2 * half for half in turns(rounds, "messages", "one", "floor")]

    def row(text, subject, at_most=None):
        values = [answer["p50_us"] for answer in turns(rounds, "messages", "one", subject)]
        return Row(text, "µs", values, "2 × ib_send_lat 64 B", there_and_back, at_most=at_most)

    yield row("ping: p50", "ping")
    yield row("PUT 64 B: p50", "put 64", 1.3)
    yield row("PUT 1 KiB: p50", "put 1024")
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
        yield Row(f"PUT {text} from registered memory", "MiB/s", each(rounds, "bulk", size, "put"), *floor, at_least=0.88)


def competitors(rounds):
    for size in rounds[0]["competitors"]:
        text = f"{size} B" if int(size) < 1024 else f"{int(size) >> 10} KiB"
        for kind, ours in (("get", "GET"), ("set", "PUT")):
            values = each(rounds, "competitors", size, "osprey get" if kind == "get" else "osprey put")
            for name in ("redis", "memcached"):
                for wait in ("spin", "block"):
                    target = 0.35 if kind == "get" and wait == "spin" else None
                    floors = each(rounds, "competitors", size, f"{name} {kind} {wait}")
                    yield Row(f"{ours} {text}: p50", "µs", values, f"{name}, {wait}", floors, at_most=target)


def server(rounds):
    yield Row("requests at the server during GETs", "", each(rounds, "server", "requests"), at_most=0)
    yield Row("CPU of the server during GETs", "% of a core", each(rounds, "server", "cpu_percent"), at_most=1)


# What a round finds, and the rows of it.
GROUPS = {"latencies": beside_reads, "messages": beside_sends, "rates": rates, "bulk": bulk, "competitors": competitors, "server": server}


def rows_of(rounds):
    """Of the groups that were measured."""
    return [row for group, rows in GROUPS.items() if group in rounds[0] for row in rows(rounds)]
