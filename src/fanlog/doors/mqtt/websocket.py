"""MQTT in WebSocket frames: a socket's protocol on one side, an MQTT connection's transport on the other.

The stream of packets runs through binary frames with no regard to where those begin and end, [MQTT-6.0.0-2],
so the payloads are handed on as they come, all that arrived together in one piece. Backpressure passes
through both ways. What is sent becomes one frame per write: a header of a few bytes in front of bytes that
many connections may share.

To the MQTT connection this is over as soon as it is closed; the closing handshake goes on behind it, for
a limited time.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from websockets.datastructures import Headers
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from fanlog.doors.mqtt.connection import MqttConnection

if TYPE_CHECKING:
    from fanlog.doors.mqtt.door import MqttDoor

# Who comes and goes is for the MQTT door to say.
_quiet = logging.getLogger(__name__)
_quiet.setLevel(logging.WARNING)

# [MQTT-6.0.0-3], and the name that clients of MQTT 3.1 use.
SUBPROTOCOLS: Final = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]
_CLOSE_SECONDS: Final = 2.0
_BINARY: Final = 0x82


def frame_header(size: int) -> bytes:
    """The header of an unmasked binary frame that is a whole message. RFC 6455, 5.2."""
    if size < 126:
        return bytes((_BINARY, size))
    if size < 65_536:
        return bytes((_BINARY, 126)) + size.to_bytes(2, "big")
    return bytes((_BINARY, 127)) + size.to_bytes(8, "big")


class WebSocketConnection(asyncio.Protocol):
    """Takes over a connection whose HTTP request asked for it."""

    def __init__(self, door: "MqttDoor", transport: asyncio.Transport) -> None:
        self.socket = transport
        self.loop = door.loop
        self.mqtt: MqttConnection | None = None
        self._door = door
        self._protocol = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            max_size=door.limits.websocket_message_bytes_max,
            logger=_quiet,
        )
        self._closing = False
        self._deadline: asyncio.TimerHandle | None = None

    def open(self, path: str, headers: list[tuple[str, str]], rest: bytes) -> None:
        """Answers the request, and goes on with what came behind it."""
        self.socket.set_protocol(self)
        self._protocol.receive_data(Request(path, Headers(headers)).serialize())
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._protocol.send_response(self._protocol.accept(event))
        if self._protocol.state is State.OPEN:
            self.mqtt = MqttConnection(self._door)
            self._send()
            self.mqtt.connection_made(cast(asyncio.Transport, self))
            if rest:
                self.data_received(rest)
        else:
            self._send()

    # --- the socket's side ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        payloads = []
        for event in self._protocol.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode is Opcode.TEXT:
                # [MQTT-6.0.0-1]
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is binary")
                break
            if event.opcode in (Opcode.BINARY, Opcode.CONT):
                payloads.append(event.data)
        self._send()
        if payloads and self.mqtt is not None:
            self.mqtt.data_received(bytes(payloads[0]) if len(payloads) == 1 else b"".join(payloads))
        if self._protocol.state is not State.OPEN:
            self._lose(None)

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        self._send()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._lose(exc)

    def pause_writing(self) -> None:
        if self.mqtt is not None:
            self.mqtt.pause_writing()

    def resume_writing(self) -> None:
        if self.mqtt is not None:
            self.mqtt.resume_writing()

    def _send(self) -> None:
        """Writes what the WebSocket protocol itself has to say: pongs, closes, the handshake."""
        for data in self._protocol.data_to_send():
            if data:
                self.socket.write(data)
            else:
                self.socket.close()
        if self._protocol.close_expected() and self._deadline is None:
            self._deadline = self.loop.call_later(_CLOSE_SECONDS, self.socket.abort)

    def _lose(self, exc: Exception | None) -> None:
        mqtt, self.mqtt = self.mqtt, None
        if mqtt is not None:
            mqtt.connection_lost(exc)

    # --- the MQTT connection's side: what it uses of a transport -----------------------------------------

    def write(self, data: bytes) -> None:
        if data and self._protocol.state is State.OPEN:
            self.socket.writelines((frame_header(len(data)), data))

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        try:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        except InvalidState:
            self.socket.close()
        self._send()
        # As a transport does: not from within the caller.
        self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._closing = True
        self.socket.abort()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.socket.pause_reading()

    def resume_reading(self) -> None:
        self.socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self.socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        # Nobody may write past the frames.
        return default if name == "socket" else self.socket.get_extra_info(name, default)
