"""secure.py - users and TLS through redis-py: connections, every ACL command it has, denials as its exceptions.

Started by secure.sh: QUIRE_PORT speaks TLS only, QUIRE_TLS holds the certificates and users.acl.
"""
import os
import socket
import ssl
import sys
import threading
import time

import redis

PORT, TLS = int(os.environ["QUIRE_PORT"]), os.environ["QUIRE_TLS"]
failed = 0


def check(name, right, seen=""):
    global failed
    print(("ok - " if right else "FAIL - ") + "redis-py: " + name, flush=True)
    if not right:
        failed += 1
        print("    | " + repr(seen)[:600], flush=True)


def fails(name, kind, text, function):
    try:
        check(name, False, function())
    except redis.RedisError as e:
        check(name, isinstance(e, kind) and text in str(e), repr(e))


def connect(user, password, certificate=True, **more):
    own = {"ssl_certfile": TLS + "/client.crt", "ssl_keyfile": TLS + "/client.key"} if certificate else {}
    return redis.Redis(host="127.0.0.1", port=PORT, username=user, password=password, ssl=True,
                       ssl_ca_certs=TLS + "/ca.crt", ssl_check_hostname=True, socket_timeout=20,
                       decode_responses=True, **own, **more)


# says nothing; looked at again at the end
silent, silent_since = socket.create_connection(("127.0.0.1", PORT), 20), time.monotonic()

admin, search = connect("admin", "admin-word"), connect("search", "search-word")
check("a user over TLS", admin.ping() and admin.acl_whoami() == "admin" and search.acl_whoami() == "search")
check("a search", search.execute_command("VSIM", "words", "ELE", "apple-0", "COUNT", 1) == ["apple-0"])
check("the server counts TLS", admin.info("clients")["connected_clients_tls"] >= 2, admin.info("clients"))
big = "x" * (5 << 20)
check("a value of 5 MB there and back", admin.echo(big) == big)
pipe = admin.pipeline(transaction=False)
for i in range(2000):
    pipe.echo(str(i))
check("a pipeline of 2,000", pipe.execute() == [str(i) for i in range(2000)])

fails("a command that is not allowed", redis.exceptions.NoPermissionError, "run the 'del' command",
      lambda: search.delete("words"))
fails("a key that is not allowed", redis.exceptions.NoPermissionError, "No permissions to access a key",
      lambda: search.execute_command("VCARD", "other"))
fails("a wrong password", redis.exceptions.ResponseError, "invalid username-password",
      lambda: connect("search", "wrong").ping())
fails("the default user is off", redis.exceptions.AuthenticationError, "", lambda: connect(None, None).ping())
fails("no certificate", redis.exceptions.ConnectionError, "", lambda: connect("admin", "admin-word", False).ping())
try:
    redis.Redis(host="127.0.0.1", port=PORT, ssl=True, ssl_ca_certs=ssl.get_default_verify_paths().cafile,
                socket_timeout=20).ping()
    check("a client that does not know the authority refuses", False)
except redis.ConnectionError as refused:
    check("a client that does not know the authority refuses", "verify failed" in str(refused), refused)

check("acl_setuser", admin.acl_setuser("temp", enabled=True, passwords=["+pw"], keys=["docs:*"],
                                       categories=["+@read"], commands=["-vsim", "+ping"]))
temp = admin.acl_getuser("temp")
check("acl_getuser", "on" in temp["flags"] and temp["tenants"] == [] and len(temp["passwords"]) == 1
      and "-vsim" in temp["commands"] and "+@read" in temp["categories"], temp)
check("acl_getuser of nobody", admin.acl_getuser("nobody") is None)
check("acl_users and acl_list", admin.acl_users() == ["admin", "default", "search", "temp"]
      and all(line.startswith("user ") for line in admin.acl_list()), admin.acl_list())
check("acl_cat", "vectorset" in admin.acl_cat() and "vsim" in admin.acl_cat("vectorset"))
check("acl_genpass", len(admin.acl_genpass()) == 64)
check("acl_dryrun", admin.acl_dryrun("temp", "vcard", "docs:1") in (True, "OK", b"OK")
      and "no permissions" in str(admin.acl_dryrun("temp", "vcard", "x")))
log = admin.acl_log(20)
check("acl_log", {"key", "command", "auth"} <= {entry["reason"] for entry in log}
      and all(entry["client-info"]["addr"].startswith("127.0.0.1:") for entry in log), log)
check("acl_log_reset", admin.acl_log_reset() and admin.acl_log() == [])

kept = connect("temp", "pw", single_connection_client=True)
kept.ping()
check("acl_save", admin.acl_save())
check("acl_deluser", admin.acl_deluser("temp") == 1)
fails("the deleted user's connection is gone", redis.exceptions.RedisError, "", kept.ping)
check("acl_load", admin.acl_load() and "temp" in admin.acl_users() and connect("temp", "pw").ping())
with open(TLS + "/users.acl", encoding="utf-8") as file:
    saved = file.read()
with open(TLS + "/users.acl", "a", encoding="utf-8") as file:
    file.write("user broken +@nope\n")
fails("a wrong file is refused with its line", redis.exceptions.ResponseError,
      f"users.acl:{saved.count(chr(10)) + 1}:", admin.acl_load)
check("and nothing changed", "broken" not in admin.acl_users() and "temp" in admin.acl_users())
check("command_getkeys", admin.command_getkeys("DEL", "a", "b") == ["a", "b"])

problems = []


def work():
    try:
        mine = connect("search", "search-word")
        for _ in range(100):
            if mine.execute_command("VSIM", "words", "ELE", "delta-3", "COUNT", 1) != ["delta-3"]:
                problems.append("wrong answer")
        mine.close()
    except redis.RedisError as e:
        problems.append(e)


threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check("8 threads search over TLS", not problems, problems)
silent.settimeout(20)
try:
    rest = silent.recv(1)
except ConnectionResetError:
    rest = b""
seconds = time.monotonic() - silent_since
check("who does not shake hands is closed after 10 seconds", rest == b"" and 9 < seconds < 20, seconds)
sys.exit(1 if failed else 0)
