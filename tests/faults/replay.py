"""What a power loss leaves of a directory, told from the journal that shim.c kept.

A file is the bytes that a successful sync has promised, plus the writes and truncations since. A directory is
the entries that a sync of the directory has promised, plus the creations, renames and removals since. At a
power loss the promises hold; of the rest anything may be there: none of it, the first few operations with the
last one torn at any byte, or the full size with pages that are new, old, zero or garbage in any mixture.

A sync that failed promises nothing, and what it was to cover is never promised by a later sync either: the
kernel marks such pages clean and forgets them. Whoever relies on a second fsync is found out.
"""

import itertools
import os
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_NOTE = struct.Struct("<QQqIIII")
_PAGE = 4096


class Unmodelled(AssertionError):
    """The program changed a file in a way that the journal cannot tell."""


@dataclass(slots=True)
class Change:
    """A write (`data` at `offset`), or a truncation to `offset` (`data` is None)."""

    sequence: int
    offset: int
    data: bytes | None
    doomed: bool = False

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            size = self.offset
            del content[size:]
        else:
            size = self.offset + len(self.data)
        if len(content) < size:
            content.extend(bytes(size - len(content)))
        if self.data is not None:
            content[self.offset : size] = self.data


@dataclass(slots=True, eq=False)
class File:
    promised: bytearray = field(default_factory=bytearray)
    since: list[Change] = field(default_factory=list)

    def synced(self, begun: int) -> None:
        for change in self.since:
            if change.sequence < begun and not change.doomed:
                change.apply(self.promised)
        self.since = [change for change in self.since if change.sequence >= begun or change.doomed]

    def sync_failed(self, begun: int) -> None:
        for change in self.since:
            if change.sequence < begun:
                change.doomed = True

    def after_power_loss(self, chance: random.Random) -> bytes:
        left = bytearray(self.promised)
        hopeful = [change for change in self.since if not change.doomed]
        fate = chance.choice(("lost", "torn", "torn", "pages", "pages", "kept"))
        if fate == "kept":
            for change in hopeful:
                change.apply(left)
        elif fate == "torn" and hopeful:
            self._tear(left, hopeful, chance)
        elif fate == "pages":
            self._scatter(left, hopeful, chance)
        return bytes(left)

    def _tear(self, left: bytearray, hopeful: list[Change], chance: random.Random) -> None:
        last = chance.randrange(len(hopeful))
        for change in hopeful[:last]:
            change.apply(left)
        torn = hopeful[last]
        if torn.data is not None:
            Change(0, torn.offset, torn.data[: chance.randrange(len(torn.data) + 1)]).apply(left)

    def _scatter(self, left: bytearray, hopeful: list[Change], chance: random.Random) -> None:
        promised = len(left)
        for change in hopeful:
            if change.data is None:  # a truncation is one change of metadata: there or not
                if chance.random() < 0.5:
                    change.apply(left)
                    promised = min(promised, len(left))
                continue
            at, end = change.offset, change.offset + len(change.data)
            if len(left) < end:
                left.extend(bytes(end - len(left)))
            while at < end:
                stop = min(end, (at // _PAGE + 1) * _PAGE)
                luck = chance.random()
                if luck < 0.6:
                    left[at:stop] = change.data[at - change.offset : stop - change.offset]
                elif luck < 0.75:  # promised bytes stay what they were, or become what was written
                    start = min(max(at, promised), stop)
                    left[start:stop] = chance.randbytes(stop - start)
                at = stop


@dataclass(slots=True)
class Entry:
    """One change of a directory: a name goes, a name comes, or both at once (rename)."""

    sequence: int
    gone: str | None
    come: str | None
    node: "File | Directory | None"
    doomed: bool = False

    def apply(self, entries: "dict[str, File | Directory]") -> None:
        if self.gone is not None:
            entries.pop(self.gone, None)
        if self.come is not None and self.node is not None:
            entries[self.come] = self.node


@dataclass(slots=True, eq=False)
class Directory:
    promised: "dict[str, File | Directory]" = field(default_factory=dict)
    entries: "dict[str, File | Directory]" = field(default_factory=dict)  # as the program sees them
    since: list[Entry] = field(default_factory=list)

    def change(self, entry: Entry) -> None:
        entry.apply(self.entries)
        self.since.append(entry)

    def synced(self, begun: int) -> None:
        for entry in self.since:
            if entry.sequence < begun and not entry.doomed:
                entry.apply(self.promised)
        self.since = [entry for entry in self.since if entry.sequence >= begun or entry.doomed]

    def sync_failed(self, begun: int) -> None:
        for entry in self.since:
            if entry.sequence < begun:
                entry.doomed = True

    def after_power_loss(self, chance: random.Random) -> "dict[str, File | Directory]":
        left = dict(self.promised)
        hopeful = [entry for entry in self.since if not entry.doomed]
        for entry in hopeful[: chance.choice((0, 0, chance.randint(0, len(hopeful)), len(hopeful)))]:
            entry.apply(left)
        return left


class Replay:
    """The files below `root`: as they are now, all of it promised, and then through a journal."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = Directory()
        self.nodes: dict[int, File | Directory] = {}
        self._load(root, self.tree)

    def _load(self, path: Path, directory: Directory) -> None:
        self.nodes[path.stat().st_ino] = directory
        for child in path.iterdir():
            node: File | Directory
            if child.is_dir():
                node = Directory()
                self._load(child, node)
            else:
                node = File(bytearray(child.read_bytes()))
                self.nodes[child.stat().st_ino] = node
            directory.promised[child.name] = directory.entries[child.name] = node

    def follow(self, journal: Path) -> None:
        cut_torn_note(journal)
        for kind, sequence, inode, offset, path, data in _notes(journal):
            if kind == "X":
                raise Unmodelled(f"{data.decode()} on {path}")
            if kind in "OM":
                node = self.nodes[inode] = File() if kind == "O" else Directory()
                self._parent(path).change(Entry(sequence, None, os.path.basename(path), node))
            elif kind in "WT":
                file = self.nodes[inode]
                assert isinstance(file, File), path
                file.since.append(Change(sequence, offset, data if kind == "W" else None))
            elif kind == "E":
                self.nodes[inode].synced(offset)
            elif kind == "F":
                self.nodes[inode].sync_failed(offset)
            elif kind == "U":
                self._parent(path).change(Entry(sequence, os.path.basename(path), None, None))
            elif kind == "R":
                self._rename(sequence, path, data.decode())

    def _rename(self, sequence: int, old: str, new: str) -> None:
        source, target = self._parent(old), self._parent(new)
        gone, come = os.path.basename(old), os.path.basename(new)
        node = source.entries[gone]
        if source is target:
            source.change(Entry(sequence, gone, come, node))
        else:
            target.change(Entry(sequence, None, come, node))
            source.change(Entry(sequence, gone, None, None))

    def _parent(self, path: str) -> Directory:
        directory = self.tree
        for name in Path(os.path.normpath(path)).relative_to(self.root).parts[:-1]:
            found = directory.entries[name]
            assert isinstance(found, Directory), path
            directory = found
        return directory

    def lose_power(self, chance: random.Random) -> None:
        """Make the real directory what a power loss could have left."""
        for child in self.root.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
            else:
                child.unlink()
        self._write(self.root, self.tree, chance)

    def _write(self, path: Path, directory: Directory, chance: random.Random) -> None:
        for name, node in sorted(directory.after_power_loss(chance).items()):
            if name.endswith("-shm"):  # SQLite's shared memory is never synced, and rebuilt at every start
                continue
            if isinstance(node, Directory):
                (path / name).mkdir()
                self._write(path / name, node, chance)
            else:
                (path / name).write_bytes(node.after_power_loss(chance))


def cut_torn_note(journal: Path) -> None:
    """The kill may have torn the last record; nothing can have relied on it. Others can be appended then."""
    with open(journal, "r+b") as file:
        at, size = 0, file.seek(0, os.SEEK_END)
        while at < size:
            file.seek(at)
            head = file.read(_NOTE.size)
            end = at + _NOTE.size + sum(_NOTE.unpack(head)[3:5]) if len(head) == _NOTE.size else size + 1
            if end > size:
                file.truncate(at)
            at = end


def _notes(journal: Path) -> Iterator[tuple[str, int, int, int, str, bytes]]:
    """The journal's records in their order, whichever process wrote them, counted from 0."""
    text = journal.read_bytes()
    at = 0
    begun: dict[tuple[int, int], int] = {}
    for order in itertools.count():
        if at >= len(text):
            return
        sequence, inode, offset, path_bytes, data_bytes, process, code = _NOTE.unpack_from(text, at)
        kind = chr(code)
        if kind == "B":
            begun[process, sequence] = order
        elif kind in "EF":  # these name the beginning of their sync
            offset = begun[process, offset]
        at += _NOTE.size
        path = text[at : at + path_bytes].decode()
        at += path_bytes
        yield kind, order, inode, offset, path, text[at : at + data_bytes]
        at += data_bytes
