"""terminal.py - a program on a pseudo terminal, and what its screen shows: as much of ECMA-48 as `quire top` may use.

Anything else than the codes listed in CODES is kept in `strange`: a test looks that there is none.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

CODES = re.compile(rb"\x1b\[(\??[0-9;]*)([A-Za-z])")


class Terminal:
    def __init__(self, arguments, rows=24, columns=80, environment=None):
        self.master, slave = pty.openpty()
        self.slave = slave  # kept open: its modes are looked at when the program has ended
        self.size(rows, columns)
        self.modes = termios.tcgetattr(slave)
        self.other_screen, self.cursor, self.styles = False, True, 0
        self.strange, self.unread, self.raw, self.status = [], b"", b"", None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                for fd in (0, 1, 2):
                    os.dup2(slave, fd)
                for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
                    signal.signal(number, signal.SIG_DFL)
                os.closerange(3, 256)
                os.execve(arguments[0], arguments, {"TERM": "xterm", "PATH": os.environ["PATH"], **(environment or {})})
            finally:
                os._exit(127)

    def size(self, rows, columns):
        """The window is that large now; the kernel sends SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0

    def type(self, keys):
        os.write(self.master, keys if isinstance(keys, bytes) else keys.encode())

    def lines(self):
        return ["".join(line).rstrip() for line in self.cells]

    def text(self):
        return "\n".join(self.lines())

    def read(self, seconds=0.05):
        """Takes what comes within the time."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other side is closed
                return
            self.raw += data
            self.take(data)
            seconds = 0

    def until(self, right, seconds=60):
        """Waits until right(self) is true; its last value."""
        last = time.monotonic() + seconds
        while not (value := right(self)) and time.monotonic() < last:
            self.read()
        return value

    def frames(self, n):
        """Waits until so many more have begun."""
        wanted = self.raw.count(b"\x1b[H") + n
        return self.until(lambda t: t.raw.count(b"\x1b[H") >= wanted)

    def shows(self, *texts, seconds=60):
        return self.until(lambda t: all(text in t.text() for text in texts), seconds)

    def end(self, seconds=60):
        """The exit status (negative: the signal), once it has ended; None: it has not."""
        def ended(_):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            return pid
        if self.status is None and self.until(ended, seconds):
            self.read()
        return self.status

    def stopped(self, seconds=60):
        def look(_):
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            return pid and os.WIFSTOPPED(status)
        return self.until(look, seconds)

    def restored(self):
        """Whether the terminal is as it was: modes, screen, cursor."""
        self.read()
        return termios.tcgetattr(self.slave) == self.modes and not self.other_screen and self.cursor

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)
        os.close(self.slave)

    # ---- the screen -------------------------------------------------------------------------------------------------

    def take(self, data):
        data, at = self.unread + data, 0
        self.unread = b""
        while at < len(data):
            byte = data[at:at + 1]
            if byte == b"\x1b":
                match = CODES.match(data, at)
                if not match:
                    if len(data) - at < 12:
                        self.unread = data[at:]  # more of it comes
                        return
                    self.strange.append(data[at:at + 12])
                    at += 1
                    continue
                self.code(match[1].decode(), match[2].decode())
                at = match.end()
                continue
            at += 1
            if byte == b"\r":
                self.column = 0
            elif byte == b"\n":
                self.row += 1
                if self.row >= self.rows:
                    self.strange.append(b"scrolled")
                    self.row = self.rows - 1
            elif b" " <= byte < b"\x7f":
                if self.column >= self.columns:
                    self.strange.append(b"beyond the last column")
                else:
                    self.cells[self.row][self.column] = byte.decode()
                self.column += 1
            else:
                self.strange.append(byte)

    def code(self, number, letter):
        if letter == "H" and not number:
            self.row = self.column = 0
        elif letter == "K" and not number:
            self.cells[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif letter == "J" and number in ("", "2"):
            first = self.row if number == "" else 0
            for row in range(first, self.rows):
                column = self.column if number == "" and row == self.row else 0
                self.cells[row][column:] = [" "] * (self.columns - column)
        elif letter == "m":
            self.styles += number != "0"
        elif number == "?1049" and letter in "hl":
            self.other_screen = letter == "h"
        elif number == "?25" and letter in "hl":
            self.cursor = letter == "h"
        else:
            self.strange.append((number + letter).encode())
