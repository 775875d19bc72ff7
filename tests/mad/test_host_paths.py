"""Path records of a host, and its behaviour without answers."""

from __future__ import annotations

import pytest

from weft.errors import SubnetError
from weft.mad.administrator import NoAnswer, ask_paths, known
from weft.wire.mad import MadHeader, Method, MgmtClass, Status
from weft.wire.port_info import PortInfo
from weft.wire.sa import PathRecord, Rate, SaAttribute, SaMad, SaStatus
from weft.wire.smp import DirectedSmp

RECORDS = [PathRecord(dlid=lid, sl=lid % 4, p_key=0x8001, mtu=4, rate=Rate.GBIT_56) for lid in (5, 6, 7)]


class Administrator:
    """A carrier to a fake administrator that gives prepared answers, from a new LID each time; None: no answer."""

    def __init__(self, *statuses: int | None) -> None:
        self.statuses, self.lid, self.asked_at = list(statuses), 0, []

    def send(self, mad, to, *, timeout_ms, retries):
        self.asks_port = MadHeader.mgmt_class.get(mad) == MgmtClass.SUBN_DIRECTED_ROUTE
        if not self.asks_port:
            assert SaMad.attribute_id.get(mad) == SaAttribute.PATH_RECORD
            self.asked_at.append(to.lid)
        return 1

    def poll(self, wait_s=0.0, *, only=None):
        if self.asks_port:
            self.lid += 1
            return [(only, DirectedSmp.pack(data=PortInfo(master_sm_lid=self.lid).raw))]
        status = self.statuses.pop(0)
        if status is None:
            return [(only, None)]
        header = SaMad.pack(method=Method.GET_TABLE_RESP, status=status)[:56]
        return [(only, header + (b"" if status else b"".join(record.raw for record in RECORDS)))]


def test_while_it_is_busy_whoever_is_the_administrator_now_is_asked_again():
    administrator = Administrator(Status.BUSY, Status.BUSY, 0)
    rows = ask_paths(administrator, sgid=1)
    assert administrator.asked_at == [1, 2, 3]
    paths = known([9, 9, 9], rows)
    assert paths.find([9, 9], [6, 8]).tolist() == [1, -1]
    assert (paths.sl.tolist(), set(paths.p_key.tolist()), set(paths.mtu_bytes.tolist())) == (
        [1, 2, 3],
        {0x8001},
        {2048},
    )
    assert paths.rate_gbit_s == pytest.approx(3 * [600 / 11])  # 4xFDR: 56.25 on the line, 64 of 66 bits are data


def test_missing_path_is_none_and_refusal_is_an_error():
    assert len(ask_paths(Administrator(SaStatus.NO_RECORDS), sgid=1)) == 0
    with pytest.raises(SubnetError, match="refuses to tell paths: status 0x0700"):
        ask_paths(Administrator(SaStatus.DENIED), sgid=1)
    with pytest.raises(NoAnswer, match="no answer from the subnet administrator at LID 1"):
        ask_paths(Administrator(None), sgid=1)
