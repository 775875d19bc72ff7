"""The servers of a job, all of one kind, and the fabric between them.

find_site("ndr", gpus=1024, server="dgx-h100")      a fabric of the catalog: a SuperPOD of so many servers
find_site("fat-tree:hosts=64,server=dgx-h100")      a topology, or the path of a file: all of it, or its first GPUs
find_site("selene.txt as luna-*=dgx-a100", servers="luna-0001..32")
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeGuard

from weft.collectives.interconnect import build, options_of, own_interconnect, respec, template_of
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.estimate import TCP_DOUBT
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.measure import measure
from weft.collectives.nccl.network import Networks
from weft.collectives.ranks import Ranks, compute_servers, pick_servers, place, subset
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.files.text import STANDARD
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.sim.engine import Memory, Network, Options
from weft.sim.perftest import prepare_job
from weft.training.communication import Communication, Ideal, OverFabric
from weft.training.gpu import Gpu
from weft.training.parallel import Layout

if TYPE_CHECKING:
    from weft.sim.result import Engine

PACKET_GPUS = 256  # more take minutes: each of their edges carries 256 MiB, packet by packet
_TIERS = 3  # switches between two servers, where no fabric is built to count them


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """The servers and the fabric of a job; the fabric is routed on first use."""

    name: str
    fabric: Fabric
    template: catalog.Server
    servers: int
    part: int | None = None  # GPUs of its only server that take part; None: all
    names: tuple[str, ...] = ()  # server names, if they are not the first of the fabric
    options: Options
    interconnect: Interconnect | None = None  # None: a topology or file of the user

    @property
    def spec(self) -> str:
        return self.fabric.spec

    @property
    def gpus(self) -> int:
        return self.servers * self.template.gpus if self.part is None else self.part

    @property
    def gpu(self) -> Gpu:
        return Gpu.of_server(self.template)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the reasons why another fabric or GPU would give the same result."""
        entry, notes = self.gpu.entry, []

        def rates(gpu: catalog.Gpu) -> tuple[object, ...]:
            return (
                gpu.memory_gbyte_s,
                gpu.nvlink,
                gpu.nvlinks,
                *(peak for precision, peak in gpu.peak_tflop_s.items() if precision != "nvfp4"),
            )

        if self.servers > 1 and self.options.network is Network.TCP:
            notes.append(TCP_DOUBT)
        twins = [other.name for other in catalog.gpus() if other.name != entry.name and rates(other) == rates(entry)]
        if twins:
            notes.append(
                f"{entry.name}: the catalog has the same peak rates and memory bandwidth for {' and '.join(twins)}, so "
                "that they compute as fast; what fits into their memory and what their network carries may differ"
            )
        return tuple(notes)

    @cached_property
    def cluster(self) -> Cluster:
        return from_server(self.template.name, nodes=self.servers)

    @cached_property
    def ranks(self) -> Ranks:
        return self.place(prepare_job(self.fabric))

    def place(self, fabric: Fabric) -> Ranks:
        """Return the ranks of the job on its servers, in this state of their fabric."""
        ranks = place(fabric, self.names or compute_servers(self.fabric)[: self.servers])
        return ranks if self.part is None else subset(ranks, range(self.part))

    @cached_property
    def networks(self) -> Networks:
        """Return networks for a search: ideal for a fabric of the catalog, else measured by rings over all servers."""
        if self.servers == 1:
            return {}
        if self.interconnect is None:
            return measure(self.ranks, self.options).networks
        network = str(self.options.network or self.interconnect.network)
        interconnect = self.interconnect
        card = interconnect.adapter if interconnect.transport else ""
        return ideal_networks(
            self.cluster,
            network=network,
            speed=interconnect.speed,
            adapter=card,
            transport=interconnect.transport,
            switches=_TIERS,
        )

    def over(self, layout: Layout, engine: Engine | None = None) -> Communication:
        """Return the communication of a layout, by an engine over the fabric's routes or without one in closed form."""
        if engine is None or self.servers == 1:
            return Ideal(self.cluster, layout, self.networks)
        if engine.name == "packet" and self.gpus > PACKET_GPUS:
            raise ConfigError(
                f"{self.gpus:,} GPUs are too many for the packet engine, which takes {PACKET_GPUS} at most: take a "
                f"slice, --gpus {PACKET_GPUS}, or the flow engine"
            )
        whole = None if self.interconnect is None else self.cluster  # a fabric of the catalog has no broken cables
        return OverFabric(self.ranks, layout, self.options, engine, whole)


def find_site(
    fabric: str | Fabric | None = None,
    *,
    gpus: int | None = None,
    servers: str = "",
    server: str | None = None,
    seed: int = 1,
    network: str | None = None,
    paths: str | None = None,
) -> Site:
    """Find a fabric by its name in the catalog, by default that of the server's adapters; or by a spec.

    servers: a number or names, as `pick_servers` reads them; or give `gpus`.
    """
    if gpus is not None and servers:
        raise ConfigError(f"use --gpus {gpus} or --servers {servers}, not both")
    if isinstance(fabric, Fabric) or _is_spec(fabric):
        name, cabled = (fabric.spec, fabric) if isinstance(fabric, Fabric) else (fabric, load(fabric))
        if server is not None:
            raise ConfigError(f"--server {server}: {name} already defines its servers. Leave it out")
        return _on_fabric(name, cabled, gpus, servers, seed, network, paths)
    template = catalog.server(server or "dgx-h100")
    if not template.gpus:
        able = [one.name for one in catalog.servers() if one.gpus]
        raise ConfigError(f"{template.name} has no GPUs: training runs on {', '.join(able)}")
    interconnect = catalog.interconnect(fabric) if fabric else own_interconnect(template)
    if servers and not servers.isdecimal():
        raise ConfigError(f"--servers {servers}: {interconnect.name} has no server names; give their number")
    if gpus is None and not servers:
        raise ConfigError(f"{interconnect.name} has no fixed size: give --gpus, as in --gpus 1024")
    total = gpus if gpus is not None else int(servers) * template.gpus
    template = _filled_rack(total, template)
    count = _servers(total, template)
    cabled = build(respec("superpod:su=1", interconnect, template, count), interconnect)
    whole = catalog.server(template.name)
    box = whole.equipped(whole.card_for(interconnect))
    options = _changed(options_of(interconnect, seed), network, paths)
    return Site(
        name=interconnect.name,
        fabric=cabled,
        template=box,
        servers=count,
        part=_part(total, template),
        options=options,
        interconnect=interconnect,
    )


def _is_spec(fabric: str | None) -> TypeGuard[str]:
    """Return whether the text is a topology with parameters or a file, not the name of a fabric of the catalog."""
    if not fabric:
        return False
    return any(mark in fabric for mark in (":", "/", ".", " as ")) or fabric == STANDARD or os.path.exists(fabric)


def _on_fabric(
    name: str, fabric: Fabric, gpus: int | None, servers: str, seed: int, network: str | None, paths: str | None
) -> Site:
    names = pick_servers(fabric, servers) or ()
    template = template_of(fabric, names or None)
    existing = len(compute_servers(fabric))
    count = len(names) or (existing if gpus is None else _servers(gpus, template))
    if count > existing:
        raise ConfigError(
            f"{gpus:,} GPUs, and {name} has {existing:,} × {template.name} with {existing * template.gpus:,}: "
            "give as many at most, or a larger fabric"
        )
    options = _changed(Options(seed=seed, memory=Memory.GPUDIRECT), network, paths)
    part = None if gpus is None else _part(gpus, template)
    return Site(
        name=fabric.spec, fabric=fabric, template=template, servers=count, part=part, names=names, options=options
    )


def _part(gpus: int, template: catalog.Server) -> int | None:
    """Return how many GPUs of one server a job has that does not fill it."""
    return gpus if gpus < template.gpus else None


def _filled_rack(gpus: int, template: catalog.Server) -> catalog.Server:
    """Return the template; for GPUs that do not fill its racks, the same rack with spare trays if they fill that."""
    if gpus <= template.gpus or gpus % template.gpus == 0:
        return template
    return next((rack for rack in _spared(template) if gpus % rack.gpus == 0), template)


def _spared(template: catalog.Server) -> list[catalog.Server]:
    """Return the racks of the catalog that are this one with some trays kept spare, the fullest first."""
    same = (template.gpu, template.adapter, template.gpu_changes)
    racks = [rack for rack in catalog.servers() if rack.trays > 1 and rack.gpus < template.gpus and template.trays > 1]
    return sorted(
        (rack for rack in racks if (rack.gpu, rack.adapter, rack.gpu_changes) == same), key=lambda rack: -rack.gpus
    )


def _servers(gpus: int, template: catalog.Server) -> int:
    """Return how many servers have so many GPUs: part of one, or all of each."""
    each = template.gpus
    if 1 <= gpus < each:
        return 1
    if gpus < 1 or gpus % each:
        sizes = [each, *(rack.gpus for rack in _spared(template))]
        below, above = max(gpus // size * size for size in sizes), min(-(-gpus // size) * size for size in sizes)
        near = f"{below} or {above}" if below > 0 else f"{each}"
        raise ConfigError(f"--gpus {gpus} is not a multiple of the {each} GPUs of a {template.name}; nearest: {near}")
    return gpus // each


def _changed(options: Options, network: str | None, paths: str | None) -> Options:
    if network is not None:
        memory = Memory.HOST if network == Network.TCP else Memory.GPUDIRECT
        options = replace(options, network=network, memory=memory)  # type: ignore[arg-type]  # Options knows the names
    return options if paths is None else replace(options, paths=paths)
