"""OpenSM and weft read one opensm.conf and write the same settings into switches and adapters."""

from __future__ import annotations

import numpy as np
import pytest
from tests.patience import wait_until

import weft
from weft.lab.lab import Lab
from weft.mad.carrier import Address, ask
from weft.mad.local import LocalCarrier
from weft.sm.conf.options import parse_options
from weft.sm.qos.congestion import congestion_mads, rate_table

pytestmark = pytest.mark.interop

CONF = """
congestion_control TRUE
cc_max_outstanding_mads 20
cc_sw_cong_setting_control_map 0x1F
cc_sw_cong_setting_victim_mask 0x123456789ABCDEF0123456789abcdef0123456789ABCDEF01234
cc_sw_cong_setting_credit_mask 0xFE
cc_sw_cong_setting_threshold 0x0E
cc_sw_cong_setting_packet_size 8
cc_sw_cong_setting_credit_starvation_threshold 0x05
cc_sw_cong_setting_credit_starvation_return_delay 2:300
cc_sw_cong_setting_marking_rate 500
cc_ca_cong_setting_port_control 0x0001
cc_ca_cong_setting_control_map 0xA5F0
cc_ca_cong_setting_ccti_timer 0 150
cc_ca_cong_setting_ccti_timer 7 1000
cc_ca_cong_setting_ccti_increase 7 4
cc_ca_cong_setting_trigger_threshold 7 9
cc_ca_cong_setting_ccti_min 15 3
"""
TABLE = ",".join(f"{entry % 4}:{entry * 100}" for entry in range(100))


@pytest.mark.parametrize("conf", [CONF, f"{CONF}cc_cct {TABLE}\n"], ids=["no table", "table of two blocks"])
def test_weft_leaves_in_the_devices_what_opensm_leaves(peer, tmp_path, conf):
    peer("opensm")
    (tmp_path / "opensm.conf").write_text(conf)
    options = parse_options(conf)
    fabric = weft.load("fat-tree:hosts=8,radix=4")
    with Lab(fabric, f"cc-{tmp_path.name[-20:]}") as lab:
        remaining, sets = lab.fabric.tables.congestion, len(fabric.switches) + 8 * (1 + len(rate_table(options)))
        words = ["opensm", "-F", str(tmp_path / "opensm.conf"), "-f", str(tmp_path / "log"), "-s", "0"]
        caches = {"OSM_CACHE_DIR": str(tmp_path), "OSM_TMP_DIR": str(tmp_path)}
        opensm = lab.start("h1", *words, folder=tmp_path, **caches)
        try:
            wait_until(lambda: len(remaining) >= sets, "congestion control by OpenSM")
        finally:
            opensm.kill()
            opensm.wait()
        theirs = lab.server.call(lambda: {place: bytes(raw) for place, raw in remaining.items()})
        batch = congestion_mads(fabric, options, np.zeros(len(fabric.ports), bool))
        assert len(batch.mads) == sets

        def by_weft() -> dict[tuple[int, int], bytes]:
            remaining.clear()
            carrier = LocalCarrier(lab.subnet, fabric.find_port("h2/1").slot)
            for mad, lid in zip(batch.mads, batch.lids.tolist(), strict=True):
                answer = ask(carrier, mad.tobytes(), Address(lid))
                assert answer is not None
                assert answer[5] == 0
            return {place: bytes(raw) for place, raw in remaining.items()}

        assert lab.server.call(by_weft) == theirs
