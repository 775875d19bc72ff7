from __future__ import annotations

import pytest

from weft.clouds.partitions import Partition, PKeyTakenError, admit, claim, expel, is_away, release
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError
from weft.tenants.partitions import Member

OURS = Partition(p_key=0x64, name="neutron-1", index0=True)


def test_claim_admit_expel_and_release_are_idempotent(server, ufm):
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


def test_admit_creates_a_missing_partition(server, ufm):
    admit(ufm, OURS, [7])
    assert (server.partitions[0x64]["partition"], server.members(0x64)) == ("neutron-1", {7})
    assert list(server.partitions[0x64]["guids"].values()) == [True]  # at index 0
    admit(ufm, Partition(p_key=0x65, name="neutron-2"), [7])
    assert (server.partitions[0x65]["ip_over_ib"], *server.partitions[0x65]["guids"].values()) == (True, False)


def test_partitions_of_other_owners_are_not_changed(server, ufm):
    ufm.create_pkey(0x64, "theirs", ip_over_ib=False)
    ufm.add_guids(0x64, {5: Member()}, ip_over_ib=False)
    for refused in (lambda: claim(ufm, OURS), lambda: admit(ufm, OURS, [1])):
        with pytest.raises(PKeyTakenError, match=r"the P_Key 0x0064 of neutron-1 is taken at UFM .*, by theirs"):
            refused()
    expel(ufm, OURS, [5])
    release(ufm, OURS)
    assert (server.partitions[0x64]["partition"], server.members(0x64)) == ("theirs", {5})


@pytest.mark.parametrize("refused", [False, True])
def test_the_slower_of_two_concurrent_claims_fails(server, ufm, monkeypatch, refused):
    def create_too_late(self, p_key, name, **words):
        server.partitions[p_key] = {"partition": "faster", "ip_over_ib": True, "guids": {}}
        if refused:
            raise UfmError("it is there", 409)

    monkeypatch.setattr(UfmClient, "create_pkey", create_too_late)
    with pytest.raises(PKeyTakenError, match="by faster"):
        claim(ufm, OURS)


def test_a_refused_creation_is_an_error(ufm, monkeypatch):
    def refuse(self, p_key, name, **words):
        raise UfmError("answers 400: bad name", 400)

    monkeypatch.setattr(UfmClient, "create_pkey", refuse)
    with pytest.raises(UfmError, match="bad name"):
        claim(ufm, OURS)


def test_a_ufm_that_goes_away_during_a_creation_is_not_asked_again(ufm, monkeypatch):
    asked = []

    def go_away(self, p_key, name, **words):
        raise UfmError("answers 503", 503)

    monkeypatch.setattr(UfmClient, "pkey", lambda self, p_key: asked.append(p_key))
    monkeypatch.setattr(UfmClient, "create_pkey", go_away)
    with pytest.raises(UfmError, match="503"):
        claim(ufm, OURS)
    assert asked == [0x64]


def test_is_away_distinguishes_unavailability_from_refusal(server, ufm):
    for status, away in ((503, True), (500, True), (400, False), (401, False)):
        server.status = status
        with pytest.raises(UfmError) as caught:
            claim(ufm, OURS)
        assert is_away(caught.value) is away
    with pytest.raises(UfmError) as caught:
        claim(UfmClient("http://127.0.0.1:9", token="t"), OURS)
    assert is_away(caught.value)
