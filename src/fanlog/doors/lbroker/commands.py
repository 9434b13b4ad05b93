"""What lbroker clients say: msgpack values back to back, each a map of one command.

    {"Subscribe": [pattern, ...]}    {"Unsubscribe": [pattern, ...]}    {"Publish": [[topic, value], ...]}

The stream has no lengths, so a first pass finds where each value ends, going on where it stopped when more
bytes come. A second pass takes a command apart; a published value is not decoded, its bytes are cut out as
they are. No sockets and no clock here.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgpack

# Bytes that arrive together with the end of a frame.
_SLACK_BYTES: Final = 1 << 20
_READ_BYTES: Final = 4096


class CommandError(ValueError):
    """A client broke the protocol; the message says how, `commands` what it had said well before."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.commands: list[Command] = []


class Subscribe(NamedTuple):
    patterns: list[str]


class Unsubscribe(NamedTuple):
    patterns: list[str]


class Publish(NamedTuple):
    # Topics, and values as msgpack.
    messages: list[tuple[str, bytes]]


Command = Subscribe | Unsubscribe | Publish


class CommandReader:
    """Bytes in, commands out."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._scanner = msgpack.Unpacker(
            max_buffer_size=frame_bytes_max + _SLACK_BYTES, read_size=_READ_BYTES, raw=True
        )
        self._scanned = 0
        self._buffer = bytearray()

    @property
    def between_frames(self) -> bool:
        return not self._buffer

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are complete. Raises CommandError."""
        commands: list[Command] = []
        try:
            self._buffer += data
            self._scanner.feed(data)
            for frame in self._frames():
                commands.append(parse(frame))
        except msgpack.BufferFull:
            raise CommandError(self._too_long()) from None
        except CommandError as error:
            error.commands = commands
            raise
        return commands

    def _frames(self) -> Iterator[bytes]:
        at = 0
        try:
            while self._skip():
                end = self._scanner.tell() - self._scanned
                if end - at > self.frame_bytes_max:
                    raise CommandError(self._too_long())
                yield bytes(self._buffer[at:end])
                at = end
        finally:
            del self._buffer[:at]
            self._scanned += at
        if len(self._buffer) > self.frame_bytes_max:
            raise CommandError(self._too_long())

    def _skip(self) -> bool:
        try:
            self._scanner.skip()
        except msgpack.OutOfData:
            return False
        except (ValueError, msgpack.UnpackException) as error:
            raise CommandError(f"not msgpack: {error or type(error).__name__}") from error
        return True

    def _too_long(self) -> str:
        return f"a command of more than {self.frame_bytes_max} bytes"


def parse(frame: bytes) -> Command:
    """The command in a whole frame."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(frame), 1), read_size=1)
    unpacker.feed(frame)
    try:
        if unpacker.read_map_header() != 1:
            raise CommandError("a command is a map of one entry")
        name = unpacker.unpack()
        if name == "Publish":
            return Publish([_message(unpacker, frame) for _ in range(unpacker.read_array_header())])
        if name == "Subscribe":
            return Subscribe(_patterns(unpacker.unpack()))
        if name == "Unsubscribe":
            return Unsubscribe(_patterns(unpacker.unpack()))
    except CommandError:
        raise
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CommandError(f"not a command: {error or type(error).__name__}") from error
    raise CommandError(f"there is no command {str(name)[:40]!r}")


def _message(unpacker: msgpack.Unpacker, frame: bytes) -> tuple[str, bytes]:
    if unpacker.read_array_header() != 2:
        raise CommandError("a message is a topic and a value")
    topic = unpacker.unpack()
    if not isinstance(topic, str):
        raise CommandError("a topic is text")
    start = unpacker.tell()
    unpacker.skip()
    return topic, frame[start : unpacker.tell()]


def _patterns(found: object) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise CommandError("patterns are a list of texts")
    return found
