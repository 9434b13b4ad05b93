"""The MQTT half of the benchmark, in small: it runs, and its generator sees what it is there to see."""

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bench import load

CHECKOUT = Path(__file__).resolve().parents[2]
CONNACK_AND_SUBACK = bytes.fromhex("20020000 9003000100")
CONNACK = CONNACK_AND_SUBACK[:4]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator needs a C compiler")


def bench(*arguments: str) -> str:
    command = [sys.executable, "-m", "bench", *arguments, "--quick", "--only", "fanlog"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("row", ["1->100 qos0 100B w100", "1->100 qos1 100B w100", "50->50 qos1"])
def test_a_quick_run_of_the_fan_out_delivers_everything_in_order(row: str) -> None:
    assert "deliveries per second" in bench("fanout", "--row", row)


def test_a_quick_run_of_ingest_has_every_publish_acknowledged_at_every_level() -> None:
    printed = bench("ingest")
    for level in ("memory", "os", "disk"):
        assert f"Fanlog, {level}" in printed


def test_a_quick_run_weighs_idle_subscribers_and_waits_for_stalled_ones() -> None:
    printed = bench("idle")
    assert "500 idle connections" in printed
    assert "stop reading" in printed


class FaultyBroker:
    """Takes one subscriber and one publisher, and hands on what `change` makes of a publish."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.listener.getsockname()
        self.change = change
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        # The generator hangs up on a fault: that is what it is tested for.
        with suppress(OSError), self.listener, self.listener.accept()[0] as subscriber:
            subscriber.recv(1000)
            subscriber.sendall(CONNACK_AND_SUBACK)
            with self.listener.accept()[0] as publisher:
                publisher.recv(1000)
                publisher.sendall(CONNACK)
                while frame := publisher.recv(1 << 16):
                    subscriber.sendall(self.change(frame))


def rounds(broker: FaultyBroker) -> dict[str, float]:
    settings = {"subscribers": 1, "window": 1, "warmup": 0.0, "seconds": 0.1}
    return load.pubsub("rounds", broker.address, "t", settings, timeout=30)


def renumbered(frame: bytes) -> bytes:
    """The same publish with the number behind the next."""
    payload = len(frame) - 100
    number = int.from_bytes(frame[payload : payload + 8], "little") + 1
    return frame[:payload] + number.to_bytes(8, "little") + frame[payload + 8 :]


def test_the_generator_accepts_a_broker_that_hands_on_what_it_got() -> None:
    result = rounds(FaultyBroker(lambda frame: frame))
    assert result["deliveries"] > 0
    assert result["rounds"] == result["published"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda frame: frame + frame, id="doubled"),
        pytest.param(renumbered, id="lost"),
        pytest.param(lambda frame: frame[:1] + bytes([frame[1] - 1]) + frame[2:-1], id="truncated"),
    ],
)
def test_the_generator_refuses_a_broker_that_changes_what_it_got(change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(load.LoadError, match=r"came where \d+ was due|payload of 99 bytes"):
        rounds(FaultyBroker(change))
