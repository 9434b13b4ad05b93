"""The setting of a measurement: without it a figure says nothing.

Also the places where the benchmark keeps things: `.cache/` of the checkout for what may be kept (jars,
compiled generators), and a directory beside it, removed afterwards, for the brokers' data; both on the
checkout's disk, because a log on tmpfs would show fsync for free.
"""

import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
CACHE = CHECKOUT / ".cache" / "bench"


@contextlib.contextmanager
def data_directory() -> Iterator[Path]:
    """A directory on the checkout's disk, removed at the end whatever happens."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="data-", dir=CACHE, ignore_cleanup_errors=True) as name:
        yield Path(name)


def describe(directory: Path) -> dict[str, str]:
    """What a reader must know of the machine to compare it with theirs."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(),
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {_filesystem(directory)}",
        "disk": _disk_speed(directory),
        "load average before": _load(),
        "Python": platform.python_version(),
    }


def busy_seconds() -> float:
    """CPU time that all processes of the machine have used so far, and that others took from it."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def commit() -> str:
    head = _output(["git", "-C", str(CHECKOUT), "rev-parse", "--short=10", "HEAD"])
    if not head:
        return "not a git checkout"
    changed = _output(
        ["git", "-C", str(CHECKOUT), "status", "--porcelain", "--", "src", "setup.py", "pyproject.toml"]
    )
    return head + (" and uncommitted changes in src" if changed else "")


def sync_disk() -> None:
    """Lets one measurement's dirty pages reach the disk, so that the next does not pay for them."""
    os.sync()


def _load() -> str:
    loads = os.getloadavg()
    shown = " ".join(f"{load:.2f}" for load in loads)
    return shown + (": **other work was running; compare with care**" if loads[0] > 1 else "")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _filesystem(directory: Path) -> str:
    mount = _output(["stat", "-f", "-c", "%T", str(directory)])
    return mount or "unknown file system"


def _disk_speed(directory: Path, rounds: int = 200) -> str:
    """What one fdatasync of a small append costs here: the floor under every publish at level disk."""
    file = directory / "fdatasync"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    times = []
    try:
        for _ in range(rounds):
            start = time.perf_counter()
            os.write(descriptor, b"x" * 180)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        file.unlink()
    times.sort()
    median, p99 = statistics.median(times) * 1e3, times[int(rounds * 0.99)] * 1e3
    return f"a write of 180 B and its fdatasync take {median:.2f} ms (p99 {p99:.2f} ms)"


def kcat_version() -> str:
    if shutil.which("kcat") is None:
        return "not installed"
    for line in _output(["kcat", "-V"]).splitlines():
        if line.startswith("Version"):
            return (
                line.split("(")[0].split()[1] + ", librdkafka " + line.rpartition("librdkafka ")[2].split()[0]
            )
    return "unknown"


def _output(command: list[str]) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return ""
