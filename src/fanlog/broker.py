"""One broker: the log, what it remembers, its doors; started, run and stopped in that order and back.

`run` is what `fanlog serve` calls. A broker is one process and one event loop, and shares nothing with
any other but the metadata store.
"""

import asyncio
import fcntl
import gc
import logging
import os
import resource
import signal
import ssl
import sys
from pathlib import Path
from typing import Protocol

import uvloop

from fanlog import __version__, config
from fanlog.cluster.catalog import Catalog
from fanlog.cluster.metadata import cluster_id, open_store
from fanlog.config import ConfigError, Settings
from fanlog.doors.http.door import HttpDoor
from fanlog.doors.kafka.door import KafkaDoor
from fanlog.doors.lbroker.door import LbrokerDoor
from fanlog.doors.mqtt.door import MqttDoor
from fanlog.log.commit import Committer, now_ms
from fanlog.log.disk import Disk
from fanlog.log.upkeep import Upkeep
from fanlog.router.addresses import Addresses, parse_routes
from fanlog.router.router import Router
from fanlog.router.slow import SlowReaders
from fanlog.router.statistics import Statistics
from fanlog.security.tls import server_context
from fanlog.state.groups import Groups
from fanlog.state.retained import Retained
from fanlog.state.sessions import SessionStore

logger = logging.getLogger(__name__)

# How long a stopping broker waits for answers that are under way.
_DRAIN_SECONDS = 5.0


class Door(Protocol):
    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]: ...


class Broker:
    def __init__(self, settings: Settings, disk: Disk | None = None) -> None:
        self.settings = settings
        self.disk = disk or Disk()
        self.ready = False
        self.tls = server_context(settings)
        for name in ("kafka_tls", "mqtt_tls", "http_tls"):
            if self.tls is None and config.address(getattr(settings, name)) is not None:
                raise ConfigError(f"{name} needs tls_certificate, and tls_key if that is another file")
        self._lock_fd = lock(settings.data)
        self.store = open_store(settings.metadata, settings.data)
        self.cluster_id = cluster_id(self.store)
        self.committer = Committer(settings.log)
        self.catalog = Catalog(settings, self.store, self.committer, self.disk)
        self.groups = Groups(self.catalog, self.committer, settings, now_ms)
        self.upkeep = Upkeep(self.catalog.partitions, self.committer, settings.log, self._tend)
        self.router = Router(self.catalog, Addresses(parse_routes(settings.topics.routes)))
        self.retained = Retained(self.catalog, now_ms)
        self.session_store = SessionStore(self.catalog, now_ms)
        self.kafka = KafkaDoor(self)
        self.mqtt = MqttDoor(self)
        self.http = HttpDoor(self)
        self.lbroker = LbrokerDoor(self)
        self.http.upgrades["/mqtt"] = self.mqtt.upgraded
        self.statistics = Statistics(
            self.router,
            self.retained.system,
            self._counters,
            self._gauges,
            settings.statistics_interval_s,
        )
        self.slow_readers = SlowReaders(self.router, self.statistics)
        # The addresses that listen, by door.
        self.addresses: dict[str, tuple[str, int]] = {}

    async def start(self) -> None:
        await self.catalog.open()
        await self.groups.open()
        await self.retained.open()
        self.router.start()
        await self.mqtt.keeper.open()
        self.upkeep.start()
        for name, door in self._doors().items():
            address = config.address(getattr(self.settings, name))
            if address is not None:
                context = self.tls if name.endswith("_tls") else None
                self.addresses[name] = await door.listen(*address, context)
        self.statistics.start()
        self.slow_readers.start()
        self.ready = True

    def _counters(self) -> dict[str, int]:
        """What only grows, by its name below `$SYS/broker`."""
        mqtt, lbroker = self.mqtt, self.lbroker
        return {
            "messages/received": mqtt.received_packets + lbroker.received + self.kafka.requests,
            "messages/sent": self.router.sent,
            "bytes/received": mqtt.received_bytes + lbroker.bytes_received,
            "bytes/sent": self.router.sent_bytes,
            "publish/messages/received": mqtt.received + lbroker.received,
            "publish/messages/sent": self.router.sent,
            "publish/messages/dropped": lbroker.skipped,
            "sockets": mqtt.connections_opened,
        }

    def _gauges(self) -> dict[str, object]:
        sessions = self.mqtt.sessions
        connected = sum(1 for session in sessions.values() if session.connection is not None)
        return {
            "version": f"fanlog {__version__}",
            "clients/connected": connected,
            "clients/disconnected": len(sessions) - connected,
            "clients/total": len(sessions),
            "clients/maximum": self.mqtt.connections_most,
            "subscriptions/count": sum(len(session.subscriptions) for session in sessions.values()),
            "shared_subscriptions/count": len(self.mqtt.shares),
            "retained messages/count": len(self.retained),
        }

    def _doors(self) -> dict[str, Door]:
        """Who listens at which setting's address."""
        return {
            "kafka": self.kafka,
            "mqtt": self.mqtt,
            "http": self.http,
            "lbroker": self.lbroker,
            "kafka_tls": self.kafka,
            "mqtt_tls": self.mqtt,
            "http_tls": self.http,
        }

    def _tend(self, now: int) -> None:
        """What is done now and then, with the log's own upkeep."""
        self.groups.expire(now)
        self.mqtt.keeper.note_progress()

    def advertised(self, tls: bool = False) -> tuple[str, int]:
        """Where Kafka clients are told to find this broker: at the address that they came by, or its like."""
        host, port = self.addresses["kafka_tls" if tls else "kafka"]
        if self.settings.advertise:
            return self.settings.advertise, port
        # A wildcard is an address to listen on, not one to connect to.
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port

    async def delete_topic(self, name: str) -> None:
        """Removes a topic, and what is remembered of it."""
        await self.catalog.delete(name)
        self.groups.forget_topic(name)

    async def stop(self) -> None:
        """Takes nothing new, answers what it has, and leaves a log that opens without a scan."""
        self.ready = False
        self.statistics.close()
        self.slow_readers.close()
        self.kafka.stop_listening()
        self.mqtt.stop_listening()
        self.lbroker.stop_listening()
        self.http.upgrades.clear()
        try:
            await asyncio.wait_for(self.committer.drain(), _DRAIN_SECONDS)
        except TimeoutError:
            logger.warning("the disk did not take everything within %.0f s", _DRAIN_SECONDS)
        await self.groups.close()
        await self.kafka.close()
        await self.mqtt.close()
        await self.http.close()
        await self.lbroker.close()
        await self.upkeep.close()
        await self.catalog.close()
        await self.committer.close()
        self.store.close()
        os.close(self._lock_fd)


def lock(data: Path) -> int:
    """Takes the data directory for this process alone."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        fd = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(f"{data}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(fd, 32, 0).decode().strip() or "unknown"
        os.close(fd)
        raise ConfigError(f"{data} is in use by another broker (process {owner})") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


async def serve(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(settings)
    try:
        await broker.start()
    except OSError as error:
        raise ConfigError(f"cannot listen: {error}") from error
    for name in ("grpc",):
        default = next(item.default for item in config.names() if item.key == name)
        if getattr(settings, name) not in ("none", default):
            logger.warning(
                "the %s door does not exist yet; nothing listens at %s", name, getattr(settings, name)
            )
    if settings.shards > 1:
        logger.warning("several shards do not exist yet; this is one broker")
    listening = " ".join(f"{name}={_shown(*address)}" for name, address in broker.addresses.items())
    print(f"ready {listening}", flush=True)
    _tune_collector()
    await stopping.wait()
    logger.info("stopping")
    await broker.stop()
    return 0


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run(settings: Settings) -> int:
    """Runs a broker until it is told to stop (SIGTERM, SIGINT). Raises ConfigError if it cannot start."""
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings))


def _tune_collector() -> None:
    """What was made at the start stays, and what a request makes is seldom cyclic: look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
