"""NATS core at its defaults: no JetStream, so nothing is stored and nothing is acknowledged."""

import shutil
import subprocess
import time
from pathlib import Path

from bench.brokers import BrokerProcess, free_port, wait_until_listening
from bench.peers import NotAvailable


def program() -> str:
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotAvailable("no nats-server command (Debian: apt install nats-server)")
    return found


def version() -> str:
    shown = subprocess.run([program(), "--version"], capture_output=True, text=True).stdout
    return f"{shown.split()[-1].lstrip('v')} core, its defaults"


class Nats(BrokerProcess):
    name = "NATS"

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.program = program()

    def start(self) -> float:
        begun = time.monotonic()
        self.address = ("127.0.0.1", free_port())
        self.spawn([self.program, "-a", self.address[0], "-p", str(self.address[1])])
        wait_until_listening(self, self.address)
        return time.monotonic() - begun
