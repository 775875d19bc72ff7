"""BYTES: every header and every management datagram that InfiniBand and RoCE put on a wire.

    fields, format      how a format is declared, checked, packed and read
    headers, opcodes    LRH, GRH, BTH and the extended headers; which follow an opcode
    roce                Ethernet, IPv4, IPv6 and UDP around them
    uet                 Ultra Ethernet Transport: packet delivery and semantics
    crc                 ICRC and VCRC
    packet              whole packets, built and parsed
    mad, rmpp           the common MAD header; transfers of more than one MAD
    smp, port_info, notice, adaptive, sa, perf, cm, cc      the management classes and their attributes
    cable_info, modules the attribute that reads modules of cables, and their memory
    attributes          from a MAD to the format of its attribute
    sa_query            component masks, tables of records
    bulk, kernels       the same bytes for arrays of records
    pcap                files for Wireshark

The package is independent of fabrics. `formats()` lists all declared formats.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.wire.format import Format

__all__ = [
    "adaptive",
    "attributes",
    "cable_info",
    "cc",
    "cm",
    "crc",
    "fields",
    "format",
    "formats",
    "headers",
    "ipoib",
    "mad",
    "modules",
    "notice",
    "opcodes",
    "packet",
    "pcap",
    "perf",
    "port_info",
    "rmpp",
    "roce",
    "sa",
    "sa_query",
    "smp",
    "uet",
]

_DECLARE = (
    "headers",
    "roce",
    "mad",
    "port_info",
    "adaptive",
    "router",
    "cable_info",
    "smp",
    "notice",
    "sa",
    "perf",
    "cm",
    "cc",
    "pcap",
    "uet",
    "ipoib",
)


def formats() -> dict[str, type[Format]]:
    """Return every format of the package, by name."""
    for module in _DECLARE:
        importlib.import_module(f"weft.wire.{module}")
    from weft.wire.format import Format

    return {form.__name__: form for form in _below(Format) if form.__module__.startswith("weft.wire.")}


def _below(form: type[Format]) -> Iterator[type[Format]]:
    for sub in form.__subclasses__():
        yield sub
        yield from _below(sub)
