"""What groups have committed, as far as it is committed to the log.

Changes go to the log first, and show here when it has them; whoever asked may have gone by then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from fanlog.log.errors import LogError
from fanlog.state.groups.encoding import Committed, OffsetKey, key, value
from fanlog.state.journal import Entry, Journal

# Topic and partition.
Place = tuple[str, int]
Settled = Callable[[LogError | None], None]


class Offsets:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.by_group: dict[str, dict[Place, Committed]] = {}
        # Commits that are on their way to the log, by group.
        self._under_way: Counter[str] = Counter()

    def of(self, group: str) -> Mapping[Place, Committed]:
        return self.by_group.get(group, {})

    def busy(self, group: str) -> bool:
        return self._under_way[group] > 0

    def commit(self, group: str, offsets: Mapping[Place, Committed], settled: Settled) -> None:
        entries: list[Entry] = [
            (key(OffsetKey(group, *place)), value(committed)) for place, committed in offsets.items()
        ]

        def done(error: LogError | None) -> None:
            self._under_way[group] -= 1
            if not self._under_way[group]:
                del self._under_way[group]
            if error is None:
                self.by_group.setdefault(group, {}).update(offsets)
            settled(error)

        self._under_way[group] += 1
        self.journal.append(group, entries, done)

    def remove(self, group: str, places: Iterable[Place], also: list[Entry], settled: Settled) -> None:
        """Removes offsets, together with whatever `also` removes."""
        gone = list(places)
        entries: list[Entry] = [(key(OffsetKey(group, *place)), None) for place in gone]

        def done(error: LogError | None) -> None:
            if error is None:
                for place in gone:
                    self.put(group, place, None)
            settled(error)

        self.journal.append(group, entries + also, done)

    def put(self, group: str, place: Place, committed: Committed | None) -> None:
        """Takes account of what the log says."""
        if committed is not None:
            self.by_group.setdefault(group, {})[place] = committed
            return
        kept = self.by_group.get(group, {})
        kept.pop(place, None)
        if not kept:
            self.by_group.pop(group, None)
