"""No broker at all: a C loop that copies what a publisher sends to every subscriber; see load/stub.c.

What it reaches is what the generator and the kernel allow, so no broker can be much faster, and one that
comes near has little left to save.
"""

import subprocess
import time

from bench.brokers import BrokerError, BrokerProcess
from bench.load import compiled


class Stub(BrokerProcess):
    name = "no broker"

    def start(self) -> float:
        begun = time.monotonic()
        process = self.spawn([str(compiled("stub"))], subprocess.PIPE)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise BrokerError(f"the stub does not listen: {self.tail()}")
        self.address = ("127.0.0.1", int(line))
        return time.monotonic() - begun
