"""Requests to the subnet administrator that a host's port knows, repeated while it is busy.

rows = ask_paths(carrier, sgid)                 all paths from a port
rows = ask_paths(carrier, sgid, dgid)           those to another port
HostPaths.of(...) of `known(slot, rows)`        for the engines of `sim`
member = join_group(carrier, gid, p_key)        and the group that it created, with the MGID for others to join
"""

from __future__ import annotations

import time
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from weft.errors import SubnetError
from weft.fabric.rates import Technology, speeds
from weft.fabric.tables import HostPaths
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get
from weft.wire.bulk import column
from weft.wire.mad import Method, Status
from weft.wire.port_info import LANES, PortInfo
from weft.wire.sa import SA_HEADER_BYTES, JoinState, MCMemberRecord, PathRecord, Rate, SaAttribute, SaMad, SaStatus
from weft.wire.sa_query import component_mask
from weft.wire.smp import DirectedSmp, SmpAttribute

_TIMEOUT_MS, _RETRIES = 2000, 3
_WAIT_S = 0.05
_BUSY_S = 120.0  # a manager that sweeps on a starved machine


class NoAnswer(SubnetError):
    """The subnet administrator did not answer."""


def administrator(carrier: Carrier) -> Address:
    """Return the address of the subnet administrator; LID 0 if no manager has configured our port."""
    answer = ask(carrier, directed_get(b"", SmpAttribute.PORT_INFO), timeout_ms=_TIMEOUT_MS, retries=_RETRIES)
    if answer is None:
        raise SubnetError("our own port does not answer: is it up?")
    return Address(PortInfo.unpack(DirectedSmp.unpack(answer).data).master_sm_lid)


def ask_administrator(carrier: Carrier, request: bytes) -> bytes:
    """Send a request to the subnet administrator and return its answer, which may be a refusal.

    A manager that is not master also answers BUSY, so the address is read from our port again at each try.
    """
    until_s = time.monotonic() + _BUSY_S
    while True:
        sm = administrator(carrier)
        answer = ask(carrier, request, sm, timeout_ms=_TIMEOUT_MS, retries=_RETRIES)
        if answer is None:
            raise NoAnswer(f"no answer from the subnet administrator at LID {sm.lid}: is it running, and within reach?")
        if SaMad.status.get(answer) != Status.BUSY or time.monotonic() > until_s:
            return answer
        time.sleep(_WAIT_S)


Rows = NDArray[np.uint8]  # [path, byte]: PathRecords as MADs carry them
GROUP_Q_KEY = 0x0B1B  # for groups created here, as for IPoIB's


def ask_paths(carrier: Carrier, sgid: int, dgid: int | None = None) -> Rows:
    """Return the path records from a port, as the subnet administrator answers."""
    return path_rows(ask_administrator(carrier, path_request(sgid, dgid)))


def join_group(carrier: Carrier, gid: int, p_key: int, mgid: int = 0) -> MCMemberRecord | None:
    """Join a multicast group as a full member; without an MGID, create one. Return None if it is not permitted."""
    fields = {"mgid": mgid, "port_gid": gid, "join_state": JoinState.FULL_MEMBER}
    if not mgid:
        fields |= {"q_key": GROUP_Q_KEY, "p_key": p_key, "t_class": 0, "sl": 0, "flow_label": 0}
    answer = ask_administrator(carrier, _member_request(Method.SET, fields))
    return None if SaMad.status.get(answer) else MCMemberRecord.unpack(SaMad.unpack(answer).data)


def leave_group(carrier: Carrier, gid: int, mgid: int) -> None:
    fields = {"mgid": mgid, "port_gid": gid, "join_state": JoinState.FULL_MEMBER}
    ask_administrator(carrier, _member_request(Method.DELETE, fields))


def _member_request(method: Method, fields: dict[str, int]) -> bytes:
    mask, record = component_mask(MCMemberRecord, *fields), MCMemberRecord(**fields)
    return SaMad.pack(method=method, attribute_id=SaAttribute.MC_MEMBER_RECORD, component_mask=mask, data=record.raw)


def path_request(sgid: int, dgid: int | None = None) -> bytes:
    """Return the request for all paths from a port, or for the path to another port."""
    fields = {"sgid": sgid, "numb_path": 1} | ({} if dgid is None else {"dgid": dgid})
    return SaMad.pack(
        method=Method.GET_TABLE if dgid is None else Method.GET,
        attribute_id=SaAttribute.PATH_RECORD,
        component_mask=component_mask(PathRecord, *fields),
        data=PathRecord(**fields).raw,
    )


def path_rows(answer: bytes) -> Rows:
    """Return the path records of an answer; no rows if it has none."""
    status = SaMad.status.get(answer)
    if status in (SaStatus.NO_RECORDS, SaStatus.INVALID_GID):
        return np.zeros((0, PathRecord.size), np.uint8)
    if status:
        raise SubnetError(f"the subnet administrator refuses to tell paths: status 0x{status:04x}")
    data = np.frombuffer(answer, np.uint8)[SA_HEADER_BYTES:]
    count = len(data) // PathRecord.size if SaMad.method.get(answer) == Method.GET_TABLE_RESP else 1
    return data[: count * PathRecord.size].reshape(-1, PathRecord.size)


def known(slot: NDArray[np.integer], rows: Rows, addresses: NDArray[np.int64] | None = None) -> HostPaths:
    """Return the paths of records, each of which was sent to the port at its slot.

    `addresses` replace the DLIDs: `fabric.joined_subnets`.
    """
    fields = (PathRecord.dlid, PathRecord.sl, PathRecord.p_key, PathRecord.mtu, PathRecord.rate)
    dlid, sl, p_key, mtu, rate = (column(rows, field).astype(np.int64) for field in fields)
    return HostPaths.of(slot, dlid if addresses is None else addresses, sl, p_key, 128 << mtu, data_gbit_s()[rate])


@cache
def data_gbit_s() -> NDArray[np.float64]:
    """Return [rate code of a record] -> data rate; the faster of two that share a code (4xQDR, 4xFDR10)."""
    rates = np.zeros(64)
    for speed, lanes in product(speeds(), LANES.values()):
        if speed.technology is Technology.INFINIBAND:
            code = Rate.of_signal(speed.lane_signal_gbit_s * lanes)
            rates[code] = max(rates[code], speed.lane_gbit_s * lanes)
    return np.where(rates > 0, rates, np.inf)  # an unknown rate limits nothing
