"""The shim finds planted violations: programs that acknowledge too early are caught, careful ones are not.

Each program keeps numbered records below its directory, acknowledges them on standard output and kills
itself. Its journal is then replayed with many seeds, and what a power loss left is compared with what was
acknowledged.
"""

import errno
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.disk import UnreliableDisk
from faults.replay import Replay, Unmodelled

SEEDS = range(60)

HEAD = """
import mmap, os, sqlite3, sys
root = sys.argv[1]
directory = os.open(root, os.O_RDONLY)
def create(name):
    return os.open(os.path.join(root, name), os.O_CREAT | os.O_RDWR)
def acknowledge(number):
    os.write(1, b"%d\\n" % number)
def line(number):
    return b"%08d" % number + b"." * (number * 7 % 3000) + b"\\n"
"""

LOG = """
log = create("log")
os.fsync(directory)
for number in range(100):
    os.writev(log, [line(number)[:5], line(number)[5:]])
    {before}
    acknowledge(number)
    {after}
"""

CHECKPOINT = """
for number in range(30):
    new = create("new")
    os.write(new, line(number))
    {sync}
    os.close(new)
    os.replace(os.path.join(root, "new"), os.path.join(root, "log"))
    {sync_directory}
    acknowledge(number)
"""

SEGMENTS = """
for number in range(30):
    os.mkdir(os.path.join(root, str(number)))
    segment = create(f"{{number}}/log")
    os.pwrite(segment, line(number), 0)
    os.fdatasync(segment)
    inner = os.open(os.path.join(root, str(number)), os.O_RDONLY)
    {sync_inner}
    {sync_outer}
    acknowledge(number)
"""

TABLE = """
table = sqlite3.connect(os.path.join(root, "log.db"), isolation_level=None)
table.execute("pragma journal_mode={mode}")
table.execute("pragma synchronous={synchronous}")
table.execute("create table if not exists record (number integer)")
for number in range(40):
    table.execute("insert into record values (?)", (number,))
    acknowledge(number)
"""

END = """
os.kill(os.getpid(), 9)
"""


def lines(root: Path) -> set[int]:
    """The numbers of the whole lines in all the files `log`."""
    found = set()
    for log in root.rglob("log"):
        for text in log.read_bytes().split(b"\n"):
            if text[:8].isdigit() and text[8:] == b"." * (int(text[:8]) * 7 % 3000):
                found.add(int(text[:8]))
    return found


def rows(root: Path) -> set[int]:
    if not (root / "log.db").exists():
        return set()
    table = sqlite3.connect(root / "log.db")
    try:
        return {number for (number,) in table.execute("select number from record")}
    except sqlite3.OperationalError:  # the table itself was lost
        return set()
    finally:
        table.close()


def run(
    shim: Path, home: Path, program: str, disk: UnreliableDisk | None = None, then: str | None = None
) -> tuple[Replay, set[int]]:
    """What `program` left in the journal, and the numbers that it acknowledged.

    The program `then` comes after it, without a power loss in between.
    """
    disk = disk or UnreliableDisk(shim, home)
    environment = disk.power_on()
    replay = Replay(disk.root)
    acknowledged: set[int] = set()
    for part in [program, then] if then else [program]:
        command = [sys.executable, "-c", HEAD + part + END, str(disk.root)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=30)
        assert done.returncode == -9
        acknowledged.update(map(int, done.stdout.split()))
        disk.restart()
    replay.follow(disk.journal)
    return replay, acknowledged


def losses(replay: Replay, acknowledged: set[int], reader: Callable[[Path], set[int]] = lines) -> int:
    """In how many power losses, of as many as there are seeds, something acknowledged was lost."""
    lost = 0
    for seed in SEEDS:
        replay.lose_power(random.Random(seed))
        lost += not acknowledged <= reader(replay.root)
    return lost


def test_a_program_that_syncs_before_it_acknowledges_loses_nothing(shim: Path, tmp_path: Path) -> None:
    replay, acknowledged = run(shim, tmp_path, LOG.format(before="os.fdatasync(log)", after=""))
    assert len(acknowledged) == 100
    assert losses(replay, acknowledged) == 0


def test_a_program_that_never_syncs_is_caught(shim: Path, tmp_path: Path) -> None:
    replay, acknowledged = run(shim, tmp_path, LOG.format(before="", after=""))
    assert losses(replay, acknowledged) > len(SEEDS) / 2


def test_a_program_that_syncs_after_it_acknowledged_is_caught(shim: Path, tmp_path: Path) -> None:
    late = "number < 99 and os.fdatasync(log)"
    replay, acknowledged = run(shim, tmp_path, LOG.format(before="", after=late))
    assert losses(replay, acknowledged) > 0


def test_a_program_that_syncs_again_after_a_failed_sync_is_caught(shim: Path, tmp_path: Path) -> None:
    disk = UnreliableDisk(shim, tmp_path)
    disk.fail_syncs(errno.EIO, match="log", passes=50, once=True)
    again = "\n".join(
        ["try:", "        os.fdatasync(log)", "    except OSError:", "        os.fdatasync(log)"]
    )
    replay, acknowledged = run(shim, tmp_path, LOG.format(before=again, after=""), disk)
    assert disk.failed_syncs == 1
    assert losses(replay, acknowledged) == len(SEEDS)


@pytest.mark.parametrize(
    ("recovery", "loses"),
    [("pass", True), ("os.write(log, os.pread(log, 100, 0))", False)],
    ids=["trusts what it reads", "writes it again"],
)
def test_what_a_failed_sync_left_in_memory_is_not_durable_after_a_restart_either(
    shim: Path, tmp_path: Path, recovery: str, loses: bool
) -> None:
    disk = UnreliableDisk(shim, tmp_path)
    disk.fail_syncs(errno.EIO, match="log", once=True)
    program = """
log = create("log")
os.fsync(directory)
os.write(log, line(0))
try:
    os.fdatasync(log)
except OSError:
    pass
"""
    then = f"""
log = create("log")
assert os.pread(log, 100, 0) == line(0)
{recovery}
os.fdatasync(log)
acknowledge(0)
"""
    replay, acknowledged = run(shim, tmp_path, program, disk, then)
    assert acknowledged == {0}
    assert losses(replay, acknowledged) == (len(SEEDS) if loses else 0)


def test_a_checkpoint_that_is_synced_renamed_and_made_known_is_kept(shim: Path, tmp_path: Path) -> None:
    careful = CHECKPOINT.format(sync="os.fsync(new)", sync_directory="os.fsync(directory)")
    replay, acknowledged = run(shim, tmp_path, careful)
    assert losses(replay, {max(acknowledged)}) == 0


@pytest.mark.parametrize(
    "program",
    [
        CHECKPOINT.format(sync="", sync_directory="os.fsync(directory)"),
        CHECKPOINT.format(sync="os.fsync(new)", sync_directory=""),
    ],
    ids=["file", "directory"],
)
def test_a_checkpoint_that_is_not_synced_is_caught(shim: Path, tmp_path: Path, program: str) -> None:
    replay, acknowledged = run(shim, tmp_path, program)
    assert losses(replay, {max(acknowledged)}) > 0


def test_new_directories_and_files_that_are_made_known_are_kept(shim: Path, tmp_path: Path) -> None:
    careful = SEGMENTS.format(sync_inner="os.fsync(inner)", sync_outer="os.fsync(directory)")
    replay, acknowledged = run(shim, tmp_path, careful)
    assert losses(replay, acknowledged) == 0


@pytest.mark.parametrize(
    "program",
    [
        SEGMENTS.format(sync_inner="", sync_outer="os.fsync(directory)"),
        SEGMENTS.format(sync_inner="os.fsync(inner)", sync_outer=""),
    ],
    ids=["file", "directory"],
)
def test_a_new_file_whose_directory_was_not_synced_is_caught(
    shim: Path, tmp_path: Path, program: str
) -> None:
    replay, acknowledged = run(shim, tmp_path, program)
    assert losses(replay, acknowledged) > 0


@pytest.mark.parametrize("mode", ["wal", "truncate"])
def test_sqlite_keeps_what_it_committed_when_it_is_told_to_sync(
    shim: Path, tmp_path: Path, mode: str
) -> None:
    replay, acknowledged = run(shim, tmp_path, TABLE.format(mode=mode, synchronous="full"))
    assert len(acknowledged) == 40
    assert losses(replay, acknowledged, rows) == 0


def test_sqlite_that_does_not_sync_every_commit_is_caught(shim: Path, tmp_path: Path) -> None:
    replay, acknowledged = run(shim, tmp_path, TABLE.format(mode="wal", synchronous="normal"))
    assert losses(replay, acknowledged, rows) > 0


def test_a_full_disk_takes_part_of_a_write_and_then_refuses(shim: Path, tmp_path: Path) -> None:
    disk = UnreliableDisk(shim, tmp_path)
    disk.fail_writes(errno.ENOSPC, match="log", passes=1, room_bytes=3)  # its creation passes
    program = """
log = create("other")
os.write(log, b"other files are not concerned")
log = create("log")
acknowledge(os.write(log, b"abcdefgh"))
try:
    os.write(log, b"defgh")
except OSError as error:
    acknowledge(error.errno)
"""
    _, said = run(shim, tmp_path, program, disk)
    assert said == {3, errno.ENOSPC}
    assert (disk.root / "log").read_bytes() == b"abc"
    assert disk.failed_writes == 1


def test_what_the_journal_cannot_tell_is_refused(shim: Path, tmp_path: Path) -> None:
    program = """
log = create("log")
os.ftruncate(log, 4096)
mmap.mmap(log, 4096)
"""
    with pytest.raises(Unmodelled, match="mapping"):
        run(shim, tmp_path, program)
