"""`fanlog demo`, without a terminal and in small."""

import re
import signal
import subprocess
from pathlib import Path

from cli.conftest import command, run


def test_nothing_acknowledged_is_lost_and_every_check_holds() -> None:
    answer = run("demo", "--records", "1000", "--json", seconds=60)
    assert answer.code == 0, answer.out + answer.err
    document = answer.document
    assert [each["name"] for each in document["checks"] if not each["held"]] == []
    assert document["figures"]["acknowledged"] == 1000
    assert 500 <= document["figures"]["acknowledged_before_crash"] < 1000


def test_a_demo_that_is_interrupted_takes_its_broker_along() -> None:
    demo = subprocess.Popen(
        command("demo", "--records", "1000000"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert demo.stdout is not None
        lines = iter(demo.stdout.readline, "")
        started = next(line for line in lines if "a broker runs" in line)
        [pid] = re.findall(r"pid (\d+)", started)
        assert any("devices publish" in line for line in lines)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=20)
        assert (demo.returncode, errors) == (130, "")
        assert not Path(f"/proc/{pid}").exists()
    finally:
        demo.kill()
        demo.wait()
