"""A disk that a test can fill, break and cut from its power, under a process that runs on shim.c.

disk = UnreliableDisk(library, home)
process = Popen(..., env=os.environ | disk.power_on())     # uses files below disk.root
disk.fail_writes(errno.ENOSPC)                             # from now on, until disk.clear()
process.kill(); disk.lose_power(seed)                      # what was not synced is lost, torn or garbled
process = Popen(..., env=os.environ | disk.power_on())
"""

import mmap
import random
import struct
import subprocess
from pathlib import Path

from faults.replay import Replay, cut_torn_note

_FAULT = struct.Struct("<6i232s")  # struct fault of shim.c
_WRITE, _SYNC, _DELAY = 0, _FAULT.size, 2 * _FAULT.size
_FIRED = 20


def compile_shim(compiler: str, into: Path) -> Path:
    library = into / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-Werror",
        "-pthread",
        "-o",
        library,
        source,
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


class UnreliableDisk:
    def __init__(self, library: Path, home: Path, root: Path | None = None) -> None:
        home = home.resolve()
        home.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve() if root else home / "data"
        self.root.mkdir(parents=True, exist_ok=True)
        self.library = library
        self.journal = home / "journal"
        self._path = home / "control"
        self._path.write_bytes(bytes(_DELAY + 4))
        with open(self._path, "r+b") as file:
            self._control = mmap.mmap(file.fileno(), 0)
        self._replay: Replay | None = None

    def power_on(self) -> dict[str, str]:
        """What is on the disk now is safe. Returns the environment that puts a process on this disk."""
        self.journal.unlink(missing_ok=True)
        self._replay = Replay(self.root)
        return {
            "LD_PRELOAD": str(self.library),
            "FAULTS_ROOT": str(self.root),
            "FAULTS_JOURNAL": str(self.journal),
            "FAULTS_CONTROL": str(self._path),
        }

    def restart(self) -> None:
        """The process has died, the power stays on: the next one goes on with what the kernel has."""
        cut_torn_note(self.journal)

    def lose_power(self, seed: int) -> None:
        """To be called once the process is dead."""
        assert self._replay is not None, "the power was never on"
        assert self.journal.exists(), "the process did not run on the shim"
        self._replay.follow(self.journal)
        self._replay.lose_power(random.Random(seed))
        self._replay = None

    def fail_writes(
        self, error: int, *, match: str = "", passes: int = 0, room_bytes: int = 0, once: bool = False
    ) -> None:
        """Writes (and creations) fail with `error` until cleared, or once.

        Before that `passes` more succeed, and then `room_bytes` are written; the last write is cut short.
        """
        self._arm(_WRITE, error, match, passes, room_bytes, once)

    def fail_syncs(self, error: int, *, match: str = "", passes: int = 0, once: bool = False) -> None:
        self._arm(_SYNC, error, match, passes, 0, once)

    def delay_syncs(self, seconds: float) -> None:
        """Every sync takes this long: more writes are under way when the power goes."""
        struct.pack_into("<i", self._control, _DELAY, int(seconds * 1e6))

    @property
    def failed_writes(self) -> int:
        return int(struct.unpack_from("<i", self._control, _WRITE + _FIRED)[0])

    @property
    def failed_syncs(self) -> int:
        return int(struct.unpack_from("<i", self._control, _SYNC + _FIRED)[0])

    def clear(self) -> None:
        """No call fails any more, and none has failed."""
        self._control[:] = bytes(len(self._control))

    def _arm(self, at: int, error: int, match: str, passes: int, room_bytes: int, once: bool) -> None:
        fired = struct.unpack_from("<i", self._control, at + _FIRED)[0]
        fault = _FAULT.pack(0, passes, error, room_bytes, 0 if once else 1, fired, match.encode())
        self._control[at : at + _FAULT.size] = fault
        struct.pack_into("<i", self._control, at, 1)  # armed last: the shim never sees half of it
