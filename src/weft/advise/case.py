"""What is asked: so many servers, what they do all day, and what the buyer says of money, place and people."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log

from weft.errors import ConfigError, find_named
from weft.fabric import catalog
from weft.fabric.prices import Prices, read_prices

LARGEST_GPUS = 16_384  # for which flips are looked
STORAGE = ("none", "same", "ethernet")
TEAMS = ("", "infiniband", "ethernet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What servers do over and over: they compute for 1 / rate, then send messages and wait for them."""

    name: str
    about: str  # as a question shows it
    unit: str  # what is counted
    sends: str = ""  # what a message is
    message_bytes: int = 0
    rate_per_s: float = 0.0  # of seconds in which nobody waits
    model: str = ""  # that is trained
    rdma: bool = True  # over an adapter for each GPU; else it speaks sockets, over one for a server


WORKLOADS = {
    one.name: one
    for one in (
        Workload(
            name="training",
            about="a model is trained over all GPUs",
            unit="step",
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
            about="inference, sweeps: every GPU works for itself",
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
_ALSO = {"parallel-fs": "storage", "inference": "batch", "single": "single-node"}


def find_workload(name: str) -> Workload:
    return find_named("workload", name, WORKLOADS | {other: WORKLOADS[own] for other, own in _ALSO.items()})


@dataclass(frozen=True, kw_only=True)
class Case:
    """One cluster. What is not given is the workload's own."""

    workload: str = "training"
    servers: int
    server: str = "dgx-h100"
    model: str = ""
    sequences: int = 2  # of a batch, for each GPU
    tokens: float | None = None  # of a batch, over all GPUs; it replaces `sequences`
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
            raise ConfigError(f"servers = {self.servers}: a cluster has one or more")
        if self.gpus > LARGEST_GPUS:
            raise ConfigError(f"{self.gpus:,} GPUs: advice goes up to {LARGEST_GPUS:,}, give as many or fewer")
        if work.model and not template.gpus:
            known = ", ".join(one.name for one in catalog.servers() if one.gpus)
            raise ConfigError(f"{work.name} on {template.name}, which has no GPUs: name a server with some, {known}")
        for flag, given, needs in (
            ("--model", self.model, work.model),
            ("--tokens", self.tokens, work.model),
            ("--message", self.message_bytes, work.sends),
            ("--rate", self.rate_per_s, work.sends),
        ):
            if given not in ("", None) and not needs:
                raise ConfigError(f"{flag} says nothing of {work.name}: {_takes(flag)}")
        for flag, value in (
            ("--rate", self.rate_per_s),
            ("--message", self.message_bytes),
            ("--batch", self.sequences),
            ("--tokens", self.tokens),
        ):
            if value is not None and not value > 0:
                raise ConfigError(f"{flag} {value:g} is not above 0: leave it out, or give more")
        if self.budget_usd is not None and self.cloud:
            raise ConfigError("--budget is for a fabric that is bought, and in a --cloud none is: leave out one")
        find_named("place of storage", self.storage, {one: one for one in STORAGE})
        find_named("kind of team", self.team, {one: one for one in TEAMS})
        if self.storage != "none" and work.name not in ("training", "storage"):
            raise ConfigError(f"--storage says nothing of {work.name}: it is for training and storage")
        if work.name == "storage" and self.servers < 2:
            raise ConfigError("storage of one server needs no fabric: give --servers 2 or more")

    @property
    def work(self) -> Workload:
        return find_workload(self.workload)

    @property
    def template(self) -> catalog.Server:
        return catalog.server(self.server)

    @property
    def per_server(self) -> int:
        """Ranks: GPUs, or the server itself where it has none."""
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
    def trained(self) -> str:
        """The model; unless it is given, one that fits on a single server if there is no other."""
        alone = WORKLOADS["single-node"] if self.work.model and self.servers == 1 else self.work
        return self.model or alone.model

    def batch(self, seq: int) -> int:
        """Return the sequences of a step over all GPUs, each of `seq` tokens.

        A batch in tokens is rounded to a whole number of sequences for each GPU or of GPUs for each sequence, so that
        layouts divide it.
        """
        if self.tokens is None:
            return self.sequences * self.gpus
        wanted = self.tokens / seq
        if wanted >= self.gpus:
            return round(wanted / self.gpus) * self.gpus
        divisors = [n for n in range(1, self.gpus + 1) if self.gpus % n == 0]
        return min(divisors, key=lambda n: abs(log(n / wanted)))


def _takes(flag: str) -> str:
    names = [one.name for one in WORKLOADS.values() if (one.model if flag in ("--model", "--tokens") else one.sends)]
    return f"it is for {', '.join(names)}"
