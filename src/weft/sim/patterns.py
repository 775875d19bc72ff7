"""Traffic patterns by name."""

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

MOST_MESSAGES = 20_000_000  # about 4 GB in the packet engine
USUAL_BYTES = 1 << 20
USUAL_SENDERS = 8


class MessageFields(TypedDict, total=False):
    """The fields that all messages of a pattern have in common."""

    sl: int
    operation: Operation
    transport: Transport


def permutation(
    fabric: Fabric, *, size_bytes: int = USUAL_BYTES, seed: int = 1, **kind: Unpack[MessageFields]
) -> Traffic:
    """Send from every host to another so that each receives once: a random permutation without fixed points."""
    hosts, rng = _hosts(fabric), _random(seed)
    sender = np.arange(len(hosts))
    receiver = rng.permutation(sender)
    while (receiver == sender).any():  # e tries on average, for any number of hosts
        receiver = rng.permutation(sender)
    return _all_at_once(hosts, np.column_stack((sender, receiver)), size_bytes, f"permutation (seed {seed})", kind)


def incast(
    fabric: Fabric,
    *,
    size_bytes: int = USUAL_BYTES,
    receiver: str = "",
    senders: int | None = None,
    seed: int = 1,
    **kind: Unpack[MessageFields],
) -> Traffic:
    """Send from `senders` random hosts (default 8, or all) to `receiver` (default: the first host)."""
    hosts, rng = _hosts(fabric), _random(seed)
    target = find_host_port(fabric, receiver) if receiver else int(hosts[0])
    candidates = hosts[hosts != target]
    count = min(USUAL_SENDERS, len(candidates)) if senders is None else senders
    if not 1 <= count <= len(candidates):
        raise ConfigError(f"--senders must be 1 to {len(candidates):,} (the other hosts of {fabric.spec}), got {count}")
    chosen = np.sort(rng.permutation(len(candidates))[:count])
    name = fabric.port(target).name
    description = f"incast of {count} to {name} (seed {seed})"
    return Traffic.make(candidates[chosen], target, _checked(size_bytes), description=description, **_columns(kind))


def uniform(
    fabric: Fabric,
    *,
    size_bytes: int = 4096,
    load: float = 0.5,
    duration_ps: int = 100_000_000,
    seed: int = 1,
    **kind: Unpack[MessageFields],
) -> Traffic:
    """Send from every host to random other hosts in a Poisson process, with payload at `load` of the line rate."""
    hosts = _hosts(fabric)

    def receive(sender: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        receiver: NDArray[np.int64] = (sender + rng.integers(1, len(hosts), len(sender))) % len(hosts)
        return receiver

    return _poisson(fabric, "uniform", receive, size_bytes, load, duration_ps, seed, kind)


def adversarial(
    fabric: Fabric,
    *,
    size_bytes: int = 4096,
    load: float = 0.5,
    duration_ps: int = 100_000_000,
    distance: int = 1,
    seed: int = 1,
    **kind: Unpack[MessageFields],
) -> Traffic:
    """Send from the hosts of every group of a dragonfly to random hosts `distance` groups further.

    All minimal paths of a group share the few links to one other group (Kim et al. 2008: worst-case traffic).
    """
    group = flows.groups(fabric, _hosts(fabric))
    n_groups = int(group.max()) + 1
    if distance % n_groups == 0:
        raise ConfigError(f"--distance {distance} is a multiple of the {n_groups:,} groups: each would send to itself")
    by_group, size = np.argsort(group, kind="stable"), np.bincount(group)
    first = np.cumsum(size) - size

    def receive(sender: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        to = (group[sender] + distance) % n_groups
        receiver: NDArray[np.int64] = by_group[first[to] + rng.integers(0, size[to])]
        return receiver

    name = f"adversarial, {distance} {'group' if distance == 1 else 'groups'} further"
    return _poisson(fabric, name, receive, size_bytes, load, duration_ps, seed, kind)


def tornado(
    fabric: Fabric,
    *,
    size_bytes: int = 4096,
    load: float = 0.5,
    duration_ps: int = 100_000_000,
    seed: int = 1,
    **kind: Unpack[MessageFields],
) -> Traffic:
    """Send from every host of a torus or HyperX nearly half way round each dimension, always in the same direction.

    Minimal paths use the links of one direction only (Dally and Towles, "Principles and practices of interconnection
    networks", 2004).
    """
    to = flows.tornado(fabric, _hosts(fabric))
    return _poisson(fabric, "tornado", lambda sender, _: to[sender], size_bytes, load, duration_ps, seed, kind)


def shift(
    fabric: Fabric, *, size_bytes: int = USUAL_BYTES, distance: int = 1, **kind: Unpack[MessageFields]
) -> Traffic:
    """Send from every host to the host `distance` places further; with 1, the ring of a collective."""
    hosts = _hosts(fabric)
    if distance % len(hosts) == 0:
        raise ConfigError(f"--distance {distance} is a multiple of the {len(hosts):,} hosts: each would send to itself")
    return _all_at_once(hosts, flows.shift(len(hosts), distance), size_bytes, f"shift by {distance}", kind)


def bisection(
    fabric: Fabric, *, size_bytes: int = USUAL_BYTES, seed: int = 1, **kind: Unpack[MessageFields]
) -> Traffic:
    """Split the hosts into two random halves and exchange messages between partners."""
    hosts, rng = _hosts(fabric), _random(seed)
    return _all_at_once(hosts, flows.bisection(len(hosts), rng), size_bytes, f"bisection (seed {seed})", kind)


def all_to_all(fabric: Fabric, *, size_bytes: int = USUAL_BYTES, **kind: Unpack[MessageFields]) -> Traffic:
    """Send from every host to every other, starting with the next host so that receivers differ."""
    hosts = _hosts(fabric)
    _refuse_too_many(len(hosts) * (len(hosts) - 1))
    pairs = np.concatenate([flows.shift(len(hosts), by) for by in range(1, len(hosts))])
    return _all_at_once(hosts, pairs, size_bytes, "all-to-all", kind)


def rails(fabric: Fabric, *, size_bytes: int = USUAL_BYTES, **kind: Unpack[MessageFields]) -> Traffic:
    """Send from rail r of every server to rail r of the next: the rings of AI training."""
    hosts = _hosts(fabric)
    pairs = flows.rails(fabric, hosts)
    if not len(pairs):
        raise ConfigError(
            f"{fabric.spec} has no rails: they need two servers with several adapter ports each; use the pattern shift"
        )
    return _all_at_once(hosts, pairs, size_bytes, "rails", kind)


def multicast(
    fabric: Fabric, *, size_bytes: int = USUAL_BYTES, senders: int = 1, mlid: int = 0, seed: int = 1, sl: int = PATH_SL
) -> Traffic:
    """Send datagrams from random members of a group to all other members; without an MLID, of the first group."""
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
        raise ConfigError(f"--senders must be 1 to {len(members):,} (members of group {mlid:#06x}), got {senders}")
    chosen = members[np.sort(rng.permutation(len(members))[:senders])]
    description = f"multicast of {senders} to {mlid:#06x}, {len(members):,} members (seed {seed})"
    kind = {"operation": Operation.SEND, "transport": Transport.UD, **_columns({"sl": sl})}
    return Traffic.make(chosen, chosen, _checked(size_bytes), mlid=mlid, description=description, **kind)


PATTERNS: dict[str, Callable[..., Traffic]] = {
    "permutation": permutation,
    "incast": incast,
    "uniform": uniform,
    "adversarial": adversarial,
    "tornado": tornado,
    "shift": shift,
    "bisection": bisection,
    "all-to-all": all_to_all,
    "rails": rails,
    "multicast": multicast,
}


def make(name: str, fabric: Fabric, **parameters: Any) -> Traffic:
    """Make the traffic of a pattern by its name; refuse a parameter that it does not have."""
    if name not in PATTERNS:
        raise UnknownName("traffic pattern", name, PATTERNS)
    for parameter in parameters:
        if parameter not in parameters_of(name):
            raise UnknownName(f"parameter of {name}", parameter, parameters_of(name))
    return PATTERNS[name](fabric, **parameters)


def parameters_of(name: str) -> list[str]:
    """Return the parameters of a pattern."""
    named = [
        parameter for parameter in inspect.signature(PATTERNS[name]).parameters if parameter not in ("fabric", "kind")
    ]
    return named if PATTERNS[name] is multicast else [*named, *MessageFields.__annotations__]


def _hosts(fabric: Fabric) -> NDArray[np.int32]:
    hosts = flows.host_ports(fabric)
    if len(hosts) < 2:
        raise ConfigError(
            f"{fabric.spec} has {len(hosts)} host ports with a LID; traffic needs 2. Route the fabric first"
        )
    return hosts


def _random(seed: int) -> np.random.Generator:
    if seed < 0:
        raise ConfigError(f"--seed must be 0 or more, got {seed}")
    return np.random.default_rng(seed)


def _checked(size_bytes: int) -> int:
    if not 0 <= size_bytes <= 1 << 42:
        raise ConfigError(f"--size must be 0 to 4 TiB, got {size_bytes:,} bytes")
    return size_bytes


def _refuse_too_many(messages: float) -> None:
    if messages > MOST_MESSAGES:
        raise ConfigError(
            f"{messages:,.0f} messages are too many (limit {MOST_MESSAGES:,}): "
            f"use fewer hosts, larger messages or a shorter time"
        )


def _columns(kind: MessageFields) -> dict[str, Any]:
    if not -1 <= kind.get("sl", 0) <= 15:
        raise ConfigError(f"--sl must be 0 to 15, got {kind['sl']}")
    return dict(kind)


def _all_at_once(
    hosts: NDArray[np.int32], pairs: NDArray[Any], size_bytes: int, description: str, kind: MessageFields
) -> Traffic:
    """Make one message from each sender to its receiver, all at time 0; `pairs` are indices into `hosts`."""
    sender, receiver = hosts[pairs[:, 0]], hosts[pairs[:, 1]]
    return Traffic.make(sender, receiver, _checked(size_bytes), description=description, **_columns(kind))


def _poisson(
    fabric: Fabric,
    name: str,
    receive: Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]],
    size_bytes: int,
    load: float,
    duration_ps: int,
    seed: int,
    kind: MessageFields,
) -> Traffic:
    """Make messages from every host in a Poisson process, to the receivers that `receive` returns for the senders."""
    hosts, rng = _hosts(fabric), _random(seed)
    if not 0 < load <= 1:
        raise ConfigError(f"--load must be in (0, 1], got {load:g}")
    if duration_ps < 1:
        raise ConfigError(f"the duration must be at least 1 ps, got {duration_ps}")
    if _checked(size_bytes) < 1:
        raise ConfigError(f"--size must be at least 1 byte for {name} traffic")
    rate_gbit_s = fabric.planes * fabric.link_rate_gbit_s[fabric.ports.link[hosts]]
    expected = duration_ps * load * rate_gbit_s / (size_bytes * 8_000)
    _refuse_too_many(float(expected.sum()))
    sender = np.repeat(np.arange(len(hosts)), rng.poisson(expected))
    if not len(sender):
        raise ConfigError(
            f"no message starts within {duration_ps / 1e6:g} µs at --load {load:g} and --size {size_bytes}; "
            f"give a longer --duration or a smaller --size"
        )
    # Given their number, the arrivals of a Poisson process are uniformly distributed.
    start_ps = rng.integers(0, duration_ps, len(sender))
    receiver = receive(sender, rng)
    order = np.lexsort((sender, start_ps))
    description = f"{name}, load {load:g} for {duration_ps / 1e6:g} µs (seed {seed})"
    return Traffic.make(
        hosts[sender[order]],
        hosts[receiver[order]],
        size_bytes,
        start_ps=start_ps[order],
        description=description,
        **_columns(kind),
    )
