"""A UFM by its REST interface: a method for each call that weft makes.

    ufm = UfmClient("https://ufm.example", token=token)
    ufm.add_guids(0x101, {0x0002c90300001231: Member()}, ip_over_ib=True)
    ufm.pkeys()[0x101].members

A token goes to /ufmRestV3, a user with a password to /ufmRest, unless the URL has a path of its own. Each call has its
connection, so threads may share a client.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from weft.errors import ConfigError, Silent, SubnetError
from weft.tenants.drivers.ufm_shapes import UfmPKey, UfmPort, UfmQos, read_pkey, read_ports, read_qos
from weft.tenants.partitions import Member

_REPEATABLE = frozenset(("GET", "PUT", "DELETE"))  # twice is as good as once: a lost connection is tried again
_TRIES = 3
_PAUSE_S = 0.2
_SHOWN = 300  # characters of a body that says why
_IN_A_PATH = 256  # GUIDs: servers take some 8 KB of it
_Read = TypeVar("_Read")


class UfmError(SubnetError):
    """A UFM does not answer, or it refuses."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status  # of HTTP; None: no answer came


class UfmSilent(UfmError, Silent):
    """It does not answer."""


class UfmClient:
    """Raises UfmError, with the server and the call, for whatever is not done."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        parts, self._host, self._port = _address(url)
        self.url, self._is_tls = f"{parts.scheme}://{parts.netloc}", parts.scheme == "https"
        self._base = parts.path.rstrip("/") or ("/ufmRest" if token is None else "/ufmRestV3")
        self._authorization = _authorization(self.url, token, user, password)
        self._tls = _tls(ca_file) if self._is_tls else None
        self._timeout_s = timeout_s

    # -- partitions ---------------------------------------------------------------------------------------------------

    def pkeys(self) -> dict[int, UfmPKey]:
        """All partitions with their members, by P_Key."""
        return self._table("resources/pkeys?guids_data=true", read_pkey)

    def pkey(self, p_key: int) -> UfmPKey | None:
        """One partition; None where there is none."""
        path = f"resources/pkeys/{p_key:#x}?guids_data=true"
        found = self.call("GET", path, absent={})
        return self._read(path, read_pkey, found) if found else None

    def qos_conf(self) -> dict[int, UfmQos]:
        """Limits of all partitions. UFM gives them or the members, not both at once."""
        return self._table("resources/pkeys?qos_conf=true", read_qos)

    def create_pkey(self, p_key: int, name: str, *, ip_over_ib: bool, qos: UfmQos | None = None) -> None:
        """An empty one; without limits of its own, with UFM's."""
        words = {"pkey": f"{p_key:#x}", "partition_name": name, "ip_over_ib": ip_over_ib}
        self.call("POST", "resources/pkeys/add", words | (qos.words if qos else {}))

    def add_guids(self, p_key: int, members: Mapping[int, Member], *, ip_over_ib: bool) -> None:
        """Members come in, or are changed; a partition that is not there is made."""
        for words in _members(p_key, members, ip_over_ib):
            self.call("POST", "resources/pkeys", words)

    def replace_guids(self, p_key: int, members: Mapping[int, Member], *, ip_over_ib: bool) -> None:
        """These are the members now, and no others."""
        first, *more = _members(p_key, members, ip_over_ib)
        self.call("PUT", "resources/pkeys", first)
        for words in more:
            self.call("POST", "resources/pkeys", words)

    def remove_guids(self, p_key: int, guids: Iterable[int]) -> None:
        """What is not there is removed already."""
        names = [f"{guid:016x}" for guid in guids]
        for first in range(0, len(names), _IN_A_PATH):
            some = ",".join(names[first : first + _IN_A_PATH])
            self.call("DELETE", f"resources/pkeys/{p_key:#x}/guids/{some}", absent=None)

    def delete_pkey(self, p_key: int) -> None:
        self.call("DELETE", f"resources/pkeys/{p_key:#x}", absent=None)

    def set_qos_conf(self, p_key: int, qos: UfmQos) -> None:
        self.call("PUT", "resources/pkeys/qos_conf", {"pkey": f"{p_key:#x}", **qos.words})

    def add_hosts(self, p_key: int, hosts: str, *, ip_over_ib: bool, index0: bool = False) -> None:
        """All ports of hosts, named as Slurm lists nodes: dgx[1-4]."""
        words = {"pkey": f"{p_key:#x}", "hosts_names": hosts, "ip_over_ib": ip_over_ib, "index0": index0}
        self.call("POST", "resources/pkeys/hosts", words)

    def remove_hosts(self, p_key: int, hosts: str) -> None:
        self.call("DELETE", f"resources/pkeys/{p_key:#x}/hosts/{quote(hosts, safe='')}", absent=None)

    # -- what is there ------------------------------------------------------------------------------------------------

    def version(self) -> str:
        found = self.call("GET", "app/ufm_version")
        return self._read("app/ufm_version", lambda one: str(one["ufm_release_version"]), found)

    def ports(self, **query: str) -> list[UfmPort]:
        """All, or those of a query: sys_type="Computer", system=GUID, active="true"."""
        path = _asked("resources/ports", query)
        return self._read(path, read_ports, self.call("GET", path))

    def systems(self, **query: str) -> list[dict[str, Any]]:
        """As UFM describes them: type="switch", ip=…, model=…"""
        return self._objects(_asked("resources/systems", query))

    def links(self, **query: str) -> list[dict[str, Any]]:
        return self._objects(_asked("resources/links", query))

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, *, absent: Any = ...) -> Any:
        """What it answers, as JSON; `absent`, if that is given, where it says 404."""
        status, location, text = self._exchange(method, path, body)
        if status == http.HTTPStatus.NOT_FOUND and absent is not ...:
            return absent
        if not 200 <= status < 300:
            raise UfmError(f"{self._named(method, path)} answers {status}{_reason(status, location, text)}", status)
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:
            return text  # some calls answer with a word

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, str, str]:
        tries = _TRIES if method in _REPEATABLE else 1
        while True:
            tries -= 1
            try:
                return self._once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                # A certificate is no better the second time, and who waited in vain has waited long enough.
                if not tries or isinstance(error, ssl.SSLError | TimeoutError):
                    raise UfmSilent(f"{self._named(method, path)} is not answered: {_trouble(error)}") from error
            time.sleep(_PAUSE_S)

    def _once(self, method: str, path: str, body: Any) -> tuple[int, str, str]:
        headers = {"Authorization": self._authorization, "Accept": "application/json", "Connection": "close"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        line = self._line()
        try:
            line.request(method, f"{self._base}/{path}", data, headers)
            answer = line.getresponse()
            return answer.status, answer.getheader("Location", ""), answer.read().decode(errors="replace")
        finally:
            line.close()

    def _line(self) -> http.client.HTTPConnection:
        if self._is_tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def _table(self, path: str, read: Callable[[Any], _Read]) -> dict[int, _Read]:
        found = self.call("GET", path)
        return self._read(path, lambda all_: {int(key, 16): read(one) for key, one in all_.items()}, found)

    def _objects(self, path: str) -> list[dict[str, Any]]:
        found = self.call("GET", path)
        return self._read(path, lambda one: msgspec.convert(one, list[dict[str, Any]]), found)

    def _read(self, path: str, read: Callable[[Any], _Read], found: Any) -> _Read:
        try:
            return read(found)
        except (msgspec.ValidationError, ConfigError, AttributeError, KeyError, TypeError, ValueError) as error:
            shown = json.dumps(found)[:_SHOWN]
            raise UfmError(f"{self._named('GET', path)} answers what no UFM does: {error}: {shown}") from error

    def _named(self, method: str, path: str) -> str:
        return f"UFM at {self.url}: {method} {self._base}/{path}"


def _address(url: str) -> tuple[SplitResult, str, int | None]:
    """The URL in parts, its host and its port."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number, half a pair of brackets
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None or parts.query:
        raise ConfigError(f"the UFM {url!r} is refused: write its address as https://ufm.example, without a user")
    return parts, host, port


def _authorization(url: str, token: str | None, user: str | None, password: str | None) -> str:
    if (token is None) == (user is None) or (user is None) != (password is None):
        raise ConfigError(f"the UFM at {url} needs a token, or a user with a password")
    if token is not None:
        if not token.strip().isascii() or not token.strip().isprintable():
            raise ConfigError(f"the token for the UFM at {url} is refused: it has characters that no token has")
        return f"Basic {token.strip()}"  # UFM's own way: the word Basic, and no base64
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _tls(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"the CA file {ca_file} is refused: {_trouble(error)}; it must be certificates in PEM"
        ) from None


def _members(p_key: int, members: Mapping[int, Member], ip_over_ib: bool) -> list[dict[str, Any]]:
    """Bodies of calls: index0 holds for all of a call, a membership for each of its GUIDs."""
    bodies = []
    for index0 in sorted({member.index0 for member in members.values()}) or [False]:
        some = {guid: member for guid, member in members.items() if member.index0 == index0}
        memberships = ["full" if member.full else "limited" for member in some.values()]
        words = {"pkey": f"{p_key:#x}", "ip_over_ib": ip_over_ib, "index0": index0}
        bodies.append({**words, "guids": [f"{guid:016x}" for guid in some], "memberships": memberships})
    return bodies


def _asked(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _reason(status: int, location: str, text: str) -> str:
    """What the body says, in whatever form, and what to do."""
    try:
        said = json.loads(text)
    except ValueError:
        said = text
    if isinstance(said, dict):
        said = next(
            (said[key] for key in ("error", "message", "detail", "description", "title") if said.get(key)), said
        )
    said = said if isinstance(said, str) else json.dumps(said)
    shown = f": {' '.join(said.split())[:_SHOWN]}" if said.strip() else ""
    if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return f"{shown}\n  Give a token, or a user with a password, that may do this."
    return f"{shown}\n  It is at {location}: give that address." if location else shown


def _trouble(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    is_stranger = isinstance(error, ssl.SSLCertVerificationError)
    return f"{said}\n  Give the file of the CA that signed its certificate." if is_stranger else said
