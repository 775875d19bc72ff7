"""The server: its addresses and their protection."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from fastapi import Response
from tests.patience import PATIENCE_S, wait_until
from tests.serve.service import Service, basic

from weft.errors import ConfigError
from weft.serve import connections, server
from weft.serve.app import StartupApp
from weft.serve.settings import Settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "unencrypted over the network: give --tls-cert and --tls-key"),
        ({"host": "::"}, "unencrypted"),
        ({"host": "10.1.2.3"}, "unencrypted"),
        ({"tls_cert": "c"}, "together"),
        ({"tls_client_ca": "c"}, "needs --tls-cert"),
        ({"rate_per_s": 0}, "--rate must be > 0"),
        ({"port": 99999}, "--port must be from 0 to 65535, got 99999"),
        ({"port": -1}, "--port must be from 0 to 65535, got -1"),
    ],
)
def test_unsafe_settings_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        Settings(**settings)


def test_the_default_address_is_loopback():
    assert Settings().host == "127.0.0.1"
    Settings(host="::1")
    Settings(host="localhost")
    Settings(host="0.0.0.0", is_insecure=True)
    Settings(host="0.0.0.0", tls_cert="c", tls_key="k")


def test_a_port_that_is_taken_is_named(database):
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use; choose"):
            server.Server(None, Settings(port=port))


def test_a_service_that_starts_answers_503_until_it_is_up():
    """The port is open from the beginning, so that a probe of /healthz gets an answer."""

    async def app(scope, receive, send):
        await Response("up")(scope, receive, send)

    starting = StartupApp("kernels are compiled")
    with server.Server(starting, Settings()) as service, httpx.Client(base_url=service.url, trust_env=False) as client:
        early = client.get("/healthz")
        assert (early.status_code, early.headers["retry-after"]) == (503, "2")
        assert early.json()["detail"] == "the service is starting: kernels are compiled"
        starting.set_app(app)
        assert client.get("/healthz").text == "up"


def certificate(folder, name):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    subprocess.run([*command, *subject, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def encrypted(database, tmp_path) -> Iterator[tuple[Service, ssl.SSLContext]]:
    """A service with TLS, and the certificate for its clients."""
    cert, key = certificate(tmp_path, "server")
    service = Service(database, tls_cert=cert, tls_key=key, tls_client_ca=certificate(tmp_path, "client")[0])
    yield service, ssl.create_default_context(cafile=cert)
    service.close()


def test_tls_clients_need_the_required_certificates(encrypted, tmp_path):
    service, trusting = encrypted
    with httpx.Client(verify=trusting, trust_env=False) as stranger, pytest.raises(httpx.TransportError):
        stranger.get(f"{service.server.url}/healthz")
    trusting.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    with httpx.Client(verify=trusting, trust_env=False) as recorded:
        assert recorded.get(f"{service.server.url}/healthz").status_code == 200
    assert service.server.url.startswith("https://")


def test_a_client_certificate_alone_logs_in_the_user_that_it_names(encrypted, tmp_path):
    service, trusting = encrypted
    trusting.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    with httpx.Client(base_url=f"{service.server.url}/api/v1", verify=trusting, trust_env=False) as client:
        unknown = client.get("/ports")
        assert (unknown.status_code, unknown.json()["detail"]) == (
            401,
            "there is no user client, the common name of the certificate",
        )
        root = {"Authorization": f"Bearer {service.tokens['root']}"}
        assert client.get("/tokens", headers=root).status_code == 200
        assert client.put("/users/client", json={"role": "operator"}, headers=root).status_code == 200
        assert client.get("/ports").status_code == 200
        assert client.put("/partitions/0x0101", json={"name": "a"}).status_code == 200
        assert client.get("/tokens").status_code == 403
        assert client.get("/ports", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/ports", headers=basic("client", "")).status_code == 401  # it has no password
    assert ("client", 'PUT /api/v1/partitions/0x0101 {"name":"a"}', "done") in service.audit()


def test_incomplete_handshakes_are_closed_for_new_connections(encrypted, tmp_path, monkeypatch):
    service, trusting = encrypted
    monkeypatch.setattr(connections, "MOST", 3)
    trusting.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    with ExitStack() as opened:
        silent = [opened.enter_context(connect(service)) for _ in range(6)]
        with httpx.Client(verify=trusting, trust_env=False) as client:
            assert client.get(f"{service.server.url}/healthz").status_code == 200
        assert is_closed(silent[0])


def test_an_incomplete_handshake_times_out(encrypted, monkeypatch):
    monkeypatch.setattr(connections, "HANDSHAKE_S", 0.2)
    with connect(encrypted[0]) as silent:
        assert is_closed(silent)


def test_certificates_that_cannot_be_read_are_named(tmp_path):
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    with pytest.raises(ConfigError, match=r"cannot read the certificates in .*bad\.pem"):
        server.Server(None, Settings(tls_cert=bad, tls_key=bad))


@pytest.fixture
def service(database) -> Iterator[Service]:
    result = Service(database)
    yield result
    result.close()


def connect(service: Service) -> socket.socket:
    opened = socket.create_connection(service.server.url.rpartition("/")[2].split(":"))
    opened.settimeout(PATIENCE_S)
    return opened


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def test_idle_connections_are_closed_for_new_ones(service, monkeypatch):
    monkeypatch.setattr(connections, "MOST", 3)
    with ExitStack() as opened:
        idle = [opened.enter_context(connect(service)) for _ in range(10)]
        for _ in range(2):
            with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
                assert client.get(f"{service.server.url}/healthz").status_code == 200
        assert all(is_closed(item) for item in idle[:7])


def test_a_burst_of_connections_does_not_exhaust_file_descriptors(service):
    """Three rounds may be accepted before the first idle connection is closed."""
    assert connections.MOST + 4 * service.server._server.config.backlog < 1024


class Place:
    def __init__(self, address: str, is_idle: bool = True) -> None:
        self.address, self.is_idle, self.is_open = address, is_idle, True

    def abort(self) -> None:
        self.is_open = False


def test_an_idle_connection_of_the_address_with_most_of_them_is_closed(monkeypatch):
    monkeypatch.setattr(connections, "MOST", 5)
    pool = connections.Pool()
    alone, busy = Place("10.0.0.1"), Place("10.0.0.2", is_idle=False)
    crowd = [Place("10.0.0.2") for _ in range(3)]
    assert all(pool.add(item) for item in (alone, busy, *crowd))
    pool.touch(crowd[0])
    assert pool.add(Place("10.0.0.3", is_idle=False))
    assert [item.is_open for item in (alone, busy, *crowd)] == [True, True, True, False, True]
    for item in (alone, *crowd):
        item.is_idle = False
    assert not pool.add(Place("10.0.0.4"))
    pool.discard(busy)
    assert pool.add(Place("10.0.0.4"))


def test_a_client_that_does_not_read_its_answer_is_disconnected(service, monkeypatch):
    monkeypatch.setattr(connections, "STALLED_S", 0.2)
    service.app.add_api_route("/large", lambda: Response(b"x" * (64 << 20)))
    with connect(service) as slow:
        token = service.tokens["eye"]
        slow.sendall(f"GET /large HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        open_ones = service.server._server.server_state.connections
        wait_until(lambda: open_ones, "that the connection is open")
        wait_until(lambda: not open_ones, "that the connection is cut")


def test_a_very_slow_request_is_disconnected(database, monkeypatch):
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    service = Service(database)
    try:
        with socket.create_connection(service.server.url.removeprefix("http://").split(":")) as slow:
            slow.settimeout(PATIENCE_S)
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
            assert slow.recv(100) == b""  # closed
    finally:
        service.close()


def test_an_incomplete_body_times_out(database):
    service = Service(database, timeout_s=0.2)
    try:
        with socket.create_connection(service.server.url.removeprefix("http://").split(":")) as slow:
            slow.settimeout(PATIENCE_S)
            token = service.tokens["ops"]
            slow.sendall(
                f"PUT /api/v1/intent HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
                "Content-Length: 10\r\n\r\n{".encode()
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
    finally:
        service.close()
