"""The tables of the service's database, and the upgrade of older layouts.

ledger       one row: the layout of the tables, and the revision, which every writer locks
slices       partitions by P_Key, with their owner
documents    by kind and name
audit        changes and refusals, see `weft.serve.audit`
chains       the ends of the two hash chains of the audit log
ports        known ports by GUID: those that are down keep their names

A new layout gets the next number and a step in _STEPS, which upgrades a database of the previous layout. All steps of
an upgrade are one transaction.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    func,
    insert,
    inspect,
    select,
    update,
)

from weft.errors import ConfigError
from weft.serve.audit import CHANGES, FIRST, REFUSALS, AuditLine

LAYOUT = 2
_MAKING = 0x7765_6674  # PostgreSQL advisory lock: one process creates the tables
_AT_ONCE = 1000  # rows

META = MetaData()
LEDGER = Table(
    "ledger",
    META,
    Column("id", Integer, primary_key=True),
    Column("layout", Integer, nullable=False),
    Column("revision", BigInteger, nullable=False),
)
PARTITIONS = Table(
    "slices",
    META,
    Column("p_key", Integer, primary_key=True),
    Column("owner", String(16), nullable=False),
    Column("body", Text, nullable=False),
)
DOCUMENTS = Table(
    "documents",
    META,
    Column("kind", String(32), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("body", Text, nullable=False),
)
AUDIT = Table(
    "audit",
    META,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_s", Float(53), nullable=False),
    Column("actor", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)
CHAINS = Table(
    "chains",
    META,
    Column("kind", String(16), primary_key=True),
    Column("base", String(64), nullable=False),
    Column("head", String(64), nullable=False),
)
PORTS = Table("ports", META, Column("guid", String(18), primary_key=True), Column("body", Text, nullable=False))


def prepare(connection: Connection, title: str) -> None:
    """Create the tables of an empty database, or upgrade those of an older weft."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_MAKING)))
    if not inspect(connection).has_table(LEDGER.name):
        META.create_all(connection)
        connection.execute(insert(LEDGER).values(id=1, layout=LAYOUT, revision=0))
        _make_chains(connection)
        return
    layout: int = connection.execute(select(LEDGER.c.layout)).scalar_one()
    if layout > LAYOUT:
        raise ConfigError(
            f"{title} was written by a newer weft (layout {layout}; this one supports {LAYOUT}): upgrade weft, or give "
            "another --database"
        )
    for step in range(layout, LAYOUT):
        _STEPS[step](connection)
    if layout != LAYOUT:
        connection.execute(update(LEDGER).values(layout=LAYOUT))


def _make_chains(connection: Connection) -> None:
    connection.execute(insert(CHAINS), [{"kind": kind, "base": FIRST, "head": FIRST} for kind in (CHANGES, REFUSALS)])


def _count_and_chain(connection: Connection) -> None:
    """Upgrade to layout 2: audit lines have a count and a hash."""
    connection.exec_driver_sql("ALTER TABLE audit ADD COLUMN times BIGINT NOT NULL DEFAULT 1")
    connection.exec_driver_sql("ALTER TABLE audit ADD COLUMN hash VARCHAR(64) NOT NULL DEFAULT ''")
    CHAINS.create(connection)
    _make_chains(connection)
    heads, rows = {CHANGES: FIRST, REFUSALS: FIRST}, []
    for row in connection.execute(select(AUDIT).order_by(AUDIT.c.id)).mappings().all():
        line = AuditLine(**row)
        heads[line.chain] = line.linked(heads[line.chain]).hash
        rows.append({"its_id": line.id, "its_hash": heads[line.chain]})
    set_hash = update(AUDIT).where(AUDIT.c.id == bindparam("its_id")).values(hash=bindparam("its_hash"))
    for start in range(0, len(rows), _AT_ONCE):
        connection.execute(set_hash, rows[start : start + _AT_ONCE])
    for kind, head in heads.items():
        connection.execute(update(CHAINS).where(CHAINS.c.kind == kind).values(head=head))


_STEPS: dict[int, Callable[[Connection], None]] = {1: _count_and_chain}  # by the old layout
