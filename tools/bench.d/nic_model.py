"""What a NIC, its link, PCIe and the clients' CPUs allow of Osprey's READs: arithmetic on stated figures.

A model and not a result: nothing here was measured on such a NIC by us. Each figure has its source beside it, or says that it is an
assumption.
"""

import dataclasses
import math

# READs a second by their bytes, of one 100 Gb/s NIC (one port, many queue pairs, RC): an assumption. They come from a list of others'
# measurements that does not name the card. They are cautious: a quarter of what the vendor's manual says of its 200 Gb/s card. It says
# "215 million messages per second" (NVIDIA, ConnectX-6 Ethernet Adapter Cards User Manual, Introduction).
PUBLISHED_READ_RATES = {8: 51e6, 72: 47e6, 136: 39e6, 264: 29e6, 392: 23e6}

# A model that fits these within 2 %. The NIC's pipeline takes a message each 19.6 ns at best (51 M/s). A longer one takes
# 16 ns and 0.07 ns a byte (14.3 GB/s).
MESSAGE_NS_MIN = 19.6
MESSAGE_NS_FIXED = 16.0
NS_PER_BYTE = 0.07

# A READ's response on RoCE v2 (InfiniBand spec, Annex A17), for each packet of at most one MTU: preamble and gap 20,
# Ethernet 14 and 4, IPv4 20, UDP 8, BTH 12, AETH 4, ICRC 4.
WIRE_OVERHEAD_BYTES = 86
MTU_BYTES = 4096

# PCIe: bytes a second of x16 after 128b/130b encoding (PCI Express Base Specification: 8, 16, 32 GT/s a lane), of which about 0.85 are left
# to packets (flow control, acknowledgements: an assumption); a completion of at most 256 B has 20 B of header and framing, a request 24 B.
PCIE_SHARE = 0.85
PCIE_PAYLOAD_BYTES = 256
PCIE_HEADER_BYTES = 20
PCIE_REQUEST_BYTES = 24
CQE_BYTES = 64


@dataclasses.dataclass(frozen=True)
class Nic:
    """`speedup`: how many times as many messages as the NIC above, which is the stated assumption about it."""

    name: str
    link_gbit: float
    pcie_gb: float
    speedup: float


# Link and PCIe generation as sold: 100 Gb/s over PCIe 3 and 200 over PCIe 4 (NVIDIA, ConnectX-6 user manual), 400 over PCIe 5 (ConnectX-7
# user manual). That message rates grow as bandwidth does is an assumption, and "no more messages" the other one.
NICS = [
    Nic("100 Gb/s, PCIe 3", 100, 15.75, 1),
    Nic("200 Gb/s, PCIe 4", 200, 31.5, 2),
    Nic("200 Gb/s, no more messages", 200, 31.5, 1),
    Nic("400 Gb/s, PCIe 5", 400, 63.0, 4),
    Nic("400 Gb/s, no more messages", 400, 63.0, 1),
]


@dataclasses.dataclass(frozen=True)
class Get:
    """A kind of GET: the READs that it takes."""

    name: str
    reads: tuple  # bytes of each


# README.md, "What a GET costs": a window is 256 B; an item 32 B of header, key (8 B here) and value, in a length class.
GETS = [
    Get("8 B inline", (256,)),
    Get("64 B, place known", (112,)),
    Get("64 B, cold", (256, 112)),
    Get("1 KiB, place known", (1072,)),
]


def messages_per_second(nic, read_bytes):
    """What the NIC's pipeline takes of READs of this length."""
    ns = max(MESSAGE_NS_MIN, MESSAGE_NS_FIXED + NS_PER_BYTE * read_bytes)
    return nic.speedup * 1e9 / ns


def link_per_second(nic, read_bytes):
    packets = math.ceil(read_bytes / MTU_BYTES)
    return nic.link_gbit * 1e9 / 8 / (read_bytes + packets * WIRE_OVERHEAD_BYTES)


def pcie_per_second(nic, read_bytes):
    """At the server its completions, at the client payload and the completion queue's entry: whichever is more."""
    completions = read_bytes + math.ceil(read_bytes / PCIE_PAYLOAD_BYTES) * PCIE_HEADER_BYTES
    client = completions + CQE_BYTES + PCIE_HEADER_BYTES + PCIE_REQUEST_BYTES
    return nic.pcie_gb * 1e9 * PCIE_SHARE / max(completions, client)


LIMITS = {"messages": messages_per_second, "link": link_per_second, "PCIe": pcie_per_second}


def gets_per_second(nic, get):
    """Of one server's NIC: (rate, what limits it). Its READs share the NIC, so their times add up."""
    seconds, by = 0.0, {}
    for read_bytes in get.reads:
        name, rate = min(((name, limit(nic, read_bytes)) for name, limit in LIMITS.items()), key=lambda pair: pair[1])
        seconds += 1 / rate
        by[name] = by.get(name, 0) + 1 / rate
    return 1 / seconds, max(by, key=by.get)


def client_cores(rate, client_ns):
    """Cores of clients that ask for so many GETs a second: with fewer, they are the limit and not the NIC."""
    return rate * client_ns / 1e9


def servers_needed(rate_per_server, gets_wanted, keys, bytes_per_key, memory_bytes, skew):
    """(servers, what decides): enough NICs for the rate, of which the fullest has `skew` times its share, and enough memory."""
    by_rate = math.ceil(gets_wanted * skew / rate_per_server)
    by_memory = math.ceil(keys * bytes_per_key / memory_bytes)
    return max(by_rate, by_memory, 1), "memory" if by_memory > by_rate else "rate"
