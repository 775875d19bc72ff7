r"""Slim Fly: two hops between any two switches (Besta, Hoefler 2014; graphs of McKay, Miller, Širáň 1998).

    half A, q columns                 half B, q columns
    (x, y) -- (x, y + d), d in X      (m, c) -- (m, c + d), d in X'        within a column
    (x, y) ---------- y = m x + c ---------- (m, c)                        between the halves

For a prime q = 4w ± 1 there are 2q² switches with (3q ∓ 1)/2 ports to other switches: about 8/9 of the most that two
hops allow. X and X' are built from the powers of a primitive root of q. Columns x and m of the same number are one
group, which stands together: it has 2q switches. Switches count up group by group, half A first. Ports: the hosts, then
those within the column by their distance d, then those to the other half by its columns.
"""

from __future__ import annotations

from typing import Annotated, Unpack

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.topologies.builder import HALL_M, ROW_M, Builder, ServerName, Switching, number
from weft.fabric.topologies.registry import topology


@topology("slim-fly", example="slim-fly:q=5")
def slim_fly(
    q: Annotated[int, "odd prime: 2q² switches in q groups"],
    *,
    hosts: Annotated[int | None, "servers on each switch; else half as many ports as lead to switches"] = None,
    server: ServerName = "host",
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect switches so that any two are two hops apart at most."""
    if not _is_odd_prime(q):
        primes = filter(_is_odd_prime, range(2 * q + 4))
        low, high = sorted(sorted(primes, key=lambda n: abs(n - q))[:2])
        raise ConfigError(f"slim-fly: q={q} is not an odd prime: give {low} or {high}")
    builder = Builder("slim-fly", server=server, **switching)
    within = _distances(q)
    to_switches = within.shape[1] + q
    hosts = -(-to_switches // 2) // builder.rails or 1 if hosts is None else hosts
    host_ports = hosts * builder.rails
    builder.check_ports(host_ports + to_switches, f"{host_ports} for hosts, {to_switches} to switches")
    builder.check_size(2 * q * q, 2 * q * q * hosts)

    groups = builder.add_groups(number("group", q))
    names = number("sw", 2 * q * q)
    switches = builder.add_leaves(names, hosts, group=np.repeat(groups, 2 * q)).reshape(q, 2, q)  # [column, half, row]
    for half, distances in enumerate(within):
        _connect_columns(builder, switches[:, half], distances, host_ports + 1)
    _connect_halves(builder, switches, host_ports + within.shape[1] + 1)
    return builder.build()


def _connect_columns(
    builder: Builder, columns: NDArray[np.int32], distances: NDArray[np.int64], first_port: int
) -> None:
    """Connect the switches of each column whose rows differ by one of the distances, each pair once."""
    q = len(columns)
    row, place = np.ogrid[:q, : len(distances)]
    far_row = (row + distances[place]) % q
    far_place = np.searchsorted(distances, q - distances)
    once = row < far_row
    near, far = columns[:, np.broadcast_to(row, once.shape)[once]], columns[:, far_row[once]]
    ports = np.broadcast_to(place, once.shape)[once]
    builder.connect(near, first_port + ports, far, first_port + far_place[ports], ROW_M)


def _connect_halves(builder: Builder, switches: NDArray[np.int32], first_port: int) -> None:
    """Connect (x, y) of half A to (m, c) of half B where y = m x + c."""
    q = len(switches)
    x, m, c = np.ogrid[:q, :q, :q]
    near, far = switches[x, 0, (m * x + c) % q], switches[m, 1, np.broadcast_to(c, (q, q, q))]
    for in_group, length_m in ((True, ROW_M), (False, HALL_M)):
        x_of, m_of = np.nonzero((x == m)[:, :, 0] == in_group)
        builder.connect(
            near[x_of, m_of], first_port + m_of[:, None], far[x_of, m_of], first_port + x_of[:, None], length_m
        )


def _distances(q: int) -> NDArray[np.int64]:
    """Return the distances within a column of half A and of half B, in ascending order."""
    root = next(g for g in range(2, q) if len({pow(g, n, q) for n in range(q - 1)}) == q - 1)
    w = (q + 1) // 4
    if q % 4 == 1:
        powers = np.arange(0, q - 1, 2)
    else:
        powers = np.concatenate((np.arange(0, 2 * w, 2), np.arange(2 * w - 1, 4 * w - 2, 2)))
    return np.array([sorted(pow(root, int(n), q) for n in powers + shift) for shift in (0, 1)])


def _is_odd_prime(n: int) -> bool:
    return n > 2 and all(n % divisor for divisor in range(2, int(n**0.5) + 1))
