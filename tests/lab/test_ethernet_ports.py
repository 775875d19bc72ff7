"""InfiniBand and Ethernet ports in one lab: RDMA on both, each on its own cables."""

from __future__ import annotations

import errno

import pytest
from tests.lab.rdma import Host, managed, wait_until

import weft
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.link_layers import as_ethernet
from weft.lab.adapters import adapters_of, find_port
from weft.lab.lab import Lab
from weft.lab.sysfs_tree import tree_of
from weft.verbs import enums as e
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.addr import AH

SPEC = "star:hosts=4,server=host-fdr,switch=SX6036"
GRH_BYTES = 40


@pytest.fixture(scope="module")
def lab():
    fabric = as_ethernet(weft.load(SPEC), ["host3", "host4"])
    with Lab(fabric, "vpi-test") as up, managed(up, at="host1"):
        yield up


@pytest.fixture
def hosts(lab, monkeypatch):
    def make(*names: str) -> list[Host]:
        return [Host(lab, name, monkeypatch) for name in names]

    return make


def sent(lab, host: str) -> int:
    """Return the packets that a host's port has sent."""
    slot = lab.server.places.find(host)
    lab.server.call(lab.metered_paths.collect)
    return int(lab.fabric.counters[slot, Counter.PORT_XMIT_PKTS])


def connected(one: Host, two: Host, **more):
    a, b = one.qp(e.IBV_QPT_RC), two.qp(e.IBV_QPT_RC)
    one.connect(a, two, b, **more)
    two.connect(b, one, a, **more)
    return a, b


def deliver(one: Host, two: Host, a, b, data: bytes) -> bytes:
    two.post_receive(b, len(data))
    one.send(a, data)
    wait_until(lambda: two.cq.poll()[0])
    return two.mr.read(len(data), 1 << 15)


def test_ports_have_the_link_layer_of_their_cable(hosts):
    infiniband, ethernet = (host.ctx.query_port(1) for host in hosts("host1", "host3"))
    assert (infiniband.link_layer, ethernet.link_layer) == (e.IBV_LINK_LAYER_INFINIBAND, e.IBV_LINK_LAYER_ETHERNET)
    assert (ethernet.state, ethernet.lid, ethernet.sm_lid) == (e.IBV_PORT_ACTIVE, 0, 0)
    assert infiniband.lid > 0


def test_messages_arrive_on_both_link_layers_side_by_side(hosts, lab):
    h1, h2, h3, h4 = hosts("host1", "host2", "host3", "host4")
    counts = {name: sent(lab, name) for name in ("host1", "host3")}
    infiniband, ethernet = connected(h1, h2), connected(h3, h4, is_global=True, gid_index=3)
    assert deliver(h1, h2, *infiniband, b"infiniband") == b"infiniband"
    assert deliver(h3, h4, *ethernet, b"ethernet") == b"ethernet"
    for name, before in counts.items():
        assert sent(lab, name) > before, name


def test_shared_memory_paths_are_counted_at_each_ethernet_port(hosts, lab):
    h3, h4 = hosts("host3", "host4")
    a, b = connected(h3, h4, is_global=True, gid_index=3)
    a.core.find_shm_path(at_once=True)
    before = sent(lab, "host3")
    for number in range(20):
        assert deliver(h3, h4, a, b, b"message %2d" % number) == b"message %2d" % number
    assert sent(lab, "host3") - before >= 20


def test_a_datagram_has_the_ipv4_header_in_the_place_of_the_grh(hosts):
    h3, h4 = hosts("host3", "host4")
    a, b = h3.qp(e.IBV_QPT_UD), h4.qp(e.IBV_QPT_UD)
    for host, qp in ((h3, a), (h4, b)):
        host.connect(qp, host, qp, is_global=True, gid_index=3)
    h4.post_receive(b, GRH_BYTES + 5)
    h3.send(a, b"hello", AH(h3.pd, attr=h4.address(is_global=True, gid_index=3)), b.qp_num)
    wait_until(lambda: h4.cq.poll()[0])
    data = h4.mr.read(GRH_BYTES + 5, 1 << 15)
    assert data[20] == 0x45
    assert data[32:36] == bytes((127, 2, 0, 1))
    assert data[GRH_BYTES:] == b"hello"


def test_a_pulled_ethernet_cable_ends_in_retries_and_leaves_infiniband_alone(hosts, lab):
    h1, h2, h3, h4 = hosts("host1", "host2", "host3", "host4")
    a, _ = connected(h3, h4, is_global=True, gid_index=3, timeout=10, retry_cnt=1)
    infiniband = connected(h1, h2)
    assert lab.break_cable("host4") == ["host4/1"]
    try:
        h3.send(a, b"lost")
        done: list = []
        wait_until(lambda: done.extend(h3.cq.poll()[1]) or done)
        assert done[0].status == e.IBV_WC_RETRY_EXC_ERR
        assert deliver(h1, h2, *infiniband, b"works") == b"works"
        with pytest.raises(ConfigError, match="broken already"):
            lab.break_cable("host4")
        assert lab.state()["broken"] == ["host4/1"]
        wait_until(lambda: h4.ctx.query_port(1).state == e.IBV_PORT_DOWN)
    finally:
        assert lab.fix() == ["host4/1"]
    assert deliver(h3, h4, *connected(h3, h4, is_global=True, gid_index=3), b"again") == b"again"


def test_addresses_of_infiniband_are_refused_on_ethernet(hosts):
    h1, h3 = hosts("host1", "host3")
    with pytest.raises(PyverbsRDMAError, match="reaches Ethernet ports"):
        h3.connect(h3.qp(e.IBV_QPT_RC), h1, h1.qp(e.IBV_QPT_RC), is_global=True)
    with pytest.raises(PyverbsRDMAError, match="needs a global route") as raised:
        AH(h3.pd, attr=h1.address())
    assert raised.value.error_code == errno.EINVAL


def test_degrade_refuses_ethernet_cables(lab):
    with pytest.raises(ConfigError, match="is Ethernet"):
        lab.degrade("host3", 1e-9)


def test_libibumad_skips_ethernet_ports_without_a_name(lab):
    devices = lab.subnet.devices
    adapters = adapters_of(devices, "host3")
    assert find_port(devices, adapters, "", 0) is None
    assert find_port(devices, adapters, adapters[0].name, 1) is not None


def test_sysfs_shows_the_link_layer_and_the_interface(lab):
    tree = tree_of(lab.subnet.devices, "host3")
    by_end = {path.split("/", 3)[-1]: text.strip() for path, text in tree.files.items()}
    assert by_end["infiniband/mlx5_0/ports/1/link_layer"] == "Ethernet"
    assert by_end["infiniband/mlx5_0/ports/1/gid_attrs/types/3"] == "RoCE v2"
    assert by_end["net/eth0/address"] == "02:00:7f:02:00:01"
    assert "class/net/eth0" in tree.links
