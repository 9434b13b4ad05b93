"""The metadata store of one machine: keys, values and revisions in an SQLite file.

What a cluster must agree on is small and changes seldom: which topics there are, how they are set up, which
producer numbers are taken. Every change is a compare-and-swap on the revision that its author has seen, so
several brokers on one machine can share the file. Calls wait for the disk: make them off the loop.
"""

import base64
import contextlib
import sqlite3
import threading
import uuid
from pathlib import Path
from typing import Final, NamedTuple

ABSENT: Final = 0


class Conflict(Exception):
    """Somebody else changed the key meanwhile: read it again."""


class Value(NamedTuple):
    data: bytes
    revision: int


class SqliteStore:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.execute(
            "create table if not exists entries "
            "(key text primary key, data blob not null, revision integer not null) without rowid"
        )
        # One counter for all keys: a key that was removed and came back never has a revision it had before.
        self._db.execute("create table if not exists counter (revision integer not null)")
        self._db.execute("insert into counter select 0 where not exists (select * from counter)")

    def get(self, key: str) -> Value | None:
        with self._lock:
            row = self._db.execute("select data, revision from entries where key = ?", (key,)).fetchone()
        return Value(*row) if row else None

    def below(self, prefix: str) -> dict[str, Value]:
        """All keys that begin with `prefix`."""
        with self._lock:
            rows = self._db.execute(
                "select key, data, revision from entries where substr(key, 1, ?) = ? order by key",
                (len(prefix), prefix),
            ).fetchall()
        return {key: Value(data, revision) for key, data, revision in rows}

    def swap(self, key: str, data: bytes | None, seen: int) -> int:
        """Puts `data` (None removes) where the key still has revision `seen`, ABSENT for no key at all."""
        with self._lock:
            self._db.execute("begin immediate")
            try:
                row = self._db.execute("select revision from entries where key = ?", (key,)).fetchone()
                if (row[0] if row else ABSENT) != seen:
                    raise Conflict(key)
                revision: int = self._db.execute(
                    "update counter set revision = revision + 1 returning revision"
                ).fetchall()[0][0]
                if data is None:
                    self._db.execute("delete from entries where key = ?", (key,))
                else:
                    self._db.execute("insert or replace into entries values (?, ?, ?)", (key, data, revision))
                self._db.execute("commit")
            except BaseException:
                self._db.execute("rollback")
                raise
        return revision

    def close(self) -> None:
        with self._lock:
            self._db.close()


def open_store(address: str, data: Path) -> SqliteStore:
    """The store that `--metadata` names; without a name, one in the data directory."""
    scheme, colon, path = address.partition(":")
    if not address:
        return SqliteStore(data / "metadata.db")
    if scheme != "sqlite" or not colon or not path:
        raise ValueError(f"{address!r} is not a metadata store: write sqlite:PATH")
    return SqliteStore(Path(path))


def cluster_id(store: SqliteStore) -> str:
    """The name of the cluster that shares this store, made up by whoever came first."""
    while True:
        value = store.get("cluster-id")
        if value is not None:
            return value.data.decode()
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=")
        with contextlib.suppress(Conflict):
            store.swap("cluster-id", name, ABSENT)
