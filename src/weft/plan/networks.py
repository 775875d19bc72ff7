"""Networks beside the compute fabric: storage and management, with their switches, cables and racks.

    storage = plan_storage(plan.racks, catalog.interconnect("ndr"), servers=16, prices=prices)
    storage.racks, storage.cabling, storage.bill

Each is a fat tree of its own. Servers stay where the plan has them; storage servers and switches fill new racks in rows
behind the others. A server takes half of its storage ports to the storage network (`storage` in the template, else one
port), and one port to the management network.

Every box, switch and PDU has a port of 1 Gbit/s for its management controller, on switches of 48 ports in its row. Two
uplinks of each of those join the management network. Cards are part of the servers and not in these bills.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.prices import COPPER, MANAGEMENT_SWITCH, Prices
from weft.fabric.spec import load
from weft.fabric.topologies.registry import write_spec
from weft.plan.bill import Bill, Item, make_bill
from weft.plan.floor.boxes import find_boxes
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.racks import Racks, row_name
from weft.plan.power import find_supplies

STORAGE_U, STORAGE_PORTS = 2, 2  # a storage server's height and ports
CONTROLLERS, UPLINKS = 48, 2  # of a management switch of 1 Gbit/s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """A network beside the compute fabric."""

    name: str  # storage, management
    spec: str
    cabling: Cabling
    bill: Bill
    first_rack: int  # those from here on are new
    switch: str = ""  # the model of its switches

    @property
    def racks(self) -> Racks:
        return self.cabling.racks

    @property
    def new_racks(self) -> int:
        return len(self.racks.names) - self.first_rack

    @property
    def switches(self) -> int:
        return int((self.racks.tier > 0).sum())

    def report(self) -> dict[str, object]:
        """Return the network as `--json` prints it."""
        return {
            "name": self.name,
            "spec": self.spec,
            "switches": self.switches,
            "cables": len(self.cabling),
            "racks": self.new_racks,
            "bill": self.bill.report(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """The ports that a network joins: each in a box of the plan, or in a new one."""

    box: NDArray[np.int64]  # [port] -> box; new ones follow those of the plan
    names: list[str]  # [port]
    boxes: Sequence[str] = ()  # new
    height_u: int = 1  # the height of new boxes
    in_rows: bool = False  # new boxes stand in racks of the plan, and need no new ones


def plan_storage(racks: Racks, interconnect: catalog.Interconnect, *, servers: int, prices: Prices) -> Network:
    """Return the storage network that joins the servers of a plan with so many storage servers."""
    if servers < 1:
        raise ConfigError(
            f"--storage-fabric needs a number of storage servers, such as {interconnect.name}:16, got {servers}"
        )
    box, names = [], []
    for index in np.flatnonzero(racks.tier == 0).tolist():
        labels = _storage_ports(racks.models[index])
        box += [index] * len(labels)
        names += [f"{racks.boxes[index]}/{label}" for label in labels]
    stores = [f"storage{n}" for n in range(1, servers + 1)]
    box += np.repeat(len(racks.boxes) + np.arange(servers), STORAGE_PORTS).tolist()
    names += [f"{store}/port{n}" for store in stores for n in range(1, STORAGE_PORTS + 1)]
    ends = _Ends(box=np.array(box), names=names, boxes=stores, height_u=STORAGE_U)
    network = _join("storage", racks, interconnect, ends, prices)
    item = Item(kind="server", name="storage server", count=servers)
    return replace(network, bill=replace(network.bill, servers=(item,)))


def plan_compute(racks: Racks, interconnect: catalog.Interconnect, *, storage_servers: int, prices: Prices) -> Network:
    """Return one fat tree that joins the compute ports of a plan's servers, and so many storage servers."""
    box, names = [], []
    for index in np.flatnonzero(racks.tier == 0).tolist():
        ports = catalog.server(racks.models[index]).compute
        box += [index] * len(ports)
        names += [f"{racks.boxes[index]}/{port}" for port in ports]
    stores = [f"storage{n}" for n in range(1, storage_servers + 1)]
    box += np.repeat(len(racks.boxes) + np.arange(storage_servers), STORAGE_PORTS).tolist()
    names += [f"{store}/port{n}" for store in stores for n in range(1, STORAGE_PORTS + 1)]
    ends = _Ends(box=np.array(box), names=names, boxes=stores, height_u=STORAGE_U)
    return _join("compute", racks, interconnect, ends, prices)


def _storage_ports(model: str) -> list[str]:
    """Return the ports of a server that lead to the storage network: half of those for storage and management."""
    if not model or not catalog.is_server(model) or not (ports := catalog.server(model).storage):
        return ["storage"]
    return list(ports[: -(-len(ports) // 2)])


def plan_management(
    racks: Racks, interconnect: catalog.Interconnect, *, others: Sequence[Network] = (), prices: Prices
) -> Network:
    """Return the management network of a plan and of its other networks."""
    plan_boxes = len(racks.boxes)
    behind = [network.racks for network in others]
    servers = np.flatnonzero(racks.tier == 0)
    devices = _count_devices(racks)
    for other, network in zip(behind, others, strict=True):
        devices += _count_devices(other, first_rack=network.first_rack, first_box=plan_boxes)
    all_racks = behind[-1] if behind else racks
    n_switches, own = 0, 0
    while True:  # switches of the network itself have controllers too
        rows = [*devices, own]
        wanted = sum(-(-count // CONTROLLERS) for count in rows)
        if wanted == n_switches:
            break
        n_switches = wanted
        names = [f"oob{n}" for n in range(1, n_switches + 1)]
        box = [*servers.tolist(), *np.repeat(plan_boxes + np.arange(n_switches), UPLINKS).tolist()]
        ports = [f"{racks.boxes[index]}/management" for index in servers.tolist()]
        ports += [f"{name}/uplink{n}" for name in names for n in range(1, UPLINKS + 1)]
        ends = _Ends(box=np.array(box), names=ports, boxes=names, in_rows=True)
        network = _join("management", racks, interconnect, ends, prices, behind=all_racks)
        own = network.switches
    controllers = sum(devices) + own
    items = (
        Item(kind="switch", name=MANAGEMENT_SWITCH, count=n_switches, price=prices.named(MANAGEMENT_SWITCH)),
        Item(kind="cable", name=COPPER, count=controllers, price=prices.named(COPPER)),
    )
    return replace(network, bill=replace(network.bill, items=(*network.bill.items, *items)))


def _count_devices(racks: Racks, *, first_rack: int = 0, first_box: int = 0) -> list[int]:
    """Return the controllers in each row: of boxes, of the trays of a rack that is one server, and of PDUs."""
    rows: dict[int, int] = {}
    for index in range(first_box, len(racks.boxes)):
        row, model = int(racks.row[racks.rack[index]]), racks.models[index]
        if racks.rack[index] >= first_rack:
            trays = catalog.server(model).trays if racks.is_rack[index] else 1
            rows[row] = rows.get(row, 0) + trays
    for supply in find_supplies(racks)[first_rack:]:
        rows[supply.row] = rows.get(supply.row, 0) + supply.pdus
    return list(rows.values())


def _join(
    name: str,
    racks: Racks,
    interconnect: catalog.Interconnect,
    ends: _Ends,
    prices: Prices,
    behind: Racks | None = None,
) -> Network:
    """Return a fat tree over ports, in the racks of a plan and in new ones `behind` the last."""
    host = catalog.server("host")
    card = next((card for card in catalog.adapters() if card.speed == interconnect.speed and card.ports == 1), None)
    host = host.equipped(card or host.card_for(interconnect))
    if host.rails > 1:
        raise ConfigError(f"{interconnect.name} has no adapter of one port in the catalog; give another fabric")
    options = {"hosts": len(ends.names), "server": host.name, "switch": interconnect.switch}
    spec = write_spec("fat-tree", options)
    try:
        tree = load(spec)
    except ConfigError as error:
        raise ConfigError(
            f"{name} network of {interconnect.name}: {str(error).splitlines()[0]}\n"
            f"  Give --{name}-fabric a fabric with more ports on a switch; `weft catalog` lists them."
        ) from None
    fabric = _renamed(tree, name, ends.names)
    placed = _place(racks, behind or racks, fabric, ends)
    cabling = cable(placed)
    bill = make_bill(cabling, prices)
    items = tuple(item for item in bill.items if item.kind != "adapter")
    bill = Bill(items=items, gpus=0, links=len(cabling))
    first = len((behind or racks).names)
    return Network(name=name, spec=spec, cabling=cabling, bill=bill, first_rack=first, switch=interconnect.switch)


def _renamed(fabric: Fabric, network: str, ports: Sequence[str]) -> Fabric:
    """Return the fabric with the names of ports for its adapters, and the network's name before those of switches."""
    names = [f"{network}-{name}" for name in fabric.nodes.name]
    for node, port in zip(fabric.of_kind(NodeKind.HCA).tolist(), ports, strict=True):
        names[node] = port
    return replace(fabric, nodes=replace(fabric.nodes, name=tuple(names)))


def _place(plan: Racks, behind: Racks, fabric: Fabric, ends: _Ends) -> Racks:
    """Return racks with the boxes of the plan, new boxes and the switches of a network, in this order."""
    own, hosts = find_boxes(fabric), len(fabric.servers)
    n_plan, n_new = len(plan.boxes), len(ends.boxes)
    switch = slice(hosts, len(own.names))
    box_of = np.full(len(fabric.nodes), -1, np.int32)
    box_of[fabric.of_kind(NodeKind.HCA)] = ends.box
    is_switch = own.box_of >= hosts
    box_of[is_switch] = own.box_of[is_switch] - hosts + n_plan + n_new
    height_u = np.concatenate((np.full(n_new, ends.height_u), own.height_u[switch])).astype(np.int16)
    power_w = np.concatenate((np.full(n_new, np.nan), own.power_w[switch]))
    first = n_new if ends.in_rows else 0
    room = plan.room
    gap = np.concatenate((np.zeros(n_new, int), np.full(len(own.names) - hosts, room.switch_gap_u)))
    stack, u = _fill(height_u[first:], gap[first:], power_w[first:], room.rack_u, room.filled_w)
    row, column = _rows_behind(behind, int(stack.max(initial=-1)) + 1)
    names = [f"{row_name(r)}{c + 1:02d}" for r, c in zip(row.tolist(), column.tolist(), strict=True)]
    in_rows = _amid_rows(plan, first)
    return Racks(
        room=room,
        fabric=fabric,
        names=(*behind.names, *names),
        row=np.concatenate((behind.row, row)).astype(np.int32),
        column=np.concatenate((behind.column, column)).astype(np.int32),
        boxes=(*plan.boxes, *ends.boxes, *own.names[switch]),
        models=(*plan.models, *[""] * n_new, *own.models[switch]),
        tier=np.concatenate((np.zeros(n_plan + n_new, np.int16), own.tier[switch])).astype(np.int16),
        box_of=box_of,
        rack=np.concatenate((plan.rack, in_rows, stack + len(behind.names))).astype(np.int32),
        u=np.concatenate((plan.u, np.full(first, room.rack_u), u)).astype(np.int16),
        height_u=np.concatenate((plan.height_u, height_u)).astype(np.int16),
        power_w=np.concatenate((plan.power_w, power_w)),
        is_rack=np.concatenate((plan.is_rack, np.zeros(len(height_u), bool))),
        assumed=own.assumed,
    )


def _amid_rows(racks: Racks, count: int) -> NDArray[np.int64]:
    """Return the rack of each of so many boxes that are spread over the rows: the middle one of its row."""
    rows = np.unique(racks.row)
    middle = [int(np.flatnonzero(racks.row == row)[np.sum(racks.row == row) // 2]) for row in rows]
    return np.array(middle, np.int64)[np.arange(count) * len(middle) // max(count, 1)]


def _fill(
    height_u: NDArray[np.int16], gap_u: NDArray[np.int64], power_w: NDArray[np.float64], rack_u: int, limit_w: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the new rack of each box, from 0, and its lowest unit: from the bottom, one rack after the other."""
    racks, units = [], []
    rack, free, drawn_w = 0, 1, 0.0
    for height, gap, watts in zip(height_u.tolist(), gap_u.tolist(), np.nan_to_num(power_w).tolist(), strict=True):
        if free > 1 and (free + height - 1 > rack_u or drawn_w + watts > limit_w):
            rack, free, drawn_w = rack + 1, 1, 0.0
        racks.append(rack)
        units.append(free)
        free, drawn_w = free + height + gap, drawn_w + watts
    return np.array(racks, np.int64), np.array(units, np.int64)


def _rows_behind(racks: Racks, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column of new racks: in rows behind the last, as long as the longest."""
    width = int(racks.column.max()) + 1 if racks.row.max() else racks.room.row_for(len(racks.names))
    row, column = np.divmod(np.arange(count), width)
    return row + int(racks.row.max()) + 1, column
