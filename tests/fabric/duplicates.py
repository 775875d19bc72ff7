"""Fabrics in which two ports have the same GUID."""

from __future__ import annotations

from dataclasses import replace

from weft.fabric.model import Fabric


def with_port_guid(fabric: Fabric, port: str, *, of: str) -> Fabric:
    """Return the fabric with the GUID of one port at another port too."""
    guids = fabric.ports.guid.copy()
    guids[fabric.find_port(port).slot] = guids[fabric.find_port(of).slot]
    return replace(fabric, ports=replace(fabric.ports, guid=guids))
