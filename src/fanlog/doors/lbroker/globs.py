"""Patterns with `*` and `?`, and the channels behind them.

`*` is any run of characters, also across `/`; `?` is one character, however many bytes it has. Every
pattern that somebody subscribed to has a channel: its messages are encoded once for a run, and each
subscriber is handed the same bytes. Which patterns cover an address is remembered until one comes or goes.

Two patterns of one client may cover the same address: it still gets a message once, from the first of
the channels that it is in. Nobody gets what they published themselves.
"""

import re
from typing import TYPE_CHECKING, Final

from fanlog.doors.lbroker.latest import Latest
from fanlog.doors.lbroker.values import HEADERS, topic_prefix, value_of
from fanlog.log.commit import now_ms
from fanlog.router.channels import Outlet, Run

if TYPE_CHECKING:
    from fanlog.doors.lbroker.connection import LbrokerConnection

CACHE_ENTRIES_MAX: Final = 100_000


def pattern_of(glob: str) -> re.Pattern[str]:
    """A glob as a regular expression that never goes back over a `*` it has passed.

    The first place where the text between two stars fits is as good as any later one; so each is an atomic
    group, and a hostile pattern costs no more than its length times that of the address.
    """
    first, *rest = [_literal(part) for part in re.split(r"\*+", glob)]
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle) + ".*" + last, re.DOTALL)


def _literal(part: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in part)


class GlobChannel:
    """All the subscribers of one pattern."""

    __slots__ = ("globs", "members", "pattern")

    def __init__(self, globs: "Globs", glob: str) -> None:
        self.globs = globs
        self.pattern = pattern_of(glob)
        self.members: dict[LbrokerConnection, None] = {}

    def deliver(self, run: Run) -> int:
        now = now_ms()
        messages = [one for one in run.messages if not one.expires_at_ms or one.expires_at_ms > now]
        frames = [
            topic_prefix(one.address)
            # What came through this door has been looked at already.
            + (one.value if one.value and one.headers is HEADERS else value_of(one.value, one.headers))
            for one in messages
        ]
        shared = b"".join(frames)
        publishers = {one.publisher for one in messages}
        overlaps = [self._before(one.address) for one in messages]
        alone = not any(overlaps)
        sent = 0
        for member in self.members:
            if member not in publishers and (alone or member.patterns_count == 1):
                mine, count = shared, len(frames)
            else:
                chosen = [
                    frame
                    for frame, message, before in zip(frames, messages, overlaps, strict=True)
                    if message.publisher is not member and not any(member in one.members for one in before)
                ]
                mine, count = b"".join(chosen), len(chosen)
            if count and member.push(mine, count):
                sent += count
                run.sent_bytes += len(mine)
        return sent

    def _before(self, address: str) -> list["GlobChannel"]:
        """The channels that come before this one where an address is covered by several."""
        channels = self.globs.channels_of(address)
        return [] if channels[0] is self else list(channels[: channels.index(self)])


class Globs:
    """The set of channels by glob; the router asks it who wants an address."""

    def __init__(self, latest: Latest) -> None:
        self.latest = latest
        self.awake = False
        self._channels: dict[str, GlobChannel] = {}
        self._cache: dict[str, tuple[GlobChannel, ...]] = {}
        self._outlets: dict[str, tuple[Outlet, ...]] = {}

    def __len__(self) -> int:
        # Not worth a look before the door has been used.
        return 1 + len(self._channels) if self.awake else 0

    def wake(self) -> None:
        self.awake = True

    def match(self, address: str) -> tuple[Outlet, ...]:
        found = self._outlets.get(address)
        if found is None:
            # The last messages come first: whoever misses something finds it there.
            channels = self.channels_of(address)
            found = self._outlets[address] = (self.latest, *channels)
        return found

    def channels_of(self, address: str) -> tuple[GlobChannel, ...]:
        found = self._cache.get(address)
        if found is None:
            if len(self._cache) >= CACHE_ENTRIES_MAX:
                self._forget()
            found = tuple(one for one in self._channels.values() if one.pattern.fullmatch(address))
            self._cache[address] = found
        return found

    def join(self, glob: str, member: "LbrokerConnection") -> GlobChannel:
        channel = self._channels.get(glob)
        if channel is None:
            channel = self._channels[glob] = GlobChannel(self, glob)
            self._forget()
        channel.members[member] = None
        return channel

    def leave(self, glob: str, member: "LbrokerConnection") -> None:
        channel = self._channels.get(glob)
        if channel is None:
            return
        channel.members.pop(member, None)
        if not channel.members:
            del self._channels[glob]
            self._forget()

    def _forget(self) -> None:
        self._cache.clear()
        self._outlets.clear()
