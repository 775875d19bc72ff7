"""Settings of the service, and the addresses of its clients behind proxies."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from weft.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_JSON = "+json"
_MEDIA = ("", "application/json", "application/toml")
_SITE_BITS = 64  # prefix length of an IPv6 client: it has all addresses in it


def read_networks(words: str) -> tuple[Network, ...]:
    """Return the networks of a list such as 10.0.0.5,10.1.0.0/16."""
    try:
        return tuple(ipaddress.ip_network(word.strip()) for word in words.split(",") if word.strip())
    except ValueError as error:
        raise ConfigError(f"--trusted-proxy: {error}; example: 10.0.0.5,10.1.0.0/16") from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client_address(peer: str, headers: Headers, proxies: tuple[Network, ...]) -> str:
    """Return the client's address: read X-Forwarded-For from right to left up to the first untrusted address."""
    address = peer
    hops = ",".join(headers.getlist("x-forwarded-for")).split(",") if proxies else []
    while hops and is_in(address, proxies):
        hop = hops.pop().strip()
        try:
            address = str(ipaddress.ip_address(hop))
        except ValueError:
            break
    return address


def is_in(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)


def site(address: str) -> str:
    """Return the part of an address that identifies a client for limits."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], _SITE_BITS), strict=False))
    except ValueError:
        return address


def is_foreign(peer: str, headers: Headers, proxies: tuple[Network, ...]) -> bool:
    """Return whether a page of another site sent a request; clients other than browsers send no Origin."""
    origin = headers.get("origin")
    if origin is None:
        return False
    host = headers.get("x-forwarded-host") if is_in(peer, proxies) else None
    return urlsplit(origin).netloc != (host or headers.get("host", ""))


def is_known_media(headers: Headers) -> bool:
    """Return whether a body has a media type that an HTML form of another site cannot send."""
    media = headers.get("content-type", "").split(";")[0].strip().lower()
    return media in _MEDIA or media.endswith(_JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the service. Limits apply to each caller."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # requires client certificates; the common name is a user, unless a token is sent
    is_insecure: bool = False  # allow other machines without TLS
    rate_per_s: float = 1000  # requests; bursts of twice as many
    failures_per_s: float = 5  # wrong tokens per address, wrong passwords per user and address
    trusted_proxies: tuple[Network, ...] = ()  # proxies with trusted X-Forwarded-For and X-Forwarded-Host
    most_at_once: int = 250  # concurrent requests
    most_held_bytes: int = 16 << 20  # total size of their bodies
    most_body_bytes: int = 4 << 20
    timeout_s: float = 60  # to receive a request, and to apply a change to the fabric
    # UFM's plugins on the same machine send a user name (X-Remote-User) without credentials.
    trusts_remote_user: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}; 0 uses a free one")
        if self.rate_per_s <= 0:
            raise ConfigError(f"--rate must be > 0 requests per second, got {self.rate_per_s:g}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("give --tls-cert and --tls-key together")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError("--tls-client-ca needs --tls-cert and --tls-key")
        if not (is_loopback(self.host) or self.tls_cert or self.is_insecure):
            raise ConfigError(
                f"--host {self.host} would send tokens unencrypted over the network: give --tls-cert and --tls-key, "
                "or --insecure if a proxy handles TLS"
            )
