"""A bash on a terminal of its own, which somebody types into, and the screen that he sees."""

import contextlib
import os
import pty
import select
import signal
import tempfile
import termios
import struct
import fcntl
import time

import pyte

ROWS = 200  # more than any session has, so that nothing scrolls away
STEP_S_MAX = 60
PROMPT = "$ "


class Session:
    """As long as the with-block lasts. `programs` are found by their names."""

    def __init__(self, programs, uri, columns):
        self.screen = pyte.Screen(columns, ROWS)
        self.stream = pyte.ByteStream(self.screen)
        self.programs, self.uri = programs, uri
        self.hidden = set()  # rows

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="osprey-session-")  # pylint: disable=consider-using-with
        for name, path in self.programs.items():
            os.symlink(os.path.abspath(path), f"{self.scratch.name}/{name}")
        environment = {"PATH": f"{self.scratch.name}:{os.environ.get('PATH', '/usr/bin:/bin')}", "TERM": "xterm",
                       "LC_ALL": "C.UTF-8", "PS1": PROMPT, "OSPREY_SERVER": self.uri, "OSPREY_HISTORY": "",
                       "HOME": self.scratch.name}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting"], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, self.screen.columns, 0, 0))
        self.await_prompt(PROMPT)
        return self

    def __exit__(self, *_):
        os.close(self.terminal)  # which hangs up, and ends what runs there
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)
        self.scratch.cleanup()

    def await_prompt(self, prompt):
        """Until the cursor stands behind `prompt`, at the beginning of a line."""
        deadline = time.monotonic() + STEP_S_MAX
        while True:
            line = self.screen.display[self.screen.cursor.y]
            if line[:self.screen.cursor.x].endswith(prompt) and line.startswith(prompt.rstrip(" ")):
                return
            if not select.select([self.terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no {prompt!r} within {STEP_S_MAX} s; the screen shows:\n" + self.text())
            self.stream.feed(os.read(self.terminal, 65536))

    def run(self, line, until):
        os.write(self.terminal, line.encode())
        deadline = time.monotonic() + STEP_S_MAX
        # The echo first: what stands there now ends with a prompt, too.
        while line not in self.text_of_line() and time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 1)[0]:
                self.stream.feed(os.read(self.terminal, 65536))
        row = self.screen.cursor.y
        os.write(self.terminal, b"\n")
        while self.screen.cursor.y == row and time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 1)[0]:
                self.stream.feed(os.read(self.terminal, 65536))
        self.await_prompt(until)

    @contextlib.contextmanager
    def unseen(self):
        """What is typed and answered in it is left out of rows()."""
        first = self.screen.cursor.y
        yield
        self.hidden |= set(range(first, self.screen.cursor.y))

    def text_of_line(self):
        return self.screen.display[self.screen.cursor.y]

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display[:self.screen.cursor.y + 1])

    def rows(self):
        """What the screen shows, without the last prompt: rows of cells with .data, .fg, .bold."""
        columns = self.screen.columns
        seen = [y for y in range(self.screen.cursor.y) if y not in self.hidden]
        return [[self.screen.buffer[y][x] for x in range(columns)] for y in seen]
