"""Queries of an adapter in a lab to the subnet administrator."""

from __future__ import annotations

import pytest

from weft.verbs.carriers.lab.paths import Paths
from weft.verbs.carriers.lab.port_facts import Facts
from weft.wire.mad import Status
from weft.wire.port_info import PortInfo
from weft.wire.sa import PathRecord, SaMad, SaStatus

FACTS = Facts(PortInfo(lid=4), (1,), (0xFFFF,))


class Administrator:
    """A fake connection to a lab that gives prepared answers in order."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)

    def ask(self, what, timeout_s, *, mad):
        status = self.statuses.pop(0)
        return {"mad": SaMad.pack(status=status, data=PathRecord(slid=4, dlid=7).raw).hex()}


@pytest.mark.parametrize(("statuses", "lid"), [((Status.BUSY, Status.BUSY, 0), 7), ((SaStatus.NO_RECORDS,), None)])
def test_busy_administrator_is_asked_again_and_missing_path_is_final(statuses, lid):
    administrator = Administrator(*statuses)
    result = Paths(administrator, lambda: FACTS).to((2, 1))
    assert (result and result.lid, administrator.statuses) == (lid, [])
