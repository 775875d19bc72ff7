"""Join a lab: both ends prove that they know the token without sending it.

    lab      weft join VERSION NONCE            a line
    host     {"host": "h3", "nonce": ..., ...}  a line of JSON, and a line with its proof
    lab      {"session": ..., ...}              the same; or {"error": "..."}

A proof is the HMAC-SHA256, keyed with the token, of the role of its sender and of all lines before it. Each end sends a
new nonce, so a recorded handshake cannot be replayed. The keys of the frames that follow are derived in the same way
from the whole handshake. A token is long and random: a recorded handshake does not help to guess it.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from dataclasses import asdict, dataclass, replace
from typing import Any

from weft.errors import ConfigError, SubnetError
from weft.lab.join.frames import Wire
from weft.units import format_items
from weft.version import __version__

TOKEN = "WEFT_JOIN_TOKEN"  # variable: so that it need not stand in a list of processes
TOKEN_CHARACTERS = 16  # the fewest
LINE_BYTES = 4096  # the longest of a host
_ANSWER_BYTES = 4 << 20  # feature of a lab: it provides /sys
_WORDS = b"weft join "
_HOST, _LAB = b"host", b"lab"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request to join. With a `session` the host comes back, and has `received` so many frames."""

    host: str
    nonce: str = ""
    session: str = ""
    received: int = 0
    timeout_s: float = 0.0  # how long it will try to come back, after a cut
    has_sysfs: bool = False

    @classmethod
    def read(cls, line: bytes) -> JoinRequest:
        """Read a request; raise ValueError if it is malformed."""
        fields = json.loads(line)
        types = {name: type(field.default) for name, field in cls.__dataclass_fields__.items()} | {"host": str}
        if not isinstance(fields, dict) or any(type(value) is not types.get(name) for name, value in fields.items()):
            raise ValueError("that is no request")
        if "host" not in fields:
            raise ValueError("it names no host")
        return cls(**fields)


def new_token() -> str:
    return secrets.token_urlsafe(24)


def checked_token(token: str) -> str:
    if len(token) < TOKEN_CHARACTERS:
        raise ConfigError(
            f"{TOKEN} has {format_items(len(token), 'character')}: a token needs {TOKEN_CHARACTERS} or more;"
            " `openssl rand -hex 24` makes one"
        )
    return token


def proof(token: str, whose: bytes, transcript: bytes) -> bytes:
    return hmac.new(token.encode(), whose + b"\n" + transcript, "sha256").hexdigest().encode() + b"\n"


def _key(token: str, whose: bytes, transcript: bytes) -> bytes:
    return hmac.digest(token.encode(), b"key of " + whose + b"\n" + transcript, "sha256")


class ServerHandshake:
    """The lab's end, which waits for nothing: bytes come in, and what to say goes out."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._said = b"%s%s %s\n" % (_WORDS, __version__.encode(), secrets.token_hex(32).encode())
        self.hello = self._said
        self._received = b""

    def hear(self, data: bytes) -> JoinRequest | None:
        """Return the request when it is complete; raise ConfigError or ValueError if it is refused."""
        self._received += data
        lines = self._received.split(b"\n", 2)
        if len(lines) < 3:
            if len(self._received) > LINE_BYTES:
                raise ValueError("it says too much")
            return None
        request, proved, self._received = lines
        self._said += request + b"\n"
        if not hmac.compare_digest(proof(self._token, _HOST, self._said), proved + b"\n"):
            raise ConfigError("the token is wrong: `weft up` has printed the right one, where the lab runs")
        return JoinRequest.read(request)

    def answer(self, words: dict[str, Any]) -> bytes:
        line = json.dumps(words).encode() + b"\n"
        self._said += line
        return line + proof(self._token, _LAB, self._said)

    def wire(self, connection: socket.socket) -> Wire:
        """Return the connection after the handshake."""
        ours, theirs = (_key(self._token, whose, self._said) for whose in (_LAB, _HOST))
        return Wire(connection, ours, theirs, self._received)


def refusal(error: Exception) -> bytes:
    """Return a refusal; its receiver is not authenticated."""
    return json.dumps({"error": str(error)}).encode() + b"\n\n"


class _Lines:
    """A reader of lines from a socket with a timeout; it keeps bytes after the last line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.rest = connection, b""

    def next(self, most_bytes: int = LINE_BYTES) -> bytes:
        """Return a line without its end; empty if the peer closed the connection, or the line is too long."""
        while b"\n" not in self.rest:
            more = self._connection.recv(LINE_BYTES)
            if not more or len(self.rest) > most_bytes:
                return b""
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line + b"\n"


def shake_hands(connection: socket.socket, token: str, request: JoinRequest, place: str) -> tuple[dict[str, Any], Wire]:
    """Prove that this host knows the token; return the lab's answer and the connection. `place` is for errors."""
    lines = _Lines(connection)
    hello = lines.next()
    _check_hello(hello, place)
    transcript = hello + json.dumps(asdict(replace(request, nonce=secrets.token_hex(32)))).encode() + b"\n"
    connection.sendall(transcript[len(hello) :] + proof(token, _HOST, transcript))
    line = lines.next(_ANSWER_BYTES)
    proved = lines.next()
    if not line or not proved:
        raise SubnetError(f"the lab at {place} has hung up")
    transcript += line
    answer = _read_answer(line, place)
    if not hmac.compare_digest(proof(token, _LAB, transcript), proved):
        raise ConfigError(f"the peer at {place} does not know the token: check the address and the token")
    ours, theirs = (_key(token, whose, transcript) for whose in (_HOST, _LAB))
    return answer, Wire(connection, ours, theirs, lines.rest)


def _check_hello(hello: bytes, place: str) -> None:
    if not hello:
        raise SubnetError(f"{place} closed the connection during the handshake")  # as a proxy without a lab does
    words = hello.removeprefix(_WORDS).split()
    if not hello.startswith(_WORDS) or len(words) != 2:
        raise ConfigError(f"{place} is no lab that hosts can join: start one with `weft up SPEC --join {place}`")
    if words[0] != __version__.encode():
        theirs = words[0].decode(errors="replace")
        raise ConfigError(
            f"the lab at {place} is of weft {theirs}, this is {__version__}: install the same here and there"
        )


def _read_answer(line: bytes, place: str) -> dict[str, Any]:
    try:
        answer = json.loads(line)
        if "error" in answer:
            raise ConfigError(f"the lab at {place} says: {answer['error']}")
        return dict(answer)
    except (ValueError, TypeError):
        raise ConfigError(f"{place} is no lab: it answered {line[:40]!r}") from None
