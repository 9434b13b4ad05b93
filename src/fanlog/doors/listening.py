"""Where a door listens: plainly, with TLS, or both."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from fanlog.security.tls import HANDSHAKE_SECONDS, SHUTDOWN_SECONDS

_BACKLOG: Final = 4096


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
