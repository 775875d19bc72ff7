"""The keys that protect a subnet with tenants: the M_Key of its ports, and the SM_Keys that are derived from it.

    level 1     Sets need the M_Key: another subnet manager changes nothing
    level 2     so do Gets: a host sees neither the tables of others nor the key, and another manager does not start

The M_Key is that of the options, or one that weft makes and keeps in a file while tenants exist, with level 2 and
without a lease: a port that loses its manager stays protected. Managers that read the same file trust each other: the
SM_Key of each is a digest of the M_Key, its GUID and its priority, so it can be shown to anybody. Their requests to the
SA carry another digest, because everybody knows the default sa_key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from weft.errors import ConfigError
from weft.mad.keyed import KeyFile
from weft.sm.conf.options import Options
from weft.sm.events import Event, Log
from weft.sm.pkey.partitions import Partitions

_LEVEL = 2
DEFAULT_SA_KEY = 1  # OpenSM's, so everybody knows it


@dataclass(frozen=True, slots=True)
class PortKey:
    """The M_Key settings of all ports."""

    m_key: int = 0
    lease_period_s: int = 0
    level: int = 0


def known_m_key(options: Options) -> int:
    """Return the M_Key that devices may have by now; 0: none."""
    if options.m_key or options.m_key_file is None:
        return options.m_key
    return KeyFile(options.m_key_file)()


def port_key(options: Options, partitions: Partitions, log: Log) -> PortKey:
    """Return the M_Key settings to write; no key if its file cannot be written: it would be lost with the process."""
    plain = PortKey(options.m_key, options.m_key_lease_period_s, options.m_key_protection_level)
    if options.m_key or options.m_key_file is None or not partitions.has_tenants:
        return plain
    try:
        key = KeyFile(options.m_key_file).make()
    except ConfigError as error:
        log.say_once(Event.NOT_WRITTEN, f"{error}: ports are not protected")
        return plain
    return PortKey(key, options.m_key_lease_period_s, options.m_key_protection_level or _LEVEL)


def sm_key_of(m_key: int, guid: int, priority: int) -> int:
    """Return the SM_Key by which a manager shows that it knows the M_Key."""
    return _digest(m_key, guid.to_bytes(8, "big") + bytes([priority]), b"weft SM_Key")


def own_sa_key(options: Options, m_key: int) -> int:
    """Return the key of a manager's own trusted requests to the SA of another: a digest of an M_Key that weft made."""
    if options.sa_key != DEFAULT_SA_KEY or options.m_key or not m_key:
        return options.sa_key
    return _digest(m_key, b"", b"weft SA_Key")


def _digest(m_key: int, about: bytes, purpose: bytes) -> int:
    secret = m_key.to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(about, key=secret, digest_size=8, person=purpose).digest(), "big")
