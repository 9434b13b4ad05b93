"""The load generators: C programs, compiled by the benchmark itself, and kcat.

A generator written in Python would be the limit of what it measures. These keep to a few per cent of a core
for what costs a broker a whole one; every result carries the generator's own CPU time, so that this can be
checked.
"""

import json
import os
import resource
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import Address
from bench.machine import CACHE

SOURCES = Path(__file__).parent


class LoadError(Exception):
    """A generator that could not be built, or that saw a broker do wrong."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A client's run: how long it took, and what it cost the client."""

    seconds: float
    client_cpu: float


def compiled(name: str) -> Path:
    """The program, compiled anew if its source is younger than it."""
    program = CACHE / "load" / name
    newest = max(file.stat().st_mtime for file in (SOURCES / f"{name}.c", *SOURCES.glob("*.h")))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LoadError("no C compiler: install gcc (Debian: apt install gcc libc6-dev)")
    program.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-O2", "-Wall", "-Wextra", "-std=gnu11"]
    subprocess.run([compiler, *flags, "-o", program, SOURCES / f"{name}.c"], check=True)
    return program


def raise_file_limit() -> None:
    """A thousand connections need more files than many a shell allows; brokers inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def produce(
    address: Address,
    topic: str,
    *,
    connections: int,
    partitions: int = 1,
    records_per_batch: int = 1,
    record_bytes: int = 100,
    warmup: float = 0,
    seconds: float = 0,
    requests: int = 0,
) -> dict[str, float]:
    """Runs `producers` for a time or for a number of requests; what it printed."""
    numbers = [connections, partitions, records_per_batch, record_bytes, warmup, seconds, requests]
    return _run_json("producers", address, topic, numbers, timeout=warmup + seconds + 180)


def fetch(address: Address, topic: str, records: int) -> dict[str, float]:
    """Runs `fetcher` over the first `records` records of partition 0; what it printed."""
    return _run_json("fetcher", address, topic, [0, records], timeout=180)


def pubsub(
    mode: str, address: Address, topic: str, settings: dict[str, float], timeout: float = 120
) -> dict[str, float]:
    """Runs `pubsub` to its end; what it printed."""
    with pubsub_process(mode, address, topic, settings) as process:
        watchdog = _kill_after(process, timeout)
        printed, complaint = process.communicate()
        watchdog.cancel()
    if process.returncode:
        raise LoadError(
            f"pubsub {mode} at {topic} {settings}: {complaint.decode().strip() or 'no end of it'}"
        )
    result: dict[str, float] = json.loads(printed)
    return result


def pubsub_process(
    mode: str, address: Address, topic: str, settings: dict[str, float]
) -> subprocess.Popen[bytes]:
    """Starts `pubsub`; for the modes that wait to be told to go on."""
    command = [str(compiled("pubsub")), mode, address[0], str(address[1]), f"topic={topic}"]
    command += [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in settings.items()
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _run_json(
    name: str, address: Address, topic: str, numbers: list[float], timeout: float
) -> dict[str, float]:
    command = [str(compiled(name)), address[0], str(address[1]), topic, *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise LoadError(f"{name} at {topic}: {done.stderr.strip()}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def kcat(address: Address, *arguments: str, timeout: float = 180) -> Timed:
    """Runs kcat to its end, with what it cost."""
    program = shutil.which("kcat")
    if program is None:
        raise LoadError("no kcat: install it (Debian: apt install kcat)")
    command = [program, "-b", f"{address[0]}:{address[1]}", *arguments]
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        watchdog = _kill_after(process, timeout)
        complaint = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        watchdog.cancel()
    if process.returncode:
        raise LoadError(f"{' '.join(command)}: {complaint.decode(errors='replace').strip()[-500:]}")
    return Timed(seconds, usage.ru_utime + usage.ru_stime)


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    return timer
