"""Where hosts that are other machines come into a lab. Everything here happens in the lab's thread, and nothing waits.

A host is taken while its connection stands. When it is cut the host's cables are pulled: the subnet manager notices, as
of a server that loses power. Its programs' ports stay open for as long as the host said that it would try to come back;
when it does, the cables are plugged and the streams go on where they were. Who joins as that host meanwhile takes its
place. A host that leaves is, as before it came, one of the lab's own.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft import runtime
from weft.errors import ConfigError
from weft.lab.error_counts import ErrorCounts
from weft.lab.join.frames import Forged
from weft.lab.join.greeting import Conversation, Wish, refusal
from weft.lab.join.session import Session
from weft.lab.join.watch import IN, Watch

UMAD, VERBS = 0, 1  # doors, by number
PATIENCE_MAX_S = 3600.0
_STRANGERS = 64  # who have proved nothing yet
_GREETING_S = 10.0
_BACKLOG = 64


class Hosts(Protocol):
    """What a lab lets a gate do: `weft.lab.join.hosts`."""

    def find(self, name: str) -> tuple[str, frozenset[int]]:
        """What the lab calls a host, and its slots; ConfigError if it has no such host."""
        ...

    def admit(self, door: int, host: str, made: socket.socket) -> None:
        """A program of a joined host."""
        ...

    def set_elsewhere(self, slots: frozenset[int], elsewhere: bool) -> None: ...

    def pull(self, slots: frozenset[int]) -> frozenset[int]:
        """Take out the cables that are in; of which slots that were."""
        ...

    def plug(self, slots: frozenset[int]) -> None: ...

    def sysfs(self, host: str) -> dict[str, Any]: ...


@dataclass(slots=True, eq=False)
class _Stranger:
    connection: socket.socket
    place: str
    conversation: Conversation
    until_s: float

    @property
    def machine(self) -> str:
        return self.place.rpartition(":")[0]


@dataclass(slots=True, eq=False, kw_only=True)
class _Guest:
    host: str
    slots: frozenset[int]
    number: str  # of its session
    place: str  # where it comes from
    patience_s: float
    session: Session = field(init=False)
    until_s: float = 0.0  # it is waited for, while it is cut off

    @property
    def is_here(self) -> bool:
        return self.session.wire is not None


class Gate:
    """Listens at an address, `host:port`; port 0 is any that is free."""

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
        self._strangers: set[_Stranger] = set()
        self._guests: dict[str, _Guest] = {}  # by number
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

    def on_time(self) -> None:
        now_s = time.monotonic()
        self._watch.set(self._listener, IN, self._on_listener)
        for stranger in [one for one in self._strangers if one.until_s < now_s]:
            self._send_away(stranger)
        for guest in list(self._guests.values()):
            if guest.is_here:
                guest.session.on_time()
            elif guest.until_s < now_s:
                self._forget(guest)

    def close(self) -> None:
        for guest in list(self._guests.values()):
            self._forget(guest, f"the lab {self._lab} is down")
        for stranger in list(self._strangers):
            self._send_away(stranger)
        self._listener.close()
        self._watch.close()

    def state(self) -> dict[str, Any]:
        guests = [{"host": one.host, "from": one.place, "is_cut": not one.is_here} for one in self._guests.values()]
        return {"address": self.address, "hosts": guests}

    # -- strangers ----------------------------------------------------------------------------------------------------

    def _on_listener(self, mask: int) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:  # it went away; or no file is free, and it is not asked again until some time has passed
            self._watch.forget(self._listener)
            return
        if len(self._strangers) >= _STRANGERS:
            self._send_away(self._most_crowding())
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stranger = _Stranger(
            connection, show_address(address), Conversation(self.token), time.monotonic() + _GREETING_S
        )
        self._strangers.add(stranger)
        self._watch.set(connection, IN, lambda ready: self._hear(stranger))
        with suppress(OSError):
            connection.send(stranger.conversation.greeting)

    def _most_crowding(self) -> _Stranger:
        """Return the oldest connection of the machine that has most of those that have proved nothing yet.

        So connections that stay silent keep nobody out: a host that knows the token needs one round trip.
        """
        machines = Counter(one.machine for one in self._strangers)
        return min(self._strangers, key=lambda one: (-machines[one.machine], one.until_s))

    def _hear(self, stranger: _Stranger) -> None:
        try:
            data = stranger.connection.recv(1 << 16)
            wish = stranger.conversation.hear(data)
        except (ConfigError, ValueError) as error:
            self._errors.note("a host is not let in", f"{stranger.place}: {error}")
            self._send_away(stranger, error)
            return
        except OSError:
            data, wish = b"", None
        if wish is not None:
            self._let_in(stranger, wish)
        elif not data:
            self._send_away(stranger)

    def _send_away(self, stranger: _Stranger, why: Exception | None = None) -> None:
        self._strangers.discard(stranger)
        self._watch.forget(stranger.connection)
        if why is not None:
            with suppress(OSError):
                stranger.connection.send(refusal(why))
        stranger.connection.close()

    # -- guests -------------------------------------------------------------------------------------------------------

    def _let_in(self, stranger: _Stranger, wish: Wish) -> None:
        try:
            guest = self._returning(wish) if wish.session else self._new(wish, stranger.place)
            answer: dict[str, Any] = {"session": guest.number, "received": guest.session.received}
            answer |= {"host": guest.host, "lab": self._lab}
            if wish.has_sysfs:
                answer["sysfs"] = self._hosts.sysfs(guest.host)
        except ConfigError as error:
            self._send_away(stranger, error)
            return
        self._strangers.discard(stranger)
        self._watch.forget(stranger.connection)
        guest.place = stranger.place
        self._connect(guest, stranger, stranger.conversation.answer(answer), wish.received)

    def _connect(self, guest: _Guest, stranger: _Stranger, answer: bytes, received: int) -> None:
        wire = stranger.conversation.wire(stranger.connection)
        wire.say(answer)
        self._plug(guest)
        try:
            guest.session.connect(wire, received)
        except Forged as error:
            wire.close()
            self._cut(guest, str(error))

    def _new(self, wish: Wish, place: str) -> _Guest:
        host, slots = self._hosts.find(wish.host)
        for other in [one for one in self._guests.values() if one.slots & slots]:
            if other.is_here:
                raise ConfigError(
                    f"{host} is taken: {other.place} has joined as {other.host}; join as another host, or end that one"
                )
            self._forget(other)  # it was cut off, and somebody else is quicker
        guest = _Guest(
            host=host,
            slots=slots,
            number=secrets.token_hex(16),
            place=place,
            patience_s=min(max(0.0, wish.patience_s), PATIENCE_MAX_S),
        )
        guest.session = Session(
            self._watch,
            accept=lambda door: self._accept(guest, door),
            on_cut=lambda why: self._cut(guest, why),
            on_bye=lambda why: self._forget(guest),
        )
        self._guests[guest.number] = guest
        self._hosts.set_elsewhere(slots, True)
        return guest

    def _returning(self, wish: Wish) -> _Guest:
        guest = self._guests.get(wish.session)
        if guest is None:
            raise ConfigError(f"{wish.host} was away for too long, or another has joined in its place: join again")
        if guest.is_here:  # it knows of a cut that is not known here
            guest.session.disconnect()
            self._cut(guest, "it has come again")
        return guest

    def _accept(self, guest: _Guest, door: int) -> socket.socket | None:
        if door not in (UMAD, VERBS):
            return None
        here, there = runtime.pair()
        self._hosts.admit(door, guest.host, there)
        return here

    def _cut(self, guest: _Guest, why: str) -> None:
        guest.until_s = time.monotonic() + guest.patience_s
        self._pulled |= self._hosts.pull(guest.slots)
        self._errors.note("a joined host is cut off", f"{guest.host} at {guest.place}: {why}")

    def _plug(self, guest: _Guest) -> None:
        mine = self._pulled & guest.slots
        self._pulled -= mine
        if mine:
            self._hosts.plug(mine)

    def _forget(self, guest: _Guest, why: str = "") -> None:
        """It has left, or does not come back: then its cables stay out until somebody joins as this host."""
        if self._guests.pop(guest.number, None) is not None:
            guest.session.end(why)
            self._hosts.set_elsewhere(guest.slots, False)


# -- addresses --------------------------------------------------------------------------------------------------------


def parse_address(text: str) -> tuple[str, int]:
    """`10.0.0.1:7471`, `[fd00::1]:7471`, `lab.example:7471`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 0xFFFF:
        raise ConfigError(
            f"{text!r} is no address to join at: give ADDRESS:PORT, as in 10.0.0.1:7471 or [fd00::1]:7471"
        )
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError(f"{text!r}: an IPv6 address stands in brackets, as in [fd00::1]:7471")
    return host.strip("[]"), int(port)


def show_address(name: Any) -> str:
    """Of what a socket says of itself."""
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
