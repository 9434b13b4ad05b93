"""`fanlog doctor`: what this machine offers a broker, and what to do where that is not enough.

Each check is a function that returns one `Finding`: ok, warn (it works, but not as well as it could) or fail
(a broker would not start, or not keep its promises). It measures where it can: the latency of fdatasync in
the data directory is what every durable publish pays. It exits 1 when something fails.
"""

import os
import platform
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fanlog import __version__, config
from fanlog.cli import connection
from fanlog.cli.output import Json, console, print_json, teach, usage

SYNC_ROUNDS = 40
SYNC_SLOW_MS = 20.0
FREE_BYTES_LOW = 5 << 30
FREE_BYTES_MIN = 200 << 20
OPEN_FILES_LOW = 4096

HELP = teach(
    "Look at this machine with a broker's eyes: what is there, what is slow, what is missing.",
    "fanlog doctor",
    "fanlog doctor --data /var/lib/fanlog",
    "fanlog doctor --json | jq '.checks[] | select(.status != \"ok\")'",
)


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def python() -> Finding:
    found = f"{platform.python_version()} ({platform.python_implementation()}), fanlog {__version__}"
    return Finding("python", "ok", found)


def system() -> Finding:
    found = f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores"
    if sys.platform != "linux":
        return Finding("platform", "warn", found, "Fanlog is tested on Linux")
    return Finding("platform", "ok", found)


def event_loop() -> Finding:
    try:
        import uvloop._version
    except ImportError:
        return Finding("event loop", "fail", "uvloop cannot be imported", "pip install uvloop")
    return Finding("event loop", "ok", f"uvloop {uvloop._version.__version__}")


def codecs() -> Finding:
    from fanlog.wire import records

    if str(records.__file__).endswith((".so", ".pyd")):
        return Finding("codecs", "ok", "compiled by mypyc")
    advice = "install a C compiler (gcc or clang) and the Python headers, then reinstall: pip install -e ."
    return Finding("codecs", "warn", "plain Python: the broker works, and uses more CPU", advice)


def compiler() -> Finding:
    wanted = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    path = shutil.which(str(wanted).split()[0]) or shutil.which("cc") or shutil.which("gcc")
    if path is None:
        return Finding("C compiler", "warn", "none found", "only needed to compile the codecs: install gcc")
    return Finding("C compiler", "ok", path)


def kcat() -> Finding:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        return Finding("kcat", "warn", "not found", "only needed by tests and benchmarks: apt install kcat")
    return Finding("kcat", "ok", path)


def java() -> Finding:
    advice = "only needed by tests and benchmarks with Java clients: install Java 17 or later"
    path = shutil.which("java")
    if path is None:
        return Finding("Java", "warn", "not found", advice)
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Java", "warn", f"{path} does not run: {error}", advice)
    first = (answer.stderr or answer.stdout).splitlines()[0]
    number = first.partition('"')[2].partition(".")[0].rstrip('"')
    if number.isdigit() and int(number) < 17:
        return Finding("Java", "warn", first, advice)
    return Finding("Java", "ok", first)


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above it that is there."""
    found = directory.absolute()
    while not found.exists():
        found = found.parent
    return found


def disk(directory: Path) -> Finding:
    place = _existing(directory)
    name = f"disk of {directory}"
    try:
        latencies = _sync_latencies(place)
    except OSError as error:
        advice = "give a directory that the broker may write to with --data"
        return Finding(name, "fail", f"{place}: {error.strerror}", advice)
    middle = statistics.median(latencies)
    found = f"fdatasync takes {middle:.2f} ms (median), {max(latencies):.2f} ms (worst of {SYNC_ROUNDS})"
    if _in_memory(place):
        return Finding(
            name, "warn", f"{found}, in memory", "what is kept here is gone after a restart of the machine"
        )
    if middle > SYNC_SLOW_MS:
        return Finding(name, "warn", found, "a faster disk, or durability os for topics that may lose power")
    return Finding(name, "ok", found)


def _sync_latencies(place: Path) -> list[float]:
    """Milliseconds of one 4 KiB append made durable, as the log does it."""
    latencies = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNC_ROUNDS):
            begin = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fdatasync(file.fileno())
            latencies.append((time.perf_counter() - begin) * 1000)
    return latencies


def _in_memory(place: Path) -> bool:
    """Whether the file system of `place` lives in memory; the longest mount point above it decides."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return False
    above = [(len(point), kind) for point, kind in mounts if place.resolve().is_relative_to(point)]
    return bool(above) and max(above)[1] in ("tmpfs", "ramfs")


def space(directory: Path) -> Finding:
    free = shutil.disk_usage(_existing(directory)).free
    found = f"{free / (1 << 30):.1f} GiB free"
    advice = "make room, or lower topics.retention_bytes"
    if free < FREE_BYTES_MIN:
        return Finding("free space", "fail", found, advice)
    return Finding(
        "free space", "warn" if free < FREE_BYTES_LOW else "ok", found, advice * (free < FREE_BYTES_LOW)
    )


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft} (may be raised to {hard})"
    if soft < OPEN_FILES_LOW:
        advice = f"every connection and segment is one: ulimit -n {min(max(OPEN_FILES_LOW, 65536), hard)}"
        return Finding("open files", "warn", found, advice)
    return Finding("open files", "ok", found)


def doors(settings: config.Settings, served: bool) -> Iterator[Finding]:
    """Whether the doors could be opened; `served` says that a broker is behind them already."""
    for name in ("kafka", "http"):
        text: str = getattr(settings, name)
        address = config.address(text)
        if address is None or address[1] == 0:
            yield Finding(f"{name} door", "ok", text)
        elif connection.answers(address, seconds=1):
            if served:
                yield Finding(f"{name} door", "ok", f"{text} is in use, and a broker runs")
                continue
            advice = f"if that is not the broker you want, choose another: fanlog serve --{name} HOST:PORT"
            yield Finding(f"{name} door", "warn", f"{text} is in use", advice)
        else:
            yield _bindable(name, text, address)


def _bindable(name: str, text: str, address: tuple[str, int]) -> Finding:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        advice = f"choose another address: fanlog serve --{name} HOST:PORT"
        return Finding(f"{name} door", "fail", f"{text}: {error.strerror}", advice)
    return Finding(f"{name} door", "ok", f"{text} is free")


def broker_answers(broker: str) -> Finding:
    if not any(connection.answers(address) for address in connection.addresses(broker)):
        return Finding("broker", "warn", f"none answers at {broker}", "start one with fanlog serve")
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        cluster = AdminClient(connection.properties(broker)).list_topics(timeout=5)
    except KafkaException as error:
        advice = (
            "another service has this port: choose one with fanlog serve --kafka, and name it with --broker"
        )
        return Finding("broker", "fail", f"{broker} does not speak Kafka: {error.args[0].str()}", advice)
    return Finding("broker", "ok", f"answers at {broker}, {len(cluster.topics)} topics")


def examine(settings: config.Settings, broker: str) -> Iterator[Finding]:
    for check in (python, system, event_loop, codecs, compiler, kcat, java):
        yield check()
    yield disk(settings.data)
    yield space(settings.data)
    yield open_files()
    answer = broker_answers(broker)
    yield from doors(settings, served=answer.status == "ok")
    yield answer


def doctor(
    data: Annotated[Path | None, typer.Option("--data", help="The broker's data directory.")] = None,
    file: Annotated[Path | None, typer.Option("--config", "-c", help="The broker's settings.")] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", "-b", envvar="FANLOG_BROKER", metavar="HOST:PORT", show_default="the Kafka door"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    try:
        settings = config.load({} if data is None else {"data": data}, file)
        door = connection.DEFAULT_BROKER if settings.kafka == "none" else settings.kafka
        findings = list(examine(settings, broker or door))
    except config.ConfigError as error:
        raise usage(str(error)) from error
    worst = "fail" if any(each.status == "fail" for each in findings) else "ok"
    if as_json:
        print_json({"status": worst, "checks": [asdict(each) for each in findings]})
    else:
        _show(findings)
    raise typer.Exit(int(worst == "fail"))


def _show(findings: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    table = Table(box=None, show_header=False, pad_edge=False)
    for each in findings:
        text = escape(each.found) + (f"\n[dim]-> {escape(each.advice)}[/dim]" if each.advice else "")
        table.add_row(f"[{colours[each.status]}]{each.status:4}[/]", each.check, text)
    console().print(table)
    counts = {status: sum(each.status == status for each in findings) for status in colours}
    console().print(f"\n{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failing")
