"""A disk with a volatile cache, for QEMU, as an NBD server on a Unix socket: what was not flushed may be lost, torn, or kept out of order.

The protocol is NBD's fixed newstyle, with READ, WRITE, FLUSH and DISC. FUA is not offered: QEMU flushes instead.
"""

import os
import socket
import struct
import threading

SECTOR_BYTES = 512
REQUEST_BYTES_MAX = 32 << 20

_INIT, _OPTION, _REPLY = b"NBDMAGIC", b"IHAVEOPT", 0x3E889045565A9
_REQUEST_MAGIC, _ANSWER_MAGIC = 0x25609513, 0x67446698
_OPT_EXPORT_NAME, _OPT_ABORT, _OPT_INFO, _OPT_GO = 1, 2, 6, 7
_REP_ACK, _REP_INFO, _REP_ERR_UNSUP, _INFO_EXPORT = 1, 3, 0x80000001, 0
_READ, _WRITE, _DISC, _FLUSH = range(4)
_HAS_FLAGS, _SEND_FLUSH = 1, 4
_EINVAL, _EIO = 22, 5


class _Gone(Exception):
    """The client has left, or speaks another protocol."""


class VolatileDisk:
    """The file at `path` is what the medium holds. `ignores_flushes`: such a disk loses what it was told to keep.

    Thread rule: its own thread serves one client after the other; all methods may be called by any thread.
    """

    def __init__(self, path, socket_path, dice, ignores_flushes=False):
        self.flushes = self.sectors_kept = self.sectors_lost = self.writes_torn = self.losses = 0  # losses: of a cache that was not empty
        self._dice = dice
        self._ignores_flushes = ignores_flushes
        self._lock = threading.Lock()
        self._medium = os.open(path, os.O_RDWR)
        self._bytes = os.fstat(self._medium).st_size
        self._pending = []   # (offset, data), in the order of the writes
        self._cached = {}    # the newest content of each sector that was written and not flushed
        self._is_on = True
        self._writes_left = None  # until the power is cut, if that is at a write
        self._on_cut = None
        self._cut = threading.Condition(self._lock)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(socket_path))
        os.chmod(socket_path, 0o666)  # QEMU has another user
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def cut_power(self):
        """From here on nothing is written. Of what was not flushed, a random part is kept, in whole sectors and in any order."""
        with self._lock:
            self._lose()

    def cut_power_at_write(self, count, seconds, on_cut):
        """Likewise, right after the write number `count` from here on, which is not flushed yet: the cache is empty most of the time.

        After `seconds` without as many it is cut all the same. `on_cut` is called before, from any thread.
        """
        with self._cut:
            self._writes_left, self._on_cut = count, on_cut
            if not self._cut.wait_for(lambda: not self._is_on, timeout=seconds):
                self._on_cut()
                self._lose()

    def waits_for_a_write(self):
        """Whether cut_power_at_write has been called, and the power is on."""
        with self._lock:
            return self._writes_left is not None

    def _lose(self):
        self._is_on = False
        self._writes_left = None
        self._cut.notify_all()
        self.losses += bool(self._pending)
        share = self._dice.choice((0, self._dice.random(), 1))  # all may be lost, or nothing
        for offset, data in self._pending:
            first, last = 0, len(data) // SECTOR_BYTES
            if self._dice.random() >= share:
                self.sectors_lost += last
                continue
            if self._dice.random() < 0.2:
                cut = self._dice.randint(0, last)
                first, last = self._dice.choice(((0, cut), (cut, last)))
                self.sectors_lost += len(data) // SECTOR_BYTES - (last - first)
                self.writes_torn += 0 < last - first < len(data) // SECTOR_BYTES
            self.sectors_kept += last - first
            os.pwrite(self._medium, data[first * SECTOR_BYTES:last * SECTOR_BYTES], offset + first * SECTOR_BYTES)
        self._forget()

    def power_on(self):
        with self._lock:
            self._is_on = True

    def close(self):
        """Its thread ends when its client has gone."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _forget(self):
        self._pending.clear()
        self._cached.clear()

    # ---- What a client asks for. While the power is off, writes have no effect, and nothing tells the client so.

    def _read(self, offset, count):
        data = bytearray(os.pread(self._medium, count, offset))
        if self._cached:
            for at in range(0, count, SECTOR_BYTES):
                sector = self._cached.get((offset + at) // SECTOR_BYTES)
                if sector is not None:
                    data[at:at + SECTOR_BYTES] = sector
        return bytes(data)

    def _write(self, offset, data):
        if not self._is_on:
            return
        self._pending.append((offset, data))
        for at in range(0, len(data), SECTOR_BYTES):
            self._cached[(offset + at) // SECTOR_BYTES] = data[at:at + SECTOR_BYTES]
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left == 0:
                self._on_cut()
                self._lose()

    def _flush(self):
        if not self._is_on or self._ignores_flushes:
            return
        for offset, data in self._pending:
            os.pwrite(self._medium, data, offset)
        self._forget()
        self.flushes += 1

    # ---- NBD

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                os.close(self._medium)
                return
            with client:
                try:
                    if self._negotiate(client):
                        while self._answer(client):
                            pass
                except (OSError, _Gone):
                    pass  # QEMU was killed; the next one comes

    def _negotiate(self, client):
        """Returns whether requests follow."""
        client.sendall(_INIT + _OPTION + struct.pack(">H", 1))
        _receive(client, 4)
        while True:
            magic, option, length = struct.unpack(">8sII", _receive(client, 16))
            if magic != _OPTION or length > 4096:
                raise _Gone
            _receive(client, length)
            export = struct.pack(">QH", self._bytes, _HAS_FLAGS | _SEND_FLUSH)
            if option == _OPT_EXPORT_NAME:
                client.sendall(export + bytes(124))
                return True
            if option in (_OPT_INFO, _OPT_GO):
                client.sendall(_option_reply(option, _REP_INFO, struct.pack(">H", _INFO_EXPORT) + export) + _option_reply(option, _REP_ACK))
                if option == _OPT_GO:
                    return True
            elif option == _OPT_ABORT:
                client.sendall(_option_reply(option, _REP_ACK))
                return False
            else:
                client.sendall(_option_reply(option, _REP_ERR_UNSUP))

    def _answer(self, client):
        """Returns whether more requests may follow."""
        magic, flags, kind, handle, offset, count = struct.unpack(">IHH8sQI", _receive(client, 28))
        if magic != _REQUEST_MAGIC or kind == _DISC or count > REQUEST_BYTES_MAX:
            return False
        data = _receive(client, count) if kind == _WRITE else b""
        error, answer = 0, b""
        is_aligned = offset % SECTOR_BYTES == 0 and count % SECTOR_BYTES == 0
        if flags != 0 or kind > _FLUSH or not is_aligned or offset + count > self._bytes:
            error = _EINVAL
        else:
            try:
                with self._lock:
                    if kind == _READ:
                        answer = self._read(offset, count)
                    elif kind == _WRITE:
                        self._write(offset, data)
                    else:
                        self._flush()
            except OSError:
                error = _EIO
        client.sendall(struct.pack(">II8s", _ANSWER_MAGIC, error, handle) + answer)
        return True


def _option_reply(option, kind, data=b""):
    return struct.pack(">QIII", _REPLY, option, kind, len(data)) + data


def _receive(client, count):
    data = bytearray()
    while len(data) < count:
        more = client.recv(count - len(data))
        if not more:
            raise _Gone
        data += more
    return bytes(data)
