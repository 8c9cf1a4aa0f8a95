"""Single operations over verbs, each in turns with perftest's of the same size: what the parts `exact` and `lab` share."""

import os

from processes import latency_us, perftest

WINDOW_BYTES = 256                   # what a GET READs of the index
KEYS = {"i": 8, "m": 64, "k": 1024}  # sets of keys that GETs read, and the bytes of their values
WRITTEN = {"w": 64, "v": 1024}       # sets that PUTs update


class BesidePerftest:
    """Keys on a server, and what a probe measures with them, beside the floor of each."""

    def __init__(self, probe, keys_of_set, turns, scale, cpus):
        """scale: 1 for real, less for fewer operations; cpus: the server's and the client's."""
        self.probe = probe
        self.keys_of_set = keys_of_set
        self._turns = turns
        self._scale = scale
        self._cpus = cpus
        self.read_bytes = {}

    def count(self, full):
        return max(100, int(full * self._scale))

    def perftest(self, program, size, count, *flags):
        return perftest(program, os.environ["LAB_DEVICE"], os.environ["LAB_IP"], size, self.count(count), flags, *self._cpus)

    def get(self, keys, **more):
        return self.probe.ask("get", keys=keys, of=self.keys_of_set, size=KEYS.get(keys, 8), count=self.count(4000), **more)

    def fill(self):
        for keys, size in (KEYS | WRITTEN).items():
            self.probe.ask("fill", keys=keys, count=self.keys_of_set, size=size)
        for keys, size in KEYS.items():
            # Often enough that the client has cached nearly all locations; the answer tells how long a READ then is.
            self.probe.ask("gets", keys=keys, of=self.keys_of_set, size=size, count=5 * self.keys_of_set, depth=64)
            read_bytes = self.get(keys)["read_bytes"]
            self.read_bytes[keys] = WINDOW_BYTES if keys == "i" else round(read_bytes / 8) * 8

    def in_turns(self, floor, subjects):
        """Lists of what `floor` and each of `subjects` (functions by name) found: the machine changes its speed within
        seconds, and a ratio of latencies says something only of what was measured in one breath."""
        found = {"floor": []} | {name: [] for name in subjects}
        for _ in range(self._turns):
            found["floor"].append(floor())
            for name, subject in subjects.items():
                found[name].append(subject())
        return found

    def latencies(self):
        """GETs, each beside bare READs of its length."""
        found = {}
        for keys in KEYS:
            name = "inline" if keys == "i" else f"known {KEYS[keys]}"
            size = self.read_bytes[keys]
            # (Of keys that do not fit their lines it may be known where they are: all are to be READ as inline ones.)
            subjects = {"get": lambda keys=keys: self.get(keys, known=0 if keys == "i" else 1)}
            if keys == "i":
                subjects |= {
                    "miss": lambda: self.get("z", absent=1),
                    "cold 64": lambda: self.get("m", known=0),
                    "bare": lambda: self.probe.ask("read", bytes=WINDOW_BYTES, count=self.count(4000)),
                }
            floor = lambda size=size: latency_us(self.perftest("ib_read_lat", size, 4000))
            found[name] = {"bytes": size} | self.in_turns(floor, subjects)
        return found

    def messages(self, probe, *perftest_flags):
        """Pings and PUTs by `probe`, beside SENDs of 64 bytes."""
        subjects = {"ping": lambda: probe.ask("ping", count=self.count(2000))}
        for keys, size in WRITTEN.items():
            subjects[f"put {size}"] = lambda keys=keys, size=size: probe.ask(
                "put", keys=keys, of=self.keys_of_set, size=size, count=self.count(2000))
        return self.in_turns(lambda: latency_us(self.perftest("ib_send_lat", 64, 4000, *perftest_flags)), subjects)
