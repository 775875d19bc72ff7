r"""SuperPOD: scalable units of servers, rail-optimised (NVIDIA DGX SuperPOD reference architectures).

    spine1     spine2   ...              every leaf plugs into every spine
      |   \   /   |
      |   /   \   |
    leaf1      leaf2    ...    leaf8     one leaf for each rail; unit 2 has leaf9 to leaf16, and so on
      |          |               |
    rail 1     rail 2   ...    rail 8    server i of a unit is in port i of all its leaves

A unit has as many servers as half the ports of a leaf: 32 on QM9700 (DGX H100, B200), 20 on QM8700 (DGX A100). The
other half are uplinks, all of them cabled even where servers are missing. So the number of spines is a divisor of
that half: 1, 2, 3, 4, 8 units of 32 have 4, 8, 16, 16, 32. Where spines reach no further, each rail gets a group of
spines of its own (more than one, if it has more leaves than half the ports of a spine), and cores join the rails.

For few servers `leaves=4` lets two rails share a leaf, in adjacent ports, and halves the unit; a unit of one leaf needs
no spines, and all its ports are for servers. `fit_superpod` chooses. UFM's hosts, two adapters each, take the last
place of the first unit, one leaf for each cable: it is where they stay when units are added. With oversubscription a
leaf has as many servers and fewer uplinks.

A rack that is one NVLink domain (gb200-nvl72) is a server of 18 trays: each has a place, as a server has elsewhere, and
a leaf for each of its four rails. Places are filled tray after tray, so a rack may lie in two units.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Unpack

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers
from weft.fabric.topologies.builder import Builder, ServerName, Switching, number
from weft.fabric.topologies.fat_tree import add_spines, add_spines_and_cores, choose_above, fewest_above
from weft.fabric.topologies.registry import topology


@topology("superpod", example="superpod:su=2,server=dgx-a100")
def superpod(
    su: Annotated[int, "scalable units"],
    *,
    server: ServerName = "dgx-h100",
    servers: Annotated[int | None, "servers in all, if the last unit is not full"] = None,
    leaves: Annotated[int | None, "leaves of a unit; else one for each rail; with fewer, rails share leaves"] = None,
    ufm: Annotated[int | None, "hosts of UFM, two cables each, in the place of a server"] = None,
    oversubscription: Annotated[float, "servers of a unit for each uplink of a leaf"] = 1.0,
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect scalable units of servers, with one leaf per rail, without oversubscription."""
    builder = Builder("superpod", server=server, **switching)
    trays, rails, each = builder.template.trays, _rails_of_place(builder), _leaves_of_unit(builder, leaves)
    down = builder.radix if su * each == 1 else builder.radix // 2
    shared = rails // each  # per leaf
    per_unit = down // shared
    _check_units(builder, su, each, per_unit)
    n_ufm_places = places_of_ufm(ufm or 0, rails)
    servers = _check_servers(su, per_unit, n_ufm_places, servers, trays)

    groups = builder.add_groups(number("su", su))
    spot = np.arange(servers * trays)
    spot[spot >= per_unit - n_ufm_places] += n_ufm_places  # the last places of the first unit are UFM's
    unit, place = np.divmod(spot, per_unit)
    leaf, turn = np.divmod(np.arange(rails), shared)
    adapters = builder.add_hosts(servers, group=groups[unit[::trays]]).reshape(-1, rails)
    switches = builder.add_switches(number("leaf", su * each), group=np.repeat(groups, each)).reshape(su, each)
    builder.plug_hosts(adapters, switches[unit][:, leaf], place[:, None] * shared + turn + 1)
    _plug_ufm(builder, switches[0], ufm or 0, (per_unit - n_ufm_places) * shared + 1, int(groups[0]))
    if switches.size > 1:
        _join(builder, switches, oversubscription)
    return builder.build()


def fit_superpod(
    servers: int,
    *,
    rails: int,
    radix: int,
    trays: int = 1,
    leaves: int | None = None,
    ufm: int | None = None,
) -> dict[str, int | None]:
    """Return the units for so many servers, and for a single unit the leaves that need the fewest switches.

    `rails` are those of a whole server, which has so many trays.
    """
    down, rails = radix // 2, rails // trays
    n_ufm_places = places_of_ufm(ufm or 0, rails)
    places = servers * trays + n_ufm_places
    if leaves is None and rails > 1:
        few = [each for each in range(1, rails) if rails % each == 0]
        leaves = next((each for each in few if places <= (down if each > 1 else radix) // (rails // each)), None)
    each = leaves or rails
    per_unit = (radix if each == 1 and places * rails <= radix else down) // (rails // each)
    units = -(-places // per_unit)
    full = (units * per_unit - n_ufm_places) // trays == servers
    return {"su": units, "servers": None if full else servers, "leaves": leaves if leaves != rails else None}


def most_in_superpod(*, rails: int, radix: int, trays: int = 1, ufm: int | None = None) -> int:
    """Return the maximum of servers."""
    rails //= trays
    return (_most_units(radix, rails) * (radix // 2) - places_of_ufm(ufm or 0, rails)) // trays


def _join(builder: Builder, leaves: NDArray[np.int32], oversubscription: float) -> None:
    """Add spines over leaves [unit, leaf], or spines and cores.

    The uplinks are as many as the ratio needs, or the larger number that needs the fewest spines.
    """
    units, each = leaves.shape
    half, up = builder.radix // 2, _uplinks(units, each, builder.radix, oversubscription)
    if leaves.size <= builder.radix:
        add_spines(builder, leaves.ravel(), half + 1, up)
        return
    pods = [pod for rail in leaves.T for pod in np.array_split(rail, -(-len(leaves) // half))]
    add_spines_and_cores(builder, pods, half + 1, up, mixed=True)


def _uplinks(units: int, each: int, radix: int, oversubscription: float) -> int:
    """Return the uplinks of a leaf, where `units` have `each` leaves."""
    half = radix // 2
    least = math.ceil(half / Fraction(oversubscription).limit_denominator(1000))
    n_leaves, reach = (units * each, radix) if units * each <= radix else (-(-units // -(-units // half)), half)
    return min((fewest_above(n_leaves, n, reach), n) for n in range(least, half + 1))[1]


def count_switches(
    servers: int, *, rails: int, radix: int, trays: int = 1, ufm: int | None = None, oversubscription: float = 1.0
) -> int:
    """Return how many switches a SuperPOD of so many servers has, without building it."""
    fit = fit_superpod(servers, rails=rails, radix=radix, trays=trays, ufm=ufm)
    return _count(fit["su"] or 0, fit["leaves"] or rails // trays, radix, oversubscription)


@lru_cache(maxsize=1024)
def _count(units: int, each: int, radix: int, oversubscription: float) -> int:
    """Return the switches of so many units with `each` leaves."""
    leaves = units * each
    if leaves == 1:
        return 1
    up = _uplinks(units, each, radix, oversubscription)
    if leaves <= radix:
        return leaves + fewest_above(leaves, up, radix)
    blocks = -(-units // (radix // 2))
    n_spines, n_groups, n_cores, _ = choose_above(each * blocks, -(-units // blocks), up, radix, mixed=True)
    return leaves + each * blocks * n_spines + n_groups * n_cores


def _rails_of_place(builder: Builder) -> int:
    return builder.rails // builder.template.trays


def _leaves_of_unit(builder: Builder, leaves: int | None) -> int:
    rails = _rails_of_place(builder)
    if leaves is None:
        return rails
    if rails % leaves:
        able = ", ".join(str(each) for each in range(1, rails + 1) if rails % each == 0)
        raise ConfigError(f"superpod: leaves={leaves} do not divide {rails} rails evenly: give one of {able}")
    return leaves


def _check_units(builder: Builder, su: int, each: int, per_unit: int) -> None:
    rails = _rails_of_place(builder)
    if per_unit < 1:
        raise ConfigError(
            f"superpod: a leaf of {builder.radix} ports has too few ports for {rails // each} rails of a server: "
            "give more leaves, or a larger switch"
        )
    most = _most_units(builder.radix, each)
    if su > most:
        raise ConfigError(
            f"superpod: su={su} is too many: {rails} rails and cores of {builder.radix} ports allow {most} units"
        )
    builder.check_size(su * each, su * per_unit)


def _most_units(radix: int, leaves: int) -> int:
    """Return the most units that cores can join: a pod has a leaf of each of up to half a spine's ports of units."""
    return radix // 2 * (radix // leaves)


def places_of_ufm(ufm: int, rails: int) -> int:
    """Return the server places, of so many rails each, that UFM's hosts take."""
    return -(-ufm * len(catalog.server("ufm").compute) // rails)


def _check_servers(su: int, per_unit: int, n_ufm_places: int, servers: int | None, trays: int) -> int:
    fewest, most = max(((su - 1) * per_unit - n_ufm_places) // trays + 1, 1), (su * per_unit - n_ufm_places) // trays
    if n_ufm_places >= per_unit:
        raise ConfigError(f"superpod: UFM's hosts need {n_ufm_places} of {per_unit} places: give a larger switch")
    if most < 1:
        raise ConfigError(
            f"superpod: su={su} has {su * per_unit - n_ufm_places} places, and a rack of {trays} trays needs {trays}: "
            "give more units, or a larger switch"
        )
    if servers is None:
        return most
    if not fewest <= servers <= most:
        ufm = f" with {n_ufm_places} for UFM" if n_ufm_places else ""
        each = f" trays each, {trays} for a server" if trays > 1 else " each"
        raise ConfigError(
            f"superpod: servers={servers} do not fill su={su}: units hold {per_unit}{each}{ufm}, and only the last may "
            f"have fewer, so {fewest} to {most}"
        )
    return servers


def _plug_ufm(builder: Builder, leaves: NDArray[np.int32], hosts: int, first_port: int, group: int) -> None:
    """Cable UFM's hosts: each cable to the next leaf of the unit, then to the next port of each leaf."""
    if not hosts:
        return
    kind = catalog.server("ufm").equipped(builder.template.adapter)
    adapters = add_servers(builder, kind.name, number("ufm", hosts), group=group).compute.ravel()
    turn, leaf = np.divmod(np.arange(len(adapters)), len(leaves))
    builder.plug_hosts(adapters, leaves[leaf], first_port + turn)
