"""The benchmark is run by hand, so a small run of it here keeps it from rotting."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("cc") is None, reason="the load generator needs a C compiler")
def test_a_quick_run_measures_producers_and_loses_nothing() -> None:
    command = [sys.executable, "-m", "bench", "producers", "--quick", "--only", "fanlog"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "64 producers, 1 partition" in done.stdout
    assert "publishes per fsync" in done.stdout
