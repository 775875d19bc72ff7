"""Traffic by name: who sends how much to whom, and when.

    traffic = permutation(fabric, size_bytes=1 << 20, seed=1)
    traffic = make("uniform", fabric, size_bytes=4096, load=0.5, duration_ps=100_000_000)

permutation   every host to another one, each receives once
incast        several hosts to one
uniform       every host at random times (Poisson) to random others, at a share of its line rate
shift         every host to the one `by` places on
bisection     two random halves, partners send to each other
all-to-all    every host to every other
rails         rail r of every server to rail r of the next
multicast     members of a group to all others in it, by the multicast tables of a subnet manager

Hosts are the adapter ports with a LID, in the order of the fabric: route it first. But for uniform, all start at 0.
Who sends to whom is `weft.routing.patterns`: what is counted there is run here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, UnknownName
from weft.fabric.forwarding import PORTS_PER_MASK
from weft.fabric.model import Fabric
from weft.ids import Lid
from weft.routing import patterns as flows
from weft.sim.traffic import PATH_SL, Operation, Traffic, Transport, find_host_port

MOST_MESSAGES = 20_000_000  # some 4 GB in the packet engine
USUAL_BYTES = 1 << 20
USUAL_SENDERS = 8


class Kind(TypedDict, total=False):
    """What every message of a pattern has in common."""

    sl: int
    operation: Operation
    transport: Transport


def permutation(fabric: Fabric, *, size_bytes: int = USUAL_BYTES, seed: int = 1, **kind: Unpack[Kind]) -> Traffic:
    """Every host sends to another one and receives from another one, at random: any such permutation is as likely."""
    hosts, rng = _hosts(fabric), _random(seed)
    here = np.arange(len(hosts))
    there = rng.permutation(here)
    while (there == here).any():  # e tries on average, whatever the number of hosts
        there = rng.permutation(here)
    return _all_at_once(hosts, np.column_stack((here, there)), size_bytes, f"permutation (seed {seed})", kind)


def incast(
    fabric: Fabric,
    *,
    size_bytes: int = USUAL_BYTES,
    receiver: str = "",
    senders: int | None = None,
    seed: int = 1,
    **kind: Unpack[Kind],
) -> Traffic:
    """Random hosts to one. Without a receiver the first host; without a number of senders 8, or all there are."""
    hosts, rng = _hosts(fabric), _random(seed)
    target = find_host_port(fabric, receiver) if receiver else int(hosts[0])
    others = hosts[hosts != target]
    count = min(USUAL_SENDERS, len(others)) if senders is None else senders
    if not 1 <= count <= len(others):
        raise ConfigError(
            f"{count} senders is not from 1 to {len(others):,}: so many hosts of {fabric.spec} are not the receiver"
        )
    chosen = np.sort(rng.permutation(len(others))[:count])
    name = fabric.port(target).name
    said = f"incast of {count} to {name} (seed {seed})"
    return Traffic.make(others[chosen], target, _checked(size_bytes), description=said, **_columns(kind))


def uniform(
    fabric: Fabric,
    *,
    size_bytes: int = 4096,
    load: float = 0.5,
    duration_ps: int = 100_000_000,
    seed: int = 1,
    **kind: Unpack[Kind],
) -> Traffic:
    """Poisson arrivals at every host, payload at `load` of its line rate, until `duration_ps`; any other receives."""
    hosts, rng = _hosts(fabric), _random(seed)
    if not 0 < load <= 1:
        raise ConfigError(f"load {load:g} is not above 0 and at most 1, the line rate of a host")
    if duration_ps < 1:
        raise ConfigError(f"a duration of {duration_ps} ps is too short: give at least one")
    if _checked(size_bytes) < 1:
        raise ConfigError("a load of empty messages has no rate: give a size of at least 1 byte")
    rate_gbit_s = fabric.link_rate_gbit_s[fabric.ports.link[hosts]]
    expected = duration_ps * load * rate_gbit_s / (size_bytes * 8_000)
    _refuse_too_many(float(expected.sum()))
    sender = np.repeat(np.arange(len(hosts)), rng.poisson(expected))
    if not len(sender):
        raise ConfigError(
            f"no message starts within {duration_ps / 1e6:g} µs at load {load:g} and {size_bytes:,} bytes: "
            f"give a longer time or smaller messages"
        )
    # Given their number, the arrivals of a Poisson process lie anywhere with the same chance.
    start_ps = rng.integers(0, duration_ps, len(sender))
    receiver = (sender + rng.integers(1, len(hosts), len(sender))) % len(hosts)
    order = np.lexsort((sender, start_ps))
    said = f"uniform, load {load:g} for {duration_ps / 1e6:g} µs (seed {seed})"
    return Traffic.make(
        hosts[sender[order]],
        hosts[receiver[order]],
        size_bytes,
        start_ps=start_ps[order],
        description=said,
        **_columns(kind),
    )


def shift(fabric: Fabric, *, size_bytes: int = USUAL_BYTES, by: int = 1, **kind: Unpack[Kind]) -> Traffic:
    """Every host to the one `by` places on; by 1 it is the ring of a collective."""
    hosts = _hosts(fabric)
    if by % len(hosts) == 0:
        raise ConfigError(f"a shift by {by} of {len(hosts):,} hosts sends everybody to itself: give another one")
    return _all_at_once(hosts, flows.shift(len(hosts), by), size_bytes, f"shift by {by}", kind)


def bisection(fabric: Fabric, *, size_bytes: int = USUAL_BYTES, seed: int = 1, **kind: Unpack[Kind]) -> Traffic:
    """Two random halves; every host and its partner in the other half send to each other."""
    hosts, rng = _hosts(fabric), _random(seed)
    return _all_at_once(hosts, flows.bisection(len(hosts), rng), size_bytes, f"bisection (seed {seed})", kind)


def all_to_all(fabric: Fabric, *, size_bytes: int = USUAL_BYTES, **kind: Unpack[Kind]) -> Traffic:
    """Every host to every other, listed from its next on: so nobody is first on everybody's list."""
    hosts = _hosts(fabric)
    _refuse_too_many(len(hosts) * (len(hosts) - 1))
    pairs = np.concatenate([flows.shift(len(hosts), by) for by in range(1, len(hosts))])
    return _all_at_once(hosts, pairs, size_bytes, "all-to-all", kind)


def rails(fabric: Fabric, *, size_bytes: int = USUAL_BYTES, **kind: Unpack[Kind]) -> Traffic:
    """Rail r of every server to rail r of the next: the rings of AI training."""
    hosts = _hosts(fabric)
    pairs = flows.rails(fabric, hosts)
    if not len(pairs):
        raise ConfigError(
            f"{fabric.spec} has no rails: that takes two servers with several adapter ports each; use shift"
        )
    return _all_at_once(hosts, pairs, size_bytes, "rails", kind)


def multicast(
    fabric: Fabric, *, size_bytes: int = USUAL_BYTES, senders: int = 1, mlid: int = 0, seed: int = 1, sl: int = PATH_SL
) -> Traffic:
    """Random members of a group to all others, as datagrams; without an MLID of the first group that there is."""
    rng, mft = _random(seed), fabric.tables.mft
    if not mft.any():
        raise ConfigError(
            f"{fabric.spec} has no multicast tables: a subnet manager writes them when hosts join a group. "
            "Run `weft up --sm`, then `weft traffic multicast`"
        )
    mlid = mlid or Lid.FIRST_MULTICAST + int(np.flatnonzero(mft.any(axis=(0, 2)))[0])
    hosts = _hosts(fabric)
    leaf = fabric.ports.peer[hosts]
    number = fabric.ports.number[leaf]
    masks = mft[fabric.tables.switch_row[fabric.ports.node[leaf]], mlid - Lid.FIRST_MULTICAST, number // PORTS_PER_MASK]
    members = hosts[masks >> number % PORTS_PER_MASK & 1 == 1]
    if not 1 <= senders <= len(members):
        raise ConfigError(f"{senders} senders is not from 1 to {len(members):,}: so many are in the group {mlid:#06x}")
    chosen = members[np.sort(rng.permutation(len(members))[:senders])]
    said = f"multicast of {senders} to {mlid:#06x}, {len(members):,} members (seed {seed})"
    kind = {"operation": Operation.SEND, "transport": Transport.UD, **_columns({"sl": sl})}
    return Traffic.make(chosen, chosen, _checked(size_bytes), mlid=mlid, description=said, **kind)


PATTERNS: dict[str, Callable[..., Traffic]] = {
    "permutation": permutation,
    "incast": incast,
    "uniform": uniform,
    "shift": shift,
    "bisection": bisection,
    "all-to-all": all_to_all,
    "rails": rails,
    "multicast": multicast,
}


def make(name: str, fabric: Fabric, **given: Any) -> Traffic:
    """A pattern by its name; a parameter that it does not have is refused."""
    if name not in PATTERNS:
        raise UnknownName("traffic pattern", name, PATTERNS)
    for parameter in given:
        if parameter not in takes(name):
            raise UnknownName(f"parameter of {name}", parameter, takes(name))
    return PATTERNS[name](fabric, **given)


def takes(name: str) -> list[str]:
    """The parameters of a pattern."""
    named = [one for one in inspect.signature(PATTERNS[name]).parameters if one not in ("fabric", "kind")]
    return named if PATTERNS[name] is multicast else [*named, *Kind.__annotations__]


def _hosts(fabric: Fabric) -> NDArray[np.int32]:
    hosts = flows.host_ports(fabric)
    if len(hosts) < 2:
        raise ConfigError(
            f"{fabric.spec} has {len(hosts)} host ports with a LID on a switch, traffic needs 2: route the fabric first"
        )
    return hosts


def _random(seed: int) -> np.random.Generator:
    if seed < 0:
        raise ConfigError(f"seed {seed} is below 0: give 0 or more")
    return np.random.default_rng(seed)


def _checked(size_bytes: int) -> int:
    if not 0 <= size_bytes <= 1 << 42:
        raise ConfigError(f"a message of {size_bytes:,} bytes is not from 0 bytes to 4 TiB")
    return size_bytes


def _refuse_too_many(messages: float) -> None:
    if messages > MOST_MESSAGES:
        raise ConfigError(
            f"that is {messages:,.0f} messages, at most {MOST_MESSAGES:,} go: "
            f"take fewer hosts, larger messages or less time"
        )


def _columns(kind: Kind) -> dict[str, Any]:
    if not -1 <= kind.get("sl", 0) <= 15:
        raise ConfigError(f"service level {kind['sl']} is not from 0 to 15")
    return dict(kind)


def _all_at_once(
    hosts: NDArray[np.int32], pairs: NDArray[Any], size_bytes: int, description: str, kind: Kind
) -> Traffic:
    """A message from each sender to its receiver, by number of host, at time 0."""
    sender, receiver = hosts[pairs[:, 0]], hosts[pairs[:, 1]]
    return Traffic.make(sender, receiver, _checked(size_bytes), description=description, **_columns(kind))
