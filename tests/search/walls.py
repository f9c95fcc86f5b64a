"""walls.py - who may see what an index shows: users who are bound to a tenant, and users whose key patterns leave out
what an index is over. Either they get their own only, or a refusal that names its reason.
"""
import common  # noqa: F401
from wire import Client, Error, blob, check, fails, hset, script


def user(client, name, *rules):
    reply = client.call("ACL", "SETUSER", name, "on", ">secret", *rules)
    check("ACL SETUSER %s %s" % (name, " ".join(rules)), reply == "OK", reply)
    other = Client()
    other.call("AUTH", name, "secret")
    return other


def make(client):
    client.call("FT.CREATE", "i", "PREFIX", 1, "d:", "SCHEMA", "g", "TAG", "t", "TEXT", "v", "VECTOR", "FLAT", 6,
                "TYPE", "FLOAT32", "DIM", 2,
                "DISTANCE_METRIC", "L2")
    client.call("FT.ALIASADD", "alias", "i")
    for k in range(3):
        client.call(*hset("d:%d" % k, {"g": "secret%d" % k, "t": "hidden words", "v": blob([k, k])}))
    client.call("JSON.SET", "j:1", "$", '{"secret":true}')


COMMANDS = (
    ("FT.SEARCH", "i", "*"), ("FT.SEARCH", "alias", "*"), ("FT.SEARCH", "i", "*", "LIMIT", 0, 0),
    ("FT.AGGREGATE", "i", "*", "LOAD", 1, "@g"),
    ("FT.AGGREGATE", "i", "*", "WITHCURSOR"), ("FT.CURSOR", "READ", "i", 1), ("FT.CURSOR", "DEL", "i", 1),
    ("FT.TAGVALS", "i", "g"), ("FT.INFO", "i"), ("FT._LIST",),
    ("FT.EXPLAIN", "i", "*"), ("FT.EXPLAINCLI", "i", "*"), ("FT.CREATE", "mine", "SCHEMA", "g", "TAG"),
    ("FT.ALTER", "i", "SCHEMA", "ADD", "x", "TAG"),
    ("FT.ALIASADD", "other", "i"), ("FT.ALIASUPDATE", "alias", "i"), ("FT.ALIASDEL", "alias"), ("FT.DROPINDEX", "i"),
    ("FT.DROPINDEX", "i", "DD"))


def bound_to_a_tenant():
    client = Client()
    make(client)
    anna = user(client, "anna", "~*", "+@all", "tenant:acme")
    for words in COMMANDS:
        reply = anna.call(*words)
        shown = " ".join(map(str, words))
        check("bound: %s is refused with the reason" % shown, isinstance(reply, Error) and "NOPERM" in reply
              and "tenant" in reply, reply)
    reply = anna.transaction(("FT.SEARCH", "i", "*"))
    check("bound: within MULTI as well", isinstance(reply, Error) or isinstance(reply[0], Error), reply)
    check("nothing has changed", client.call("FT._LIST") == [b"i"] and client.call("DBSIZE") == 4
          and client.call("FT.SEARCH", "alias", "*", "LIMIT", 0, 0) == [3])
    client.call("ACL", "DELUSER", "anna")


def without_the_keys():
    client = Client()
    make(client)
    eve = user(client, "eve", "~other:*", "+@all")
    for words in COMMANDS[:5]:
        reply = eve.call(*words)
        shows = b"d:0" in str(reply).encode() or "secret" in str(reply)
        check("~other:*: %s shows no key of others" % " ".join(map(str, words)), not shows, reply)
        check("~other:*: %s is refused" % " ".join(map(str, words)), isinstance(reply, Error) and "NOPERM" in reply,
              reply)
    check("~other:*: FT.TAGVALS shows no value of others", "secret" not in str(eve.call("FT.TAGVALS", "i", "g")),
          eve.call("FT.TAGVALS", "i", "g"))
    reply = eve.call("FT.DROPINDEX", "i", "DD")
    check("~other:*: FT.DROPINDEX DD deletes nothing of others", client.call("EXISTS", "d:0", "d:1", "d:2") == 3
          and isinstance(reply, Error), reply)
    fails("~other:*: JSON.GET", eve.call("JSON.GET", "j:1"), "NOPERM")
    fails("~other:*: JSON.MGET", eve.call("JSON.MGET", "other:1", "j:1", "$"), "NOPERM")
    fails("~other:*: JSON.MSET", eve.call("JSON.MSET", "other:1", "$", "1", "j:1", "$", "1"), "NOPERM")
    dora = user(client, "dora", "~d:*", "~j:*", "+@all")
    check("~d:*: FT.SEARCH", isinstance(dora.call("FT.SEARCH", "i", "*"), list), dora.call("FT.SEARCH", "i", "*"))
    check("~j:*: JSON.GET", dora.call("JSON.GET", "j:1") == b'{"secret":true}')
    client.call("ACL", "DELUSER", "eve", "dora")


def without_the_command():
    client = Client()
    make(client)
    rita = user(client, "rita", "~*", "+@read")
    for words in (("FT.CREATE", "x", "SCHEMA", "g", "TAG"), ("FT.DROPINDEX", "i"),
                  ("FT.ALTER", "i", "SCHEMA", "ADD", "x", "TAG"), ("FT.ALIASDEL", "alias"),
                  ("JSON.SET", "j:1", "$", "1"), ("JSON.DEL", "j:1"), ("JSON.NUMINCRBY", "j:1", "$", 1),
                  ("JSON.MSET", "j:1", "$", "1")):
        fails("+@read: %s" % words[0], rita.call(*words), "NOPERM")
    for words in (("FT.SEARCH", "i", "*"), ("JSON.GET", "j:1"), ("FT.INFO", "i")):
        reply = rita.call(*words)
        check("+@read: %s" % words[0], not isinstance(reply, Error), reply)
    client.call("ACL", "DELUSER", "rita")


if __name__ == "__main__":
    script(bound_to_a_tenant, without_the_keys, without_the_command)
