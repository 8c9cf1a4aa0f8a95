"""One virtual machine: QEMU, started and ended here, and the talk with the init inside it.

All that connects this process with QEMU are inherited socket pairs: there is no path, port or file
that another lab could collide with, or that could be left behind.
"""

import ctypes
import dataclasses
import ipaddress
import mmap
import os
import socket
import stat
import struct
import subprocess
import threading
import time
import urllib.parse

RDMA_DEVICE = "rxe0"  # as in init
DISK = "/dev/vda"
NETDEV = "lab0"       # as in init
PORTS = ("control", "stdout", "stderr", "stdin")  # virtio-serial ports 1, 2, 3, 4, as in init
SEND_S_MAX = 10  # a few KiB, which take milliseconds
CHUNK_BYTES = 64 * 1024
# A guest that measured its TSC beside heavy load took a wrong frequency at times, and all its times were wrong then.
CLOCK_S_MIN = 1          # how long it is compared with the host's; most of that is the boot
CLOCK_ERROR_MAX = 0.05
CLOCK_TICK_S = 0.01      # of /proc/uptime
CONSOLE_TAIL_LINES = 60  # shown when a guest dies unasked; room for a panic

# Told to every kernel: no mitigations and self-tests, which protect nothing here and cost time; libraries at the same
# addresses in each process, for QEMU keeps what it has translated by virtual address, and starting a process is mostly
# translation; a panic ends the guest (with -no-reboot).
KERNEL_ARGUMENTS = ("mitigations=off cryptomgr.notests nowatchdog norandmaps audit=0 random.trust_cpu=on panic=-1 quiet "
                    "loglevel=4")


@dataclasses.dataclass(frozen=True)
class Machine:
    """An architecture, as QEMU knows it."""
    qemu: str
    arguments: tuple[str, ...]
    cpu_model: str  # unless the user wants another
    kernel_arguments: str


# The TSC is the clock, for every other clock costs an exit from emulated code; no check at boot that the timer's interrupts
# come, which takes a busy host's delay for a broken timer and panics.
X86_64 = Machine("qemu-system-x86_64", ("-machine", "q35"), "max", "console=ttyS0 tsc=reliable clocksource=tsc no_timer_check")
# Authentication of pointers by the architecture's own cipher would take half of the time.
ARM64 = Machine("qemu-system-aarch64", ("-machine", "virt,gic-version=3"), "max,pauth-impdef=on", "console=ttyAMA0")

# The virtual clock advances by 2^0 ns an instruction, whatever the host does meanwhile; where the CPU idles, it jumps to
# the next timer instead of waiting for it.
EXACT = ["-icount", "shift=0,sleep=off"]


RDTSC = bytes.fromhex("0f31"      # rdtsc
                      "48c1e220"  # shl rdx, 32
                      "4809d0"    # or rax, rdx
                      "c3")       # ret
TSC_S = 0.05  # how long the host's TSC is measured


def tsc_khz():
    """The frequency of the host's TSC, which is also the emulated one. The guest need not measure it, which goes wrong
    where the host is busy. None where the host forbids memory that is writable and executable."""
    try:
        code = mmap.mmap(-1, len(RDTSC), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except PermissionError:
        return None
    with code:
        code.write(RDTSC)
        start = ctypes.c_char.from_buffer(code)
        read_tsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(start))

        def moment():
            """(ns the reading took, ns of the clock, ticks), of the reading that was disturbed least."""
            readings = []
            for _ in range(20):
                began_ns, ticks, ended_ns = time.monotonic_ns(), read_tsc(), time.monotonic_ns()
                readings.append((ended_ns - began_ns, (began_ns + ended_ns) // 2, ticks))
            return min(readings)

        _, first_ns, first_ticks = moment()
        time.sleep(TSC_S)
        _, last_ns, last_ticks = moment()
        del read_tsc, start  # a mapping in use cannot be closed
    return round((last_ticks - first_ticks) * 1_000_000 / (last_ns - first_ns))


@dataclasses.dataclass(frozen=True)
class Settings:
    """How each guest is made; the same for both nodes."""
    machine: Machine
    root: str  # the host's directory that the command has as its root
    shared: tuple[str, ...]  # with another root than "/": the host's directories that are in it, too
    kernel: os.PathLike
    initramfs: os.PathLike
    accelerator: str
    cpu_model: str
    cpus: int
    memory_mib: int
    mtu_bytes: int
    nodes: int
    disk: str | None  # of node 1: a file, or the socket of an NBD server
    exact: bool  # the clock counts instructions: see EXACT
    tsc_khz: int | None  # what the kernel takes for the frequency of its TSC; None: it measures it


def address(node):
    """The IPv4 address of node 1 or 2. No guest has a way out, so no network of the host's can collide."""
    return f"10.0.0.{node}"


def address6(node):
    """The IPv6 address of node 1 or 2, from the unique local ones."""
    return f"fd00::{node}"


def is_nbd(disk):
    """Whether the path of a disk is an NBD server's."""
    return os.path.exists(disk) and stat.S_ISSOCK(os.stat(disk).st_mode)


def environment(node, nodes, has_disk):
    """What the lab tells a command about where it is."""
    told = {"LAB_NODE": str(node), "LAB_NETDEV": NETDEV, "LAB_DEVICE": RDMA_DEVICE,
            "LAB_IP": address(node), "LAB_IP6": address6(node), "TMPDIR": "/run/tmp"}
    if has_disk:
        told["LAB_DISK"] = DISK
    if nodes == 2:
        told.update(LAB_PEER_IP=address(3 - node), LAB_PEER_IP6=address6(3 - node))
    return told


class ClockComparison:
    """Compares a guest's clock with the host's, by two answers of the guest.

    The guest reads its clock at some time between question and answer. However late they come, a correct clock
    passes: what is compared is the least and the most that can have passed here.
    """

    def __init__(self, now_s=time.monotonic):
        self._now_s = now_s
        self._asked_s = 0.0
        self._first = None  # (asked, answered, guest's clock), in seconds

    def ask(self):
        self._asked_s = self._now_s()

    def missing_s(self):
        """How long to wait before the second question."""
        if self._first is None:
            raise ValueError("ready before its clock was read")
        _, answered_s, _ = self._first
        return max(0.0, answered_s + CLOCK_S_MIN - self._now_s())

    def answer(self, guest_s):
        """What the guest says. Returns why its clock is wrong, after the second answer; else None."""
        now_s = self._now_s()
        if self._first is None:
            self._first = (self._asked_s, now_s, guest_s)
            return None
        first_asked_s, first_answered_s, first_guest_s = self._first
        least_s = self._asked_s - first_answered_s
        most_s = now_s - first_asked_s
        passed_s = guest_s - first_guest_s
        if passed_s + 2 * CLOCK_TICK_S >= least_s * (1 - CLOCK_ERROR_MAX) and \
                passed_s - 2 * CLOCK_TICK_S <= most_s * (1 + CLOCK_ERROR_MAX):
            return None
        return f"its clock advanced by {passed_s:.2f} s in {least_s:.2f} to {most_s:.2f} s of the host's"


class Guest:
    """One guest. Owns the QEMU process: every Guest that was started must be ended by kill().

    Threads read what it says, and put events as tuples (guest, kind, value) into the queue:
      ("ready", None)       its network is up, and the peer's as well; its clock is right
      ("done", status)      its command has ended
      ("exit", None)        it has settled: nothing is left to come, files are written back
      ("fail", why)         its init gave up, or its clock is wrong
      ("gone", None)        QEMU has ended
      ("broken", None)      nobody reads our stdout or stderr any more
    """

    def __init__(self, node, settings, events, sinks, on_console):
        """sinks: functions that take the command's stdout and stderr as bytes; on_console: takes lines."""
        self.node = node
        self.status = None
        self._settings = settings
        self._events = events
        self._sinks = list(sinks)
        self._on_console = on_console
        self._console_tail = []
        self._received_bytes = [0, 0]
        self._writing = [False, False]  # a sink is busy: its reader is slow, not the guest
        self._received = threading.Condition()
        self._sockets = {}
        self._process = None
        self._threads = []
        self._clock = ClockComparison()
        self._is_ready = False

    def start(self, wire, pass_stdin):
        """wire: the socket that is the cable between two nodes, or None. Raises OSError."""
        theirs = {}
        for name in PORTS + ("console",):
            self._sockets[name], theirs[name] = socket.socketpair()
        # A guest that hangs must not hang us: a message is given up, and the deadline does the rest.
        self._sockets["control"].setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S_MAX, 0))
        inherited = [end.fileno() for end in theirs.values()] + ([wire.fileno()] if wire else [])
        # Should this process be killed, so will be QEMU.
        command = ["setpriv", "--pdeathsig", "KILL", "--"] + self._qemu_command(theirs, wire, pass_stdin)
        # A group of its own, since signals of a terminal are not for it; of this session, whose niceness counts (man 7 sched).
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, pass_fds=inherited, process_group=0)
        for end in theirs.values():
            end.close()
        self._spawn(self._read_control)
        self._spawn(self._read_console, self._sockets["console"].makefile("rb"))
        self._spawn(self._read_console, self._process.stderr)
        for index, name in enumerate(("stdout", "stderr")):
            self._spawn(self._read_stream, index, self._sockets[name])

    def run(self, script):
        """Starts the command: script is run by the guest's /bin/sh."""
        self._tell(b"run %d\n" % len(script) + script)

    def feed_stdin(self, descriptor):
        """Copies a file descriptor into the command's stdin until its end."""
        self._spawn(self._write_stdin, descriptor)

    def stop(self):
        """Asks for the command's end, if it has not ended yet, and for "exit"."""
        self._tell(b"stop\n")

    def kill(self):
        """Ends QEMU, if it runs; returns when it is gone and its output has been handed on (or nobody takes it)."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(timeout=1)
        for end in self._sockets.values():
            end.close()

    def is_held_up(self):
        """Whether the guest waits for the readers of our output."""
        return any(self._writing)

    def last_words(self):
        """The end of its console, and QEMU's own complaints. Ends it, to have them all."""
        self.kill()
        return "\n".join(self._console_tail)

    def _qemu_command(self, ends, wire, pass_stdin):
        settings = self._settings
        command = [settings.machine.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                   *settings.machine.arguments, "-accel", settings.accelerator, "-cpu", settings.cpu_model,
                   "-smp", str(settings.cpus), "-m", f"{settings.memory_mib}M",
                   "-kernel", str(settings.kernel), "-initrd", str(settings.initramfs),
                   "-append", self._kernel_arguments(pass_stdin),
                   "-device", "virtio-rng-pci",
                   # Files are created with the rights of the user that runs this; remap: several file systems, one tree.
                   "-fsdev", "local,id=host,path=/,security_model=none,multidevs=remap",
                   "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
                   "-chardev", f"socket,id=console,fd={ends['console'].fileno()}", "-serial", "chardev:console",
                   "-device", "virtio-serial-pci"]
        for number, name in enumerate(PORTS, start=1):
            command += ["-chardev", f"socket,id={name},fd={ends[name].fileno()}",
                        "-device", f"virtserialport,chardev={name},nr={number},name={name}"]
        if settings.exact:
            command += EXACT
        if self._has_disk():
            # What is written goes to the host's cache at once, which survives QEMU: a kill loses what the guest has in its own.
            place = f"nbd+unix:///?socket={urllib.parse.quote(settings.disk)}" if is_nbd(settings.disk) else settings.disk
            command += ["-drive", f"file={place.replace(',', ',,')},if=none,id=disk,format=raw,cache=writeback",
                        "-device", "virtio-blk-pci,drive=disk"]
        if wire:
            command += ["-netdev", f"dgram,id=wire,local.type=fd,local.str={wire.fileno()}",
                        "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:00:00:{self.node:02x}"]
        return command

    def _has_disk(self):
        return self.node == 1 and self._settings.disk is not None

    def _kernel_arguments(self, pass_stdin):
        node, settings = self.node, self._settings
        gids = [ipaddress.IPv6Address(text).exploded for text in (f"::ffff:{address(node)}", address6(node))]
        told = dict(node=node, nodes=settings.nodes, mtu=settings.mtu_bytes, gids=",".join(gids),
                    stdin=int(pass_stdin), disk=int(self._has_disk()), root=settings.root,
                    shared=",".join(settings.shared), ip=address(node), ip6=address6(node), peer_ip=address(3 - node))
        known = [f"tsc_early_khz={settings.tsc_khz}"] if settings.tsc_khz else []
        return " ".join([KERNEL_ARGUMENTS, settings.machine.kernel_arguments] + known + [f"lab_{key}={value}" for key, value in told.items()])

    def _spawn(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _tell(self, message):
        try:
            self._sockets["control"].sendall(message)
        except OSError:
            pass  # QEMU has gone; the control thread says so

    def _post(self, kind, value=None):
        self._events.put((self, kind, value))

    def _read_control(self):
        with self._sockets["control"].makefile("r", encoding="utf-8", errors="replace") as lines:
            try:
                for line in lines:
                    self._understand(*line.rstrip("\n").partition(" ")[::2])
            except OSError:
                pass
            except ValueError:
                self._post("fail", "its init says what the lab does not understand")
        self._post("gone")

    def _understand(self, word, rest):
        if word == "up":
            self._ask_clock()
        elif word == "clock":
            self._take_clock(float(rest))
        elif word == "ready":
            self._check_clock()
        elif word == "done":
            self.status = int(rest)
            self._post("done", self.status)
        elif word == "exit":
            self._await_output([int(number) for number in rest.split()])
            self._post("exit")
        elif word == "fail":
            self._post("fail", rest)
        else:
            raise ValueError(word)

    def _ask_clock(self):
        self._clock.ask()
        self._tell(b"clock\n")

    def _check_clock(self):
        """The clock of a guest that counts instructions is not checked: it runs at another speed by design."""
        if self._settings.exact:
            self._post("ready")
            return
        self._is_ready = True
        time.sleep(self._clock.missing_s())
        self._ask_clock()

    def _take_clock(self, guest_s):
        why = self._clock.answer(guest_s)
        if why is not None:
            self._post("fail", why)
        elif self._is_ready:
            self._post("ready")

    def _await_output(self, expected_bytes):
        def is_complete():
            return all(received >= expected for received, expected in zip(self._received_bytes, expected_bytes))
        with self._received:
            self._received.wait_for(is_complete)

    def _read_stream(self, index, stream):
        while chunk := _receive(stream):
            self._writing[index] = True
            try:
                self._sinks[index](chunk)
            except OSError:
                self._post("broken")
                self._sinks[index] = len  # the guest is still to come to rest
            self._writing[index] = False
            with self._received:
                self._received_bytes[index] += len(chunk)
                self._received.notify_all()

    def _read_console(self, stream):
        with stream:
            for line in stream:
                text = line.decode(errors="replace").rstrip()
                self._console_tail = self._console_tail[1 - CONSOLE_TAIL_LINES:] + [text]
                self._on_console(self.node, text)

    def _write_stdin(self, descriptor):
        stream = self._sockets["stdin"]
        try:
            while chunk := os.read(descriptor, CHUNK_BYTES):
                stream.sendall(chunk)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the guest has gone, and does not need it


def _receive(stream):
    try:
        return stream.recv(CHUNK_BYTES)
    except OSError:
        return b""
