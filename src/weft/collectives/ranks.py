"""The placement of ranks: server, GPU, and the adapter of the rail.

    ranks = place(join_nvlinks(route(weft.load("superpod:su=1")).fabric))
    ranks.port[9]          slot of the port through which rank 9, the second GPU of the second server, talks

Ranks are numbered as NCCL and MPI number them: all GPUs of the first server, then those of the second. A server without
GPUs has one rank for each adapter. GPU g uses the adapter that the template names for it; where that has no cable on
one of the servers, the rail is missing on all and its GPUs share what is left, but NCCL's channels over whole servers
connect other rails then (`channel_adapters`). Inside a server ranks talk over NVLink, or PCIe where there is none, if
the fabric's are joined (`weft.fabric.nvlink`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.files import hostlist
from weft.fabric.joined import talks_over_pcie
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.server_model import match_servers
from weft.routing.rails import needs_subnets

NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranks:
    """The ranks of a job on equal servers."""

    fabric: Fabric
    servers: tuple[str, ...]
    per_server: int
    nvlink: NDArray[np.int32]  # [rank] -> slot of its GPU's port inside the server, NONE without NVLinks
    adapters: NDArray[np.int32]  # [server, rail] -> slot of the adapter's port
    rail_of: NDArray[np.int32]  # [rank of a server] -> rail

    def __len__(self) -> int:
        return len(self.nvlink)

    @property
    def rails(self) -> int:
        return int(self.adapters.shape[1])

    @property
    def pxn(self) -> bool:
        """Return whether every GPU has NVLink to all others of its server, to reach other rails over them (PXN)."""
        return bool((self.nvlink >= 0).all()) and not talks_over_pcie(self.fabric)

    @property
    def server(self) -> NDArray[np.int32]:
        """Return the server number of each rank."""
        return np.repeat(np.arange(len(self.servers), dtype=np.int32), self.per_server)

    @property
    def port(self) -> NDArray[np.int32]:
        """Return the slot of each rank's port."""
        ports: NDArray[np.int32] = self.adapters[:, self.rail_of].ravel()
        return ports


def place(fabric: Fabric, servers: Sequence[str] | None = None) -> Ranks:
    """Place one rank on each GPU of these servers, or of all."""
    names = compute_servers(fabric) if servers is None else tuple(servers)
    chosen = np.array([fabric.find_server(name).index for name in names])
    if not names:
        raise ConfigError(f"{fabric.spec}: a job needs at least one server, and there is none")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"server {twice} is given twice: a job has one rank on each GPU")
    gpus = _by_server(fabric, _gpus(fabric), chosen, "GPUs")
    cabled = _compute_adapters(fabric)
    cabled = _common_rails(fabric, cabled, chosen) if gpus.shape[1] else cabled
    adapters = _by_server(fabric, cabled, chosen, "adapters with a cable of the compute network")
    if not adapters.shape[1] and (len(names) > 1 or not gpus.shape[1]):
        raise ConfigError(f"{names[0]} has no adapter with a network cable: it cannot talk to other servers")
    per_server = gpus.shape[1] or adapters.shape[1]
    return Ranks(
        fabric=fabric,
        servers=names,
        per_server=per_server,
        nvlink=_nvlink_ports(fabric, gpus.ravel())
        if gpus.shape[1]
        else np.full(len(names) * per_server, NONE, np.int32),
        adapters=(fabric.first_port[adapters] + 1).astype(np.int32),
        rail_of=(np.arange(per_server) * adapters.shape[1] // per_server).astype(np.int32),
    )


def channel_adapters(ranks: Ranks) -> NDArray[np.int32]:
    """Return the adapters, [server, channel], that NCCL's rings and trees over whole servers connect.

    NCCL searches each server by itself, and lays its channels over the adapters with a cable in their order. If one
    server has fewer, all have as many channels as it, and those of the same number are connected: behind a missing
    adapter they are on different rails. Rails of a fabric that is simulated rail by rail stay apart.
    """
    fabric = ranks.fabric
    cabled = _compute_adapters(fabric)
    chosen = np.array([fabric.find_server(name).index for name in ranks.servers])
    of = fabric.nodes.server[cabled]
    count = np.bincount(of[of >= 0], minlength=len(fabric.servers))[chosen]
    if (count == count[0]).all() or count.min() != ranks.rails or needs_subnets(fabric):
        return ranks.adapters
    nodes = np.array([cabled[of == server][: ranks.rails] for server in chosen.tolist()])
    ports: NDArray[np.int32] = (fabric.first_port[nodes] + 1).astype(np.int32)
    return ports


def compute_servers(fabric: Fabric) -> tuple[str, ...]:
    """Return the servers for jobs: those with GPUs if there are any (UFM hosts have none), else all."""
    with_gpus = set(fabric.nodes.server[_gpus(fabric)].tolist())
    names = tuple(name for index, name in enumerate(fabric.servers) if index in with_gpus)
    return names or fabric.servers


def pick_servers(fabric: Fabric, text: str) -> tuple[str, ...] | None:
    """Select servers: the first N, `4`; or by name, `dgx1,dgx[3-8],luna-0001..32,gw*`. None means all."""
    if not text:
        return None
    if not text.isdecimal():
        return tuple(name for part in hostlist.split(text) for name in match_servers(fabric, part))
    present = compute_servers(fabric)
    if not 1 <= int(text) <= len(present):
        raise ConfigError(
            f"--servers {text}: {fabric.spec} has {len(present)}: give from 1 to {len(present)}, or names"
        )
    return present[: int(text)]


def adapters_by_host(fabric: Fabric) -> dict[str, list[int]]:
    """Return the adapter node of each rank by host. Hosts may differ.

    Ranks use adapters as in `place`; an adapter without a server is a host.
    """
    of = fabric.nodes.server
    gpus = np.bincount(of[_gpus(fabric)] + 1, minlength=len(fabric.servers) + 1)  # first entry: GPUs of no server
    by_host: dict[str, list[int]] = {}
    for node in _compute_adapters(fabric).tolist():
        if gpus[of[node] + 1] or not gpus.any():
            host = fabric.servers[of[node]] if of[node] >= 0 else fabric.nodes.name[node]
            by_host.setdefault(host, []).append(node)
    for host, adapters in by_host.items():
        n = int(gpus[of[adapters[0]] + 1]) or len(adapters)
        by_host[host] = [adapters[rank * len(adapters) // n] for rank in range(n)]
    return by_host


def subset(ranks: Ranks, members: Sequence[int]) -> Ranks:
    """Return some ranks of a job, as many on each server, with their adapters."""
    chosen = np.array(sorted(members))
    servers, count = np.unique(ranks.server[chosen], return_counts=True)
    odd = np.flatnonzero(count != count[0])
    if len(odd):
        first, other = ranks.servers[servers[0]], ranks.servers[servers[odd[0]]]
        raise ConfigError(
            f"a group of {len(chosen)} ranks has {count[0]} on {first} and {count[odd[0]]} on {other}: "
            f"collectives run on groups with as many ranks on each of their servers. Name other servers"
        )
    per_server = int(count[0])
    rails = ranks.rail_of[chosen % ranks.per_server].reshape(-1, per_server)
    if (rails == rails[0]).all():
        used, rail_of = np.unique(rails[0], return_inverse=True)
        adapters = ranks.adapters[servers][:, used] if ranks.rails else ranks.adapters[servers]
    else:  # rank by rank: what has the same number on all servers is a rail
        adapters, rail_of = ranks.port[chosen].reshape(-1, per_server), np.arange(per_server)
    return Ranks(
        fabric=ranks.fabric,
        servers=tuple(ranks.servers[server] for server in servers.tolist()),
        per_server=per_server,
        nvlink=ranks.nvlink[chosen],
        adapters=adapters,
        rail_of=rail_of.astype(np.int32),
    )


def _gpus(fabric: Fabric) -> NDArray[np.intp]:
    """Return the GPUs by model, since they are hosts if NVLinks are joined."""
    names = {entry.name for entry in catalog.gpus()}
    models = [index for index, model in enumerate(fabric.models) if model in names]
    nodes: NDArray[np.intp] = np.flatnonzero(np.isin(fabric.nodes.model, models))
    return nodes


def _nvlink_ports(fabric: Fabric, gpus: NDArray[np.intp]) -> NDArray[np.int32]:
    joined = fabric.nodes.kind[gpus] == NodeKind.HCA
    return np.where(joined, fabric.first_port[gpus] + 1, NONE).astype(np.int32)


def _compute_adapters(fabric: Fabric) -> NDArray[np.intp]:
    """Return the HCAs whose first port has a network cable, in any plane, without the template's storage adapters."""
    nodes = np.flatnonzero(fabric.nodes.kind == NodeKind.HCA)
    cabled = np.zeros(len(nodes), bool)
    for number in range(1, 1 + (fabric.planes if fabric.expanded else 1)):
        link = fabric.ports.link[fabric.first_port[nodes] + np.minimum(number, fabric.nodes.n_ports[nodes])]
        cabled |= (link >= 0) & fabric.network_links[link]
    nodes = nodes[cabled]
    cpus = fabric.of_kind(NodeKind.CPU)
    models = np.unique(fabric.nodes.model[cpus])
    stored = {name for model in models.tolist() if model >= 0 for name in catalog.server(fabric.models[model]).storage}
    own = [fabric.nodes.name[node].rpartition("/")[2] not in stored for node in nodes.tolist()]
    compute: NDArray[np.intp] = nodes[np.array(own, bool)]
    return compute


def _common_rails(fabric: Fabric, adapters: NDArray[np.intp], servers: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the adapters of a job if a server lacks some: NCCL uses as many on all as the fewest have.

    If all servers have as many adapters of the same names, these are used, on their rails; else the first of each.
    """
    of = fabric.nodes.server[adapters]
    rails = np.array([fabric.nodes.name[node].rpartition("/")[2] for node in adapters.tolist()])
    count = np.bincount(of[of >= 0], minlength=len(fabric.servers))[servers]
    fewest = int(count.min(initial=len(adapters)))
    if (count == fewest).all() or not fewest:
        return adapters
    common = set.intersection(*(set(rails[of == server].tolist()) for server in servers.tolist()))
    if len(common) == fewest:
        shared: NDArray[np.intp] = adapters[np.isin(rails, list(common))]
        return shared
    return np.concatenate([adapters[of == server][:fewest] for server in servers.tolist()])


def _by_server(fabric: Fabric, nodes: NDArray[np.intp], servers: NDArray[np.int64], noun: str) -> NDArray[np.intp]:
    """Return nodes as [server, n]. Raise ConfigError if servers differ."""
    of = fabric.nodes.server[nodes]
    count = np.bincount(of[of >= 0], minlength=len(fabric.servers))[servers]
    odd = np.flatnonzero(count != count[0])
    if len(odd):
        server, other = fabric.servers[servers[0]], fabric.servers[servers[odd[0]]]
        raise ConfigError(
            f"{server} has {count[0]} {noun}, {other} has {count[odd[0]]}: every server needs the same number. "
            f"Name servers of one kind with --servers"
        )
    order = np.argsort(of, kind="stable")
    first = np.searchsorted(of[order], servers)
    picked: NDArray[np.intp] = nodes[order][first[:, None] + np.arange(count[0])]
    return picked
