"""`weft serve` for a new user: a lab, a subnet manager, a service; and access to it."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from tests.patience import PATIENCE_S, wait_until
from tests.warm import WARM, kill

from weft import web
from weft.cli import app, serve
from weft.cli.serve import _configured_token, _existing_fabric, _first_token
from weft.cli.tenant_drivers import Where
from weft.errors import ConfigError, UnknownName
from weft.lab import registry
from weft.serve.access import Role, Token, add_token, listed, remove
from weft.serve.ledger import Ledger
from weft.serve.services import announced, databases
from weft.serve.store import Store, TamperedError


@contextmanager
def served(*words: str, lines: int, ending: int) -> Iterator[tuple[str, httpx.Client]]:
    """Start the command; yield its output and a client."""
    with subprocess.Popen(
        [os.environ[WARM], "serve", *words, "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            output = "".join(process.stdout.readline() for _ in range(lines))
            url = re.search(r"http://[\d.:]+", output)[0]
            with httpx.Client(base_url=f"{url}/api/v1", timeout=PATIENCE_S, trust_env=False) as client:
                yield output, client
        finally:
            if ending == signal.SIGKILL:
                kill(process)
            process.send_signal(ending)
            process.wait(PATIENCE_S)


def tables(lab: str, host: str) -> str:
    command = [os.environ[WARM], "diag", "smpquery", "--lab", lab, "-D", "pkeys", "0", "1", "--at", host]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def test_a_database_of_the_history_without_a_recording_is_refused():
    with pytest.raises(ConfigError, match=r"--history past\.db has no effect with --no-record"):
        app(["serve", "star:hosts=2", "--history", "past.db", "--no-record"], exit_on_error=False)


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_named_service_restarts_with_all_acknowledged_changes_after_a_kill(tmp_path, monkeypatch, capsys):
    """Its lab dies with it; the devices of the new lab get the state of the database."""
    for name, folder in (("XDG_RUNTIME_DIR", tmp_path / "run"), ("XDG_STATE_HOME", tmp_path / "state")):
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    words = ("star:hosts=4", "--name", "one")
    with served(*words, lines=4, ending=signal.SIGKILL) as (output, client):
        token = re.search(r"weft_\S+", output)[0]
        client.headers["Authorization"] = f"Bearer {token}"
        intent = {"tenant": {"acme": {"hosts": ["h[2-3]"], "p_key": "0x0101"}}}
        assert client.put("/intent", json=intent).status_code == 200
        assert "0x8101" in tables("one", "h2")
        assert "0x8101" not in tables("one", "h4")
    monkeypatch.setenv("WEFT_SERVE_TOKEN", "0123456789abcdef" * 2)
    with served(*words, lines=3, ending=signal.SIGTERM) as (output, client):
        place = f"sqlite:///{tmp_path}/state/weft/lab-one"
        assert output.endswith(f"ledger {place}.db\nhistory {place}.history.db\n")
        client.headers["Authorization"] = f"Bearer {'0123456789abcdef' * 2}"
        assert client.get("/tokens").status_code == 200
        app(["serve", "token", "add", "ci", "--role", "read-only"])
        client.headers["Authorization"] = f"Bearer {capsys.readouterr().out.strip()}"
        wait_until(lambda: client.get("/ports").status_code == 200)
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


def test_tokens_are_created_listed_and_revoked(database, capsys):
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


@pytest.fixture
def homes(tmp_path, monkeypatch) -> Path:
    """State and services of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_fabric_has_its_own_database(homes, capsys):
    for where in (["--lab", "lab"], ["--lab", "mine"], ["--ufm", "https://ufm.example"], ["--opensm", "osm"]):
        app(["serve", "token", "add", "ci", *where])
        assert capsys.readouterr().err.startswith("ledger sqlite:///")
    result = {path.name for path in (homes / "weft").glob("*.db")}
    (of_opensm,) = result - {"https-ufm.example.db", "lab-lab.db", "lab-mine.db"}
    assert of_opensm.endswith(f"{homes.name}-osm.db".replace("_", "-"))


def names(database: str) -> list[str]:
    store = Store(database)
    result = [token.name for token in listed(store.load().documents, Token)]
    store.close()
    return result


def test_token_add_uses_the_database_of_the_running_service(homes, capsys):
    first, second = (f"sqlite:///{homes}/{name}.db" for name in ("first", "second"))
    with pytest.raises(ConfigError, match="no service runs"):
        app(["serve", "token", "add", "a"])
    with announced("lab-one", first):
        app(["serve", "token", "add", "a"])
        app(["serve", "token", "add", "b", "--lab", "one"])
        with announced("lab-two", second):
            with pytest.raises(ConfigError, match="2 services run, of lab-one, lab-two: choose one with --lab"):
                app(["serve", "token", "add", "c"])
            app(["serve", "token", "add", "c", "--lab", "two"])
    assert (names(first), names(second)) == (["a", "b"], ["c"])
    with pytest.raises(ConfigError, match="no service runs"):  # they have ended
        app(["serve", "user", "list"])
    assert not list((homes / "weft").glob("*.db"))


def test_the_file_of_a_killed_service_is_removed(homes):
    program = (
        "import os; from weft.serve.services import announced\n"
        "with announced('lab-gone', 'sqlite:///gone.db'): print(end='here', flush=True); os.read(0, 1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    ) as process:
        process.stdout.read(4)
        assert databases() == {"lab-gone": ["sqlite:///gone.db"]}
        process.kill()
        process.wait(PATIENCE_S)
    assert databases("lab-gone") == {}
    assert not list((homes / "weft").glob("*.serve"))


@pytest.mark.parametrize("words", [["token", "list"], ["user", "revoke", "x"], ["backup", "f"], ["audit", "check"]])
def test_a_missing_ledger_is_not_created(homes, words):
    with pytest.raises(ConfigError, match="no such ledger"):
        app(["serve", *words, "--lab", "typo"])
    assert not list((homes / "weft").glob("*.db"))


def test_the_admins_token_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text("from the file\n")
    assert _configured_token(path) == "from the file"
    assert _configured_token(None) == ""
    monkeypatch.setenv("WEFT_SERVE_TOKEN", "from the environment")
    assert _configured_token(None) == "from the environment"
    assert "WEFT_SERVE_TOKEN" not in os.environ
    monkeypatch.setenv("WEFT_SERVE_TOKEN", "x")
    with pytest.raises(ConfigError, match="not both"):
        _configured_token(path)
    path.write_text("")
    with pytest.raises(ConfigError, match="is empty"):
        _configured_token(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        _configured_token(tmp_path / "nothing")


def test_an_admin_token_is_created_if_no_admin_can_log_in(database):
    with Ledger(Store(database), None) as ledger:
        ledger.change("test", "token", lambda draft: add_token(draft, "ci", Role.OPERATOR))
        assert _first_token(ledger, "").startswith("weft_")
        assert _first_token(ledger, "") == ""
        ledger.change("test", "revoke", lambda draft: remove(draft, "token", "first"))
        assert _first_token(ledger, "x" * 32) == ""
        assert _first_token(ledger, "").startswith("weft_")  # none is given any more


def test_the_audit_log_is_checked_and_compared_with_an_earlier_head(database, capsys):
    app(["serve", "token", "add", "a", "--database", database])
    capsys.readouterr()
    app(["serve", "audit", "check", "--database", database])
    output = capsys.readouterr().out
    head = re.fullmatch(r"the audit log is intact\nchanges: head (1:[0-9a-f]{64})\n", output)[1]
    app(["serve", "token", "add", "b", "--database", database])
    app(["serve", "audit", "check", "--head", head, "--database", database])
    for other in ("2:" + head[2:], "9:" + head[2:]):
        with pytest.raises(TamperedError):
            app(["serve", "audit", "check", "--head", other, "--database", database])
    with pytest.raises(ConfigError, match="must be NUMBER:HASH"):
        app(["serve", "audit", "check", "--head", "x", "--database", database])


def test_a_backup_is_restored_into_a_new_database(database, tmp_path, capsys):
    app(["serve", "token", "add", "a", "--database", database])
    backup, new = tmp_path / "backup", f"sqlite:///{tmp_path}/new.db"
    app(["serve", "backup", str(backup), "--database", database])
    app(["serve", "restore", str(backup), "--database", new])
    assert names(new) == ["a"]
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"5 rows of {database} are in {backup}",
        f"5 rows of {backup} are in {new}",
    ]


def test_the_database_is_readable_only_by_its_owner(database, tmp_path):
    app(["serve", "token", "add", "ci", "--database", database])
    assert os.stat(tmp_path / "ledger.db").st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["token", "make", "x"], UnknownName, "no action 'make'"),
        (["token", "add"], ConfigError, "needs a name"),
        (["token", "add", "x", "--role", "tenant"], ConfigError, "with the role tenant"),
        (["token", "revoke", "x"], ConfigError, "no such ledger"),
        (["user", "add", "x", "--days", "3"], ConfigError, "--days has no effect on `weft serve user add`"),
        (["token", "add", "x", "--certificate"], ConfigError, "--certificate has no effect"),
        (["token", "add", "x", "--head", "1:a"], ConfigError, "--head has no effect"),
        (["backup"], ConfigError, "needs a file"),
        (["--name", "x"], ConfigError, "--name x has no effect without a topology"),
        (["audit", "show"], UnknownName, "no action 'show'"),
        (["restore", "nothing"], ConfigError, "cannot read nothing: No such file"),
        (["star:hosts=4", "--host", "0.0.0.0"], ConfigError, "unencrypted"),
        (["--no-m-key"], ConfigError, "--no-m-key needs SPEC"),
        (["star:hosts=4", "--trusted-proxy", "proxy"], ConfigError, "--trusted-proxy: 'proxy' does not"),
    ],
)
def test_impossible_requests_are_errors_with_a_reason(words, error, message, database):
    with pytest.raises(error, match=message):
        app(["serve", *words, "--database", database])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://a/b", "does not support the database mysql"),
        ("nonsense", "invalid database URL"),
        ("sqlite://", "needs a database file"),
    ],
)
def test_unsupported_databases_are_refused(url, message):
    with pytest.raises(ConfigError, match=message):
        app(["serve", "token", "add", "x", "--database", url])


@pytest.mark.parametrize(
    ("where", "has_port"),
    [
        (Where(lab="a"), True),
        (Where(opensm=Path("etc")), True),
        (Where(opensm=Path("etc"), umad="any"), True),
        (Where(state=Path("sm.json")), False),
        (Where(ufm="https://ufm.example"), False),
    ],
)
def test_a_fabric_is_read_through_a_port_of_its_lab_or_of_this_machine(where, has_port, monkeypatch):
    monkeypatch.setattr(serve, "reach", lambda _: nullcontext(SimpleNamespace(title="a fabric")))
    monkeypatch.setattr(serve, "attached", lambda _: nullcontext())
    monkeypatch.setattr(registry, "find", lambda name: SimpleNamespace(name=name))
    with _existing_fabric(where, repair=True) as fabric:
        assert (fabric.backend is not None) is has_port
