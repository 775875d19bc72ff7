"""Which rank is where: ranks fill the hosts of a lab in their order, one for each GPU, or as many as one says.

place(hosts, 16)                    dgx1 takes ranks 0 to 7, dgx2 8 to 15: the rank of GPU g has the adapter of g's rail
place(hosts, 4, per_host=2)         h1 takes two, h2 two, which share its adapter
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
    """Of one rank."""

    rank: int
    local_rank: int
    host: str
    adapter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Of all ranks, in order; `address` is that of the first one's host."""

    places: tuple[Place, ...]
    address: str

    @property
    def hosts(self) -> list[str]:
        return list(dict.fromkeys(place.host for place in self.places))

    def on(self, host: str) -> int:
        """How many."""
        return sum(place.host == host for place in self.places)


def place(hosts: Sequence[RankHost], n: int, *, per_host: int | None = None, chosen: Sequence[str] = ()) -> Placement:
    """So many ranks on the hosts chosen, or on all; `per_host` ranks on each instead of one for each GPU."""
    there = _choose(hosts, chosen)
    room = [per_host or len(host.adapters) for host in there]
    if n > sum(room):
        raise ConfigError(_too_many(there, n, sum(room), per_host))
    places: list[Place] = []
    for host, most in zip(there, room, strict=True):
        for local_rank in range(min(most, n - len(places))):
            adapter = local_rank % len(host.adapters)
            if host.states[adapter] != _ACTIVE:
                raise SubnetError(_not_up(host, adapter, len(places)))
            places.append(
                Place(rank=len(places), local_rank=local_rank, host=host.name, adapter=host.adapters[adapter])
            )
    return Placement(places=tuple(places), address=there[0].address)


def check(fabric: Fabric, n: int, *, per_host: int | None = None, chosen: Sequence[str] = ()) -> None:
    """Before there is a lab: would they all have a place if everything is up?"""
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
                "host", name, by_name, "A job runs on hosts of the lab, servers with GPUs where there are."
            )
    return [by_name[name] for name in chosen] if chosen else list(hosts)


def _too_many(hosts: Sequence[RankHost], n: int, room: int, per_host: int | None) -> str:
    each = f"{per_host} on each" if per_host else "one for each GPU, or each adapter where there are none"
    return (
        f"-n {n}: there is room for {room} ranks on {len(hosts)} hosts, {each}. "
        f"Take fewer, a larger lab, or --per-host {-(-n // max(len(hosts), 1))}"
    )


def _not_up(host: RankHost, adapter: int, rank: int) -> str:
    state, name = host.states[adapter], host.adapters[adapter]
    why = "its cable is broken (`weft fix`)" if state == "Down" else "no subnet manager has brought it up"
    return (
        f"rank {rank} cannot run: the port of {name} on {host.name} is {state}: {why}. "
        f"A lab comes up by `weft up SPEC --sm`, or `weft exec {host.name} opensm`"
    )
