"""Packets whose CRCs are known: published, or captured from adapters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from weft.wire.packet import Link


@dataclass(frozen=True, slots=True)
class Vector:
    """A packet of vectors.json, which says where it comes from."""

    name: str
    link: Link
    frame: bytes
    has_grh: bool
    icrc: bytes | None  # as it stands on the wire, if it is known
    vcrc: int | None


@pytest.fixture(scope="session")
def vectors() -> list[Vector]:
    text = (Path(__file__).parent / "vectors.json").read_text(encoding="utf-8")
    return [
        Vector(
            name=load["name"],
            link=Link.INFINIBAND if load["link"].startswith("InfiniBand") else Link.ETHERNET,
            frame=bytes.fromhex(load["hex"]),
            has_grh="no GRH" not in load["link"],
            icrc=bytes.fromhex(load["icrc_on_wire"]) if load["icrc_on_wire"] else None,
            vcrc=int(load["vcrc_computed_here"], 16) if "vcrc_computed_here" in load else None,
        )
        for load in json.loads(text)["vectors"]
    ]
