from __future__ import annotations

import pytest

from weft.clouds.partitions import Partition, Taken, admit, claim, expel, is_away, release
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError
from weft.tenants.partitions import Member

OURS = Partition(p_key=0x64, name="neutron-1", index0=True)


def test_a_partition_is_claimed_filled_emptied_and_released_and_all_of_it_twice(server, ufm):
    for _ in range(2):
        claim(ufm, OURS)
        assert server.partitions[0x64] == {"partition": "neutron-1", "ip_over_ib": True, "guids": {}}
    for _ in range(2):
        admit(ufm, OURS, [1, 2])
        assert server.partitions[0x64]["guids"] == {"0000000000000001": True, "0000000000000002": True}
    for _ in range(2):
        expel(ufm, OURS, [1])
        assert server.members(0x64) == {2}
    for _ in range(2):
        release(ufm, OURS)
        assert server.members(0x64) is None


def test_whoever_is_admitted_finds_the_partition_there(server, ufm):
    admit(ufm, OURS, [7])
    assert (server.partitions[0x64]["partition"], server.members(0x64)) == ("neutron-1", {7})


def test_somebody_elses_partition_is_left_alone(server, ufm):
    ufm.create_pkey(0x64, "theirs", ip_over_ib=False)
    ufm.add_guids(0x64, {5: Member()}, ip_over_ib=False)
    for refused in (lambda: claim(ufm, OURS), lambda: admit(ufm, OURS, [1])):
        with pytest.raises(Taken, match=r"the P_Key 0x0064 of neutron-1 is taken at UFM .*, by theirs"):
            refused()
    expel(ufm, OURS, [5])
    release(ufm, OURS)
    assert (server.partitions[0x64]["partition"], server.members(0x64)) == ("theirs", {5})


@pytest.mark.parametrize("refused", [False, True])
def test_of_two_who_claim_at_once_one_has_it(server, ufm, monkeypatch, refused):
    def create_too_late(self, p_key, name, **words):
        server.partitions[p_key] = {"partition": "faster", "ip_over_ib": True, "guids": {}}
        if refused:
            raise UfmError("it is there", 409)

    monkeypatch.setattr(UfmClient, "create_pkey", create_too_late)
    with pytest.raises(Taken, match="by faster"):
        claim(ufm, OURS)


def test_what_a_ufm_does_not_create_is_not_there(ufm, monkeypatch):
    def refuse(self, p_key, name, **words):
        raise UfmError("answers 400: bad name", 400)

    monkeypatch.setattr(UfmClient, "create_pkey", refuse)
    with pytest.raises(UfmError, match="bad name"):
        claim(ufm, OURS)


def test_a_ufm_that_is_away_is_asked_again_and_one_that_refuses_is_not(server, ufm):
    for status, away in ((503, True), (500, True), (400, False), (401, False)):
        server.status = status
        with pytest.raises(UfmError) as caught:
            claim(ufm, OURS)
        assert is_away(caught.value) is away
    with pytest.raises(UfmError) as caught:
        claim(UfmClient("http://127.0.0.1:9", token="t"), OURS)
    assert is_away(caught.value)
