"""The origin of a request: its address behind proxies, and the page of a browser that sent it."""

from __future__ import annotations

import ipaddress
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
