"""The door: where it listens, and with what protection."""

from __future__ import annotations

import socket
import ssl
import subprocess

import httpx
import pytest
from tests.patience import PATIENCE_S
from tests.serve.service import Service

from weft.errors import ConfigError
from weft.serve import server
from weft.serve.settings import Settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "in the clear: give --tls-cert and --tls-key"),
        ({"host": "::"}, "in the clear"),
        ({"host": "10.1.2.3"}, "in the clear"),
        ({"tls_cert": "c"}, "go together"),
        ({"tls_client_ca": "c"}, "needs --tls-cert"),
        ({"rate_per_s": 0}, "lets nobody in"),
        ({"port": 99999}, "--port must be from 0 to 65535, got 99999"),
        ({"port": -1}, "--port must be from 0 to 65535, got -1"),
    ],
)
def test_what_would_be_unsafe_is_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        Settings(**settings)


def test_it_listens_on_loopback_unless_told_otherwise():
    assert Settings().host == "127.0.0.1"
    Settings(host="::1")
    Settings(host="localhost")
    Settings(host="0.0.0.0", is_insecure=True)
    Settings(host="0.0.0.0", tls_cert="c", tls_key="k")


def test_a_port_that_is_taken_is_named(database):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{port}: Address already in use; choose"):
            server.Server(None, Settings(port=port))


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


def test_with_tls_a_client_needs_what_it_is_told_to_have(database, tmp_path):
    cert, key = certificate(tmp_path, "server")
    client_cert, client_key = certificate(tmp_path, "client")
    service = Service(database, tls_cert=cert, tls_key=key, tls_client_ca=client_cert)
    try:
        trusting = ssl.create_default_context(cafile=cert)
        with httpx.Client(verify=trusting, trust_env=False) as stranger, pytest.raises(httpx.TransportError):
            stranger.get(f"{service.server.url}/healthz")
        trusting.load_cert_chain(client_cert, client_key)
        with httpx.Client(verify=trusting, trust_env=False) as known:
            assert known.get(f"{service.server.url}/healthz").status_code == 200
            assert known.get(f"{service.server.url}/api/v1/ports").status_code == 401
    finally:
        service.close()
    assert service.server.url.startswith("https://")


def test_certificates_that_cannot_be_read_are_named(tmp_path):
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    with pytest.raises(ConfigError, match=r"TLS cannot be had from .*bad\.pem"):
        server.Server(None, Settings(tls_cert=bad, tls_key=bad))


def test_a_request_that_comes_drop_by_drop_loses_its_place(database, monkeypatch):
    monkeypatch.setattr(server, "_IDLE_S", 0.2)
    service = Service(database)
    try:
        with socket.create_connection(service.server.url.removeprefix("http://").split(":")) as slow:
            slow.settimeout(PATIENCE_S)
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
            assert slow.recv(100) == b""  # closed
    finally:
        service.close()


def test_a_body_that_does_not_come_is_not_waited_for(database):
    service = Service(database, patience_s=0.2)
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
