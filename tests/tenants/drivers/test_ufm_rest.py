"""Requests of the UFM client, and its handling of answers."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from weft.errors import ConfigError
from weft.tenants.drivers import ufm_rest
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError, _reason
from weft.tenants.drivers.ufm_shapes import UfmQos, read_pkey, read_qos
from weft.tenants.partitions import Member


class Recorder(ThreadingHTTPServer):
    """A server with prepared answers that records requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, Any]] = []
        self.authorization = ""
        self.answers: list[tuple[int, str, dict[str, str]]] = []  # none left: 200 {}
        self.hang_up = 0  # this number of connections without an answer

    def answer(self, body: Any, status: int = 200, **headers: str) -> None:
        self.answers.append((status, body if isinstance(body, str) else json.dumps(body), headers))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def log_message(self, *words: object) -> None:
        pass

    def any_verb(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, json.loads(data) if data else None))
        self.server.authorization = self.headers["Authorization"]
        if self.server.hang_up:
            self.server.hang_up -= 1
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, body, headers = self.server.answers.pop(0) if self.server.answers else (200, "{}", {})
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body.encode())), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())


for verb in ("GET", "POST", "PUT", "DELETE"):
    setattr(_Handler, f"do_{verb}", _Handler.any_verb)


@pytest.fixture
def server(monkeypatch) -> Iterator[Recorder]:
    monkeypatch.setattr(ufm_rest, "_PAUSE_S", 0.0)
    with Recorder() as result:
        thread = Thread(target=result.serve_forever, args=(0.01,))
        thread.start()
        yield result
        result.shutdown()
        thread.join()


@pytest.fixture
def ufm(server) -> UfmClient:
    return UfmClient(server.url, token="secret")


def test_a_token_is_sent_to_v3_as_basic(server, ufm):
    server.answer({"ufm_release_version": "6.22.1-2"})
    assert ufm.version() == "6.22.1-2"
    assert (server.asked[0][1], server.authorization) == ("/ufmRestV3/app/ufm_version", "Basic secret")


def test_a_user_and_password_are_sent_to_ufm_rest(server):
    UfmClient(server.url, user="admin", password="12ä456").call("GET", "app/ufm_version")
    assert server.asked[0][1] == "/ufmRest/app/ufm_version"
    assert base64.b64decode(server.authorization.removeprefix("Basic ")).decode() == "admin:12ä456"


def test_a_path_in_the_url_is_used(server):
    UfmClient(f"{server.url}/behind/ufmRestV2/", token="t").call("GET", "app/smconf")
    assert server.asked[0][1] == "/behind/ufmRestV2/app/smconf"


def test_members_are_sent_in_one_call_for_each_index0(server, ufm):
    members = {0xA: Member(), 0xB: Member(full=False), 0xC: Member(index0=True)}
    ufm.add_guids(0x101, members, ip_over_ib=True)
    same = {"pkey": "0x101", "ip_over_ib": True}
    assert [body for _, _, body in server.asked] == [
        {**same, "index0": False, "guids": [f"{0xA:016x}", f"{0xB:016x}"], "memberships": ["full", "limited"]},
        {**same, "index0": True, "guids": [f"{0xC:016x}"], "memberships": ["full"]},
    ]


def test_partitions_are_read_with_their_members(server, ufm):
    member = {"guid": "0002c90300001231", "membership": "limited", "index0": True}
    server.answer({"0x101": {"partition": "acme", "ip_over_ib": True, "guids": [member], "more": 1}, "0x7fff": {}})
    result = ufm.pkeys()
    assert result[0x101].partition == "acme"
    assert result[0x101].members == {0x0002C90300001231: Member(full=False, index0=True)}
    assert result[0x7FFF].members == {}
    server.answer({"0x101": {"qos_conf": {"mtu_limit": 4, "rate_limit": 2.5, "service_level": 3}}})
    assert ufm.qos_conf() == {0x101: UfmQos(mtu_bytes=4096, rate_gbit_s=2.5, sl=3)}


@pytest.mark.parametrize("status", [200, 404])
def test_a_missing_partition_is_none(server, ufm, status):
    server.answer({}, status)
    assert ufm.pkey(0x101) is None


def test_other_calls_match_those_of_ufms_clients(server, ufm):
    ufm.create_pkey(0x12, "acme", ip_over_ib=False, qos=UfmQos(sl=2))
    ufm.set_qos_conf(0x12, UfmQos(mtu_bytes=4096))
    ufm.add_hosts(0x12, "dgx[1-4]", ip_over_ib=True)
    ufm.remove_hosts(0x12, "dgx[1-4],a/b")
    ufm.remove_guids(0x12, [0xA, 0xB])
    ufm.delete_pkey(0x12)
    limits = {"mtu_limit": 2, "rate_limit": 2.5, "service_level": 2}
    expected = [
        ("POST", "resources/pkeys/add", {"pkey": "0x12", "partition_name": "acme", "ip_over_ib": False, **limits}),
        ("PUT", "resources/pkeys/qos_conf", {"pkey": "0x12", "mtu_limit": 4, "rate_limit": 2.5, "service_level": 0}),
        (
            "POST",
            "resources/pkeys/hosts",
            {"pkey": "0x12", "hosts_names": "dgx[1-4]", "ip_over_ib": True, "index0": False},
        ),
        ("DELETE", "resources/pkeys/0x12/hosts/dgx%5B1-4%5D%2Ca%2Fb", None),
        ("DELETE", f"resources/pkeys/0x12/guids/{0xA:016x},{0xB:016x}", None),
        ("DELETE", "resources/pkeys/0x12", None),
    ]
    assert server.asked == [(method, f"/ufmRestV3/{path}", body) for method, path, body in expected]


def test_thousands_of_guids_are_split_over_several_urls(server, ufm):
    ufm.remove_guids(0x12, range(1, 1001))
    assert max(len(path) for _, path, _ in server.asked) < 8000
    assert [path.count(",") + 1 for _, path, _ in server.asked] == [256, 256, 256, 232]


def test_ports_systems_and_links_can_be_queried(server, ufm):
    port = {"guid": "0002c90300001231", "name": "0002c90300001230_1", "lid": "7", "number": 1, "dname": None}
    server.answer([{**port, "description": "Computer IB Port", "logical_state": "Active", "peer": "N/A"}])
    result = ufm.ports(sys_type="Computer", active="true")
    assert (result[0].lid, result[0].is_computer, result[0].dname) == (7, True, None)
    server.answer([{"name": "0002c9"}])
    assert ufm.systems(type="switch") == [{"name": "0002c9"}]
    server.answer([])
    assert ufm.links() == []
    paths = ["ports?sys_type=Computer&active=true", "systems?type=switch", "links"]
    assert [path for _, path, _ in server.asked] == [f"/ufmRestV3/resources/{path}" for path in paths]


@pytest.mark.parametrize("body", [{"error": "PKey 0x101 is taken"}, "PKey 0x101 is taken", '"PKey 0x101\\nis taken"'])
def test_a_refusal_names_server_call_status_and_reason(server, ufm, body):
    server.answer(body, 400)
    with pytest.raises(UfmError) as refused:
        ufm.delete_pkey(0x101)
    assert str(refused.value) == (
        f"UFM at {server.url}: DELETE /ufmRestV3/resources/pkeys/0x101 answers 400: PKey 0x101 is taken"
    )
    assert refused.value.status == 400


def test_the_error_for_a_wrong_token_does_not_contain_it(server, ufm):
    server.answer("", 401)
    with pytest.raises(UfmError, match="answers 401\n  Use a token") as refused:
        ufm.pkeys()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("status", "is_good"), [(200, True), (201, True), (299, True), (300, False), (304, False)])
def test_calls_with_a_status_from_200_to_299_succeed(server, ufm, status, is_good):
    server.answer({}, status)
    with nullcontext() if is_good else pytest.raises(UfmError, match=f"answers {status}"):
        ufm.pkeys()


def test_a_long_or_forbidden_refusal_is_cut_and_explained(server, ufm):
    server.answer("x" * 301, 403)
    with pytest.raises(UfmError, match=r"answers 403: x{300}\n  Use a token"):
        ufm.pkeys()
    server.answer("x" * 300)
    with pytest.raises(UfmError, match=r'unexpected answer: .*: "x{299}$'):
        ufm.version()


def test_missing_values_of_an_answer_are_ufms_defaults():
    assert read_qos({}) == UfmQos(mtu_bytes=2048, rate_gbit_s=2.5, sl=0)
    assert read_pkey({"guids": [{"guid": "a"}]}).members == {0xA: Member(full=True, index0=False)}
    assert (read_pkey({}).ip_over_ib, read_pkey({}).partition, read_pkey({}).membership) == (False, "", None)


def test_an_address_that_moved_is_named(server, ufm):
    server.answer("", 301, Location="https://ufm.example/")
    with pytest.raises(UfmError, match=r"It moved to https://ufm.example/"):
        ufm.pkeys()


@pytest.mark.parametrize(
    "body", ["<html>", [], {"0x101": {"guids": [{"guid": "zz"}]}}, {"acme": {}}, {"0x1": {"guids": 1}}]
)
def test_an_answer_of_another_shape_is_an_error(server, ufm, body):
    server.answer(body)
    with pytest.raises(UfmError, match="has an unexpected answer"):
        ufm.pkeys()


def test_idempotent_calls_are_retried_after_a_lost_connection(server, ufm):
    server.hang_up = 2
    assert ufm.pkeys() == {}
    assert len(server.asked) == 3
    server.asked.clear()
    server.hang_up = 3
    with pytest.raises(UfmError, match=r"GET .* failed: Remote end closed connection"):
        ufm.pkeys()
    assert len(server.asked) == 3
    server.asked.clear()
    server.hang_up = 1
    with pytest.raises(UfmError, match=r"POST .* failed: Remote end closed connection"):
        ufm.add_hosts(0x12, "h1", ip_over_ib=False)
    assert len(server.asked) == 1


def test_a_timeout_is_not_retried():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UfmError, match=f"UFM at {url}: GET .* failed: timed out") as refused:
            UfmClient(url, token="t", timeout_s=0.1).pkeys()
        assert refused.value.status is None
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize(
    "url",
    ["ufm.example", "ftp://ufm", "https://", "https://me:pw@ufm", "http://ufm/?a=1", "http://ufm:80,", "http://[::1"],
)
def test_an_invalid_address_is_refused(url):
    with pytest.raises(ConfigError, match=r"https://ufm\.example"):
        UfmClient(url, token="t")


@pytest.mark.parametrize(
    "given", [{}, {"user": "u"}, {"token": "t", "user": "u", "password": "p"}, {"password": "p"}, {"token": "a\nb"}]
)
def test_credentials_are_a_token_or_a_user_with_a_password(given):
    with pytest.raises(ConfigError, match="https://ufm"):
        UfmClient("https://ufm", **given)


def test_an_invalid_ca_file_is_refused(tmp_path):
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "absent.pem"):
        with pytest.raises(ConfigError, match=f"cannot use the CA file .*{name}: .*PEM"):
            UfmClient("https://ufm", token="t", ca_file=str(tmp_path / name))


def test_a_server_is_trusted_only_by_the_ca_file(server, tmp_path):
    """An untrusted server gets no request."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ufm"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words.split(), *names], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    assert UfmClient(url, token="t", ca_file=str(cert)).pkeys() == {}
    server.asked.clear()
    with pytest.raises(UfmError, match=r"failed: .*certificate verify failed.*\n  Give the file of the CA"):
        UfmClient(url, token="t").pkeys()
    assert server.asked == []


@pytest.mark.parametrize(
    ("body", "result"), [("", None), (" \n", None), ("done", "done"), ("[1]", [1]), ("null", None)]
)
def test_answers_without_json_are_their_text(server, ufm, body, result):
    server.answer(body)
    assert ufm.call("POST", "x") == result


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"message": "a", "detail": "b"}, ": a"),
        ({"error": "", "detail": "b"}, ": b"),
        ({"description": "c"}, ": c"),
        ({"title": "d"}, ": d"),
        ({"other": "e"}, ': {"other": "e"}'),
        ([1, 2], ": [1, 2]"),
        ("", ""),
        ("  ", ""),
    ],
)
def test_the_reason_of_a_refusal_is_found_in_any_format(body, reason):
    assert _reason(400, "", body if isinstance(body, str) else json.dumps(body)) == reason


def test_only_a_missing_resource_is_absent(server, ufm):
    for status, is_absent in ((404, True), (403, False), (405, False)):
        server.answer("gone", status)
        with nullcontext() if is_absent else pytest.raises(UfmError, match=f"answers {status}: gone"):
            assert ufm.call("DELETE", "x", absent=7) == 7
    server.answer("gone", 404)
    with pytest.raises(UfmError, match="answers 404: gone"):
        ufm.call("DELETE", "x")


def test_no_members_are_sent_in_one_call(server, ufm):
    ufm.add_guids(0x101, {}, ip_over_ib=False)
    ufm.add_hosts(0x101, "h1", ip_over_ib=False, index0=True)
    empty, hosts = (body for _, _, body in server.asked)
    assert empty == {"pkey": "0x101", "ip_over_ib": False, "index0": False, "guids": [], "memberships": []}
    assert hosts == {"pkey": "0x101", "hosts_names": "h1", "ip_over_ib": False, "index0": True}
    server.asked.clear()
    ufm.remove_guids(0x101, [])
    ufm.remove_guids(0x101, range(1, 257))
    ufm.remove_guids(0x101, range(1, 258))
    assert [path.count(",") + 1 for _, path, _ in server.asked] == [256, 256, 1]
