"""same.py ENGINE - the same commands (lines.py) to a quire-server and to quire.so in an engine, in RESP2 and RESP3: the same
replies, value by value and type by type."""
import pathlib
import sys

from lines import CACHES, DOCUMENTS, SEARCHES, SETS, Side, same
from nodes import BUILD, Checks, Folder, Node

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from resp_client import Stream  # noqa: E402
from server_process import Server  # noqa: E402

engine = sys.argv[1]
checks = Checks()


def compare(server, node, protocol):
    one, other = (Side(Stream(port)) for port in (server.port, node.port))
    if protocol == 3:
        for side in (one, other):
            side.connection.call("HELLO", 3)
    for line in (SETS + CACHES + SEARCHES + DOCUMENTS).strip().splitlines():
        a, b = one.ask(line), other.ask(line)
        if line.startswith(("VRANDMEMBER", "SC.LIST")):
            a, b = (sorted(x) if isinstance(x, list) else x for x in (a, b))
        if line.startswith("VNONSENSE"):  # the engine's own words
            a, b = a[:25], b[:25]
        checks.that("RESP%d: %s" % (protocol, line), same(a, b), b, a)
    one.connection.socket.close()
    other.connection.socket.close()


with Folder() as folder:
    path = pathlib.Path(folder.path) / "server"
    for protocol in (2, 3):
        here = path / str(protocol)
        here.mkdir(parents=True)
        (pathlib.Path(folder.path) / "imports").mkdir(exist_ok=True)
        server = Server(pathlib.Path(BUILD), here, "--import-dir", folder.path + "/imports")
        node = Node(folder, "same-%d" % protocol, engine, quire_import_dir=folder.path + "/imports")
        try:
            compare(server, node, protocol)
        finally:
            server.kill()
checks.end()
