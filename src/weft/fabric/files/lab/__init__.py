"""A lab file: a fabric written by hand, in YAML or TOML.

    name: two-racks
    nodes:
      leaf1: {model: QM9700}                          # a switch or an adapter of the catalog
      sw9: {kind: switch, ports: 36}                  # or a bare node
      h1..8: {server: host}                           # h1, h2, ... h8: servers of a template
      dgx1: {server: dgx-h100}
      dgx1/mlx5_0: {guid: 0x0002c90300001230, lid: 7} # more keys for an existing node
    links:
      - [h1..8, leaf1/1..8]                           # h1 is its first free network port
      - {ends: [dgx1/mlx5_0, leaf1/9], speed: HDR, length_m: 3, medium: dac}
      - [leaf1/33, sw9/1]
    faults:
      - {slow: leaf1/2, to: 1xSDR}
      - {degrade: leaf1/3, bit_error_rate: 1e-9}
      - {remove_link: leaf1/4}
      - {kill: h5}

`topology: fat-tree:hosts=16`, a spec or a dump beside the file, is a fabric to start from and add to. A link without a
speed runs at that of the slower of its two devices. An adapter belongs to the server that its name begins with, unless
`box` names another, or none: `box: ""`. A model that the catalog does not have needs `kind` and `ports`. A node may
also have `group`, `description`, `vendor_id`, `device_id`, `system_guid`; `lid`, `lmc` and `port_guid` are one value,
or one for each port: `lid: {1: 7, 2: 8}`. An old switch with a base port 0 has `base_port_0: true`.

    document   the file as plain data, with line numbers                        ranges   h1..8
    nodes      the key `nodes`          links   the key `links`                 text     a fabric as a lab file
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.build import FabricBuilder
from weft.fabric.files.lab.document import Document, Struct
from weft.fabric.files.lab.links import plug
from weft.fabric.files.lab.nodes import add_nodes
from weft.fabric.model import Fabric
from weft.schemas import Place

__all__: list[str] = []

SUFFIXES = (".yaml", ".yml", ".toml")


class LabEntry(Struct):
    """The contents of a lab file."""

    name: str = ""
    topology: str | None = None
    nodes: dict[str, Any] | None = None
    links: list[Any] | None = None
    faults: list[dict[str, Any]] | None = None


class Slow(Struct):
    slow: str
    to: str

    def apply(self, fabric: Fabric) -> Fabric:
        return faults.slow(fabric, self.slow, self.to)


class Degrade(Struct):
    degrade: str
    bit_error_rate: float
    one_way: bool = False

    def apply(self, fabric: Fabric) -> Fabric:
        return faults.degrade(fabric, self.degrade, self.bit_error_rate, one_way=self.one_way)


class RemoveLink(Struct):
    remove_link: str

    def apply(self, fabric: Fabric) -> Fabric:
        return faults.remove_link(fabric, self.remove_link)


class Kill(Struct):
    kill: str

    def apply(self, fabric: Fabric) -> Fabric:
        return faults.kill(fabric, self.kill)


FAULTS: dict[str, type[Slow | Degrade | RemoveLink | Kill]] = {
    "slow": Slow,
    "degrade": Degrade,
    "remove_link": RemoveLink,
    "kill": Kill,
}


def read(path: Path) -> Fabric:
    """Return the fabric of a lab file."""
    doc = Document.load(path)
    lab = doc.convert((), LabEntry)
    fabric = add_nodes(doc, list(lab.nodes or ()), _start(doc, lab.topology))
    fabric = plug(doc, len(lab.links or ()), fabric)
    for i, fault in enumerate(lab.faults or ()):
        fabric = _break(doc, ("faults", i), fault, fabric)
    return fabric


def to_text(fabric: Fabric) -> str:
    """Return a fabric as a lab file in YAML."""
    from weft.fabric.files.lab.text import spell

    return spell(fabric)


def _start(doc: Document, topology: str | None) -> Fabric:
    """Return the fabric to start from: a spec, a dump beside the file, or an empty fabric."""
    if topology is None:
        return FabricBuilder(str(doc.path)).build()
    if topology.endswith(SUFFIXES):
        doc.refuse(("topology",), "a spec or a dump, not another lab file")
    from weft.fabric import files, spec

    try:
        beside = doc.path.parent / topology
        return files.read(beside) if beside.is_file() else spec.load(topology)
    except ConfigError as error:
        doc.refuse_because(("topology",), error)


def _break(doc: Document, place: Place, fault: dict[str, Any], fabric: Fabric) -> Fabric:
    verbs = [verb for verb in FAULTS if verb in fault]
    if len(verbs) != 1:
        doc.refuse(place, f"one fault: {', '.join(FAULTS)}")
    try:
        return doc.convert(place, FAULTS[verbs[0]]).apply(fabric)
    except ConfigError as error:
        doc.refuse_because(place, error)
