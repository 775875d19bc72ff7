"""Compute the path of a MAD hop by hop: directed, by LID, and both.

    directed    path[1], path[2], ... are the ports by which each hop leaves; links must be up, LIDs are not needed
    by LID      each switch looks into its forwarding table; ports must be Active, for SMPs it is enough that they are
                up
    combined    by LID to the start of the path, along the path, by LID to the end; DrSLID is the LID of the
                requester, DrDLID of the responder, 0xFFFF for a missing part

Only switches forward a MAD. Computed paths are cached until links or tables change, because a subnet manager sends to
the same nodes again. Packets are counted at both ends of a link, and a bad cable loses some.
(InfiniBand Architecture volume 1, "Directed Route SMPs".)
"""

from __future__ import annotations

from weft.fabric import forwarding
from weft.fabric.counters import Counter
from weft.fabric.forwarding import ANY, COUNTED, DOWN, STATE, Reason
from weft.mad.devices import MAD_BITS, MAD_WORDS, NONE, Devices, MadPath
from weft.wire.notice import Trap
from weft.wire.port_info import PortInfo
from weft.wire.smp import HOPS_MAX, PERMISSIVE_LID

MOST_PATHS = 200_000  # kept at a time; 100 MB
RETURN_PATH = 192  # its offset in a directed SMP
_INITIAL_PATH = 128


# -- find -------------------------------------------------------------------------------------------------------------


def directed_path(devices: Devices, slot: int, initial_path: bytes) -> MadPath | None:
    """Return the directed path from a node along ports; None if it is broken. An empty path ends where it starts."""
    cached = devices.directed_paths.get((slot, initial_path))
    if cached is not None:
        return cached
    if len(initial_path) >= HOPS_MAX:
        return None
    at, out, first, port_info, cable = slot, [], devices.first, devices.port_info, devices.cable
    node = devices.node_of[at]
    entered, last_port = [at - first[node]], devices.last_port[node]
    for port in initial_path:
        if not 0 < port <= last_port:
            return None
        leaves = first[node] + port
        info, at = port_info[leaves], cable[leaves]
        if (
            at == NONE or info is None or info[STATE] & 0x0F <= DOWN
        ):  # not by a call of `peer`: paths are looked up often
            count_drop(devices, leaves, Reason.INACTIVE)
            return None
        out.append(leaves)
        node = devices.node_of[at]
        entered.append(at - first[node])
        last_port = devices.last_port[node] if devices.is_switch[node] else 0  # adapters pass nothing on
    if len(devices.directed_paths) >= MOST_PATHS:
        devices.forget_paths()
    cached = devices.directed_paths[slot, initial_path] = MadPath(at, tuple(out), bytes(entered))
    return cached


def lid_path(devices: Devices, slot: int, dlid: int, smp: bool) -> MadPath | None:
    """Return the path from a port to a LID; None if there is none, which the port that drops the MAD counts."""
    cached = devices.lid_paths.get((slot, dlid, smp))
    if cached is not None:
        return cached
    walked = forwarding.walk(devices, slot, dlid=dlid, sl=0, p_key=ANY, size_bytes=4 * MAD_WORDS, smp=smp)
    if walked.reason is not Reason.ARRIVED:
        count_drop(devices, walked.end, walked.reason)
        return None
    if len(devices.lid_paths) >= MOST_PATHS:
        devices.forget_lid_paths()
    cached = devices.lid_paths[slot, dlid, smp] = MadPath(
        devices.cable[walked.out[-1]] if walked.out else walked.end, walked.out
    )
    return cached


_DETAILS = {
    Reason.INACTIVE: "port_inactive_discards",
    Reason.TOO_LONG: "port_neighbor_mtu_discards",
    Reason.NO_RELAY: "port_vl_mapping_errors",
    Reason.NO_ROUTE: "port_dlid_mapping_errors",
    Reason.TURNS_BACK: "port_looping_errors",
    Reason.LOOP: "port_sw_lifetime_limit_discards",
}


def count_drop(devices: Devices, slot: int, reason: Reason, count: int = 1) -> None:
    """Count packets that were dropped at a port."""
    if reason in COUNTED:
        devices.fabric.counters[slot, COUNTED[reason]] += count
    if reason in _DETAILS:
        devices.details[slot, _DETAILS[reason], 0] += count


# -- go ---------------------------------------------------------------------------------------------------------------


def travel(devices: Devices, path: MadPath) -> bool:
    """Send a MAD along a path; return False if a bad cable loses it."""
    if devices.erring and not devices.erring.isdisjoint(path.out):
        return _risk(devices, path.out)
    if devices.tap is not None:
        devices.tap.cross(path.out)
    if not path.listed:
        note(devices, path)
    path.there += 1
    return True


def travel_back(devices: Devices, path: MadPath) -> bool:
    """Send the answer back over the same links; return False if it is lost, or a link has gone down."""
    ends = [devices.cable[slot] for slot in reversed(path.out)]
    if any(devices.peer(end) == NONE for end in ends):
        return False
    if devices.erring and not devices.erring.isdisjoint(ends):
        return _risk(devices, tuple(ends))
    if devices.tap is not None:
        devices.tap.cross(ends)
    if not path.listed:
        note(devices, path)
    path.back += 1
    return True


def note(devices: Devices, path: MadPath) -> None:
    """Register a path whose MADs must be counted."""
    path.listed = True
    devices.travelled.append(path)


def _risk(devices: Devices, out: tuple[int, ...]) -> bool:
    """Send a MAD hop by hop over cables some of which are bad."""
    for slot in out:
        far = devices.cable[slot]
        devices.sent[slot] += 1
        devices.received[far] += 1  # damaged or not
        if devices.tap is not None:
            devices.tap.cross((slot,))
        if slot in devices.erring and not survives(devices, slot, MAD_BITS):
            return False
    return True


def survives(devices: Devices, slot: int, bits: int) -> bool:
    """Return whether a packet of so many bits passes the bad cable at this slot. The far end counts it."""
    far = devices.cable[slot]
    rate = devices.fabric.links.bit_error_rate.item(devices.link[slot])
    if devices.random.random() < 1 - (1 - rate) ** bits:
        _broken_packet(devices, far)
        return False
    if devices.physical_errors.get(far):
        devices.physical_errors[far] -= 1
    return True


def _broken_packet(devices: Devices, slot: int) -> None:
    """Count a corrupted packet at the port that received it.

    If there are more than LocalPhyErrors allows, less the good ones, the link recovers: the port counts that, and sends
    trap 129.
    """
    counters = devices.fabric.counters[slot]
    counters[Counter.SYMBOL_ERROR] += 1
    counters[Counter.PORT_RCV_ERRORS] += 1
    devices.details[slot, "port_local_physical_errors", 0] += 1
    errors = devices.physical_errors[slot] = devices.physical_errors.get(slot, 0) + 1
    if errors > PortInfo.local_phy_errors.get(devices.info(slot)):
        devices.physical_errors[slot] = 0
        counters[Counter.LOCAL_LINK_INTEGRITY_ERRORS] += 1
        counters[Counter.LINK_ERROR_RECOVERY] += 1
        devices.traps.at_port(devices, slot, Trap.LINK_INTEGRITY_THRESHOLD)


# -- combined ---------------------------------------------------------------------------------------------------------


class Trip:
    """The path of one directed SMP with parts by LID: where it came in, and how its answer returns."""

    __slots__ = ("end", "entered", "returns")

    def __init__(self, end: int, entered: bytes, returns: list[tuple[int, int] | MadPath]) -> None:
        self.end, self.entered = end, entered
        self.returns = returns  # parts: from a slot to a LID, or back along a path


def combined(devices: Devices, slot: int, smp: bytearray, dlid: int) -> Trip | None:
    """Send a directed SMP whose route begins or ends by LID; None if it is lost."""
    dr_slid, dr_dlid = smp[32] << 8 | smp[33], smp[34] << 8 | smp[35]
    at, returns = slot, list[tuple[int, int] | MadPath]()
    if dr_slid != PERMISSIVE_LID:
        at = go_by_lid(devices, slot, dlid, smp=True)
        if at == NONE:
            return None
        returns.append((at, dr_slid))
    path = directed_path(devices, at, bytes(smp[_INITIAL_PATH + 1 : _INITIAL_PATH + 1 + smp[7]]))
    if path is None or not travel(devices, path):
        return None
    returns.append(path)
    at = path.end
    if dr_dlid != PERMISSIVE_LID:
        end = go_by_lid(devices, at, dr_dlid, smp=True)
        if end == NONE:
            return None
        returns.append((end, devices.lid(at)))
        at = end
    return Trip(at, path.entered, returns)


def return_trip(devices: Devices, trip: Trip, slot: int) -> bool:
    """Return whether the answer arrives at `slot`."""
    for part in reversed(trip.returns):
        if isinstance(part, MadPath):
            if not travel_back(devices, part):
                return False
            at = slot
        else:
            at = go_by_lid(devices, *part, smp=True)
            if at == NONE:
                return False
    return at == devices.own_slot(slot) if isinstance(trip.returns[0], tuple) else True


def go_by_lid(devices: Devices, slot: int, dlid: int, *, smp: bool) -> int:
    """Send a MAD by LID; return the slot of arrival, or NONE."""
    path = lid_path(devices, slot, dlid, smp)
    return path.end if path is not None and travel(devices, path) else NONE


def go_back_directed(devices: Devices, slot: int, smp: bytearray) -> int:
    """Send a program's response along its return path; return the slot of arrival, or NONE."""
    hops = smp[7]
    if hops >= HOPS_MAX:
        return NONE
    path = directed_path(devices, slot, bytes(smp[RETURN_PATH + 1 : RETURN_PATH + 1 + hops][::-1]))
    if path is None or not travel(devices, path):
        return NONE
    dr_slid = smp[32] << 8 | smp[33]
    return path.end if dr_slid == PERMISSIVE_LID else go_by_lid(devices, path.end, dr_slid, smp=True)
