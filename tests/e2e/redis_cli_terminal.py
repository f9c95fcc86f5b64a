"""redis_cli_terminal.py - redis-cli in a terminal, where it asks for COMMAND DOCS at its start and shows hints from it.

A pseudo terminal stands in for the user's. Whatever redis-cli does not like about the answer shows before its prompt.
"""
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

PORT = os.environ["QUIRE_PORT"]


class Terminal:
    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # without a width redis-cli would ask the terminal where its cursor is, and wait for the answer
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 250, 0, 0))
            os.environ.update(TERM="xterm", HOME=os.environ["QUIRE_WORK"])
            os.execvp("redis-cli", ["redis-cli", "-p", PORT, *arguments])

    def read_until(self, pattern, seconds=10):
        """What was printed until the pattern (escape sequences taken out), or until the time is over."""
        seen, end = b"", time.monotonic() + seconds
        while time.monotonic() < end:
            if not select.select([self.fd], [], [], 0.1)[0]:
                continue
            try:
                more = os.read(self.fd, 65536)
            except OSError:
                break
            seen += more
            if re.search(pattern, text_of(seen), re.S):
                break
        return text_of(seen)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def end(self):
        os.close(self.fd)
        return os.waitpid(self.pid, 0)[1]


def text_of(seen):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))


failed = False


def check(name, right, seen):
    global failed
    print(("ok - " if right else "FAIL - ") + name)
    if not right:
        failed = True
        print("    | " + repr(seen[-600:]))


for arguments in ((), ("-3",)):
    label = "terminal" + "".join(" " + a for a in arguments)
    t = Terminal(*arguments)
    prompt = r"127\.0\.0\.1:%s> " % PORT
    seen = t.read_until(prompt)
    check(label + ": redis-cli starts with its prompt and no warning",
          re.fullmatch(r"\s*" + prompt, seen.replace("\r", "")) is not None, seen)
    t.type("vsim ")
    seen = t.read_until(r"NOTHREAD|EXPLAIN", 5)
    check(label + ": the hint of VSIM comes from COMMAND DOCS", "ELE element" in seen and "WITHSCORES" in seen, seen)
    t.type("\x15help vcard\r")
    seen = t.read_until(r"summary: .*" + prompt, 5)
    check(label + ": help vcard", "summary: Returns the number of elements of a vector set." in seen and "since: 8.0.0" in seen, seen)
    t.type("\x15help @vector_set\r")
    seen = t.read_until(r"VRANDMEMBER .*" + prompt, 5)
    check(label + ": help of the group", "VSIM key" in seen, seen)
    t.type("exit\r")
    t.read_until(r"\x00", 0.5)
    check(label + ": exit", t.end() == 0, seen)
sys.exit(failed)
