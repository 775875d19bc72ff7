"""The time of a collective of RCCL: its choice, with constants fitted to published runs of rccl-tests.

A time is a launch, the steps of the algorithm, and the data at the lowest of its limits: xGMI links, adapters, or the
channels of a protocol. xGMI links of a node carry rings of all directions at once, so a mesh of eight with seven links
each is full. With MSCCL's all-pairs every GPU sends a part to each of the others directly, twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.nccl.rccl.constants import Times, architecture, times
from weft.collectives.nccl.rccl.tuning import Choice, choose, inside_gbyte_s, ring_steps
from weft.collectives.nccl.tuning import TUNED
from weft.errors import ConfigError

XGMI, ADAPTERS, CHANNELS = "xGMI", "adapters", "channels"
_PAYLOAD = {Protocol.LL: 0.5, Protocol.LL128: 120 / 128, Protocol.SIMPLE: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The parts of a time, and the choice that it is of."""

    cluster: Cluster
    collective: Collective
    size_bytes: int
    choice: Choice
    parts: dict[str, float]  # microseconds that add up to the time
    bound: str  # limit of the data part

    @property
    def time_us(self) -> float:
        return sum(self.parts.values())

    @property
    def kernel(self) -> str:
        """Return the name of a schedule that is neither ring nor tree; empty for those and for sends between pairs."""
        ours = self.choice.algorithm is None and self.collective in TUNED
        return f"AllPairs/{self.choice.protocol.label}" if ours else ""

    @property
    def name(self) -> str:
        """Return the name of the choice, `Ring/Simple`."""
        algorithm = self.choice.algorithm
        return self.kernel or f"{algorithm.label if algorithm else 'Pairs'}/{self.choice.protocol.label}"


def estimate(
    cluster: Cluster,
    collective: Collective,
    size_bytes: int,
    *,
    networks: Networks | None = None,
    fitted: Times | None = None,
) -> Timing:
    """Return the time of a collective on AMD's GPUs. `fitted` replaces the constants of rccl_times.toml."""
    own = times() if fitted is None else fitted
    if networks is None:
        networks = ideal_networks(cluster) if cluster.nodes > 1 else {}
    if collective in TUNED:
        choice = choose(cluster, collective, size_bytes)
        if choice.algorithm is None:
            parts, bound = _all_pairs(cluster, choice, size_bytes, own)
        else:
            parts, bound = _rings_and_trees(cluster, collective, choice, size_bytes, networks, own)
    else:
        choice = _sends(cluster, collective)
        parts, bound = _pairs(cluster, collective, size_bytes, networks, own)
    return Timing(
        cluster=cluster, collective=collective, size_bytes=size_bytes, choice=choice, parts=parts, bound=bound
    )


def _sends(cluster: Cluster, collective: Collective) -> Choice:
    if cluster.algorithms or Protocol.SIMPLE not in (cluster.protocols or (Protocol.SIMPLE,)):
        raise ConfigError(f"{collective} is sends between pairs with Simple: leave NCCL_ALGO and NCCL_PROTO out")
    lanes = architecture(cluster.gcn).channels[cluster.nodes > 1]
    return Choice(algorithm=None, protocol=Protocol.SIMPLE, channels=lanes)


def _all_pairs(cluster: Cluster, choice: Choice, size_bytes: int, own: Times) -> tuple[dict[str, float], str]:
    """Return the parts of MSCCL's all-pairs: each GPU sends an eighth to each other one, and an eighth back."""
    simple = choice.protocol == Protocol.SIMPLE
    rate_gbyte_s = own.pairs_channel_gbyte_s if simple else own.link_gbyte_s[cluster.gcn] * _PAYLOAD[Protocol.LL]
    data_us = 2 * size_bytes / cluster.gpus / rate_gbyte_s / 1000
    steps_us = own.pairs_simple_us if simple else 2 * own.ll_step_us
    return _parts(own, steps_us, data_us), XGMI


def _rings_and_trees(
    cluster: Cluster, collective: Collective, choice: Choice, size_bytes: int, networks: Networks, own: Times
) -> tuple[dict[str, float], str]:
    simple = choice.protocol == Protocol.SIMPLE
    payload = _PAYLOAD[choice.protocol]
    step_us = own.simple_step_us if simple else own.ll_step_us
    is_tree = choice.algorithm == Algorithm.TREE
    pattern = Pattern.TREE if is_tree else Pattern.RING
    factor = collective.bus_factor(cluster.ranks)
    scale = own.link_gbyte_s[cluster.gcn] / times().link_gbyte_s[cluster.gcn]
    limits = {}
    if cluster.gpus > 1:
        around = 2 * (cluster.gpus - 1) / cluster.gpus if is_tree else factor
        limits[XGMI] = inside_gbyte_s(cluster) * scale * payload / around
    if cluster.nodes > 1:
        loads = (1 if cluster.nodes == 2 else 2) if is_tree else factor  # how often the bytes leave a node
        limits[ADAPTERS] = _adapters_gbyte_s(cluster, networks[pattern], own) * payload / loads
        if not simple:
            limits[CHANNELS] = own.ll128_gbyte_s * payload / _PAYLOAD[Protocol.LL128] / factor
    bound = min(limits, key=lambda name: limits[name])
    steps = 2 * (cluster.gpus - 1) if is_tree else ring_steps(collective, cluster.ranks)
    crossings = 0
    if cluster.nodes > 1:
        crossings = 2 * ceil(log2(cluster.nodes)) if is_tree else ceil(steps / cluster.gpus)
        steps -= 0 if is_tree else crossings
    post_us = own.simple_crossing_us if simple and not is_tree else own.crossing_us
    network_us = networks[pattern].step_us if crossings else 0.0
    steps_us = steps * step_us + crossings * (network_us + post_us)
    return _parts(own, steps_us, size_bytes / limits[bound] / 1000), bound


def _adapters_gbyte_s(cluster: Cluster, network: Network, own: Times) -> float:
    return cluster.nics * network.adapter_gbyte_s * own.adapter


def _pairs(
    cluster: Cluster, collective: Collective, size_bytes: int, networks: Networks, own: Times
) -> tuple[dict[str, float], str]:
    """Return the parts of sends between pairs: to peers of the node over a link of theirs, to others over adapters."""
    ranks, gpus, link_gbyte_s = cluster.ranks, cluster.gpus, own.link_gbyte_s[cluster.gcn]
    network = networks.get(Pattern.PAIRS)
    times_us: dict[str, float] = {}
    if collective == Collective.SEND_RECV:
        times_us = {XGMI: size_bytes / link_gbyte_s} if gpus > 1 else {}
        per_adapter = gpus / cluster.nics if network else 0.0
        sent = size_bytes / gpus * per_adapter  # of the GPUs of a node one sends to the next node
    else:
        part_bytes = size_bytes / ranks
        times_us = {XGMI: part_bytes / link_gbyte_s} if gpus > 1 else {}
        sent = part_bytes * (ranks - gpus) * gpus / max(cluster.nics, 1)
    if network is not None:
        times_us[ADAPTERS] = sent / (network.adapter_gbyte_s * own.adapter)
    bound = max(times_us, key=lambda name: times_us[name])
    steps_us = own.simple_step_us + (own.crossing_us + network.step_us if network else 0.0)
    return _parts(own, steps_us, times_us[bound] / 1000), bound


def _parts(own: Times, steps_us: float, data_us: float) -> dict[str, float]:
    return {"launch": own.launch_us, "steps": steps_us, "pipeline": 0.0, "data": data_us}
