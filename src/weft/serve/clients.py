"""Where a request comes from: its address behind proxies, the page of a browser that sent it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from weft.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_JSON = "+json"
_MEDIA = ("", "application/json", "application/toml")
_SITE_BITS = 64  # of an IPv6 address: one client has all addresses below


def read_networks(words: str) -> tuple[Network, ...]:
    """Return the networks of a list such as 10.0.0.5,10.1.0.0/16."""
    try:
        return tuple(ipaddress.ip_network(word.strip()) for word in words.split(",") if word.strip())
    except ValueError as error:
        raise ConfigError(f"--trusted-proxy: {error}; give addresses or networks, 10.0.0.5,10.1.0.0/16") from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client_address(peer: str, headers: Headers, proxies: tuple[Network, ...]) -> str:
    """Return the address before the first proxy that is trusted, as X-Forwarded-For has it from right to left."""
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
    """Return the part of an address that limits go by."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], _SITE_BITS), strict=False))
    except ValueError:
        return address


def is_foreign(peer: str, headers: Headers, proxies: tuple[Network, ...]) -> bool:
    """Return whether a browser sent a request for a page of another site; other clients send no Origin."""
    origin = headers.get("origin")
    if origin is None:
        return False
    host = headers.get("x-forwarded-host") if is_in(peer, proxies) else None
    return urlsplit(origin).netloc != (host or headers.get("host", ""))


def is_known_media(headers: Headers) -> bool:
    """Return whether a body is of a type that a form of another site's page cannot send."""
    media = headers.get("content-type", "").split(";")[0].strip().lower()
    return media in _MEDIA or media.endswith(_JSON)
