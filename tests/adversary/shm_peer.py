"""One end of an shm connection that speaks for itself: packets, rings and frames as rdma/shm/socket.h, rdma/shm/ring.h and wire.h declare
them, without a line of the library. It keeps no rule that its caller does not ask it to keep."""

import array
import ctypes
import fcntl
import hashlib
import hmac
import mmap
import os
import select
import socket
import struct
import time

# rdma/shm/socket.h: ConnectData, then kind, key, length, incarnation.
PACKET = struct.Struct("<IHHHHIIIIIQQ")
MAGIC, VERSION = 0x5250534F, 10
CONNECT, EXPOSE, WAKE, BYE, WITHDRAW = 1, 2, 3, 4, 5

# rdma/wire/wire.h
HEADER = struct.Struct("<HBBIQQ")
FRAME_MAGIC = 0x564F
HELLO, WELCOME, CHALLENGE, RESPONSE, DISCONNECT_NOTICE, REFUSED, PUT, GET, PING, STATS = 1, 2, 3, 4, 5, 6, 16, 18, 19, 20
MEMORY = struct.Struct("<QQII")
LIVENESS_KEY = 1

# rdma/shm/ring.h
CONTROL_BYTES, TAIL, CONSUMER_SLEEPS, HEAD, PRODUCER_WAITS = 128, 0, 4, 64, 68
SLOTS_MAX = 129

SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def packet(kind, *, key=0, length=0, credits=32, frame_bytes=8192, magic=MAGIC, version=VERSION, reason=0, reads=128, affinity=0):
    return PACKET.pack(magic, version, 24, reason, credits, frame_bytes, reads, affinity, kind, key, length, 0)


def memfd(size, seals=SEALED):
    fd = os.memfd_create("adversary", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def pages_of(fd):
    return os.fstat(fd).st_blocks * 512 // mmap.PAGESIZE


def frame(opcode, body=b"", *, session=0, sequence=0, magic=FRAME_MAGIC, length=None, flags=0):
    size = HEADER.size + len(body) if length is None else length
    return HEADER.pack(magic, opcode, flags, size, session, sequence) + body


def put(key, value=b"", *, source=None, value_length=None, session=0, sequence=1):
    """A PUT whose value follows the key, or with `source` (address, length, key) is READ from there."""
    memory = MEMORY.pack(*(source or (0, 0, 0)), 0)
    length = len(value) if value_length is None else value_length
    body = struct.pack("<BBHIQQ", 0, 1 if source else 0, len(key), 0, length, 0) + memory + struct.pack("<QQ", 0, 0)
    return frame(PUT, body + key + value, session=session, sequence=sequence)


def send_packet(to, data, fds=()):
    to.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


class Ring:
    """One direction, in a mapping that both ends have."""

    def __init__(self, mapping, offset, slots, frame_bytes):
        self.mapping, self.offset, self.slots = mapping, offset, slots
        self.slot_bytes = (8 + frame_bytes + 63) // 64 * 64
        self.frame_bytes = frame_bytes
        self.bytes = CONTROL_BYTES + slots * self.slot_bytes
        self.count = 0  # frames published here, or taken

    def word(self, at):
        return ctypes.c_uint32.from_buffer(self.mapping, self.offset + at)

    def load(self, at):
        return self.word(at).value

    def store(self, at, value):
        self.word(at).value = value

    def slot(self, number):
        return self.offset + CONTROL_BYTES + number % self.slots * self.slot_bytes

    def push(self, data, length=None):
        """Publishes a frame. False: there is no room."""
        if (self.count - self.load(HEAD)) % 2**32 >= self.slots:
            return False
        at = self.slot(self.count)
        self.mapping[at + 8:at + 8 + len(data)] = data
        self.mapping[at:at + 4] = struct.pack("<I", len(data) if length is None else length)
        self.count += 1
        self.store(TAIL, self.count % 2**32)
        return True

    def pop(self):
        if self.load(TAIL) == self.count % 2**32:
            return None
        at = self.slot(self.count)
        length, = struct.unpack("<I", self.mapping[at:at + 4])
        data = self.mapping[at + 8:at + 8 + length]
        self.count += 1
        self.store(HEAD, self.count % 2**32)
        return data


class Peer:
    """A client. Each step is a call; none is made for the caller."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(5)
        self.socket.connect(path)
        self.ring_fd = self.page_fd = -1
        self.out = self.into = None
        self.session = self.sequence = 0
        self.liveness = -1

    def send(self, data, fds=()):
        send_packet(self.socket, data, fds)

    def send_or_stop(self, data, fds=()):
        """False: the server has hung up, or does not read."""
        try:
            self.socket.settimeout(0.5)
            self.send(data, fds)
            return True
        except OSError:
            return False

    def greet(self, **offer):
        self.offer = {"credits": 32, "frame_bytes": 8192, **offer}
        self.send(packet(CONNECT, **self.offer))

    def take_acceptance(self):
        """False: rejected, or hung up."""
        data, fds, _, _ = socket.recv_fds(self.socket, PACKET.size, 2)
        if len(data) < PACKET.size or len(fds) != 2:
            for fd in fds:
                os.close(fd)
            return False
        self.ring_fd, self.page_fd = fds
        theirs = PACKET.unpack(data)
        frame_bytes = min(theirs[5], self.offer["frame_bytes"])
        mapping = mmap.mmap(self.ring_fd, os.fstat(self.ring_fd).st_size)
        self.out = Ring(mapping, 0, min(theirs[4], SLOTS_MAX), frame_bytes)
        self.into = Ring(mapping, self.out.bytes, min(self.offer["credits"], SLOTS_MAX), frame_bytes)
        return True

    def join(self, **offer):
        self.greet(**offer)
        return self.take_acceptance()

    def expose(self, fd, length, key):
        return self.send_or_stop(packet(EXPOSE, key=key, length=length), [fd])

    def push(self, data, length=None):
        pushed = self.out.push(data, length)
        if self.out.load(CONSUMER_SLEEPS):
            self.out.store(CONSUMER_SLEEPS, 0)
            self.send_or_stop(packet(WAKE))
        return pushed

    def pop(self, patience=5.0):
        """The next frame: (opcode, session, body); None if none came in time, or the server has hung up."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            data = self.into.pop()
            if data is not None:
                if len(data) < HEADER.size:
                    return None  # the server has ended the connection, and given the ring's pages back
                _, opcode, _, _, session, _ = HEADER.unpack_from(data)
                return opcode, session, data[HEADER.size:]
            if self.gone():
                return None
            time.sleep(0.0005)
        return None

    def gone(self):
        """The server has hung up (its packets are read on the way)."""
        if not select.select([self.socket], [], [], 0)[0]:
            return False
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, PACKET.size, 4)
        except OSError:
            return True
        for fd in fds:
            os.close(fd)
        return not data

    def await_end(self, patience=5.0):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if self.gone():
                return True
            time.sleep(0.001)
        return False

    def hello(self, *, resume=(0, 0), liveness=None, expose=True):
        if expose:
            self.liveness = memfd(4096)
            self.expose(self.liveness, 4096, LIVENESS_KEY)
        where = liveness or (0, 8, LIVENESS_KEY)
        self.hello_body = struct.pack("<QQ", *resume) + MEMORY.pack(*where, 0) + bytes(16)  # no data id; shard 0, of any number
        return self.push(frame(HELLO, self.hello_body))

    def respond(self, challenge, key):
        """The answer to a challenge by `key`, right or wrong."""
        nonce = os.urandom(32)
        label = b"osprey 3: proof of the client".ljust(32, b"\0")
        mac = hmac.new(key, label + challenge[:32] + nonce + self.hello_body, hashlib.sha256).digest()
        return self.push(frame(RESPONSE, nonce + mac))

    def enter(self, **offer):
        """All the way to the Welcome of a server without a key."""
        if not self.join(**offer) or not self.hello():
            return False
        answer = self.pop()
        if answer is None or answer[0] != WELCOME:
            return False
        self.session = answer[1]
        return True

    def request(self, opcode, body=b""):
        self.sequence += 1
        return self.push(frame(opcode, body, session=self.session, sequence=self.sequence))
