"""The servers that a served model needs, and the traffic between and into them.

    demand = Demand(model="llama3-70b", rate=50, ttft_s=2, tpot_s=0.03)
    find_service(demand).servers           the fewest servers, by the search of `weft infer --find layout`
    plan_serving(demand, sized)            that service on the planned fabric: latency, and traffic of its servers

KV hand-offs are those of the simulated requests, from server to server: inside one NVLink carries them. Exchanges of
steps between the servers of one replica follow from the tokens. Prompts and answers travel as text over the management
network: 5 bytes of JSON for a token of a prompt, and an event of 300 bytes for each token of an answer that is streamed
(both assumed). Weights come from storage once for each server (`north_south`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.collectives.interconnect import template_of
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.inference.deployment import Deployment, find_deployment
from weft.inference.prediction import show_layout
from weft.inference.serving.beside import bytes_of_token
from weft.inference.serving.figures import Objective, latencies
from weft.inference.serving.fleet import Choice, Fleet, over_layouts
from weft.inference.serving.load import Lengths, Load, poisson
from weft.inference.serving.placement import Placement, place_pools
from weft.inference.serving.run import Served, serve
from weft.inference.serving.search import keeps
from weft.plan.north_south import LINE_SHARE, NetworkSize, size_networks
from weft.plan.request import Request
from weft.plan.size import Size
from weft.plan.upkeep import site_of

PROMPT_TOKEN_BYTES, ANSWER_TOKEN_BYTES = 5, 300  # text of a token in JSON; an event of a stream with its headers
_REQUESTS, _SHORTEST_S, _LONGEST_S = 2000, 20.0, 300.0  # simulated
_MOST_SERVERS = 8  # in a replica
_GIGABIT = 8e-9  # per byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A model, the requests that it must serve, and the latency that 99 % of them must keep."""

    model: str
    rate: float  # requests per second
    prompt: int = 1024
    answer: int = 128
    weights: str = "bf16"
    ttft_s: float = 2.0
    tpot_s: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ConfigError(f"--rate must be above 0, got {self.rate:g}")

    @property
    def objective(self) -> Objective:
        return Objective(ttft_s=self.ttft_s, tpot_s=self.tpot_s)

    @property
    def load(self) -> Load:
        """Return random arrivals for as long as some thousand requests take."""
        seconds = min(max(_REQUESTS / self.rate, _SHORTEST_S), _LONGEST_S)
        prompt, answer = Lengths(self.prompt), Lengths(self.answer)
        return poisson(rate=self.rate, seconds=seconds, seed=1, prompt=prompt, output=answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The traffic of one kind, of the server that has most of it."""

    name: str
    mean_gbit_s: float
    peak_gbit_s: float  # in its busiest second
    share: float | None  # share of the ports of a server at the peak; None: over another network


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Serving:
    """A service on the servers of a plan."""

    demand: Demand
    placement: Placement
    served: Served
    flows: tuple[Flow, ...]
    weights_gbyte: float  # that a server reads when it starts
    networks: tuple[NetworkSize, ...]  # storage and management

    @property
    def servers(self) -> int:
        return servers_of(self.placement)

    @property
    def keeps(self) -> bool:
        """Return whether the service keeps its objective on the planned fabric."""
        return keeps(self.served, self.demand.objective)

    @property
    def replicas(self) -> str:
        """Return the replicas and their layouts in words."""
        placement = self.placement
        if placement.both:
            return f"{placement.both} × {_layout(placement.deployment)} for both phases"
        return (
            f"{placement.prefill} × {_layout(placement.deployment)} for prompts and {placement.decode} × "
            f"{_layout(placement.decoder)} for answers"
        )

    @property
    def finding(self) -> str:
        """Return the service in sentences."""
        demand, waits = self.demand, latencies(self.served)
        limits = f"TTFT {demand.ttft_s:g} s and TPOT {1000 * demand.tpot_s:g} ms"
        kept = "keep" if self.keeps else "do not keep"
        return (
            f"{demand.rate:g} requests/s of {demand.model}, prompts of {demand.prompt:,} and answers of "
            f"{demand.answer:,} tokens: {self.served.service.gpus} GPUs on {self.servers} servers ({self.replicas}) "
            f"{kept} {limits} for 99 % on this fabric; p99 {1000 * waits['ttft'].p99_s:.0f} ms and "
            f"{1000 * waits['tpot'].p99_s:.1f} ms."
        )

    @property
    def note(self) -> str:
        """Return the traffic over other networks in sentences."""
        return "Rates are those of the busiest server. Prompts and answers use the management network."

    @property
    def sizes_note(self) -> str:
        """Return what sizes of networks assume, in sentences."""
        assumed = ". ".join(f"{network.name.capitalize()}: {network.assumed}" for network in self.networks)
        return f"{assumed}. Ports are filled to {LINE_SHARE:.0%}."

    def report(self) -> dict[str, Any]:
        """Return the service as `--json` prints it."""
        return {
            **asdict(self.demand),
            "servers": self.servers,
            "gpus": self.served.service.gpus,
            "replicas": self.replicas,
            "keeps_objective": self.keeps,
            **{f"{name}_p99_s": latencies(self.served)[name].p99_s for name in ("ttft", "tpot")},
            "traffic": [asdict(flow) for flow in self.flows],
            "weights_gbyte_per_server": self.weights_gbyte,
            "networks": [asdict(network) for network in self.networks],
        }


def servers_of(placement: Placement) -> int:
    return -(-placement.gpus // placement.deployment.site.template.gpus)


def count_servers(demand: Demand, request: Request) -> int:
    """Return the servers that a demand needs, of the kind and fabric of a request."""
    return servers_of(_choose(demand, request).placement)


def _choose(demand: Demand, request: Request) -> Choice:
    interconnect = request.interconnect
    return find_service(demand, request.server, interconnect.name if interconnect else None)


@lru_cache(maxsize=8)
def find_service(demand: Demand, server: str = "dgx-h100", fabric: str | None = None) -> Choice:
    """Return the service of the fewest GPUs, with replicas of up to a server, or of several if none has room."""
    gpus = catalog.server(server).gpus
    if not gpus:
        raise ConfigError(f"{server} has no GPUs to serve a model: give another --server, or leave out --serve")

    def find(count: int | None, sizes: Mapping[str, int]) -> Deployment:
        fields: dict[str, Any] = {"weights": demand.weights, **sizes}
        return find_deployment(demand.model, fabric, gpus=count or _least(sizes, gpus), server=server, **fields)

    most = gpus
    while True:
        try:
            return over_layouts(Fleet(find=find), most, demand.load, demand.objective)[0]
        except ConfigError:
            most *= 2
            if most > _MOST_SERVERS * gpus:
                raise


def _least(sizes: Mapping[str, int], each: int) -> int:
    """Return the GPUs of one replica, in whole servers if it needs several."""
    replica = sizes.get("tp", 1) * sizes.get("pp", 1) * sizes.get("dp", 1)
    return replica if replica <= each else lcm(replica, each)


def plan_serving(demand: Demand, sized: Size, *, storage: str | None = None, management: str | None = None) -> Serving:
    """Return the smallest service on the servers of a plan, with their traffic over its fabric.

    storage, management: fabrics of the catalog, whose size for the service is part of the result.
    """
    request = sized.request
    choice = _choose(demand, request) if request else find_service(demand, template_of(sized.fabric).name)
    found, deployment = choice.found, choice.fleet.deployment
    site = site_of(sized.fabric, request.interconnect if request else None)
    needed = servers_of(choice.placement)
    if needed > site.servers:
        raise ConfigError(
            f"{demand.rate:g} requests/s of {demand.model} need {needed:,} servers, and there are {site.servers:,}: "
            f"give --servers {needed}, or no size"
        )
    prefill, decode, both = (found.prefill, found.replicas, 0) if found.prefill else (0, 0, found.replicas)
    one = replace(deployment, site=site)
    placement = place_pools(one, choice.fleet.decoding, prefill=prefill, decode=decode, both=both)
    load = demand.load
    service = choice.fleet.build(placement, placement.tables(load.mean_tokens), found.limits)
    served = serve(service, load)
    flows = _flows(demand, placement, served, _port_gbit_s(sized.fabric))
    texts = [flow for flow in flows if flow.share is None]
    weights_gbyte = max(map(_weights_gbyte, placement.pools))
    return Serving(
        demand=demand,
        placement=placement,
        served=served,
        flows=tuple(flows),
        weights_gbyte=weights_gbyte,
        networks=size_networks(
            text_gbit_s=(
                max(flow.peak_gbit_s for flow in texts),
                max(flow.peak_gbit_s / part for flow, part in zip(texts, _text_parts(placement), strict=True)),
            ),
            weights_gbyte=weights_gbyte,
            servers=needed,
            storage=storage,
            management=management,
        ),
    )


def _flows(demand: Demand, placement: Placement, served: Served, port_gbit_s: float) -> list[Flow]:
    seconds = float(served.load.arrival_s[-1])
    flows = []
    if placement.prefill:
        mean, peak = (_GIGABIT * value for value in _handed_over(placement, served))
        flows.append(Flow(name="KV hand-offs", mean_gbit_s=mean, peak_gbit_s=peak, share=peak / port_gbit_s))
    prompts, answers = demand.rate * demand.prompt, demand.rate * demand.answer
    tokens_of = [prompts + answers] if placement.both else [prompts, answers]
    replicas = [placement.both] if placement.both else [placement.prefill, placement.decode]
    steps = _GIGABIT * max(
        bytes_of_token(each) * tokens_per_s / count
        for each, tokens_per_s, count in zip(placement.pools, tokens_of, replicas, strict=True)
    )
    if steps:
        flows.append(Flow(name="exchanges of steps", mean_gbit_s=steps, peak_gbit_s=steps, share=steps / port_gbit_s))
    second = served.requests.arrival_s.astype(np.int64)
    busiest = float(np.bincount(second).max()) * seconds / len(served.load)  # over the mean
    prompts_part, answers_part = _text_parts(placement)
    for name, size_bytes, part in (
        ("prompts in", demand.prompt * PROMPT_TOKEN_BYTES, prompts_part),
        ("answers out", demand.answer * ANSWER_TOKEN_BYTES, answers_part),
    ):
        mean = _GIGABIT * size_bytes * demand.rate * part
        flows.append(Flow(name=name, mean_gbit_s=mean, peak_gbit_s=busiest * mean, share=None))
    return flows


def _text_parts(placement: Placement) -> tuple[float, float]:
    """Return the share of all prompts and of all answers that the server with the most replicas for them has."""
    each, first = placement.deployment.site.template.gpus, [gpus[0] for gpus in placement.gpus_of]
    split = placement.both or placement.prefill
    pools = (first[:split], first[split:] or first)
    prompts, answers = (np.bincount(np.array(own) // each).max() / len(own) for own in pools)
    return float(prompts), float(answers)


def _handed_over(placement: Placement, served: Served) -> tuple[float, float]:
    """Return the bytes per second of hand-offs that the busiest server sends or receives: mean, and busiest second."""
    requests, each = served.requests, placement.deployment.site.template.gpus
    sent = requests.handoff_s >= 0
    second = requests.handoff_s[sent].astype(np.int64)
    size_bytes = requests.prompt[sent] * placement.decoder.kv_bytes_per_token
    ends = [np.array(gpus) // each for gpus in placement.gpus_of]
    loads = np.zeros((2, servers_of(placement), int(second.max(initial=0)) + 1))  # out and in
    pairs = np.stack((requests.source[sent], requests.replica[sent]))
    for source, target in np.unique(pairs, axis=1).T.tolist():
        own = (pairs[0] == source) & (pairs[1] == target)
        row = np.bincount(second[own], weights=size_bytes[own], minlength=loads.shape[2])
        for ranks in placement.parts:
            for part in ranks:
                out, to = ends[source][part.source], ends[target][part.target]
                if out != to:
                    loads[0, out] += row * part.share / len(placement.parts)
                    loads[1, to] += row * part.share / len(placement.parts)
    seconds = float(served.load.arrival_s[-1])
    return float(loads.sum(axis=2).max()) / seconds, float(loads.max())


def _port_gbit_s(fabric: Fabric) -> float:
    """Return the rate of all cabled adapters of a server in one direction, that of the slowest."""
    ends = np.stack(fabric.link_nodes)
    kinds, of = fabric.nodes.kind, fabric.nodes.server
    rates: NDArray[np.float64] = np.zeros(len(fabric.servers))
    cabled = fabric.network_links & (kinds[ends] == NodeKind.HCA).any(axis=0)
    adapter = np.where(kinds[ends[0]] == NodeKind.HCA, *ends)[cabled]
    np.add.at(rates, of[adapter], fabric.link_rate_gbit_s[cabled])
    return float(rates[rates > 0].min())


def _weights_gbyte(deployment: Deployment) -> float:
    """Return the weights that a server reads: replicas in one server share them."""
    gpus = min(deployment.replica_gpus, deployment.site.template.gpus)
    return deployment.weight_bytes * gpus / 1e9


def _layout(deployment: Deployment) -> str:
    return show_layout(deployment, copies=False)
