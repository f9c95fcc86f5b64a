"""server_process.py - a quire-server that a script in Python starts and ends by its process id.

It listens on a free loopback port; its data and log are in the folder that the script gives.
"""
import signal
import subprocess
import time


class Failed(Exception):
    """The server did not start, or did not end as it should."""


class Server:
    def __init__(self, build_dir, folder, *settings):
        self.build_dir, self.folder, self.settings = build_dir, folder, settings
        self.process = None
        self.start()

    def start(self):
        """Starts it, and waits until it accepts connections."""
        port_file, log_path = self.folder / "port", self.folder / "log"
        port_file.unlink(missing_ok=True)
        begin = time.monotonic()
        with open(log_path, "ab") as log:
            self.process = subprocess.Popen(
                [str(self.build_dir / "quire-server"), "--port", "0", "--port-file", str(port_file), "--dir",
                 str(self.folder / "data"), *self.settings], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not (port_file.exists() and port_file.stat().st_size):
            if self.process.poll() is not None:
                raise Failed("the server does not start: " + self.log())
            if time.monotonic() - begin > 120:
                self.kill()
                raise Failed("the server is not ready after two minutes: " + self.log())
            time.sleep(0.002)
        self.ready_seconds = time.monotonic() - begin
        self.port = int(port_file.read_text())

    def log(self):
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; what ends with another status than 0 has failed."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed("the server does not end within a minute of SIGTERM: " + self.log()) from None
        if status != 0:
            raise Failed("the server ends with status %d: %s" % (status, self.log()))
