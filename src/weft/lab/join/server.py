"""Let other machines join a lab as hosts. Everything here runs in the lab's thread, and nothing blocks.

A host is taken while its connection stands. When it is cut the host's cables are pulled: the subnet manager notices, as
of a server that loses power. Its programs' ports stay open for as long as the host said that it would try to come back;
when it does, the cables are plugged and the streams go on where they were. A machine that joins as that host meanwhile
takes its place. A host that leaves is, as before it came, one of the lab's own.

A plugged port works only after the subnet manager has made it Active, and a manager holds a port down that flaps: the
server sends the joined machine a notice of either.
"""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from weft import runtime
from weft.errors import ConfigError
from weft.lab.join.frames import Forged
from weft.lab.join.handshake import JoinRequest, ServerHandshake, refusal
from weft.lab.join.session import IN, Session, Watch
from weft.lab.streams import ErrorCounts

UMAD, VERBS = 0, 1  # doors, by number
TIMEOUT_MAX_S = 3600.0
_MOST_PENDING = 64  # unauthenticated connections
_GREETING_S = 10.0
_BACKLOG = 64
ACTIVATION_S = 10.0  # a subnet manager takes less for a port that it does not hold down


class Hosts(Protocol):
    """The interface of a lab to the join server: `weft.lab.join.hosts`."""

    def find(self, name: str) -> tuple[str, frozenset[int]]:
        """Return the lab's name of a host, and its slots; raise ConfigError if there is no such host."""
        ...

    def admit(self, door: int, host: str, connection: socket.socket) -> None:
        """Admit a program of a joined host."""
        ...

    def set_elsewhere(self, slots: frozenset[int], elsewhere: bool) -> None: ...

    def pull(self, slots: frozenset[int]) -> frozenset[int]:
        """Take out the cables that are in; of which slots that were."""
        ...

    def plug(self, slots: frozenset[int]) -> None: ...

    def inactive_ports(self, slots: frozenset[int]) -> dict[str, float]:
        """Return the ports whose link is up but not Active, and until when the subnet manager holds each down.

        Times are in seconds since 1970; 0 if the manager has not published one.
        """
        ...

    def sysfs(self, host: str) -> dict[str, Any]: ...


@dataclass(slots=True, eq=False)
class _PendingConnection:
    connection: socket.socket
    place: str
    handshake: ServerHandshake
    until_s: float

    @property
    def machine(self) -> str:
        return self.place.rpartition(":")[0]


class _Ports(Enum):
    """The state of a joined host's ports after they were plugged in."""

    ACTIVE = auto()
    HELD = auto()  # the subnet manager says so
    LATE = auto()


@dataclass(slots=True, eq=False, kw_only=True)
class _JoinedHost:
    host: str
    slots: frozenset[int]
    number: str  # session ID
    place: str  # its address
    timeout_s: float
    session: Session = field(init=False)
    until_s: float = 0.0  # it is waited for, while it is cut off
    connected_s: float = 0.0
    ports: _Ports | None = _Ports.ACTIVE  # as the last notice reported them; None: they were plugged in again

    @property
    def is_here(self) -> bool:
        return self.session.wire is not None


class JoinServer:
    """A server for joining hosts at an address, `host:port`; port 0 chooses a free one."""

    def __init__(self, address: str, token: str, lab: str, hosts: Hosts, errors: ErrorCounts) -> None:
        self.token, self._lab, self._hosts, self._errors = token, lab, hosts, errors
        host, port = parse_address(address)
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"--join {address}: no host can join there: {error.strerror};"
                " give an address of this machine and a free port"
            ) from None
        self._listener.setblocking(False)
        self.address = show_address(self._listener.getsockname())
        self._watch = Watch()
        self._watch.set(self._listener, IN, self._on_listener)
        self._pending: set[_PendingConnection] = set()
        self._joined_hosts: dict[str, _JoinedHost] = {}  # by number
        self._pulled: frozenset[int] = frozenset()  # slots, by cuts

    # -- as a service of the lab --------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._watch.fileno()

    def on_ready(self) -> None:
        self._watch.step(0)

    def after_round(self) -> None:
        pass

    def next_deadline_s(self) -> float | None:
        return None

    def slots(self) -> list[int]:
        return []

    def on_timer(self) -> None:
        now_s = time.monotonic()
        self._watch.set(self._listener, IN, self._on_listener)
        for pending in [pending for pending in self._pending if pending.until_s < now_s]:
            self._send_away(pending)
        for joined in list(self._joined_hosts.values()):
            if joined.is_here:
                joined.session.on_timer()
                self._report_ports(joined)
            elif joined.until_s < now_s:
                self._forget(joined)

    def close(self) -> None:
        for joined in list(self._joined_hosts.values()):
            self._forget(joined, f"the lab {self._lab} is down")
        for pending in list(self._pending):
            self._send_away(pending)
        self._listener.close()
        self._watch.close()

    def state(self) -> dict[str, Any]:
        guests = [
            {"host": joined.host, "from": joined.place, "is_cut": not joined.is_here}
            for joined in self._joined_hosts.values()
        ]
        return {"address": self.address, "hosts": guests}

    # -- strangers ----------------------------------------------------------------------------------------------------

    def _on_listener(self, mask: int) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:  # it went away; or no file is free, and it is not asked again until some time has passed
            self._watch.forget(self._listener)
            return
        if len(self._pending) >= _MOST_PENDING:
            self._send_away(self._most_crowding())
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = _PendingConnection(
            connection, show_address(address), ServerHandshake(self.token), time.monotonic() + _GREETING_S
        )
        self._pending.add(pending)
        self._watch.set(connection, IN, lambda ready: self._hear(pending))
        with suppress(OSError):
            connection.send(pending.handshake.hello)

    def _most_crowding(self) -> _PendingConnection:
        """Return the oldest pending connection of the machine that has most of them.

        So silent connections keep no host out: a host that knows the token needs one round trip.
        """
        machines = Counter(pending.machine for pending in self._pending)
        return min(self._pending, key=lambda pending: (-machines[pending.machine], pending.until_s))

    def _hear(self, pending: _PendingConnection) -> None:
        try:
            data = pending.connection.recv(1 << 16)
            request = pending.handshake.hear(data)
        except (ConfigError, ValueError) as error:
            self._errors.note("a host is not let in", f"{pending.place}: {error}")
            self._send_away(pending, error)
            return
        except OSError:
            data, request = b"", None
        if request is not None:
            self._let_in(pending, request)
        elif not data:
            self._send_away(pending)

    def _send_away(self, pending: _PendingConnection, why: Exception | None = None) -> None:
        self._pending.discard(pending)
        self._watch.forget(pending.connection)
        if why is not None:
            with suppress(OSError):
                pending.connection.send(refusal(why))
        pending.connection.close()

    # -- guests -------------------------------------------------------------------------------------------------------

    def _let_in(self, pending: _PendingConnection, request: JoinRequest) -> None:
        try:
            joined = self._returning(request) if request.session else self._new(request, pending.place)
            answer: dict[str, Any] = {"session": joined.number, "received": joined.session.received}
            answer |= {"host": joined.host, "lab": self._lab}
            if request.has_sysfs:
                answer["sysfs"] = self._hosts.sysfs(joined.host)
        except ConfigError as error:
            self._send_away(pending, error)
            return
        self._pending.discard(pending)
        self._watch.forget(pending.connection)
        joined.place = pending.place
        self._connect(joined, pending, pending.handshake.answer(answer), request.received)

    def _connect(self, joined: _JoinedHost, pending: _PendingConnection, answer: bytes, received: int) -> None:
        wire = pending.handshake.wire(pending.connection)
        wire.say(answer)
        joined.connected_s = time.monotonic()
        self._plug(joined)
        try:
            joined.session.connect(wire, received)
        except Forged as error:
            wire.close()
            self._cut(joined, str(error))

    def _new(self, request: JoinRequest, place: str) -> _JoinedHost:
        host, slots = self._hosts.find(request.host)
        for other in [joined for joined in self._joined_hosts.values() if joined.slots & slots]:
            if other.is_here:
                raise ConfigError(
                    f"{host} is taken: {other.place} has joined as {other.host}; join as another host, or end that one"
                )
            self._forget(other)  # it was cut off, and another machine has taken the host
        joined = _JoinedHost(
            host=host,
            slots=slots,
            number=secrets.token_hex(16),
            place=place,
            timeout_s=min(max(0.0, request.timeout_s), TIMEOUT_MAX_S),
        )
        joined.session = Session(
            self._watch,
            accept=lambda door: self._accept(joined, door),
            on_cut=lambda why: self._cut(joined, why),
            on_bye=lambda why: self._forget(joined),
        )
        self._joined_hosts[joined.number] = joined
        self._hosts.set_elsewhere(slots, True)
        return joined

    def _returning(self, request: JoinRequest) -> _JoinedHost:
        joined = self._joined_hosts.get(request.session)
        if joined is None:
            raise ConfigError(f"{request.host} was away for too long, or another has joined in its place: join again")
        if joined.is_here:  # it knows of a cut that is not known here
            joined.session.disconnect()
            self._cut(joined, "it has come again")
        joined.ports = None
        return joined

    def _accept(self, joined: _JoinedHost, door: int) -> socket.socket | None:
        if door not in (UMAD, VERBS):
            return None
        near, far = runtime.pair()
        self._hosts.admit(door, joined.host, far)
        return near

    def _cut(self, joined: _JoinedHost, why: str) -> None:
        joined.until_s = time.monotonic() + joined.timeout_s
        self._pulled |= self._hosts.pull(joined.slots)
        self._errors.note("a joined host is cut off", f"{joined.host} at {joined.place}: {why}")

    def _plug(self, joined: _JoinedHost) -> None:
        mine = self._pulled & joined.slots
        self._pulled -= mine
        if mine:
            self._hosts.plug(mine)

    def _report_ports(self, joined: _JoinedHost) -> None:
        """Notify a joined host if its ports have become Active, or if the subnet manager holds one down."""
        inactive = self._hosts.inactive_ports(joined.slots)
        until_s = max(inactive.values(), default=0.0)
        is_late = joined.ports is None and time.monotonic() - joined.connected_s >= ACTIVATION_S
        ports = _Ports.HELD if until_s else _Ports.ACTIVE if not inactive else _Ports.LATE if is_late else joined.ports
        if ports is not None and ports is not joined.ports:
            joined.ports = ports
            joined.session.notify(self._notice(joined.host, inactive, until_s))

    def _notice(self, host: str, inactive: dict[str, float], until_s: float) -> str:
        names, status = ", ".join(inactive), f"`weft sm status --lab {self._lab}`"
        if not inactive:
            return f"every port of {host} is Active"
        if not until_s:
            return (
                f"no subnet manager has made {names} Active within {ACTIVATION_S:g} s: none runs, or it holds down a"
                f" port that went down often; on the lab's machine see {status}, or the log of OpenSM"
            )
        end = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(until_s))
        return (
            f"{names} is held down by the subnet manager until {end} ({math.ceil(until_s - time.time())} s), because"
            " the link went down too often: wait until then, or restart the manager with a higher flap_limit (weft sm"
            f" -F FILE); on the lab's machine {status} lists it"
        )

    def _forget(self, joined: _JoinedHost, why: str = "") -> None:
        """Remove a host that left or does not come back; its cables stay pulled until another machine joins as it."""
        if self._joined_hosts.pop(joined.number, None) is not None:
            joined.session.end(why)
            self._hosts.set_elsewhere(joined.slots, False)


# -- addresses --------------------------------------------------------------------------------------------------------


def parse_address(text: str) -> tuple[str, int]:
    """Parse `10.0.0.1:7471`, `[fd00::1]:7471` or `lab.example:7471`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 0xFFFF:
        raise ConfigError(
            f"{text!r} is no address to join at: give ADDRESS:PORT, as in 10.0.0.1:7471 or [fd00::1]:7471"
        )
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError(f"{text!r}: an IPv6 address stands in brackets, as in [fd00::1]:7471")
    return host.strip("[]"), int(port)


def show_address(name: Any) -> str:
    """Format the address of a socket."""
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
