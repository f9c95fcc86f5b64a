#!/usr/bin/env python3
"""answers.py - asks quire-server what a real RediSearch was asked, and compares the answers.

ft-answers.jsonl.gz has 13,464 FT.SEARCH and FT.AGGREGATE commands on 42 small data sets with the answers of a
RediSearch (RESP2), recorded by valkey-search (BSD-3). The file is looked for in --data, in QUIRE_DATA, and in
../shared/data beside the source tree; the project does not keep it. Each data set starts from an empty server.

Equal means: an error where there was one; otherwise the same rows. A row is the same if its fields are, in any order.
The rows are in the same order where SORTBY orders the answer; rows of equal sort keys may change places, and where
LIMIT cuts through such rows, others of the same sort key may stand there (counted as "ties"). Numbers agree within a
millionth of their size, or are both smaller than a millionth (rounding of float32); JSON agrees as JSON; lists within
a row (TOLIST) agree in any order. FT.AGGREGATE's first number means nothing. Records with "excluded" have no answer
(their reply is null): they are asked, and counted apart by whether the server answered rows or an error.

Exit status 1 when less than 99 % of FT.SEARCH or 98 % of FT.AGGREGATE are equal.
"""
import argparse
import collections
import gzip
import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from resp_client import Error, Stream, request
from server_process import Failed, Server

FILE = "ft-answers.jsonl.gz"
WANTED = {"FT.SEARCH": 0.99, "FT.AGGREGATE": 0.98}
TOLERANCE = 1e-6


# ---- values --------------------------------------------------------------------------------------------------------


def plain(reply):
    """A reply, or what is recorded of one, with all its strings as str of Latin-1."""
    if isinstance(reply, bytes):
        return reply.decode("latin-1")
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return reply


def recorded(value):
    """What the file says: strings begin with "b:"."""
    if isinstance(value, str):
        return value[2:]
    if isinstance(value, list):
        return [recorded(item) for item in value]
    return value


def number_of(text):
    try:
        return float(text) if text.strip() == text else None
    except ValueError:
        return None


def numbers_agree(a, b):
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=TOLERANCE) or (abs(a) < TOLERANCE and abs(b) < TOLERANCE)


def json_of(text):
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return None


def json_agrees(a, b):
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return numbers_agree(a, b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(json_agrees, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(json_agrees(a[k], b[k]) for k in a)
    return a == b


def agrees(want, got):
    """Whether two values are the same."""
    if want == got:
        return True
    if isinstance(want, str) and isinstance(got, str):
        a, b = number_of(want), number_of(got)
        if a is not None and b is not None:
            return numbers_agree(a, b)
        if want[:1] == "#" and got[:1] == "#":  # a sort key
            return agrees(want[1:], got[1:])
        a, b = json_of(want), json_of(got)
        return a is not None and b is not None and json_agrees(a, b)
    if isinstance(want, list) and isinstance(got, list):
        return same_set(want, got)
    return False


def same_set(want, got):
    """Whether two lists hold the same values, in any order."""
    if len(want) != len(got):
        return False
    left = list(got)
    for value in want:
        at = next((i for i, other in enumerate(left) if agrees(value, other)), None)
        if at is None:
            return False
        del left[at]
    return True


# ---- rows ----------------------------------------------------------------------------------------------------------


class Row:
    """key: None in FT.AGGREGATE. extra: what WITHSCORES and WITHSORTKEYS add. fields: name: value; None without."""

    def __init__(self, key, extra, fields):
        self.key, self.extra, self.fields = key, extra, fields

    def same(self, other):
        if self.key != other.key or not all(map(agrees, self.extra, other.extra)):
            return False
        if self.fields is None or other.fields is None:
            return self.fields is other.fields
        return self.fields.keys() == other.fields.keys() and all(
            agrees(value, other.fields[name]) for name, value in self.fields.items())


class Shape:
    """What the words of a command say about its answer."""

    def __init__(self, words):
        upper = [w.upper() for w in words]
        self.name = upper[0]
        search = self.name == "FT.SEARCH"
        returns_none = any(upper[i:i + 2] == ["RETURN", "0"] for i in range(len(upper)))
        self.extras = [w for w in ("WITHSCORES", "WITHSORTKEYS") if search and w in upper[3:]]
        self.has_fields = not search or not ("NOCONTENT" in upper[3:] or returns_none)
        self.sort, self.offset, self.count = [], 0, 10 if search else math.inf
        for i, word in enumerate(upper):
            if i < 3:
                continue
            if word == "SORTBY" and i + 1 < len(upper):
                self.sort = [words[i + 1]] if search else [w for w in words[i + 2:i + 2 + int(words[i + 1])]
                                                           if w.upper() not in ("ASC", "DESC")]
            elif word == "GROUPBY" and not search:
                self.sort = []
            elif word == "LIMIT" and i + 2 < len(upper) and upper[i + 1].isdigit() and upper[i + 2].isdigit():
                self.offset, self.count = int(words[i + 1]), int(words[i + 2])

    def rows(self, reply):
        """The rows of a reply; ValueError where it is of another shape."""
        if not isinstance(reply, list) or not reply or not isinstance(reply[0], int):
            raise ValueError("no list that begins with a number")
        if self.name == "FT.AGGREGATE":
            return [Row(None, [], fields_of(row)) for row in reply[1:]]
        stride = 1 + len(self.extras) + self.has_fields
        if (len(reply) - 1) % stride:
            raise ValueError("%d elements, not rows of %d" % (len(reply) - 1, stride))
        return [Row(reply[i], reply[i + 1:i + 1 + len(self.extras)],
                    fields_of(reply[i + stride - 1]) if self.has_fields else None)
                for i in range(1, len(reply), stride)]

    def sort_key(self, row):
        """The values that it is sorted by; None where the row does not tell."""
        if "WITHSORTKEYS" in self.extras:
            return row.extra[-1]
        key = []
        for name in self.sort:
            name = name.lstrip("@")
            if row.fields is None or name not in row.fields:
                return None
            key.append(row.fields[name])
        return key


def fields_of(items):
    if not isinstance(items, list) or len(items) % 2:
        raise ValueError("a row's fields are no list of pairs: %r" % (items,))
    fields = dict(zip(items[::2], items[1::2]))
    if len(fields) * 2 != len(items):
        raise ValueError("a row names a field twice: %r" % items[::2])
    return fields


def keys_agree(a, b):
    fold = str.casefold
    if isinstance(a, str) and isinstance(b, str):
        return agrees(a, b) or fold(a) == fold(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(keys_agree, a, b))
    return a == b


def same_rows(want, got):
    return same_set_by(want, got, lambda a, b: a.same(b))


def same_set_by(want, got, same):
    if len(want) != len(got):
        return False
    left = list(got)
    for row in want:
        at = next((i for i, other in enumerate(left) if same(row, other)), None)
        if at is None:
            return False
        del left[at]
    return True


def compare_sorted(shape, want, got):
    """"equal", "ties" or "different", slice by slice of equal sort keys."""
    if len(want) != len(got):
        return "different"
    keys, verdict, at = [shape.sort_key(row) for row in want], "equal", 0
    while at < len(want):
        end = at + 1
        while keys[at] is not None and end < len(want) and keys_agree(keys[at], keys[end]):
            end += 1
        if not same_rows(want[at:end], got[at:end]):
            cut = (end == len(want) and len(want) == shape.count) or (at == 0 and shape.offset > 0)
            if not cut or keys[at] is None or not all(keys_agree(keys[at], shape.sort_key(r)) for r in got[at:end]):
                return "different"
            verdict = "ties"
        at = end
    return verdict


def compare(words, fails, want, got):
    """"equal", "ties" or "different" (with a word of explanation behind a colon)."""
    if isinstance(got, Error) or fails:
        if isinstance(got, Error) and fails:
            return "equal"
        return "different: " + ("an error was expected" if fails else "an error")
    shape = Shape(words)
    try:
        want_rows, got_rows = shape.rows(want), shape.rows(got)
    except ValueError as e:
        return "different: %s" % e
    if shape.name == "FT.SEARCH" and want[0] != got[0]:
        return "different: total"
    if shape.sort:
        verdict = compare_sorted(shape, want_rows, got_rows)
    else:
        verdict = "equal" if same_rows(want_rows, got_rows) else "different"
    if verdict == "different" and len(want_rows) == len(got_rows) and same_rows(want_rows, got_rows):
        return "different: order"
    return verdict if verdict != "different" else "different: rows"


# ---- asking --------------------------------------------------------------------------------------------------------


class EngineServer:
    """An engine of Redis with quire.so (tests/cluster/nodes.py), as a Server is used here."""

    def __init__(self, build_dir, folder, engine):
        os.environ["QUIRE_BUILD"] = str(Path(build_dir).resolve())
        sys.path.insert(0, str(ROOT / "tests/cluster"))
        import nodes
        self.folder, self.files = folder, nodes.Folder()
        self.files.path, self.files.nodes = str(folder), []
        self.node = nodes.Node(self.files, "data", engine, save="")

    port = property(lambda self: self.node.port)
    process = property(lambda self: self.node.process)

    def start(self):
        Path(self.node.path).mkdir(exist_ok=True)
        self.node.start()

    def stop(self):
        self.node.stop()

    def kill(self):
        self.node.kill()


class Asker:
    """A server that is started again when a command ends it."""

    def __init__(self, build_dir, folder, engine=None):
        self.server = EngineServer(build_dir, folder, engine) if engine else Server(build_dir, folder)
        self.stream = Stream(self.server.port)
        self.deaths = []  # (set, words)

    def ask(self, name, setup, commands):
        """The replies to the commands on the data that setup makes; None for one that ended the server."""
        replies = []
        while True:
            self.make(name, setup)
            begin = len(replies)
            try:
                while len(replies) < len(commands):
                    part = commands[len(replies):len(replies) + 300]
                    replies += self.stream.ask([request(*words) for words in part])
                return replies
            except OSError:
                self.restart()
            # one by one, to find the one that did it
            self.make(name, setup)
            del replies[begin:]
            try:
                for words in commands[begin:]:
                    replies.append(self.stream.call(*words))
                return replies
            except OSError:
                self.deaths.append((name, commands[len(replies)]))
                replies.append(None)
                self.restart()
                if len(self.deaths) > 20:
                    raise Failed("more than 20 commands ended the server") from None

    def make(self, name, setup):
        for words, reply in zip([("FLUSHALL",), *setup],
                                self.stream.ask([request("FLUSHALL"), *(request(*words) for words in setup)])):
            if isinstance(reply, Error):
                print("    | %s: %s: %s" % (name, show(words)[:200], reply))

    def restart(self):
        self.stream.socket.close()
        if self.server.process.poll() is None:
            self.server.kill()
        shutil.rmtree(self.server.folder / "data", ignore_errors=True)
        self.server.start()
        self.stream = Stream(self.server.port)


def show(words):
    return " ".join(repr(w.decode("latin-1") if isinstance(w, bytes) else w) for w in words)


def find_file(data):
    places = [data, os.environ.get("QUIRE_DATA"), ROOT.parent / "shared" / "data"]
    return next((Path(p) / FILE for p in places if p and (Path(p) / FILE).exists()), None)


def read(path):
    with gzip.open(path, "rt", encoding="ascii") as file:
        sets = json.loads(file.readline())["sets"]
        records = collections.defaultdict(list)
        for line in file:
            record = json.loads(line)
            records[record["set"]].append(record)
    return sets, records


def words_of(command):
    return [w.encode("latin-1") if isinstance(w, str) else w for w in recorded(command)]


class Tally:
    def __init__(self):
        self.total = self.equal = self.ties = 0

    def share(self):
        return self.equal / self.total if self.total else 1.0

    def __str__(self):
        return "%6d of %6d equal, %6.2f %%%s" % (self.equal, self.total, 100 * self.share(),
                                               ", %d of them ties" % self.ties if self.ties else "")


def run(options, path, folder):
    sets, records = read(path)
    chosen = [name for name in sets if options.set in name] if options.set else list(sets)
    if not chosen:
        sys.exit("no data set has %r in its name; there are: %s" % (options.set, ", ".join(sets)))
    asker = Asker(options.build_dir, folder, options.engine)
    tables = {"command": collections.defaultdict(Tally), "set": collections.defaultdict(Tally),
              "test": collections.defaultdict(Tally)}
    differing, reasons, unanswered = [], collections.Counter(), collections.Counter()
    try:
        for name in chosen:
            commands = [words_of(r["cmd"]) for r in records[name]]
            replies = asker.ask(name, [words_of(c) for c in sets[name]], commands)
            for record, words, reply in zip(records[name], commands, replies):
                if record.get("excluded"):
                    unanswered["an error" if isinstance(reply, Error) else "rows"] += 1
                    continue
                text = [plain(w) for w in words]
                verdict = "different: the server ended" if reply is None else compare(
                    text, record["fails"], recorded(record["reply"]), reply if isinstance(reply, Error)
                    else plain(reply))
                kind = text[0].upper()
                for table, key in (("command", kind), ("set", "%s, %s" % (name, kind)),
                                   ("test", "%s, %s" % (record["test"].split("[")[0], kind))):
                    tally = tables[table][key]
                    tally.total += 1
                    tally.equal += not verdict.startswith("different")
                    tally.ties += verdict == "ties"
                if verdict.startswith("different"):
                    reasons[(record["test"].split("[")[0], verdict.partition(": ")[2])] += 1
                    differing.append({"set": name, "test": record["test"], "why": verdict.partition(": ")[2],
                                      "command": show(words), "expected": "an error" if record["fails"] else
                                      recorded(record["reply"]), "got": str(reply) if isinstance(reply, Error) else
                                      plain(reply)})
        asker.server.stop()
    finally:
        if asker.server.process.poll() is None:
            asker.server.kill()
    return tables, differing, reasons, unanswered, asker.deaths


def report(options, tables, differing, reasons, unanswered, deaths):
    for title in ("set", "test"):
        print("by data set" if title == "set" else "by recorded test")
        for key, tally in sorted(tables[title].items()):
            if tally.equal < tally.total or options.verbose:
                print("  %-52s %s" % (key, tally))
    if reasons:
        print("what differs")
        for (test, why), count in reasons.most_common():
            print("  %6d  %s: %s" % (count, test, why))
    if options.verbose:
        for entry in differing[:options.limit]:
            print("%(set)s, %(test)s: %(why)s\n    %(command)s" % entry)
            print("    expected %s\n    got      %s" % (cut(entry["expected"]), cut(entry["got"])))
    print("without a recorded answer: %d, answered with rows %d, with an error %d" % (
        sum(unanswered.values()), unanswered["rows"], unanswered["an error"]))
    failed = bool(deaths)
    for name, words in deaths:
        print("FAIL - the server ended on %s: %s" % (name, show(words)))
    for command, wanted in WANTED.items():
        tally = tables["command"][command]
        right = tally.share() >= wanted
        failed |= not right
        print("%s - %s: %s (at least %.0f %%)" % ("ok" if right else "FAIL", command, str(tally).strip(), 100 * wanted))
    if options.json:
        result = {title: {key: {"total": t.total, "equal": t.equal, "ties": t.ties} for key, t in table.items()}
                  for title, table in tables.items()}
        result.update({"differing": differing, "without_answer": unanswered,
                       "server_ended": [show(w) for _, w in deaths]})
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return failed


def cut(value):
    text = str(value)
    return text if len(text) <= 1000 else text[:1000] + " ..."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/release", help="where quire-server is")
    parser.add_argument("--engine", help="redis-server or valkey-server: asked with quire.so in it, in place of "
                                         "quire-server")
    parser.add_argument("--data", help="folder with " + FILE)
    parser.add_argument("--set", help="only data sets whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="print what differs, and every data set")
    parser.add_argument("--limit", type=int, default=50, help="how many differences --verbose prints (50)")
    parser.add_argument("--json", type=Path, help="file for the numbers and all differences")
    options = parser.parse_args()
    path = find_file(options.data)
    if not path:
        print("skip - recorded answers of RediSearch: there is no %s (QUIRE_DATA names its folder)" % FILE)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="quire-answers."))
    try:
        return 1 if report(options, *run(options, path, folder)) else 0
    except Failed as e:
        print("FAIL - recorded answers of RediSearch: %s" % e)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
