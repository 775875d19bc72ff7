"""The time of a collective in closed form: NCCL's choice, with constants fitted to published measurements.

    made = estimate(from_server("dgx-h100", nodes=4), Collective.ALL_REDUCE, 64 << 20)
    made.time_us, made.bus_gbyte_s, made.bound
    print(made.explain())

`choose` has NCCL's own estimate, by which it chooses; this module predicts the time of that choice. For its accuracy
see `weft nccl calibration` and docs/collectives.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.case import Case, inside_name, plugin_of
from weft.collectives.nccl.choose import choose, time_us, width
from weft.collectives.nccl.cluster import Cluster, Processor
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import Graphs, search
from weft.collectives.nccl.ideal import TCP, TcpNetwork, ideal_networks
from weft.collectives.nccl.network import Network, Networks
from weft.collectives.nccl.ofi_tuner import TRANSPORT, platform_of, tuned_row
from weft.collectives.nccl.pairs import pairs_channels, pairs_parts, pairs_protocol
from weft.collectives.nccl.parts import parts
from weft.collectives.nccl.rccl import estimate as rccl
from weft.collectives.nccl.symmetric import Kernel, check_kernel, kernels, pick
from weft.collectives.nccl.symmetric_times import symmetric_parts
from weft.collectives.nccl.times import Times, times
from weft.collectives.nccl.tuning import Row, table
from weft.errors import ConfigError

PAIRWISE = (Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER, Collective.SEND_RECV)
_AMD = (
    "AMD's processors: steps between nodes are twice as long with Ampere's GPUs, as two clusters have it; with later "
    "GPUs only posts are, as one has it whose processors are inferred"
)
_SLINGSHOT = (
    "Slingshot: published runs take up to twice as long from 64 KiB to 1 MiB, and with one GPU in a server up to four "
    "times from 1 to 8 MiB. Their sites advise NCCL_PROTO=^LL128, which NCCL does not set by itself"
)
TCP_DOUBT = (
    "TCP: one core copies for each connection, 15 Gb/s of it, whatever the line carries. 400G is no faster than 100G, "
    "and up to 7 % slower where NCCL, which goes by the rate of the port, chooses LL128 instead of Simple. More "
    "connections (NCCL_NSOCKS_PERTHREAD) are not modelled"
)
_TUNED = (
    "EFA: on three and more servers the tuner of AWS's plugin chooses, by its code of August 2026; one published run "
    "has so many, from 32 MiB on. --OFI_NCCL_TUNER_TYPE Internal leaves the choice to NCCL"
)
_GUESSED = (
    "the server's template does not say its processors: the link between them is taken to be that of Intel's first "
    "with such PCIe slots. Add cpu: to it, as `weft catalog` shows for others"
)
_RACKS = (
    "several racks: since 2.27 NCCL goes on without NVLS where its set-up fails, and one published run has the times "
    "of trees and rings; another one, with 2.26, those of NVLS trees. --algo NVLSTree is for racks where they work"
)
_RCCL = (
    "AMD's GPUs: few public runs of rccl-tests, most of one server and of all_reduce; other collectives, and more than "
    "two servers, are by the model alone"
)
SERVER_GPUS = 8  # more are a rack
_FALLS_BACK = (2, 27)  # the first NCCL that goes on without NVLS where its set-up fails
_BARRIER_BYTES = 4  # PyTorch's barrier over NCCL: an all_reduce of one number


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The time of a collective and its parts. `size_bytes` is the larger of a rank's two buffers, as in nccl-tests."""

    cluster: Cluster
    collective: Collective
    size_bytes: int
    algorithm: Algorithm | None  # None: sends between pairs, or a symmetric kernel
    protocol: Protocol
    channels: int
    parts: dict[str, float]  # microseconds that add up to the time
    bound: str  # limit of the data part: adapters, NVLink, PCIe, channels or proxies
    fabric: str = "NVLink"  # between nodes, or in the only one
    transport: str = ""  # NCCL's plugin, as fabrics.toml has it
    kernel: str = ""  # a symmetric one, by NCCL's name

    @property
    def time_us(self) -> float:
        return sum(self.parts.values())

    @property
    def algo_gbyte_s(self) -> float:
        return self.size_bytes / self.time_us / 1000

    @property
    def bus_gbyte_s(self) -> float:
        """Return the bus bandwidth (busbw of nccl-tests)."""
        return self.algo_gbyte_s * self.collective.bus_factor(self.cluster.ranks)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return the reasons, in words, why the published runs do not settle this time."""
        over_tcp = self.fabric == TCP
        reasons = {
            _RCCL: bool(self.cluster.gcn),
            _AMD: self.cluster.processor == Processor.AMD
            and self.cluster.nodes > 1
            and not (over_tcp or self.cluster.gcn),
            _SLINGSHOT: self.transport == "slingshot",
            TCP_DOUBT: over_tcp,
            _TUNED: self.transport == TRANSPORT
            and self.algorithm is not None
            and platform_of(self.cluster) is not None,
            _GUESSED: self.cluster.guessed,
            _RACKS: self.cluster.nodes > 1 and self.cluster.gpus > SERVER_GPUS and self.cluster.nvswitch,
        }
        return tuple(why for why, holds in reasons.items() if holds)

    @property
    def name(self) -> str:
        """Return the name of the choice, `Ring/Simple`, or that of a symmetric kernel."""
        return self.kernel or f"{self.algorithm.label if self.algorithm else 'Pairs'}/{self.protocol.label}"

    def explain(self) -> str:
        """Describe the time, its parts and its limit. `weft.collectives.nccl.band` has the band around it."""
        parts = ", ".join(f"{name} {value:,.1f} us" for name, value in self.parts.items())
        channels = f" on {self.channels} {'blocks' if self.kernel else 'channels'}" if self.channels else ""
        return (
            f"{self.collective} of {self.size_bytes:,} bytes on {self.cluster}\n"
            f"{self.name}{channels}: {self.time_us:,.1f} us, bus bandwidth {self.bus_gbyte_s:,.2f} GB/s\n"
            f"{parts}; the data is bound by {self.bound}"
        ) + "".join(f"\nin doubt: {why}" for why in self.doubts)


def estimate(
    cluster: Cluster,
    collective: Collective,
    size_bytes: int,
    *,
    networks: Networks | None = None,
    algorithm: Algorithm | None = None,
    protocol: Protocol | None = None,
    graphs: Graphs | None = None,
    channels: int | None = None,
    chunk_bytes: int | None = None,
    fitted: Times | None = None,
) -> Estimate:
    """Return the time of a collective.

    networks: results of `measure`; by default ideal InfiniBand with one switch.
    algorithm, protocol, channels: override NCCL's choice, as NCCL_ALGO, NCCL_PROTO and NCCL_MIN_CTAS do; for sends
    between pairs as NCCL_MIN_P2P_NCHANNELS and NCCL_MAX_P2P_NCHANNELS do.
    chunk_bytes: of sends between pairs, as NCCL_P2P_NET_CHUNKSIZE.
    fitted: constants instead of nccl_times.toml's.
    """
    if collective == Collective.BARRIER:
        barrier = estimate(cluster, Collective.ALL_REDUCE, _BARRIER_BYTES, networks=networks, graphs=graphs)
        return replace(barrier, collective=collective, size_bytes=size_bytes)
    for variable, value in (
        ("bytes", size_bytes),
        ("channels", 1 if channels is None else channels),
        ("bytes in a chunk", 1 if chunk_bytes is None else chunk_bytes),
    ):
        if value < 1:
            raise ConfigError(f"{collective} with {value} {variable}: the least is 1")
    if cluster.gcn:
        return _on_amd(cluster, collective, size_bytes, networks)
    if networks is None:
        networks = ideal_networks(cluster) if cluster.nodes > 1 else {}
    time_constants = times() if fitted is None else fitted
    cluster = _fall_back(cluster, algorithm)
    any_network = next(iter(networks.values())) if cluster.nodes > 1 else None
    if not cluster.protocols:
        protocol = protocol or _forced(cluster, any_network, time_constants)
    chosen: Algorithm | None = None
    kernel = _kernel(cluster, collective, size_bytes, algorithm, over_tcp=isinstance(any_network, TcpNetwork))
    if kernel is not None:
        used, lanes = kernel.protocol, kernel.blocks
        pieces = symmetric_parts(cluster, kernel, size_bytes, networks, time_constants)
    elif collective in PAIRWISE:
        used = _pairs_protocol(cluster, collective, size_bytes, algorithm, protocol)
        lanes = pairs_channels(cluster, graphs, channels)
        pieces = pairs_parts(cluster, collective, size_bytes, used, networks, time_constants, lanes, chunk_bytes)
    else:
        whole = graphs if graphs is not None else search(cluster)
        transport = any_network.transport if any_network else ""
        row = _row(cluster, whole, collective, size_bytes, algorithm, protocol, transport)
        chosen, used, lanes = row.algorithm, row.protocol, channels or width(cluster, whole, row, size_bytes)[0]
        case = Case(
            cluster=cluster,
            graphs=whole,
            collective=collective,
            size_bytes=size_bytes,
            row=row,
            channels=lanes,
            networks=networks,
            fitted=time_constants,
        )
        pieces = parts(case)
    return Estimate(
        cluster=cluster,
        collective=collective,
        size_bytes=size_bytes,
        algorithm=chosen,
        protocol=used,
        channels=lanes,
        parts={name: getattr(pieces, f"{name}_us") for name in ("launch", "steps", "pipeline", "data")},
        bound=pieces.bound,
        fabric=any_network.fabric if any_network else inside_name(cluster),
        transport=any_network.transport if any_network else "",
        kernel=kernel.name if kernel else "",
    )


def _on_amd(cluster: Cluster, collective: Collective, size_bytes: int, networks: Networks | None) -> Estimate:
    """Return the time of RCCL."""
    made = rccl.estimate(cluster, collective, size_bytes, networks=networks)
    any_network = next(iter(networks.values())) if networks and cluster.nodes > 1 else None
    return Estimate(
        cluster=cluster,
        collective=collective,
        size_bytes=size_bytes,
        algorithm=made.choice.algorithm,
        protocol=made.choice.protocol,
        channels=made.choice.channels,
        parts=made.parts,
        bound=made.bound,
        fabric=any_network.fabric if any_network else rccl.XGMI,
        transport=any_network.transport if any_network else "",
        kernel=made.kernel,
    )


def _fall_back(cluster: Cluster, algorithm: Algorithm | None) -> Cluster:
    """Return the cluster without NVLS between racks, unless NVLS trees are requested."""
    requested = Algorithm.NVLS_TREE in (algorithm, *cluster.algorithms)
    racks = cluster.nodes > 1 and cluster.gpus > SERVER_GPUS and not cluster.sharp
    version = tuple(map(int, constants(cluster.nccl).version.split(".")[:2]))
    return replace(cluster, nvls=False) if racks and not requested and version >= _FALLS_BACK else cluster


def _kernel(
    cluster: Cluster, collective: Collective, size_bytes: int, algorithm: Algorithm | None, *, over_tcp: bool
) -> Kernel | None:
    """Return the symmetric kernel that NCCL would choose; since 2.31 NCCL_ALGO has precedence.

    Between nodes these kernels post to adapters from the GPU, which sockets do not support.
    """
    check_kernel(cluster)
    if not cluster.windows or ((algorithm or cluster.algorithms) and constants(cluster.nccl).rules.algorithm_first):
        return None
    kernel = None if over_tcp else pick(cluster, collective, size_bytes)
    if kernel is None and cluster.sym_kernel:
        why = {each.name: each.off for each in kernels(cluster, collective, size_bytes)}
        reason = why.get(cluster.sym_kernel, f"it is not for {collective}") or "GPUs cannot talk to adapters over TCP"
        raise ConfigError(f"NCCL_SYM_KERNEL={cluster.sym_kernel} on {cluster}: {reason}. Leave it out, NCCL chooses")
    return kernel


def _pairs_protocol(
    cluster: Cluster,
    collective: Collective,
    size_bytes: int,
    algorithm: Algorithm | None,
    protocol: Protocol | None,
) -> Protocol:
    """Return the protocol of sends between pairs; they have no algorithm, and NCCL ignores NCCL_ALGO for them."""
    protocols = cluster.protocols if protocol is None else (protocol,)
    own = pairs_protocol(cluster, collective, size_bytes)
    allowed = [each for each in (own, Protocol.SIMPLE, Protocol.LL) if not protocols or each in protocols]
    if algorithm is not None or not allowed:
        requested = ", ".join(each.label for each in ((algorithm,) if algorithm is not None else protocols))
        raise ConfigError(f"{collective} is sends between pairs, with LL or Simple: there is no {requested} for it")
    return allowed[0]


def _forced(cluster: Cluster, network: Network | None, fitted: Times) -> Protocol | None:
    """Return Simple if the network may write the bytes of a message in any order, which breaks flags in the data."""
    plugin = plugin_of(network, fitted) if network else None
    return Protocol.SIMPLE if plugin and cluster.sm < plugin.ordered_sm else None


@lru_cache(maxsize=4096)  # the same for every network
def _row(
    cluster: Cluster,
    graphs: Graphs,
    collective: Collective,
    size_bytes: int,
    algorithm: Algorithm | None,
    protocol: Protocol | None,
    transport: str,
) -> Row:
    """Return the choice of NCCL, or of its plugin, among the requested rows."""
    if algorithm is None and protocol is None:
        choice = choose(cluster, collective, size_bytes, graphs=graphs)
        tuned = tuned_row(cluster, collective, size_bytes, choice.rows) if transport == TRANSPORT else None
        return tuned or choice.row
    rows = [row for row in table(cluster, graphs, collective) if not row.off]
    matching = [row for row in rows if algorithm in (None, row.algorithm) and protocol in (None, row.protocol)]
    if not matching:
        name = "/".join(each.label for each in (algorithm, protocol) if each is not None)
        raise ConfigError(
            f"{name} is off for {collective} on {cluster}; on are {', '.join(row.name for row in rows)}. "
            f"`choose(...).explain()` says why others are off"
        )
    return min(matching, key=lambda row: time_us(cluster, graphs, collective, row, size_bytes) or 0.0)
