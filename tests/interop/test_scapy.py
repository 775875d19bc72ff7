"""scapy's independent ICRC of RoCE v2 equals weft's on random packets."""

from __future__ import annotations

import random
import warnings

import pytest

from weft.wire.headers import BTH, Opcode
from weft.wire.packet import Packet
from weft.wire.roce import UDP, Ethernet, IPv4, IPv6

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def scapy_ether():
    """Import scapy's Ethernet layer with its RoCE layers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scapy's warnings about its dependencies
        pytest.importorskip("scapy.contrib.roce", reason="scapy is not installed: pip install scapy")
        from scapy.layers.l2 import Ether
    return Ether


@pytest.mark.parametrize("version", [IPv4, IPv6])
def test_scapy_computes_the_same_icrc(scapy_ether, version):
    fields = [version.source, version.destination, version.dscp, version.ecn]
    for seed in range(20):
        source = random.Random(seed)
        ip = version(**{field.name: source.getrandbits(field.width) for field in fields})
        bth = BTH(opcode=Opcode.UC_SEND_ONLY, fecn=source.getrandbits(1), psn=source.getrandbits(24))
        payload = source.randbytes(source.randrange(1, 1024))
        frame = Packet((Ethernet(), ip, UDP(source_port=49_152 + seed), bth), payload).pack()
        theirs = scapy_ether(frame)
        del theirs["BTH"].icrc  # so that scapy computes it
        assert bytes(theirs) == frame
