"""Databases of an older weft become those of this one, or stay as they are."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import Engine, select, text
from tests.serve.memory_fabric import MemoryFabric

from weft.errors import ConfigError
from weft.serve import schema
from weft.serve.access import Role, Token, listed
from weft.serve.ledger import Ledger
from weft.serve.schema import LEDGER
from weft.serve.store import Store, _engine

LAYOUT_1 = """
CREATE TABLE ledger (id INTEGER NOT NULL PRIMARY KEY, layout INTEGER NOT NULL, revision BIGINT NOT NULL);
CREATE TABLE slices (p_key INTEGER NOT NULL PRIMARY KEY, owner VARCHAR(16) NOT NULL, body TEXT NOT NULL);
CREATE TABLE documents (kind VARCHAR(32) NOT NULL, name VARCHAR(255) NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (kind, name));
CREATE TABLE audit (id {serial} PRIMARY KEY, at_s FLOAT(53) NOT NULL, actor TEXT NOT NULL, what TEXT NOT NULL,
    result TEXT NOT NULL, revision BIGINT NOT NULL);
CREATE TABLE ports (guid VARCHAR(18) NOT NULL PRIMARY KEY, body TEXT NOT NULL);
INSERT INTO ledger VALUES (1, 1, 7);
INSERT INTO slices VALUES (257, 'direct', '{{"name":"acme","p_key":257,"seats":{{"1048577":{{"full":true}}}}}}');
INSERT INTO documents VALUES ('fabric', '', '{{"fabric":"memory","default_is_full":false}}');
INSERT INTO documents VALUES ('token', 'me', '{token}');
INSERT INTO audit (at_s, actor, what, result, revision) VALUES (1.7e9, 'me', 'PUT /x', 'done', 6);
INSERT INTO audit (at_s, actor, what, result, revision) VALUES (1.7e9, '10.0.0.1', 'GET /', 'refused: no token', 6);
INSERT INTO audit (at_s, actor, what, result, revision) VALUES (1.7e9, 'me', 'PUT /y', 'done', 7);
"""


@pytest.fixture
def old(database) -> Engine:
    """An engine on a database of layout 1."""
    engine = _engine(database)
    token = msgspec.json.encode({"name": "me", "role": "admin", "tenant": "", "made_at_s": 1.7e9, "sha256": "ab"})
    serial = "BIGSERIAL" if engine.dialect.name == "postgresql" else "INTEGER NOT NULL"
    with engine.connect().execution_options(writes=True) as connection:
        for statement in LAYOUT_1.format(serial=serial, token=token.decode()).split(";\n"):
            if statement.strip():
                connection.execute(text(statement.replace(":", "\\:")))
        connection.commit()
    return engine


def layout(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(LEDGER.c.layout)).scalar_one()


def test_a_database_of_the_first_layout_is_upgraded(old, database):
    fabric = MemoryFabric()
    with Ledger(Store(database), fabric) as ledger:
        assert set(fabric.observed.allocation.partitions) == {0x0101}
        assert [(item.name, item.role) for item in listed(ledger.desired().documents, Token)] == [("me", Role.ADMIN)]
        assert ledger.store.check_audit()["changes"].what == "PUT /y"
        ledger.change("me", "PUT /z", lambda draft: None)
        assert ledger.store.check_audit()["changes"].what == "PUT /z"
        assert [line.what for line in ledger.store.audit_lines()] == ["PUT /z", "PUT /y", "GET /", "PUT /x"]
    assert layout(old) == schema.LAYOUT
    old.dispose()


def test_a_failed_upgrade_does_not_change_the_database(old, database, monkeypatch):
    step = schema._STEPS[1]

    def fail(connection: object) -> None:
        step(connection)
        raise ConfigError("the power goes")

    monkeypatch.setitem(schema._STEPS, 1, fail)
    with pytest.raises(ConfigError, match="the power goes"):
        Store(database)
    assert layout(old) == 1
    monkeypatch.undo()
    store = Store(database)
    assert store.load().revision == 7
    store.close()
    old.dispose()


def test_a_database_of_a_newer_weft_is_refused(database):
    Store(database).close()
    engine = _engine(database)
    with engine.connect().execution_options(writes=True) as connection:
        connection.execute(LEDGER.update().values(layout=schema.LAYOUT + 1))
        connection.commit()
    engine.dispose()
    with pytest.raises(ConfigError, match="written by a newer weft"):
        Store(database)


def test_every_older_layout_has_a_step():
    assert set(schema._STEPS) == set(range(1, schema.LAYOUT))
