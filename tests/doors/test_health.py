"""What the HTTP door says of the broker's health."""

import contextlib
import http.client
import socket
import time

from fanlog.testing import running_broker


def test_health_and_metrics_are_served() -> None:
    with running_broker() as broker:
        connection = http.client.HTTPConnection(broker.http, timeout=10)
        for path, status in (("/readyz", 200), ("/livez", 200), ("/nothing", 404)):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        connection.request("POST", "/readyz")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 405
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        values = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
        assert {"fanlog_fsyncs_total", "fanlog_appends_total", "fanlog_appended_bytes_total"} <= set(values)
        broker.broker.ready = False
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 503
        connection.close()


def test_nonsense_is_answered_with_400() -> None:
    with running_broker() as broker:
        host, port = broker.http.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.connect()
        connection.sock.sendall(b"this is not HTTP\r\n\r\n")
        assert connection.sock.recv(100).startswith(b"HTTP/1.1 400 ")
        connection.close()


def test_a_request_that_does_not_end_is_not_waited_for_without_end() -> None:
    with running_broker(limits_frame_seconds_max=1) as broker:
        host, port = broker.http.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(b"GET /readyz HTTP/1.1\r\nx-slow: ")
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""


def test_a_connection_between_requests_is_left_alone_for_longer() -> None:
    with running_broker(limits_frame_seconds_max=1, limits_idle_seconds_max=3) as broker:
        connection = http.client.HTTPConnection(broker.http, timeout=10)
        connection.request("GET", "/readyz")
        connection.getresponse().read()
        started = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert connection.sock.recv(1) == b""
        assert 2 < time.monotonic() - started < 9
        connection.close()
