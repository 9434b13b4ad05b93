"""Eclipse Mosquitto, persisting nothing, with its limits out of the way.

Changed from its defaults: TCP_NODELAY is set, without which it waits for its own small packets at QoS 1 and
loses an order of magnitude; and no queue is limited, so that it drops nothing. The window of 20 messages in
flight to a subscriber is its default, and made no difference when it was lifted.
"""

import shutil
import subprocess
import time
from pathlib import Path

from bench.brokers import BrokerProcess, free_port, wait_until_listening
from bench.peers import NotAvailable

CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
set_tcp_nodelay true
max_queued_messages 0
log_type error
"""


def program() -> str:
    # Debian puts it where a user's PATH often does not look.
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotAvailable("no mosquitto command (Debian: apt install mosquitto)")
    return found


def version() -> str:
    shown = subprocess.run([program(), "-h"], capture_output=True, text=True).stdout
    return f"{shown.split()[2]}, no persistence, TCP_NODELAY, queues without limit, else its defaults"


class Mosquitto(BrokerProcess):
    name = "Mosquitto"

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.program = program()

    def start(self) -> float:
        begun = time.monotonic()
        self.data.mkdir(parents=True, exist_ok=True)
        self.address = ("127.0.0.1", free_port())
        config = self.data / "mosquitto.conf"
        config.write_text(CONFIG.format(port=self.address[1]))
        self.spawn([self.program, "-c", str(config)])
        wait_until_listening(self, self.address)
        return time.monotonic() - begun
