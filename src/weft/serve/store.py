"""The database of the service: SQLite by default, PostgreSQL by URL; the same five tables.

ledger       one row: the revision, which whoever writes locks
slices       by P_Key, with owner
documents    by kind and name
audit        who did what, when, and how it ended
ports        that were seen, by GUID: those that are down keep their names

with store.writing() as page:            # waits for other writers, of this process and of others
    page.save(before, after)
    page.audit(lines)
    page.commit()                        # left without it, nothing is written
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
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
from weft.serve.desired import Desired
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.recall import Known
from weft.tenants.slices import EndPort, Slice

LAYOUT = 1  # of these tables
_URLS = "sqlite:////var/lib/weft/ledger.db, or postgresql://user@host/database"
_BUSY_S = 60
DONE = "done"  # the result of a change that was not refused
AUDIT_KEPT_S = 365 * 24 * 3600.0
AUDIT_REFUSALS = 100_000  # are kept if they are among so many newest lines
_PRUNED_EACH = 1000  # lines
_MAKING = 0x7765_6674  # the lock of who makes the tables
_AT_ONCE = 500  # keys in one statement
_FABRIC = ("fabric", "")  # the document with what is said for all slices
_Rows = Mapping[tuple[Any, ...], tuple[Any, ...]]  # the rest of a row by its key

_META = MetaData()
_LEDGER = Table(
    "ledger",
    _META,
    Column("id", Integer, primary_key=True),
    Column("layout", Integer, nullable=False),
    Column("revision", BigInteger, nullable=False),
)
_SLICES = Table(
    "slices",
    _META,
    Column("p_key", Integer, primary_key=True),
    Column("owner", String(16), nullable=False),
    Column("body", Text, nullable=False),
)
_DOCUMENTS = Table(
    "documents",
    _META,
    Column("kind", String(32), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("body", Text, nullable=False),
)
_AUDIT = Table(
    "audit",
    _META,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_s", Float(53), nullable=False),
    Column("actor", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
)
_PORTS = Table("ports", _META, Column("guid", String(18), primary_key=True), Column("body", Text, nullable=False))


class StoreError(SubnetError):
    """The database does not do what is asked of it."""


class AuditLine(NamedTuple):
    at_s: float  # since 1970
    actor: str
    what: str
    result: str  # "done", or why it was refused
    revision: int  # of the ledger after it
    id: int = 0  # 0: not written yet


class _Common(msgspec.Struct):
    fabric: str = ""
    default_is_full: bool = True
    lanes: QosOptions | None = None


class Page:
    """One transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # The row is locked until the end. PostgreSQL lets others wait here; SQLite did so at BEGIN IMMEDIATE.
        query = select(_LEDGER.c.revision).where(_LEDGER.c.id == 1).with_for_update()
        self.revision: int = connection.execute(query).scalar_one()

    def load(self) -> Desired:
        return _load(self._connection)

    def save(self, before: Desired, after: Desired) -> None:
        """Only differences are written."""
        if before.revision == after.revision:
            return
        self._replace(_SLICES, *_changed(_slices(before), _slices(after)))
        self._replace(_DOCUMENTS, *_changed(_documents(before), _documents(after)))
        self._connection.execute(update(_LEDGER).values(revision=after.revision))

    def _replace(self, table: Table, gone: list[tuple[Any, ...]], new: list[dict[str, Any]]) -> None:
        keys = list(table.primary_key)
        for start in range(0, len(gone), _AT_ONCE):
            self._connection.execute(delete(table).where(tuple_(*keys).in_(gone[start : start + _AT_ONCE])))
        if new:
            self._connection.execute(insert(table), new)

    def audit(self, lines: Iterable[AuditLine]) -> None:
        rows = [{key: value for key, value in line._asdict().items() if key != "id"} for line in lines]
        if rows:
            self._connection.execute(insert(_AUDIT), rows)
            last = self._connection.execute(select(func.max(_AUDIT.c.id))).scalar_one()
            if last % _PRUNED_EACH < len(rows):
                self._prune(last, max(line["at_s"] for line in rows))

    def _prune(self, last: int, now_s: float) -> None:
        """Refusals by count, or a caller who is refused all day would fill the disk; changes by age alone, or he would
        push them out."""
        is_old = _AUDIT.c.at_s < now_s - AUDIT_KEPT_S
        is_refusal = (_AUDIT.c.result != DONE) & (_AUDIT.c.id <= last - AUDIT_REFUSALS)
        self._connection.execute(delete(_AUDIT).where(is_old | is_refusal))

    def remember(self, before: Known, after: Known) -> None:
        """Another process may have written the same already."""
        new = [port for guid, port in after.items() if before.get(guid) != port]
        gone = {port.guid for port in new} | (before.keys() - after.keys())
        rows = [{"guid": str(Guid(port.guid)), "body": msgspec.json.encode(port).decode()} for port in new]
        self._replace(_PORTS, [(str(Guid(guid)),) for guid in gone], rows)

    def commit(self) -> None:
        self._connection.commit()


class Store:
    """Open a database; tables that are not there are made."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self.title = self._engine.url.render_as_string(hide_password=True)
        with self._errors():
            self._make_tables()

    def _make_tables(self) -> None:
        with self._engine.connect().execution_options(writes=True) as connection:
            if connection.dialect.name == "postgresql":  # two processes that start at once would both make them
                connection.execute(select(func.pg_advisory_xact_lock(_MAKING)))
            _META.create_all(connection)
            layout = connection.execute(select(_LEDGER.c.layout)).scalar()
            if layout is None:
                connection.execute(insert(_LEDGER).values(id=1, layout=LAYOUT, revision=0))
            elif layout != LAYOUT:
                raise ConfigError(f"{self.title} has tables of layout {layout}; this weft knows {LAYOUT}: name another")
            connection.commit()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Page]:
        """Nothing is written unless it is committed."""
        with self._errors(), self._engine.connect() as connection:
            yield Page(connection.execution_options(writes=True))

    def load(self) -> Desired:
        with self._errors(), self._engine.connect() as connection:
            return _load(connection)

    def known_ports(self) -> Known:
        with self._errors(), self._engine.connect() as connection:
            found = [msgspec.json.decode(body, type=EndPort) for (body,) in connection.execute(select(_PORTS.c.body))]
        return {port.guid: port for port in found}

    def revision(self) -> int:
        with self._errors(), self._engine.connect() as connection:
            found: int = connection.execute(select(_LEDGER.c.revision)).scalar_one()
            return found

    def audit_lines(self, before: int | None = None, most: int = 100) -> list[AuditLine]:
        """The newest first; with `before`, those older than that one."""
        query = select(_AUDIT).order_by(_AUDIT.c.id.desc()).limit(most)
        if before is not None:
            query = query.where(_AUDIT.c.id < before)
        with self._errors(), self._engine.connect() as connection:
            return [AuditLine(**row) for row in connection.execute(query).mappings()]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip()
            raise StoreError(f"the database {self.title} fails: {reason}") from None

    def close(self) -> None:
        self._engine.dispose()


# -- rows -------------------------------------------------------------------------------------------------------------


def _slices(desired: Desired) -> _Rows:
    return {(p_key,): (desired.owners[p_key], one) for p_key, one in desired.slices.items()}


def _documents(desired: Desired) -> _Rows:
    common = msgspec.json.encode(_Common(desired.fabric, desired.default_is_full, desired.lanes)).decode()
    return {key: (body,) for key, body in {**desired.documents, _FABRIC: common}.items()}


def _changed(
    before: Mapping[tuple[Any, ...], tuple[Any, ...]], after: Mapping[tuple[Any, ...], tuple[Any, ...]]
) -> Any:
    """Keys of rows that go, changed ones too; rows that come."""
    new = {key: value for key, value in after.items() if before.get(key) != value}
    gone = [key for key in before if key in new or key not in after]
    return gone, [_row(key, value) for key, value in new.items()]


def _row(key: tuple[Any, ...], value: tuple[Any, ...]) -> dict[str, Any]:
    if len(key) == 1:
        return {"p_key": key[0], "owner": value[0], "body": msgspec.json.encode(value[1]).decode()}
    return {"kind": key[0], "name": key[1], "body": value[0]}


def _load(connection: Connection) -> Desired:
    revision = connection.execute(select(_LEDGER.c.revision)).scalar_one()
    rows = connection.execute(select(_SLICES).order_by(_SLICES.c.p_key)).all()
    documents = {(kind, name): body for kind, name, body in connection.execute(select(_DOCUMENTS))}
    common = documents.pop(_FABRIC, None)
    said = msgspec.json.decode(common, type=_Common) if common else _Common()
    return Desired(
        revision=revision,
        fabric=said.fabric,
        slices={row.p_key: msgspec.json.decode(row.body, type=Slice) for row in rows},
        owners={row.p_key: row.owner for row in rows},
        default_is_full=said.default_is_full,
        lanes=said.lanes,
        documents=documents,
    )


# -- engines ----------------------------------------------------------------------------------------------------------


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(f"the database {url!r} is refused: write {_URLS}") from None
    kind = parsed.get_backend_name()
    if kind == "sqlite":
        return _sqlite(parsed)
    if kind != "postgresql":
        raise ConfigError(f"the database {kind} is not one that weft knows: write {_URLS}")
    try:
        return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    except ModuleNotFoundError:
        raise ConfigError("PostgreSQL needs one more package: pip install 'weft-fabric[postgres]'") from None


def _sqlite(url: URL) -> Engine:
    """Its file is its owner's alone: tokens are hashed in it, but who may talk to whom is nobody else's affair."""
    if not url.database or url.database == ":memory:":
        raise ConfigError(f"a ledger that is forgotten is none: write {_URLS}")
    with contextlib.suppress(FileExistsError):
        os.close(os.open(url.database, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    engine = create_engine(url, connect_args={"timeout": _BUSY_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        connection.isolation_level = None  # BEGIN is ours to say
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # what was acknowledged survives a power cut

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return engine
