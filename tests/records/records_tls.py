"""records_tls.py BUILD_DIR - rediss://: imports and exports over TLS, both ways, and whom `quire` does not trust."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import numpy as np

from checks import build, check, end, module, refused, run, skip, work

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from server_process import Server  # noqa: E402

redis = module("redis", "python3-redis", "imports over TLS")
if not shutil.which("openssl"):
    skip("imports over TLS", "there is no openssl")
if not redis or not shutil.which("openssl"):
    end()

EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def authority(name):
    openssl("req", "-x509", *EC, "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")


def certificate(name, by, subjects):
    openssl("req", *EC, "-subj", f"/CN={name}", "-addext", f"subjectAltName={subjects}", "-keyout", f"{name}.key", "-out",
            f"{name}.csr")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.crt", "-CAkey", f"{by}.key", "-CAcreateserial", "-days", "2",
            "-copy_extensions", "copy", "-out", f"{name}.crt")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(name, certificate, *settings):
    """A server that speaks TLS and nothing else, or (certificate None) plain."""
    folder = pathlib.Path(work, name)
    folder.mkdir()
    tls = ("--tls-port", str(free_port()), "--tls-cert-file", f"{certificate}.crt", "--tls-key-file", f"{certificate}.key",
           "--tls-ca-cert-file", "authority.crt")
    return Server(pathlib.Path(build), folder, *(tls if certificate else ()), *settings)


def client(server):
    return redis.Redis(port=server.port, ssl=True, ssl_ca_certs="authority.crt", ssl_certfile="mine.crt", ssl_keyfile="mine.key")


authority("authority")
authority("other")
certificate("server", "authority", "DNS:localhost,IP:127.0.0.1")
certificate("elsewhere", "authority", "DNS:elsewhere.example")
certificate("mine", "authority", "DNS:mine")
with open("both.pem", "w") as file:
    file.write(open("mine.crt").read() + open("mine.key").read())
servers = [start("strict", "server"), start("open", "server", "--tls-auth-clients", "no"), start("plain", None),
           start("named", "elsewhere", "--tls-auth-clients", "no")]
strict, unasking, plain, elsewhere = servers
mine = ("--tls-ca-cert-file", "authority.crt", "--tls-cert-file", "mine.crt", "--tls-key-file", "mine.key")
trusting = ("--tls-ca-cert-file", "authority.crt")
try:
    vectors = np.random.default_rng(2).standard_normal((3000, 64)).astype("f4")
    a, b = client(strict), client(unasking)
    pipe = a.pipeline(transaction=False)
    for i, v in enumerate(vectors):
        pipe.execute_command("VADD", "s", "FP32", v.tobytes(), f"e{i}", "NOQUANT", "SETATTR", json.dumps({"t": "x" * (i % 900)}))
    pipe.execute()

    def move(name, *arguments):
        status, out, err = run("import", *arguments, "--set", "s", "--json")
        check(name, status == 0 and json.loads(out)["rows"] == 3000, err)

    at = {server: f"rediss://127.0.0.1:{server.port}" for server in servers}
    move("from TLS to TLS, an address in the certificate", at[strict], at[unasking], *mine)
    check("names, numbers and attributes are the same", all(
        a.execute_command(*c) == b.execute_command(*c)
        for c in [("VRANGE", "s", "-", "+"), *(("VGETATTR", "s", f"e{i}") for i in range(0, 3000, 77)),
                  *(("VEMB", "s", f"e{i}") for i in range(0, 3000, 77))]))
    move("from TLS to plain, a name in the certificate", f"rediss://localhost:{strict.port}", f"redis://localhost:{plain.port}", *mine)
    move("from plain to TLS, certificate and key in a file", f"redis://localhost:{plain.port}", at[strict],
         *trusting, "--tls-cert-file", "both.pem")
    status, out, err = run("export", at[unasking], "s.jsonl", "--set", "s", env={"SSL_CERT_FILE": "authority.crt"})
    check("the system's authorities, without a word", status == 0 and len(open("s.jsonl").readlines()) == 3000, err)

    def no(name, sentence, *arguments, **more):
        refused("refused: " + name, sentence, "export", *arguments, "x.jsonl", "--set", "s", **more)

    no("an authority that is not trusted", "is not trusted: ", at[unasking], "--tls-ca-cert-file", "other.crt")
    no("nor the system's", "--tls-ca-cert-file names the file of its authority", at[unasking])
    no("a certificate of another name", "hostname mismatch", f"rediss://localhost:{elsewhere.port}", *trusting)
    no("or of another address", "IP address mismatch", at[elsewhere], *trusting)
    no("no certificate where the server wants one", "certificate required", at[strict], *trusting)
    no("a port that is plain", "rediss:// needs a port that speaks TLS", at[plain], *trusting)
    no("no such file of authorities", "authorities nowhere.crt", at[strict], "--tls-ca-cert-file", "nowhere.crt")
    no("a key that does not fit", "private key other.key", at[strict], *trusting, "--tls-cert-file", "mine.crt", "--tls-key-file",
       "other.key")
    no("files for TLS without TLS", "neither redis://", f"redis://localhost:{plain.port}", *trusting, status=2)
    check("failures left nothing", not [x for x in os.listdir(".") if x.startswith("x.")])
finally:
    for server in servers:
        server.stop()
end()
