"""The database of the service: SQLite by default, PostgreSQL by URL; the same tables, see `schema`.

with store.writing() as transaction:     # waits for other writers, in this process and in others
    transaction.save(before, after)
    transaction.audit(lines)
    transaction.commit()                 # without it, nothing is written
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import msgspec
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    create_engine,
    delete,
    event,
    func,
    insert,
    make_url,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from weft.errors import ConfigError, SubnetError
from weft.ids import Guid
from weft.serve.audit import CHANGES, DONE, REFUSALS, AuditLine
from weft.serve.desired import Desired
from weft.serve.schema import AUDIT, CHAINS, DOCUMENTS, LEDGER, PARTITIONS, PORTS, prepare
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.partitions import EndPort, Partition
from weft.tenants.recall import KnownPorts

_URLS = "sqlite:////var/lib/weft/ledger.db, or postgresql://user@host/database"
_BUSY_S = 60
AUDIT_KEPT_S = 365 * 24 * 3600.0
AUDIT_REFUSALS = 100_000  # refusals are kept if they are among the newest lines
_PRUNED_EACH = 1000  # lines
_AT_ONCE = 500  # keys in one statement
_FABRIC = ("fabric", "")  # the document with the settings of all partitions
_Rows = Mapping[tuple[Any, ...], tuple[Any, ...]]  # the other columns of a row, by its key


class StoreError(SubnetError):
    """An error of the database."""


class TamperedError(SubnetError):
    """An error: the audit log was changed outside of weft."""


class _Common(msgspec.Struct):
    fabric: str = ""
    default_is_full: bool = True
    lanes: QosOptions | None = None


class Transaction:
    """A write transaction."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # The row stays locked until the end: other writers wait here (PostgreSQL) or at BEGIN IMMEDIATE (SQLite).
        query = select(LEDGER.c.revision).where(LEDGER.c.id == 1).with_for_update()
        self.revision: int = connection.execute(query).scalar_one()

    def load(self) -> Desired:
        return _load(self.connection)

    def save(self, before: Desired, after: Desired) -> None:
        """Write the differences between two revisions."""
        if before.revision == after.revision:
            return
        self._replace(PARTITIONS, *_changed(_partitions(before), _partitions(after)))
        self._replace(DOCUMENTS, *_changed(_documents(before), _documents(after)))
        self.connection.execute(update(LEDGER).values(revision=after.revision))

    def _replace(self, table: Table, removed: list[tuple[Any, ...]], added: list[dict[str, Any]]) -> None:
        keys = list(table.primary_key)
        for start in range(0, len(removed), _AT_ONCE):
            self.connection.execute(delete(table).where(tuple_(*keys).in_(removed[start : start + _AT_ONCE])))
        if added:
            self.connection.execute(insert(table), added)

    def audit(self, lines: Iterable[AuditLine]) -> None:
        """Write lines, each linked to the one before it in its chain."""
        heads: dict[str, str] = dict(self.connection.execute(select(CHAINS.c.kind, CHAINS.c.head)).all())
        before, written = dict(heads), []
        for line in lines:
            linked = line.linked(heads[line.chain])
            heads[line.chain] = linked.hash
            written.append(linked)
        if not written:
            return
        rows = [{key: value for key, value in line._asdict().items() if key != "id"} for line in written]
        self.connection.execute(insert(AUDIT), rows)
        for kind in heads.keys() - {kind for kind, head in before.items() if heads[kind] == head}:
            self.connection.execute(update(CHAINS).where(CHAINS.c.kind == kind).values(head=heads[kind]))
        last = self.connection.execute(select(func.max(AUDIT.c.id))).scalar_one()
        if last % _PRUNED_EACH < len(written):
            self._prune(last, max(line.at_s for line in written))

    def _prune(self, last: int, now_s: float) -> None:
        """Remove the oldest lines: changes by age alone, so that a flood of refusals cannot push them out."""
        for kind, is_its in ((CHANGES, AUDIT.c.result == DONE), (REFUSALS, AUDIT.c.result != DONE)):
            is_young = is_its & (AUDIT.c.at_s >= now_s - AUDIT_KEPT_S)
            first = self.connection.execute(select(func.min(AUDIT.c.id)).where(is_young)).scalar() or last + 1
            if kind == REFUSALS:
                first = max(first, last - AUDIT_REFUSALS + 1)
            is_pruned = is_its & (AUDIT.c.id < first)
            newest = select(AUDIT.c.hash).where(is_pruned).order_by(AUDIT.c.id.desc()).limit(1)
            base = self.connection.execute(newest).scalar()
            if base is not None:
                self.connection.execute(delete(AUDIT).where(is_pruned))
                self.connection.execute(update(CHAINS).where(CHAINS.c.kind == kind).values(base=base))

    def remember(self, before: KnownPorts, after: KnownPorts) -> None:
        """Write changed ports. Another process may have written the same rows already."""
        new = [port for guid, port in after.items() if before.get(guid) != port]
        removed = {port.guid for port in new} | (before.keys() - after.keys())
        rows = [{"guid": str(Guid(port.guid)), "body": msgspec.json.encode(port).decode()} for port in new]
        self._replace(PORTS, [(str(Guid(guid)),) for guid in removed], rows)

    def commit(self) -> None:
        self.connection.commit()


class Store:
    """An open database with tables of the current layout."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self.title = self._engine.url.render_as_string(hide_password=True)
        try:
            with self._errors(), self._engine.connect().execution_options(writes=True) as connection:
                prepare(connection, self.title)
                connection.commit()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Begin a write transaction. Nothing is written unless it is committed."""
        with self._errors(), self._engine.connect() as connection:
            yield Transaction(connection.execution_options(writes=True))

    def load(self) -> Desired:
        with self._errors(), self._engine.connect() as connection:
            return _load(connection)

    def known_ports(self) -> KnownPorts:
        with self._errors(), self._engine.connect() as connection:
            ports = [msgspec.json.decode(body, type=EndPort) for (body,) in connection.execute(select(PORTS.c.body))]
        return {port.guid: port for port in ports}

    def revision(self) -> int:
        with self._errors(), self._engine.connect() as connection:
            revision: int = connection.execute(select(LEDGER.c.revision)).scalar_one()
            return revision

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection with a consistent snapshot of the database."""
        with self._errors(), self._engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    def check_audit(self) -> dict[str, AuditLine]:
        """Check the hash chains of the audit log; return the last line of each. Raise TamperedError if one breaks."""
        newest: dict[str, AuditLine] = {}
        with self.reading() as connection:
            chains = {row.kind: row for row in connection.execute(select(CHAINS))}
            hashes = {kind: row.base for kind, row in chains.items()}
            for row in connection.execute(select(AUDIT).order_by(AUDIT.c.id)).yield_per(_AT_ONCE).mappings():
                line = AuditLine(**row)
                hashes[line.chain] = line.linked(hashes[line.chain]).hash
                if hashes[line.chain] != line.hash:
                    raise TamperedError(
                        f"audit log: the hash of line {line.id} does not match; the line, or an earlier line of the "
                        f"{line.chain}, was changed, added or removed"
                    )
                newest[line.chain] = line
            for kind, chain in chains.items():
                if hashes[kind] != chain.head:
                    raise TamperedError(f"audit log: the newest {kind} are missing")
        return newest

    def audit_line(self, number: int) -> AuditLine | None:
        with self._errors(), self._engine.connect() as connection:
            row = connection.execute(select(AUDIT).where(AUDIT.c.id == number)).mappings().first()
            return None if row is None else AuditLine(**row)

    def audit_lines(self, before: int | None = None, most: int = 100) -> list[AuditLine]:
        """Return lines, newest first. `before`: only lines with a lower id."""
        query = select(AUDIT).order_by(AUDIT.c.id.desc()).limit(most)
        if before is not None:
            query = query.where(AUDIT.c.id < before)
        with self._errors(), self._engine.connect() as connection:
            return [AuditLine(**row) for row in connection.execute(query).mappings()]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip()
            raise StoreError(f"error of the database {self.title}: {reason}") from None

    def close(self) -> None:
        self._engine.dispose()


# -- rows -------------------------------------------------------------------------------------------------------------


def _partitions(desired: Desired) -> _Rows:
    return {(p_key,): (desired.owners[p_key], partition) for p_key, partition in desired.partitions.items()}


def _documents(desired: Desired) -> _Rows:
    common = msgspec.json.encode(_Common(desired.fabric, desired.default_is_full, desired.lanes)).decode()
    return {key: (body,) for key, body in {**desired.documents, _FABRIC: common}.items()}


def _changed(
    before: Mapping[tuple[Any, ...], tuple[Any, ...]], after: Mapping[tuple[Any, ...], tuple[Any, ...]]
) -> Any:
    """Return the keys of removed and changed rows, and the added and changed rows."""
    new = {key: value for key, value in after.items() if before.get(key) != value}
    removed = [key for key in before if key in new or key not in after]
    return removed, [_row(key, value) for key, value in new.items()]


def _row(key: tuple[Any, ...], value: tuple[Any, ...]) -> dict[str, Any]:
    if len(key) == 1:
        return {"p_key": key[0], "owner": value[0], "body": _encode(value[1])}
    return {"kind": key[0], "name": key[1], "body": value[0]}


def _load(connection: Connection) -> Desired:
    revision = connection.execute(select(LEDGER.c.revision)).scalar_one()
    rows = connection.execute(select(PARTITIONS).order_by(PARTITIONS.c.p_key)).all()
    documents = {(kind, name): body for kind, name, body in connection.execute(select(DOCUMENTS))}
    common = documents.pop(_FABRIC, None)
    settings = msgspec.json.decode(common, type=_Common) if common else _Common()
    return Desired(
        revision=revision,
        fabric=settings.fabric,
        partitions={row.p_key: _decode(row.body) for row in rows},
        owners={row.p_key: row.owner for row in rows},
        default_is_full=settings.default_is_full,
        lanes=settings.lanes,
        documents=documents,
    )


def _encode(partition: Partition) -> str:
    body = {field.name: getattr(partition, field.name) for field in fields(partition)}
    body["seats"] = body.pop("members")  # the database calls members seats
    return msgspec.json.encode(body).decode()


def _decode(text: str) -> Partition:
    body = msgspec.json.decode(text)
    body["members"] = body.pop("seats")
    return msgspec.convert(body, Partition, strict=False)  # JSON has strings as keys


# -- engines ----------------------------------------------------------------------------------------------------------


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(f"invalid database URL {url!r}; examples: {_URLS}") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return _sqlite(parsed)
    if kind != "postgresql":
        raise ConfigError(f"weft does not support the database {kind}; examples: {_URLS}")
    return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)


def _sqlite(url: URL) -> Engine:
    """Open or create an SQLite database, readable by its owner only."""
    if not url.database or url.database == ":memory:":
        raise ConfigError(f"the ledger needs a database file; examples: {_URLS}")
    with contextlib.suppress(FileExistsError):
        os.close(os.open(url.database, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    engine = create_engine(url, connect_args={"timeout": _BUSY_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        connection.isolation_level = None  # BEGIN is issued below
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # acknowledged changes survive a power failure

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return engine
