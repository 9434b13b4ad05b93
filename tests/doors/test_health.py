"""What the HTTP door says of the broker's health."""

import http.client

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
