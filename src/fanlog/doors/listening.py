"""Where a door listens: plainly, with TLS, or both."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from fanlog.security.tls import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS

_BACKLOG: Final = 4096
_SEGMENT_BYTES_MAX: Final = 8192


class Listeners:
    """The sockets on which one door takes connections."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.factory = factory
        self._servers: list[asyncio.Server] = []

    async def add(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Listens at one more address; returns it, with the port that was taken."""
        loop = asyncio.get_running_loop()
        if tls is None:
            server = await loop.create_server(self.factory, host, port, backlog=_BACKLOG)
            for listener in server.sockets:
                _limit_segments(listener)
        else:
            server = await loop.create_server(
                self.factory,
                host,
                port,
                backlog=_BACKLOG,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        self._servers.append(server)
        taken = server.sockets[0].getsockname()
        return taken[0], taken[1]

    def close(self) -> None:
        for server in self._servers:
            server.close()


def _limit_segments(listener: socket.socket) -> None:
    """Has connections of this machine sent in pieces as on a network.

    On the loopback device a segment may be 64 KB. A reader that was slow offers less room than that, and the
    kernel then waits for a fifth of a second, again and again, before it sends what would fit.
    """
    with contextlib.suppress(OSError):
        duplicate = socket.socket(fileno=os.dup(listener.fileno()))
        with duplicate:
            duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES_MAX)
