"""`weft traffic multicast`: hosts join a group, and the packet engine carries its data by the switches' tables."""

from __future__ import annotations

import pytest
from tests.lab.rdma import managed

import weft
from weft.errors import ConfigError, SubnetError
from weft.fabric.counters import Counter
from weft.lab import traffic
from weft.lab.lab import Lab
from weft.mad.administrator import NoAnswer

SENT, CAME = Counter.PORT_MULTICAST_XMIT_PKTS, Counter.PORT_MULTICAST_RCV_PKTS


@pytest.fixture
def lab():
    with Lab(weft.load("fat-tree:hosts=16,radix=8")) as running, managed(running):
        yield running


def test_one_host_sends_and_all_others_get_it(lab):
    report = lab.traffic("multicast", 10_000)  # three datagrams of 4,096 bytes
    assert (report["messages"], report["delivered"], report["without_path"]) == (1, 1, 0)
    assert list(report["copies"].values()) == [3] * 15
    counters = lab.fabric.counters
    hosts = [lab.fabric[f"h{number}/1"].slot for number in range(1, 17)]
    assert counters[hosts, SENT].sum() == 3
    assert counters[hosts, CAME].sum() == 45


def test_each_link_carries_a_datagram_once(lab):
    lab.traffic("multicast", 1000)
    sent, fabric = lab.fabric.counters[:, SENT], lab.fabric
    assert sent.max() == 1
    switches = len(
        [slot for slot in sent.nonzero()[0].tolist() if fabric.tables.switch_row[fabric.ports.node[slot]] >= 0]
    )
    assert switches == 15 + 4, "to each host, and up from the sender's leaf and down to the three others"


def test_all_members_send(lab):
    report = lab.traffic("multicast", 1000, senders=16)
    assert report["delivered"] == 16
    assert report["copies"] == {f"h{number}/1": 15 for number in range(1, 17)}


def test_more_senders_than_members_are_refused(lab):
    with pytest.raises(ConfigError, match=r"--senders must be 1 to 16 \(members of group 0xc"):
        lab.traffic("multicast", senders=17)


def test_hosts_leave_the_group_in_the_end(lab):
    lab.traffic("multicast", 1000)
    report = lab.traffic("multicast", 1000)
    assert len(report["copies"]) == 15


def test_failed_leave_does_not_hide_the_first_error(lab, monkeypatch):
    def no_answer(*given):
        raise NoAnswer("no answer")

    monkeypatch.setattr(traffic, "leave_group", no_answer)
    with pytest.raises(ConfigError, match="got 17"):
        lab.traffic("multicast", senders=17)


def test_limited_members_of_the_partition_hear_full_ones_alone(tmp_path):
    conf = tmp_path / "partitions.conf"
    conf.write_text("Default=0x7fff : ALL, SELF=full ;\n")
    with Lab(weft.load("star:hosts=6")) as divided, managed(divided, partition_config_file=conf):
        report = divided.traffic("multicast", 1000, senders=6)
    assert report["copies"] == {"h1/1": 5} | {f"h{number}/1": 1 for number in range(2, 7)}


def test_without_a_subnet_manager_nobody_joins():
    with Lab(weft.load("star:hosts=2")) as alone, pytest.raises(SubnetError, match="weft sm --once"):
        alone.traffic("multicast")
