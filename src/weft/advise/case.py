"""The case to advise on: the number of servers, their workload, and the buyer's budget, location and team."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log

from weft.errors import ConfigError, find_named
from weft.fabric import catalog
from weft.fabric.prices import Prices, read_prices

LARGEST_GPUS = 16_384
STORAGE = ("none", "same", "ethernet")
TEAMS = ("", "infiniband", "ethernet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload that repeats: compute for 1 / rate, then send messages and wait for them."""

    name: str
    about: str  # the description in the list of workloads
    unit: str  # the name of a unit of work
    sends: str = ""  # the kind of message
    message_bytes: int = 0
    rate_per_s: float = 0.0  # units per second of computing, waiting not included
    model: str = ""  # the model to train or to serve
    rdma: bool = True  # with an adapter for each GPU; otherwise sockets over one adapter for each server

    @property
    def trains(self) -> bool:
        return bool(self.model) and self.name != "inference"


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="training",
            about="a model is trained over all GPUs",
            unit="step",
            model="llama3-70b",
        ),
        Workload(
            name="inference",
            about="a model is served: users wait for its answers",
            unit="million tokens",
            model="llama3-70b",
        ),
        Workload(
            name="mpi",
            about="a simulation whose processes exchange small messages all the time",
            unit="iteration",
            sends="an all-reduce between all servers",
            message_bytes=8,
            rate_per_s=5_000,
        ),
        Workload(
            name="storage",
            about="jobs that wait for a parallel file system: Lustre, GPFS, BeeGFS",
            unit="read",
            sends="a read by every GPU",
            message_bytes=128 << 20,
            rate_per_s=1,
        ),
        Workload(
            name="batch",
            about="sweeps, small models: every GPU works for itself",
            unit="answer",
            sends="a question and its answer",
            message_bytes=4 << 10,
            rate_per_s=1,
            rdma=False,
        ),
        Workload(
            name="single-node",
            about="a job never leaves its server",
            unit="step",
            model="llama3-8b",
            rdma=False,
        ),
        Workload(
            name="web",
            about="web services, databases, Kubernetes",
            unit="request",
            sends="a call of another server and its answer",
            message_bytes=4 << 10,
            rate_per_s=1_000,
            rdma=False,
        ),
    )
}
_ALSO = {"parallel-fs": "storage", "serving": "inference", "single": "single-node"}


def find_workload(name: str) -> Workload:
    return find_named("workload", name, WORKLOADS | {other: WORKLOADS[own] for other, own in _ALSO.items()})


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cluster and its workload. Omitted values are the defaults of the workload."""

    workload: str = "training"
    servers: int
    server: str = "dgx-h100"
    model: str = ""
    sequences: int = 2  # batch size of each GPU
    tokens: float | None = None  # batch size over all GPUs; replaces `sequences`
    weights: str = "bf16"  # format of a served model
    prompt_tokens: int = 1024  # each request to a served model
    answer_tokens: int = 256
    tpot_s: float = 0.05  # the longest time per output token of a served model
    message_bytes: int | None = None
    rate_per_s: float | None = None
    storage: str = "none"
    budget_usd: float | None = None
    cloud: bool = False
    team: str = ""
    prices: Prices = field(default_factory=read_prices)
    seed: int = 1

    def __post_init__(self) -> None:
        work, template = self.work, self.template
        if self.servers < 1:
            raise ConfigError(f"--servers must be 1 or more, got {self.servers}")
        if self.gpus > LARGEST_GPUS:
            raise ConfigError(f"{self.gpus:,} GPUs are too many; give at most {LARGEST_GPUS:,}")
        if work.model and not template.gpus:
            names = ", ".join(server.name for server in catalog.servers() if server.gpus)
            raise ConfigError(f"{work.name} needs GPUs; {template.name} has none, give --server with one of {names}")
        for flag, setting, needs in (
            ("--model", self.model, work.model),
            ("--batch-tokens", self.tokens, work.trains),
            ("--size", self.message_bytes, work.sends),
            ("--message-rate", self.rate_per_s, work.sends),
        ):
            if setting not in ("", None) and not needs:
                raise ConfigError(f"{flag} has no effect on {work.name}; it is for {_workloads_with(flag)}")
        for flag, value in (
            ("--message-rate", self.rate_per_s),
            ("--size", self.message_bytes),
            ("--batch", self.sequences),
            ("--input-len", self.prompt_tokens),
            ("--output-len", self.answer_tokens),
            ("--slo-tpot", self.tpot_s),
            ("--batch-tokens", self.tokens),
        ):
            if value is not None and not value > 0:
                raise ConfigError(f"{flag} must be above 0, got {value:g}")
        if self.budget_usd is not None and self.cloud:
            raise ConfigError("--budget is for a fabric that is bought, and --cloud rents it; leave out one of them")
        find_named("place of storage", self.storage, {name: name for name in STORAGE})
        find_named("kind of team", self.team, {name: name for name in TEAMS})
        if self.storage != "none" and work.name not in ("training", "storage"):
            raise ConfigError(f"--storage-network has no effect on {work.name}; it is for training and storage")
        if work.name == "storage" and self.servers < 2:
            raise ConfigError("the storage workload needs a fabric; give --servers 2 or more")

    @property
    def work(self) -> Workload:
        return find_workload(self.workload)

    @property
    def template(self) -> catalog.Server:
        return catalog.server(self.server)

    @property
    def per_server(self) -> int:
        """The ranks of a server: its GPUs, or 1 for a server without GPUs."""
        return self.template.gpus or 1

    @property
    def gpus(self) -> int:
        return self.servers * self.per_server

    @property
    def bytes_sent(self) -> int:
        return self.work.message_bytes if self.message_bytes is None else self.message_bytes

    @property
    def rate(self) -> float:
        return self.work.rate_per_s if self.rate_per_s is None else self.rate_per_s

    @property
    def chosen_model(self) -> str:
        """The model to train or to serve; to train by default one that fits if there is only one server."""
        default = WORKLOADS["single-node"] if self.work.trains and self.servers == 1 else self.work
        return self.model or default.model

    def batch(self, seq: int) -> int:
        """Return the sequences of a step over all GPUs, each of `seq` tokens.

        A batch in tokens is rounded to a whole number of sequences for each GPU or of GPUs for each sequence, so that
        layouts divide it.
        """
        if self.tokens is None:
            return self.sequences * self.gpus
        sequences = self.tokens / seq
        if sequences >= self.gpus:
            return round(sequences / self.gpus) * self.gpus
        divisors = [n for n in range(1, self.gpus + 1) if self.gpus % n == 0]
        return min(divisors, key=lambda n: abs(log(n / sequences)))


def _workloads_with(flag: str) -> str:
    takes = {"--model": "model", "--batch-tokens": "trains"}.get(flag, "sends")
    return ", ".join(work.name for work in WORKLOADS.values() if getattr(work, takes))
