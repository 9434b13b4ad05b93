"""Who asked for an address: filters in a tree, one level of the address at a time.

A look-up follows at most three branches per level (the level itself, `+`, `#`), however many filters there
are. What was found is remembered by address until a filter comes or goes, so a device that publishes to one
address again and again costs one dictionary access.
"""

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

# Addresses that are remembered; then all are forgotten and found anew.
CACHE_ENTRIES_MAX: Final = 100_000


# Never written to.
_NOTHING: Final[dict[str, Any]] = {}


class _Node(Generic[T]):
    __slots__ = ("below", "value", "value_below")

    def __init__(self) -> None:
        # Most nodes are leaves, and share the knowledge that nothing is below them.
        self.below: dict[str, _Node[T]] = _NOTHING
        # What stands for a filter that ends here, and for one that ends with `#` below here.
        self.value: T | None = None
        self.value_below: T | None = None

    def child(self, level: str) -> "_Node[T]":
        """The node below, made if it is not there."""
        if self.below is _NOTHING:
            self.below = {}
        return self.below.setdefault(level, _Node())

    def empty(self) -> bool:
        return not self.below and self.value is None and self.value_below is None


class Trie(Generic[T]):
    """A value for each filter; all values whose filters cover an address."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._cache: dict[str, tuple[T, ...]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, filter: str) -> T | None:
        node = self._root
        *levels, last = filter.split("/")
        for level in levels:
            found = node.below.get(level)
            if found is None:
                return None
            node = found
        if last == "#":
            return node.value_below
        leaf = node.below.get(last)
        return None if leaf is None else leaf.value

    def put(self, filter: str, value: T) -> None:
        self._cache.clear()
        self._size += self.get(filter) is None
        node = self._root
        *levels, last = filter.split("/")
        for level in levels:
            node = node.child(level)
        if last == "#":
            node.value_below = value
        else:
            node.child(last).value = value

    def remove(self, filter: str) -> None:
        """Takes a filter away, with all branches that led to it alone."""
        if self.get(filter) is None:
            return
        self._cache.clear()
        self._size -= 1
        *levels, last = filter.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].below[level])
        if last == "#":
            path[-1].value_below = None
        else:
            path.append(path[-1].below[last])
            path[-1].value = None
            levels.append(last)
        for level, parent, node in zip(
            reversed(levels), reversed(path[:-1]), reversed(path[1:]), strict=True
        ):
            if not node.empty():
                break
            del parent.below[level]

    def match(self, address: str) -> tuple[T, ...]:
        """The values of all filters that cover `address`."""
        found = self._cache.get(address)
        if found is None:
            if len(self._cache) >= CACHE_ENTRIES_MAX:
                self._cache.clear()
            found = self._cache[address] = tuple(self._search(address.split("/")))
        return found

    def _search(self, levels: list[str]) -> Iterator[T]:
        nodes = [self._root]
        # [MQTT-4.7.2-1]: wildcards at the start do not cover names that begin with $.
        hidden = levels[0].startswith("$")
        for depth, level in enumerate(levels):
            following = []
            for node in nodes:
                if node.value_below is not None and not (depth == 0 and hidden):
                    yield node.value_below
                exact = node.below.get(level)
                if exact is not None:
                    following.append(exact)
                any_level = node.below.get("+")
                if any_level is not None and any_level is not exact and not (depth == 0 and hidden):
                    following.append(any_level)
            nodes = following
        for node in nodes:
            if node.value is not None:
                yield node.value
            # `a/#` covers `a` too.
            if node.value_below is not None:
                yield node.value_below

    def __iter__(self) -> Iterator[T]:
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.value is not None:
                yield node.value
            if node.value_below is not None:
                yield node.value_below
            stack.extend(node.below.values())
