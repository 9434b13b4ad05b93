"""Where what is published goes, and to whom what was committed is delivered.

`target` finds the partition for an address, and remembers it. When a partition commits, `committed` sorts the
new messages by the channels that asked for them and hands each channel its run, all in the same turn of
the loop: whoever is in sync has everything below `delivered` of a partition, and nothing above. A door
whose patterns are not filters with `+` and `#` adds a set of channels of its own to `sets`; a message is
unpacked once for all of them.

What went by is counted per commit, never per message.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from fanlog.cluster.catalog import Catalog, Topic
from fanlog.log.entries import Entry
from fanlog.log.partition import Partition, unpack
from fanlog.router.addresses import Addresses
from fanlog.router.channels import Channel, ChannelSet, Member, Outlet, Run
from fanlog.router.cursor import Pump
from fanlog.router.headers import message_of
from fanlog.router.trie import Trie
from fanlog.wire import records
from fanlog.wire.murmur2 import partition_of
from fanlog.wire.records import Message

logger = logging.getLogger(__name__)

TARGETS_MAX: Final = 200_000


class Target:
    """Where messages to an address are kept."""

    __slots__ = ("key", "partition")

    def __init__(self, partition: Partition, key: bytes | None) -> None:
        self.partition = partition
        self.key = key


class Traffic:
    """What was stored in a topic since the start, and how often it was sent to subscribers."""

    __slots__ = ("sent", "stored")

    def __init__(self) -> None:
        self.stored = 0
        self.sent = 0


class Router:
    def __init__(self, catalog: Catalog, addresses: Addresses) -> None:
        self.catalog = catalog
        self.addresses = addresses
        self.channels: Trie[Channel] = Trie()
        self.sets: list[ChannelSet] = [self.channels]
        self.pump = Pump(self)
        self.sent = 0
        self.sent_bytes = 0
        self.traffic: dict[str, Traffic] = {}
        self._targets: dict[str, Target] = {}
        # Below this offset of a partition everything was handed to the channels.
        self._delivered: dict[Partition, int] = {}
        # Told when a topic comes, so that those who asked for it hear of its records too.
        self.on_topic: list[Callable[[Topic], None]] = []
        catalog.on_change = self._changed

    def start(self) -> None:
        for topic in self.catalog.topics.values():
            self._changed(topic)

    def _changed(self, topic: Topic) -> None:
        """A topic came, got more partitions, or went."""
        self._targets.clear()
        if topic.internal:
            return
        for partition in topic.partitions:
            if partition.closed:
                self._delivered.pop(partition, None)
            elif partition.listener is None:
                partition.listener = self.committed
                self._delivered[partition] = partition.high_watermark
        for listener in self.on_topic:
            listener(topic)

    # --- publish ----------------------------------------------------------------------------------------

    def target(self, address: str) -> Target | None:
        """Where to keep what is published to `address`; None if its topic is not there yet."""
        found = self._targets.get(address)
        if found is None:
            topic_name, key = self.addresses.place(address)
            topic = self.catalog.topics.get(topic_name)
            if topic is None:
                return None
            if len(self._targets) >= TARGETS_MAX:
                self._targets.clear()
            partitions = topic.partitions
            number = 0 if len(partitions) == 1 else partition_of(key or b"", len(partitions))
            found = self._targets[address] = Target(partitions[number], key)
        return found

    async def make_target(self, address: str) -> Target:
        """The same for an address whose topic may have to be made first."""
        topic_name, _ = self.addresses.place(address)
        if self.catalog.settings.topics.auto_create:
            await self.catalog.ensure(topic_name, -1, {})
        self.catalog[topic_name]
        target = self.target(address)
        assert target is not None
        return target

    # --- deliver ----------------------------------------------------------------------------------------

    def delivered(self, partition: Partition) -> int:
        return self._delivered.get(partition, partition.high_watermark)

    def committed(self, partition: Partition, entries: list[Entry]) -> None:
        first = self._delivered.get(partition, entries[0].base_offset)
        end = entries[-1].last_offset + 1
        # Before anybody is handed anything: who falls behind now is behind by these entries.
        self._delivered[partition] = end
        traffic = self._traffic(partition.topic)
        traffic.stored += end - first
        sets = [one for one in self.sets if len(one)]
        if sets:
            sent = 0
            for outlet, run in self._runs(sets, partition, entries, first, end).items():
                try:
                    sent += outlet.deliver(run)
                except Exception:
                    # A fault of ours with one channel must not keep the others, or the log, from going on.
                    logger.exception("%s-%d: a run could not be delivered", partition.topic, partition.number)
                self.sent_bytes += run.sent_bytes
            traffic.sent += sent
            self.sent += sent

    def _traffic(self, topic: str) -> Traffic:
        found = self.traffic.get(topic)
        if found is None:
            found = self.traffic[topic] = Traffic()
        return found

    def caught_up_by(self, run: Run) -> None:
        """Counts what a reader that is behind was given."""
        self._traffic(run.partition.topic).sent += len(run.messages)
        self.sent += len(run.messages)

    def _runs(
        self, sets: list[ChannelSet], partition: Partition, entries: list[Entry], first: int, end: int
    ) -> dict[Outlet, Run]:
        runs: dict[Outlet, Run] = {}
        match = sets[0].match if len(sets) == 1 else _all_of(sets)
        for entry in entries:
            offset = entry.base_offset
            messages = entry.messages
            if messages is None:
                messages = self._unpacked(partition, entry)
            for message in messages:
                for channel in match(message.address):
                    run = runs.get(channel)
                    if run is None:
                        run = runs[channel] = Run(partition, first, end, entry.max_timestamp)
                    run.messages.append(message)
                    run.offsets.append(offset)
                offset += 1
        return runs

    def _unpacked(self, partition: Partition, entry: Entry) -> list[Message]:
        """The records of a batch that came whole, as messages."""
        batch = entry.prefix + bytes(entry.body)
        return self.messages(partition.topic, unpack(batch, records.read_header(batch)))

    def messages(self, topic: str, found: list[records.Record]) -> list[Message]:
        address = self.addresses.address
        return [message_of(address(topic, record.key), record) for record in found]

    def announce(self, messages: list[Message]) -> None:
        """Tells subscribers what is in no log. Who cannot take it now misses it."""
        heard: dict[Channel, list[Message]] = {}
        for message in messages:
            for channel in self.channels.match(message.address):
                heard.setdefault(channel, []).append(message)
        for channel, some in heard.items():
            channel.announce(some)

    # --- subscribe --------------------------------------------------------------------------------------

    def join(self, filter: str, member: Member) -> None:
        """Makes a member that is in sync part of its filter's channel."""
        channel = self.channels.get(filter)
        if channel is None:
            channel = Channel(filter)
            self.channels.put(filter, channel)
        channel.join(member)

    def leave(self, filter: str, member: Member) -> None:
        channel = self.channels.get(filter)
        if channel is None:
            return
        channel.leave(member)
        if not channel.members:
            self.channels.remove(filter)

    def covered(self, filter: str) -> list[Partition]:
        """The partitions that may hold records for a filter."""
        names = self.addresses.topics_of(filter, self.catalog.topics)
        return [
            partition
            for name in names
            if not self.catalog.topics[name].internal
            for partition in self.catalog.topics[name].partitions
        ]


def _all_of(sets: list[ChannelSet]) -> Callable[[str], Sequence[Outlet]]:
    return lambda address: [outlet for one in sets for outlet in one.match(address)]
