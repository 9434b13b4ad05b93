"""An lbroker client as its users write them: msgpack over a socket."""

import socket
import uuid
from typing import Any

import msgpack


class Client:
    def __init__(self, address: str, receive_bytes: int = 0) -> None:
        host, port = address.split(":")
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(10)
        self.socket.connect((host, int(port)))
        self._unpacker = msgpack.Unpacker(strict_map_key=False)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, command: object) -> None:
        self.socket.sendall(msgpack.packb(command))

    def subscribe(self, *patterns: str) -> None:
        self.send({"Subscribe": list(patterns)})

    def unsubscribe(self, *patterns: str) -> None:
        self.send({"Unsubscribe": list(patterns)})

    def publish(self, *messages: tuple[str, object]) -> None:
        self.send({"Publish": [list(message) for message in messages]})

    def receive(self) -> Any:
        """The next message; raises when none comes, or when the broker has hung up."""
        while True:
            for message in self._unpacker:
                return message
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker has hung up")
            self._unpacker.feed(data)

    def receive_until(self, topic: str) -> list[Any]:
        """All messages up to one of a topic, which is a sign that nothing else will come before it."""
        found = []
        while True:
            message = self.receive()
            if message[0] == topic:
                return found
            found.append(message)

    def settled(self) -> None:
        """Waits until the broker has done all that this client asked for."""
        mark = f"mark/{uuid.uuid4()}"
        with Client(":".join(map(str, self.socket.getpeername()))) as other:
            self.subscribe(mark)
            # Whether the subscription or the message is first, the mark arrives: last messages are kept.
            other.publish((mark, None))
            while self.receive()[0] != mark:
                pass
            self.unsubscribe(mark)
