"""Placement of ranks: they fill the hosts of a lab in order, one rank per GPU or `per_host` ranks per host.

place(hosts, 16)                    ranks 0 to 7 on dgx1, 8 to 15 on dgx2; the rank of GPU g has the adapter of its rail
place(hosts, 4, per_host=2)         two ranks on h1, two on h2; ranks of a host share its adapter
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.collectives.ranks import adapters_by_host
from weft.errors import ConfigError, SubnetError, UnknownName
from weft.fabric.model import Fabric
from weft.lab.rank_hosts import RankHost

_ACTIVE = "Active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of one rank."""

    rank: int
    local_rank: int
    host: str
    adapter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The places of all ranks, in order. `address`: the IP address of rank 0's host."""

    places: tuple[Place, ...]
    address: str

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(place.host for place in self.places))

    def on(self, host: str) -> int:
        """Return the number of ranks on a host."""
        return sum(place.host == host for place in self.places)


def place(hosts: Sequence[RankHost], n: int, *, per_host: int | None = None, chosen: Sequence[str] = ()) -> Placement:
    """Place `n` ranks on the chosen hosts, or on all: one per GPU, or `per_host` on each.

    Raise ConfigError if they do not fit, SubnetError if the port of a rank is not Active.
    """
    candidates = _choose(hosts, chosen)
    room = [per_host or len(host.adapters) for host in candidates]
    if n > sum(room):
        raise ConfigError(_too_many(candidates, n, sum(room), per_host))
    places: list[Place] = []
    for host, most in zip(candidates, room, strict=True):
        for local_rank in range(min(most, n - len(places))):
            adapter = local_rank % len(host.adapters)
            if host.states[adapter] != _ACTIVE:
                raise SubnetError(_not_up(host, adapter, len(places)))
            places.append(
                Place(rank=len(places), local_rank=local_rank, host=host.name, adapter=host.adapters[adapter])
            )
    return Placement(places=tuple(places), address=candidates[0].address)


def check(fabric: Fabric, n: int, *, per_host: int | None = None, chosen: Sequence[str] = ()) -> None:
    """Check whether all ranks fit on a fabric, before its lab is started. Raise ConfigError if not."""
    hosts = [
        RankHost(name=host, address="", adapters=tuple(map(str, nodes)), states=(_ACTIVE,) * len(nodes))
        for host, nodes in adapters_by_host(fabric).items()
    ]
    place(hosts, n, per_host=per_host, chosen=chosen)


def _choose(hosts: Sequence[RankHost], chosen: Sequence[str]) -> list[RankHost]:
    by_name = {host.name: host for host in hosts}
    for name in chosen:
        if name not in by_name:
            raise UnknownName(
                "host", name, by_name, "A job runs on the servers with GPUs; in a fabric without GPUs, on all hosts."
            )
    return [by_name[name] for name in chosen] if chosen else list(hosts)


def _too_many(hosts: Sequence[RankHost], n: int, room: int, per_host: int | None) -> str:
    each = f"{per_host} per host" if per_host else "one per GPU, or per adapter on hosts without GPUs"
    return (
        f"-n {n}: {len(hosts)} hosts have room for {room} ranks, {each}. "
        f"Use fewer ranks, a larger lab, or --per-host {-(-n // max(len(hosts), 1))}"
    )


def _not_up(host: RankHost, adapter: int, rank: int) -> str:
    state, name = host.states[adapter], host.adapters[adapter]
    why = "its cable is broken (`weft fix`)" if state == "Down" else "no subnet manager has brought it up"
    return (
        f"rank {rank} cannot run: the port of {name} on {host.name} is {state}: {why}. "
        f"Start the lab with `weft up SPEC --sm`, or run `weft exec {host.name} opensm`"
    )
