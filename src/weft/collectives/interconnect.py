"""A fabric of the catalog between the servers of a job: its spec and its network rules.

superpod:su=1 + hdr             ->  superpod:su=2,server=dgx-h100+ConnectX-6,servers=32,switch=QM8700
superpod:su=1,servers=4 + ndr   ->  superpod:su=1,servers=4,leaves=1,switch=QM9700
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import load, parse, rewrite
from weft.fabric.topologies.builder import ports_for
from weft.fabric.topologies.superpod import fit_superpod
from weft.sim.engine import Memory, Network, Options, Paths


def template_of(fabric: Fabric, servers: Sequence[str] | None = None) -> catalog.Server:
    """Return the template of the servers with GPUs, or of these; all must be equal."""
    with_gpus = fabric.nodes.server[fabric.of_kind(NodeKind.GPU)]
    if servers is not None:
        with_gpus = with_gpus[np.isin(with_gpus, [fabric.find_server(name).index for name in servers])]
    processors = fabric.of_kind(NodeKind.CPU)
    cpus = {fabric.node(cpu).model for cpu in processors[np.isin(fabric.nodes.server[processors], with_gpus)].tolist()}
    if not cpus:
        raise ConfigError(
            f"{fabric.spec} has no servers with GPUs, and a job runs on GPUs: "
            f"give server=, as in fat-tree:hosts=16,server=dgx-h100; of a file, --as 'PATTERN=dgx-h100'. "
            f"`weft catalog` has them all"
        )
    if len(cpus) > 1:
        raise ConfigError(
            f"{fabric.spec} has servers of more kinds, {', '.join(sorted(cpus))}: a job runs on one kind. "
            "--servers names those of one, dgx1..4"
        )
    return catalog.server(cpus.pop())


def respec(spec: str, interconnect: Interconnect, template: catalog.Server, servers: int) -> str:
    """Return the same topology with the switch and the card of that fabric, for `servers`."""
    box = template.equipped(template.card_for(interconnect))
    name, parameters = parse(spec)
    size: dict[str, int | None] = {}
    if name == "superpod":
        inherited = {key: parameters[key] for key in ("leaves", "ufm") if key in parameters}
        radix = parameters.get("radix") or ports_for(catalog.switch(interconnect.switch), box.adapter)
        size = fit_superpod(servers, rails=box.rails, trays=box.trays, radix=radix, **inherited)
    return rewrite(spec, switch=interconnect.switch, speed=None, server=box.name, **size)


def own_interconnect(template: catalog.Server) -> Interconnect:
    """Return the fabric of the catalog for the adapters of the server."""
    for interconnect in catalog.interconnects():
        if interconnect.adapter == template.compute_adapter:
            return interconnect
    names = ", ".join(interconnect.name for interconnect in catalog.interconnects())
    raise ConfigError(f"no fabric of the catalog has the {template.compute_adapter} of {template.name}: give {names}")


def build(spec: str, interconnect: Interconnect) -> Fabric:
    """Build the fabric of a spec."""
    try:
        return load(spec)
    except ConfigError as error:
        way_out = f"Take fewer servers, or leave {interconnect.name} out."
        raise ConfigError(f"{interconnect.name} cannot be cabled: {error}\n  {way_out}") from error


def options_of(interconnect: Interconnect, seed: int) -> Options:
    """Return the options of a fabric. NCCL's sockets send from host memory, which GPU kernels write directly."""
    network = Network(interconnect.network)
    memory = Memory.HOST if network is Network.TCP else Memory.GPUDIRECT
    return Options(seed=seed, network=network, paths=Paths(interconnect.paths), memory=memory)
