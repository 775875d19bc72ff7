"""A client for UFM's REST interface: a method for each call that weft makes.

    ufm = UfmClient("https://ufm.example", token=token)
    ufm.add_guids(0x101, {0x0002c90300001231: Member()}, ip_over_ib=True)
    ufm.pkeys()[0x101].members

The base path is /ufmRestV3 with a token, /ufmRest with user and password, unless the URL has a path. Each call opens
its own connection, so threads can share a client.
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

from weft.errors import ConfigError, NoResponseError, SubnetError
from weft.tenants.drivers.ufm_shapes import UfmPKey, UfmPort, UfmQos, read_pkey, read_ports, read_qos
from weft.tenants.partitions import Member

_REPEATABLE = frozenset(("GET", "PUT", "DELETE"))  # idempotent: retried after a lost connection
_TRIES = 3
_PAUSE_S = 0.2
_SHOWN = 300  # characters of an error body in a message
_IN_A_PATH = 256  # most GUIDs in a URL: servers accept about 8 KB
_Read = TypeVar("_Read")


class UfmError(SubnetError):
    """An error: UFM does not answer, or it refuses a call."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status  # HTTP status; None: no answer


class UfmSilent(UfmError, NoResponseError):
    """An error: UFM does not answer."""


class UfmClient:
    """A client for UFM. Failed calls raise UfmError with the server and the call."""

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
        """Return all partitions with their members, by P_Key."""
        return self._table("resources/pkeys?guids_data=true", read_pkey)

    def pkey(self, p_key: int) -> UfmPKey | None:
        """Return a partition, or None."""
        path = f"resources/pkeys/{p_key:#x}?guids_data=true"
        answer = self.call("GET", path, absent={})
        return self._read(path, read_pkey, answer) if answer else None

    def qos_conf(self) -> dict[int, UfmQos]:
        """Return the limits of all partitions, by P_Key. UFM sends them or the members, not both at once."""
        return self._table("resources/pkeys?qos_conf=true", read_qos)

    def create_pkey(self, p_key: int, name: str, *, ip_over_ib: bool, qos: UfmQos | None = None) -> None:
        """Create an empty partition; without `qos` it has UFM's limits."""
        words = {"pkey": f"{p_key:#x}", "partition_name": name, "ip_over_ib": ip_over_ib}
        self.call("POST", "resources/pkeys/add", words | (qos.fields if qos else {}))

    def add_guids(self, p_key: int, members: Mapping[int, Member], *, ip_over_ib: bool) -> None:
        """Add or change members; a missing partition is created."""
        for words in _members(p_key, members, ip_over_ib):
            self.call("POST", "resources/pkeys", words)

    def remove_guids(self, p_key: int, guids: Iterable[int]) -> None:
        """Remove members; a missing member is no error."""
        names = [f"{guid:016x}" for guid in guids]
        for first in range(0, len(names), _IN_A_PATH):
            some = ",".join(names[first : first + _IN_A_PATH])
            self.call("DELETE", f"resources/pkeys/{p_key:#x}/guids/{some}", absent=None)

    def delete_pkey(self, p_key: int) -> None:
        self.call("DELETE", f"resources/pkeys/{p_key:#x}", absent=None)

    def set_qos_conf(self, p_key: int, qos: UfmQos) -> None:
        self.call("PUT", "resources/pkeys/qos_conf", {"pkey": f"{p_key:#x}", **qos.fields})

    def add_hosts(self, p_key: int, hosts: str, *, ip_over_ib: bool, index0: bool = False) -> None:
        """Add all ports of hosts; `hosts` is a Slurm node list: dgx[1-4]."""
        words = {"pkey": f"{p_key:#x}", "hosts_names": hosts, "ip_over_ib": ip_over_ib, "index0": index0}
        self.call("POST", "resources/pkeys/hosts", words)

    def remove_hosts(self, p_key: int, hosts: str) -> None:
        self.call("DELETE", f"resources/pkeys/{p_key:#x}/hosts/{quote(hosts, safe='')}", absent=None)

    # -- inventory ----------------------------------------------------------------------------------------------------

    def version(self) -> str:
        answer = self.call("GET", "app/ufm_version")
        return self._read("app/ufm_version", lambda version: str(version["ufm_release_version"]), answer)

    def ports(self, **query: str) -> list[UfmPort]:
        """Return the ports that match a query: sys_type="Computer", system=GUID, active="true"."""
        path = _with_query("resources/ports", query)
        return self._read(path, read_ports, self.call("GET", path))

    def systems(self, **query: str) -> list[dict[str, Any]]:
        """Return the systems that match a query: type="switch", ip=…, model=…"""
        return self._objects(_with_query("resources/systems", query))

    def links(self, **query: str) -> list[dict[str, Any]]:
        return self._objects(_with_query("resources/links", query))

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, *, absent: Any = ...) -> Any:
        """Make a call and return the parsed JSON; on status 404 return `absent`, if it is set."""
        status, location, text = self._exchange(method, path, body)
        if status == http.HTTPStatus.NOT_FOUND and absent is not ...:
            return absent
        if not 200 <= status < 300:
            raise UfmError(f"{self._named(method, path)} answers {status}{_reason(status, location, text)}", status)
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:
            return text  # some calls answer with plain text

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, str, str]:
        tries = _TRIES if method in _REPEATABLE else 1
        while True:
            tries -= 1
            try:
                return self._once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                # Retrying does not help against a bad certificate, and would double a timeout.
                if not tries or isinstance(error, ssl.SSLError | TimeoutError):
                    raise UfmSilent(f"{self._named(method, path)} failed: {_trouble(error)}") from error
            time.sleep(_PAUSE_S)

    def _once(self, method: str, path: str, body: Any) -> tuple[int, str, str]:
        headers = {"Authorization": self._authorization, "Accept": "application/json", "Connection": "close"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection = self._connect()
        try:
            connection.request(method, f"{self._base}/{path}", data, headers)
            response = connection.getresponse()
            return response.status, response.getheader("Location", ""), response.read().decode(errors="replace")
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def _table(self, path: str, read: Callable[[Any], _Read]) -> dict[int, _Read]:
        answer = self.call("GET", path)
        return self._read(path, lambda table: {int(key, 16): read(row) for key, row in table.items()}, answer)

    def _objects(self, path: str) -> list[dict[str, Any]]:
        answer = self.call("GET", path)
        return self._read(path, lambda objects: msgspec.convert(objects, list[dict[str, Any]]), answer)

    def _read(self, path: str, read: Callable[[Any], _Read], answer: Any) -> _Read:
        try:
            return read(answer)
        except (msgspec.ValidationError, ConfigError, AttributeError, KeyError, TypeError, ValueError) as error:
            excerpt = json.dumps(answer)[:_SHOWN]
            raise UfmError(f"{self._named('GET', path)} has an unexpected answer: {error}: {excerpt}") from error

    def _named(self, method: str, path: str) -> str:
        return f"UFM at {self.url}: {method} {self._base}/{path}"


def _address(url: str) -> tuple[SplitResult, str, int | None]:
    """Return the parts of a URL, its host and its port."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # an invalid port, an unpaired bracket
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None or parts.query:
        raise ConfigError(f"the UFM address {url!r} is invalid; example: https://ufm.example (without a user)")
    return parts, host, port


def _authorization(url: str, token: str | None, user: str | None, password: str | None) -> str:
    if (token is None) == (user is None) or (user is None) != (password is None):
        raise ConfigError(f"the UFM at {url} needs a token, or a user and a password")
    if token is not None:
        if not token.strip().isascii() or not token.strip().isprintable():
            raise ConfigError(f"the token for the UFM at {url} has invalid characters")
        return f"Basic {token.strip()}"  # UFM expects Basic and the token without base64
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _tls(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"cannot use the CA file {ca_file}: {_trouble(error)}; it must have certificates in PEM format"
        ) from None


def _members(p_key: int, members: Mapping[int, Member], ip_over_ib: bool) -> list[dict[str, Any]]:
    """Return the bodies of calls: index0 applies to a whole call, a membership to each GUID."""
    bodies = []
    for index0 in sorted({member.index0 for member in members.values()}) or [False]:
        some = {guid: member for guid, member in members.items() if member.index0 == index0}
        memberships = ["full" if member.full else "limited" for member in some.values()]
        words = {"pkey": f"{p_key:#x}", "ip_over_ib": ip_over_ib, "index0": index0}
        bodies.append({**words, "guids": [f"{guid:016x}" for guid in some], "memberships": memberships})
    return bodies


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _reason(status: int, location: str, text: str) -> str:
    """Return the error message of a body, in any format, and what to do."""
    try:
        message = json.loads(text)
    except ValueError:
        message = text
    if isinstance(message, dict):
        message = next(
            (message[key] for key in ("error", "message", "detail", "description", "title") if message.get(key)),
            message,
        )
    message = message if isinstance(message, str) else json.dumps(message)
    suffix = f": {' '.join(message.split())[:_SHOWN]}" if message.strip() else ""
    if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return f"{suffix}\n  Use a token, or a user and password, with the right role."
    return f"{suffix}\n  It moved to {location}: use that address." if location else suffix


def _trouble(error: BaseException) -> str:
    message = getattr(error, "strerror", None) or str(error) or type(error).__name__
    is_untrusted = isinstance(error, ssl.SSLCertVerificationError)
    return f"{message}\n  Give the file of the CA that signed its certificate." if is_untrusted else message
