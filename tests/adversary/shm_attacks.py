#!/usr/bin/python3 -IB
"""usage: shm_attacks.py ATTACK SOCKET

One attack on the server at SOCKET, or by a server there. Prints "holding" when the server has all of it, and goes on when a line comes; prints what it
saw as a line of JSON at its end. It runs as a user that the server does not serve but for its socket's mode.
"""

import fcntl
import itertools
import json
import mmap
import os
import pathlib
import random
import resource
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import shm_peer as shm  # pylint: disable=wrong-import-position
from shm_peer import Peer, packet  # pylint: disable=wrong-import-position

ATTACKS = {}


def attack(what, *, after_welcome=False):
    """`what` goes on "a client that …". One `after_welcome` needs a session, so a server without a key."""

    def register(function):
        ATTACKS[function.__name__] = (function, what, after_welcome)
        return function

    return register


def try_join(path, **offer):
    """A peer that was accepted; null if the server refuses more."""
    try:
        peer = Peer(path)
        return peer if peer.join(**offer) else None
    except OSError:
        return None


def enter(path, **offer):
    peer = Peer(path)
    assert peer.enter(**offer), "no Welcome"
    return peer


def slow_socket():
    """A TCP socket whose close blocks for a minute: unsent data, SO_LINGER, and a peer that does not read."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    reader, _ = listener.accept()
    listener.close()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(1 << 20))
    except BlockingIOError:
        return client, reader


@attack("keeps every rule")
def no_attack(path):
    """Without it, an attacker that speaks another version of the protocol would seem harmless."""
    peer = Peer(path)
    assert peer.join(), "not accepted"
    assert peer.hello()
    answer = peer.pop()
    assert answer is not None and answer[0] in (shm.CHALLENGE, shm.WELCOME), answer
    yield


# --- Descriptors that are slow to close. Where the kernel lets the server refuse them (SO_PASSRIGHTS), sending fails.


def give_away(peer, data, clients):
    """Sends the sockets; the copies that are left are the server's, if it takes them."""
    sent = peer.send_or_stop(data, [client.fileno() for client in clients])
    closers = []
    for client in clients:
        if not sent:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        # A server that is quick leaves the last copy, which blocks, to us.
        closers.append(threading.Thread(target=client.close, daemon=True))
        closers[-1].start()
    for closer in closers:
        closer.join(0.1)


@attack("sends a socket that lingers, before any handshake")
def slow_socket_before_the_handshake(path):
    client, reader = slow_socket()
    give_away(Peer(path), packet(shm.CONNECT), [client])
    yield
    reader.close()


@attack("sends surplus sockets that linger")
def surplus_slow_sockets(path):
    pairs = [slow_socket() for _ in range(12)]
    give_away(Peer(path), packet(shm.CONNECT), [client for client, _ in pairs[:6]])
    joined = try_join(path)
    if joined is not None:
        give_away(joined, packet(shm.WAKE), [client for client, _ in pairs[6:]])
    yield
    for _, reader in pairs:
        reader.close()


@attack("leaves sockets that linger unread in a connection that the server ends")
def unread_slow_sockets(path):
    pairs = [slow_socket() for _ in range(4)]
    joined = try_join(path)
    if joined is not None:
        joined.send(packet(99))  # ends the connection; what follows is not read
        for client, _ in pairs:
            give_away(joined, packet(shm.WAKE), [client])
    yield
    for _, reader in pairs:
        reader.close()


@attack("exposes a socket that lingers, and goes")
def slow_socket_as_memory(path):
    client, reader = slow_socket()
    joined = try_join(path)
    if joined is not None:
        give_away(joined, packet(shm.EXPOSE, key=shm.LIVENESS_KEY, length=4096), [client])
        time.sleep(0.1)
        joined.socket.close()
    yield
    reader.close()


# --- Resources that the peer names and the server pays for.


@attack("leaves 400 acceptances unread, of connections that the server has ended")
def unread_acceptances(path):
    peers = []
    for _ in range(20):
        batch = []
        for _ in range(20):
            try:
                batch.append(Peer(path))
                batch[-1].greet()
            except OSError:
                break
        time.sleep(0.02)  # until they are accepted
        for peer in batch:
            peer.send_or_stop(packet(99))
        peers += batch
    yield
    return {"connections": len(peers)}


@attack("exposes memfds of 64 GiB, before any Welcome")
def endless_memory(path):
    fd = shm.memfd(64 << 30)
    peers = [peer for peer in (try_join(path) for _ in range(10)) if peer is not None]
    for peer in peers:
        for key in range(1, 20):
            if not peer.expose(fd, 64 << 30, key):
                break
    yield
    return {"pages": shm.pages_of(fd)}


@attack("has its liveness word in a memfd of 64 GiB", after_welcome=True)
def endless_liveness(path):
    fd = shm.memfd(64 << 30)
    peers = []
    for _ in range(10):
        peer = Peer(path)
        peer.join()
        peer.expose(fd, 64 << 30, shm.LIVENESS_KEY)
        peer.hello(expose=False, liveness=((64 << 30) - 8, 8, shm.LIVENESS_KEY))
        assert peer.pop() is not None
        peers.append(peer)
    time.sleep(1.5)  # the server READs the words of those that are silent
    yield
    return {"pages": shm.pages_of(fd)}


@attack("asks for 65535 slots of replies, and takes none", after_welcome=True)
def greedy_slots(path):
    peers = []
    for _ in range(10):
        peer = enter(path, credits=0xffff)
        for _ in range(128):
            peer.request(shm.STATS)
            time.sleep(0.0005)
        peers.append(peer)
    yield
    sizes = [os.fstat(peer.ring_fd).st_size for peer in peers]
    for peer in peers:
        peer.socket.close()
    time.sleep(0.5)
    return {"ring_bytes": max(sizes), "pages_left": sum(shm.pages_of(peer.ring_fd) for peer in peers)}


@attack("exposes as many memories as it can", after_welcome=True)
def many_memories(path):
    fd = shm.memfd(4096)
    peers = []
    try:
        while len(peers) < 60:
            peers.append(enter(path))
    except (OSError, AssertionError):
        pass
    exposed = 0
    for peer in peers:
        for key in range(2, 40):
            if not peer.expose(fd, 4096, key):
                break
            exposed += 1
    yield
    return {"connections": len(peers), "exposed": exposed}


@attack("connects 2000 times and says nothing")
def silent_connects(path):
    peers = []
    for _ in range(2000):
        try:
            peer = Peer(path)
        except OSError:
            continue
        peers.append(peer)
        if len(peers) > 400:
            peers.pop(0).socket.close()
    yield


@attack("stops half way through the handshake, as often as it may")
def half_handshakes(path):
    peers = []
    for i in range(100):
        peer = try_join(path)
        if peer is None:
            break
        if i % 2:
            peer.hello()
        peers.append(peer)
    yield
    return {"connections": len(peers)}


@attack("connects, enters and goes 300 times")
def comings_and_goings(path):
    for _ in range(300):
        peer = try_join(path)
        if peer is not None:
            peer.hello()
            peer.pop(0.05)
            peer.socket.close()
            os.close(peer.ring_fd)
            os.close(peer.page_fd)
            os.close(peer.liveness)
    yield


# --- The server's files.


@attack("locks the page that it is given")
def lock_the_page(path):
    peer = try_join(path)
    if peer is None:
        return
    fds = [peer.page_fd, peer.ring_fd]
    try:
        fds.append(os.open(f"/proc/self/fd/{peer.page_fd}", os.O_RDONLY))
    except OSError:
        pass
    for fd in fds:  # each has the lock as soon as the server has ended, if it ever can
        threading.Thread(target=fcntl.flock, args=[fd, fcntl.LOCK_SH], daemon=True).start()
    yield


@attack("writes, truncates and seals what it is given")
def write_the_page(path):
    peer = try_join(path)
    if peer is None:
        return
    done = []
    for how in (lambda: os.pwrite(peer.page_fd, b"x" * 24, 0), lambda: os.ftruncate(peer.page_fd, 0),
                lambda: os.ftruncate(peer.ring_fd, 0), lambda: os.ftruncate(peer.ring_fd, 1 << 40),
                lambda: fcntl.fcntl(peer.ring_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
                lambda: os.pwrite(os.open(f"/proc/self/fd/{peer.page_fd}", os.O_RDWR), b"x" * 24, 0),
                lambda: mmap.mmap(os.open(f"/proc/self/fd/{peer.page_fd}", os.O_RDWR), 4096),
                lambda: os.fchmod(peer.page_fd, 0o666)):
        try:
            how()
            done.append(how)
        except OSError:
            pass
    peer.hello()
    yield
    return {"done": len(done)}


# --- Packets.


def garbage_packets():
    valid = packet(shm.CONNECT)
    for length in (0, 1, 7, 8, 23, 24, 47, 49, 200, 4096):
        yield (valid * 100)[:length]
    for changed in ({"magic": 0}, {"version": shm.VERSION - 1}, {"version": 0xffff}, {"credits": 0}, {"credits": 1}, {"frame_bytes": 0}, {"reason": 2},
                    {"frame_bytes": 0xffffffff, "credits": 0xffff}, {"frame_bytes": 1}, {"reads": 0}, {"reads": 0xffffffff},
                    {"key": 0xffffffff}, {"affinity": 0xffffffff}, {"length": 2**64 - 1}):
        yield packet(shm.CONNECT, **changed)
    for kind in (0, shm.EXPOSE, shm.WAKE, shm.BYE, shm.WITHDRAW, 6, 99, 2**32 - 1):
        yield packet(kind)
    dice = random.Random(29)
    for _ in range(50):
        yield dice.randbytes(shm.PACKET.size)


@attack("begins with garbage")
def garbage_greetings(path):
    for data in garbage_packets():
        peer = Peer(path)
        peer.send_or_stop(data)
        peer.socket.settimeout(0.01)
        try:
            peer.socket.recv(1)
        except OSError:
            pass
        peer.socket.close()
    yield


@attack("sends packets in every order, with descriptors of every kind")
def packets_in_every_order(path):
    memory, loose, pipe = shm.memfd(4096), shm.memfd(4096, 0), os.pipe()[0]
    folder, null = os.open("/", os.O_RDONLY), os.open("/dev/zero", os.O_RDWR)
    steps = [(packet(shm.CONNECT), []), (packet(shm.EXPOSE, key=1, length=4096), [memory]),
             (packet(shm.EXPOSE, key=1, length=2**64 - 1), [loose]), (packet(shm.WAKE), [pipe, folder]), (packet(shm.WITHDRAW, key=1), []),
             (packet(shm.EXPOSE, key=2, length=4096), [null]), (packet(shm.BYE), [folder])]
    for order in itertools.permutations(steps, 3):
        peer = try_join(path)
        if peer is None:
            continue
        for data, fds in order:
            if not peer.send_or_stop(data, fds):
                break
        peer.hello(liveness=(0, 8, 1), expose=False)
        peer.socket.close()
        os.close(peer.ring_fd)
        os.close(peer.page_fd)
    yield


@attack("sends its own end of the connection over the connection")
def sockets_in_circles(path):
    for _ in range(20):
        peer = try_join(path)
        if peer is not None:
            for _ in range(8):
                peer.send_or_stop(packet(shm.WAKE), [peer.socket.fileno(), peer.socket.fileno()])
            peer.socket.close()
    yield


@attack("floods the server with wake-ups and withdrawals")
def packet_flood(path):
    peers = [peer for peer in (try_join(path) for _ in range(8)) if peer is not None]
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for peer in peers:
            peer.socket.setblocking(False)
            try:
                while True:
                    peer.socket.send(packet(shm.WAKE))
            except OSError:
                pass
    yield


# --- Rings and frames.


@attack("breaks the ring in every way")
def broken_rings(path):
    def tail(value):
        return lambda peer: peer.out.store(shm.TAIL, value)

    def length(value):
        return lambda peer: peer.push(b"x" * 24, length=value)

    ways = [tail(2**32 - 1), tail(130), tail(2**31), length(0), length(8193), length(2**32 - 1), length(1), length(24)]
    ways += [lambda peer, at=at, value=value: peer.into.store(at, value) for at in (shm.TAIL, shm.HEAD) for value in (1, 2**31, 2**32 - 1)]
    for way in ways:
        peer = try_join(path)
        if peer is None:
            continue
        peer.hello()
        way(peer)
        peer.send_or_stop(packet(shm.WAKE))
        peer.pop(0.02)
        peer.socket.close()
    yield


@attack("says Hello with forged places of its liveness word")
def forged_liveness(path):
    places = [(2**64 - 8, 8, 1), (4096, 8, 1), (4089, 8, 1), (0, 2**64 - 1, 1), (2**63, 2**63, 1), (0, 8, 2), (0, 0, 1)]
    for place in places:
        peer = try_join(path)
        if peer is not None:
            peer.hello(liveness=place)
            peer.pop(0.05)
            peer.socket.close()
    yield


@attack("answers the challenge wrongly, twice, or with its own nonce")
def wrong_responses(path):
    for i in range(60):
        peer = try_join(path)
        if peer is None:
            continue
        peer.hello()
        challenge = peer.pop(1)
        if challenge is not None and challenge[0] == shm.CHALLENGE:
            if i % 3 == 0:
                peer.respond(challenge[2], b"k" * 32)
            elif i % 3 == 1:
                peer.push(shm.frame(shm.RESPONSE, bytes(64)))
                peer.respond(challenge[2], b"")
            else:
                peer.push(shm.put(b"key", b"value", session=1))
            answer = peer.pop(1)
            assert answer is None or answer[0] == shm.REFUSED, answer
        peer.socket.close()
    yield


@attack("sends frames of garbage", after_welcome=True)
def garbage_frames(path):
    dice = random.Random(29)
    for i in range(150):
        peer = enter(path)
        for _ in range(3):
            if i % 3 == 0:
                peer.push(dice.randbytes(dice.randrange(1, 8192)))
            elif i % 3 == 1:
                peer.push(shm.frame(dice.randrange(256), dice.randbytes(dice.randrange(200)), session=peer.session, sequence=1))
            else:
                peer.push(shm.frame(shm.PUT, dice.randbytes(64) + b"k" * 20, session=peer.session, sequence=1,
                                    length=dice.choice([None, 0, 23, 2**32 - 1])))
        peer.pop(0.005)
        peer.socket.close()
        os.close(peer.ring_fd)
        os.close(peer.page_fd)
        os.close(peer.liveness)
    yield


@attack("names forged sources of values", after_welcome=True)
def forged_sources(path):
    memory = shm.memfd(1 << 20)
    sources = [(2**64 - 8, 9000, 2), (1 << 20, 9000, 2), ((1 << 20) - 8999, 9000, 2), (0, 2**63, 2), (0, 9000, 77), (0, 9000, 0),
               (0, 2**64 - 1, 2), (0, 0, 2)]
    for source in sources:
        peer = enter(path)
        peer.expose(memory, 1 << 20, 2)
        peer.push(shm.put(b"forged", source=source, value_length=source[1], session=peer.session))
        peer.pop(0.2)
        peer.socket.close()
    yield


@attack("empties and reseals the memory of a value while it is READ", after_welcome=True)
def memory_that_changes(path):
    peers = []
    for seals in (shm.SEALED, 0, fcntl.F_SEAL_GROW):
        memory = shm.memfd(32 << 20, seals)
        peer = enter(path)
        peer.expose(memory, 32 << 20, 2)
        peer.push(shm.put(b"changing", source=(0, 32 << 20, 2), value_length=32 << 20, session=peer.session))
        for call in (lambda fd=memory: os.ftruncate(fd, 0), lambda fd=memory: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)):
            try:
                call()
            except OSError:
                pass
        peers.append(peer)
    yield


@attack("sends the dearest requests at full rate, and takes no reply", after_welcome=True)
def request_flood(path):
    peers = [enter(path) for _ in range(4)]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        for peer in peers:
            if not peer.request(shm.PING):
                peer.send_or_stop(packet(shm.WAKE))
    yield


@attack("asks for a session that is another's", after_welcome=True)
def foreign_sessions(path):
    own = enter(path)
    for session in (own.session + 1, own.session - 1, own.session ^ 255, 1, 2**64 - 1):
        peer = Peer(path)
        peer.join()
        peer.hello(resume=(session, 1))
        peer.pop(0.5)
    yield


def keep_connected(count, step):
    """Threads that keep `count` connections to --metrics, each new one as soon as the server has ended one; `step` uses one."""
    address = ("127.0.0.1", int(os.environ["METRICS_PORT"]))

    def keep():
        while True:
            try:
                with socket.create_connection(address, timeout=5) as one:
                    step(one)
            except OSError:
                time.sleep(0.05)

    for _ in range(count):
        threading.Thread(target=keep, daemon=True).start()
    time.sleep(0.5)


@attack("keeps 400 idle connections to --metrics")
def idle_http(_):
    keep_connected(400, lambda one: one.recv(1))
    yield


@attack("keeps sending --metrics 200 requests a byte at a time")
def slow_http(_):
    def step(one):
        for byte in b"GET /metrics HTTP/1.1\r\n" + b"a" * 1000:
            one.send(bytes([byte]))
            time.sleep(0.2)

    keep_connected(200, step)
    yield


# --- Servers. A client connects to each and must give up in time.

SERVERS = {}


def hostile_server(what):
    """`what` goes on "a server that …"; the function is given the client's socket, and what the client sent."""

    def register(function):
        SERVERS[function.__name__] = (function, what)
        return function

    return register


def accept_client(client, fds=None):
    """An acceptance as an honest server sends it: with rings and a page, unless other descriptors are given. The rings."""
    rings, page = shm.memfd(4 << 20), shm.memfd(4096)
    os.pwrite(page, struct.pack("<QQII", 0x4E52434E49505253, 7, 1, 0), 0)
    shm.send_packet(client, shm.PACKET.pack(shm.MAGIC, shm.VERSION, 24, 0, 32, 8192, 128, 0, shm.CONNECT, 0, 0, 7), fds or [rings, page])
    mapping = mmap.mmap(rings, 4 << 20)
    to_server = shm.Ring(mapping, 0, 32, 8192)
    return shm.Ring(mapping, to_server.bytes, 32, 8192)


@hostile_server("says nothing")
def silent_server(_client):
    pass


@hostile_server("answers with garbage")
def garbage_server(client):
    for data in garbage_packets():
        shm.send_packet(client, data, [shm.memfd(4096)])


@hostile_server("accepts with sockets that linger in place of rings")
def slow_acceptance(client):
    pairs = [slow_socket() for _ in range(2)]
    accept_client(client, [one.fileno() for one, _ in pairs])
    for one, _ in pairs:
        threading.Thread(target=one.close, daemon=True).start()
    READERS.extend(pairs)


@hostile_server("accepts, and sends sockets that linger")
def slow_packets(client):
    accept_client(client)
    for _ in range(8):
        one, reader = slow_socket()
        shm.send_packet(client, packet(shm.EXPOSE, key=1, length=4096), [one.fileno()])
        threading.Thread(target=one.close, daemon=True).start()
        READERS.append(reader)


@hostile_server("accepts, and says nothing more")
def half_server(client):
    accept_client(client)


@hostile_server("accepts, and breaks the ring")
def ring_breaker(client):
    ring = accept_client(client)
    ring.store(shm.TAIL, 2**31)
    ring.store(shm.HEAD, 77)


@hostile_server("accepts, and challenges without end")
def challenger(client):
    ring = accept_client(client)
    while True:
        ring.push(shm.frame(shm.CHALLENGE, os.urandom(32)))
        shm.send_packet(client, packet(shm.WAKE))
        time.sleep(0.001)


@hostile_server("accepts, and floods the client with wake-ups")
def waker(client):
    accept_client(client)
    while True:
        shm.send_packet(client, packet(shm.WAKE))


READERS = []  # of sockets that linger: kept open


def serve(name, path):
    """Serves every client that connects, until standard input ends."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(16)
    clients = []

    def each(client):
        try:
            client.recv(shm.PACKET.size)
            SERVERS[name][0](client)
        except OSError:
            pass

    def accept():
        while True:
            client, _ = listener.accept()
            clients.append(client)
            threading.Thread(target=each, args=[client], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print("holding", flush=True)
    sys.stdin.readline()
    print("{}", flush=True)
    os._exit(0)  # threads may wait in close()


def main():
    name, path = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if name in SERVERS:
        serve(name, path)
    steps = ATTACKS[name][0](path)
    seen = None
    try:
        next(steps)
        print("holding", flush=True)
        sys.stdin.readline()
        next(steps)
    except StopIteration as end:
        seen = end.value
    print(json.dumps(seen or {}), flush=True)


if __name__ == "__main__":
    main()
