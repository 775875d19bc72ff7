"""`weft serve` as a newcomer runs it: a lab, a subnet manager, a service; and who may use it."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from tests.patience import PATIENCE_S
from tests.warm import WARM, kill

from weft import web
from weft.cli import app, serve
from weft.errors import ConfigError, UnknownName


@contextmanager
def served(*words: str, lines: int, ending: int) -> Iterator[tuple[str, httpx.Client]]:
    """What it said, and a client."""
    with subprocess.Popen(
        [os.environ[WARM], "serve", *words, "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            said = "".join(process.stdout.readline() for _ in range(lines))
            url = re.search(r"http://[\d.:]+", said)[0]
            with httpx.Client(base_url=f"{url}/api/v1", timeout=PATIENCE_S, trust_env=False) as client:
                yield said, client
        finally:
            if ending == signal.SIGKILL:
                kill(process)
            process.send_signal(ending)
            process.wait(PATIENCE_S)


def tables(lab: str, host: str) -> str:
    command = [os.environ[WARM], "diag", "smpquery", "--lab", lab, "-D", "pkeys", "0", "1", "--at", host]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_service_that_is_killed_comes_back_with_all_it_acknowledged(tmp_path, monkeypatch):
    """Its lab dies with it; the new one's devices get what the database has."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    database = f"sqlite:///{tmp_path}/ledger.db"
    words = ("star:hosts=4", "--database", database)
    with served(*words, "--name", "one", lines=3, ending=signal.SIGKILL) as (said, client):
        token = re.search(r"weft_\S+", said)[0]
        client.headers["Authorization"] = f"Bearer {token}"
        intent = {"tenant": {"acme": {"hosts": ["h[2-3]"], "p_key": "0x0101"}}}
        assert client.put("/intent", json=intent).status_code == 200
        assert "0x8101" in tables("one", "h2")
        assert "0x8101" not in tables("one", "h4")
    with served(*words, "--name", "one", lines=2, ending=signal.SIGTERM) as (_, client):
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get("/intent").json() == intent
        assert "0x8101" in tables("one", "h2")
        assert client.get("/ports?host=h2").json()[0]["partitions"] == ["0x0101"]


def test_a_console_that_is_not_built_is_not_offered(monkeypatch, tmp_path):
    assert "is not built: run `make web`" in _with_build(monkeypatch, tmp_path)
    for name in ("index.html", "console.js", "console.css", "icon.svg"):
        (tmp_path / name).touch()
    assert _with_build(monkeypatch, tmp_path) == "console http://h/#token=t"


def _with_build(monkeypatch, folder) -> str:
    monkeypatch.setattr(web, "_BUILT", folder)
    return serve._console("http://h", "t")


@pytest.fixture
def database(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def test_tokens_are_made_listed_and_revoked(database, capsys):
    app(["serve", "token", "add", "ci", "--role", "operator", "--database", database])
    assert capsys.readouterr().out.startswith("weft_")
    app(["serve", "token", "list", "--json", "--database", database])
    assert '"operator"' in capsys.readouterr().out
    app(["serve", "token", "revoke", "ci", "--database", database])
    app(["serve", "token", "list", "--database", database])
    assert "operator" not in capsys.readouterr().out


def test_a_users_password_comes_from_standard_input(database, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
    app(["serve", "user", "add", "slurm", "--role", "operator", "--database", database])
    assert capsys.readouterr().out == "user slurm is operator\n"
    app(["serve", "user", "list", "--database", database])
    assert "slurm" in capsys.readouterr().out


def test_a_user_with_a_certificate_needs_no_password(database, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    app(["serve", "user", "add", "slurm", "--role", "operator", "--certificate", "--database", database])
    assert capsys.readouterr().out == "user slurm is operator\n"


def test_each_fabric_has_a_database_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for where in ([], ["--lab", "mine"], ["--ufm", "https://ufm.example"], ["--opensm", "osm"]):
        app(["serve", "token", "add", "ci", *where])
    capsys.readouterr()
    found = {path.name for path in (tmp_path / "weft").glob("*.db")}
    (of_opensm,) = found - {"https-ufm.example.db", "lab-lab.db", "lab-mine.db"}
    assert of_opensm.endswith(f"{tmp_path.name}-osm.db".replace("_", "-"))


def test_only_its_owner_reads_the_database(database, tmp_path):
    app(["serve", "token", "add", "ci", "--database", database])
    assert os.stat(tmp_path / "ledger.db").st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["token", "make", "x"], UnknownName, "no action 'make'"),
        (["token", "add"], ConfigError, "needs a name"),
        (["token", "add", "x", "--role", "tenant"], ConfigError, "goes with the role tenant"),
        (["token", "revoke", "x"], ConfigError, "no token x"),
        (["star:hosts=4", "--host", "0.0.0.0"], ConfigError, "in the clear"),
        (["star:hosts=4", "--trusted-proxy", "proxy"], ConfigError, "--trusted-proxy: 'proxy' does not"),
    ],
)
def test_what_it_cannot_do_it_says(words, error, message, database):
    with pytest.raises(error, match=message):
        app(["serve", *words, "--database", database])


@pytest.mark.parametrize(
    ("url", "message"),
    [("mysql://a/b", "is not one that weft knows"), ("nonsense", "is refused"), ("sqlite://", "forgotten")],
)
def test_databases_that_weft_does_not_know_are_refused(url, message):
    with pytest.raises(ConfigError, match=message):
        app(["serve", "token", "list", "--database", url])
