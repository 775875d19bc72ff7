"""Packets across tenants while a real OpenSM runs on a tenant's host, with weft's M_Key and without it.

    python benchmarks/isolation.py [PACKETS] [--opensm-runs 10] [--seed 1] [--json]

A lab of 16 hosts with three tenants and a storage service, by weft's subnet manager. In each of the OpenSM runs h6, a
host of tenant red, starts `opensm -p 15`; packets are sent while it runs, then it is ended, and packets are sent again
after the partitions are as they were. Half of all packets are sent while OpenSM runs. Rows:

    with M_Key          the default: ports refuse the SMPs of OpenSM, and no packet crosses
    without M_Key       OpenSM becomes master and erases all P_Keys; weft repairs them when it is master again

Senders use P_Keys that they hold, P_Keys of the receiver, random ones, and raw packets without a P_Key. A packet counts
as delivered when the port of another tenant's host accepts it. Needs `make peers`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import weft
from weft.lab.lab import Lab
from weft.mad import faults
from weft.mad.ibsim_client import IbsimCarrier
from weft.routing.lids import ports_with_lids
from weft.scenarios.tenants import CONTROL, CROSSING, INTENT, RAW, ROGUE, SPEC, Attack
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager
from weft.tenants.compile import compile_intent
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.intent import parse_intent
from weft.tenants.isolation import prove_isolation
from weft.tenants.simulate import planned_inventory
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMState

TIMEOUT_S, POLL_S = 300.0, 0.02
BATCH = 500  # packets between two MADs


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The packets across tenants, sent and delivered, while OpenSM ran and while it did not."""

    m_key: bool
    opensm_runs: int
    sent_beside_opensm: int
    delivered_beside_opensm: int
    sent_after_repair: int
    delivered_after_repair: int
    controls_sent: int  # within tenants, while OpenSM did not run
    controls_lost: int
    refused_smps: int  # sent by OpenSM, refused by the M_Key
    repaired_ports: int  # ports whose P_Keys weft wrote again, over all runs
    seconds: float


class Site:
    """A lab with tenants, weft's subnet manager on its first host, and packets to send."""

    def __init__(self, lab: Lab, folder: Path, *, m_key: bool) -> None:
        self.lab, self.folder, self.devices = lab, folder, lab.subnet.devices
        self.rogue = lab.fabric[ROGUE].slot
        self.allocation = compile_intent(parse_intent(INTENT), planned_inventory(lab.fabric)).allocation
        (folder / "partitions.conf").write_text(write_partitions(self.allocation))
        options = Options(
            partition_config_file=folder / "partitions.conf",
            m_key_file=folder / "m_key" if m_key else None,
            sweep_interval_s=1,
            transaction_timeout_ms=10_000,  # a busy machine sends packets for longer than the usual 200 ms
            qos=True,
            qos_general=self.allocation.lanes,
        )
        self.carrier = IbsimCarrier("h1", lab.sockname)
        self.manager = SubnetManager(self.carrier, options, log=Log(io.StringIO()))
        self._thread = threading.Thread(target=self.manager.run, daemon=True)
        self._thread.start()
        self.wait(self.is_isolated)

    def close(self) -> None:
        self.manager.stop()
        self._thread.join(TIMEOUT_S)
        self.carrier.close()

    def attack(self, seed: int) -> Attack:
        hosts, _ = ports_with_lids(self.lab.fabric)
        return Attack(self.devices, hosts.astype("int64"), self.lab.fabric["h1/1"].slot, self.allocation, seed)

    def send(self, attack: Attack, packets: int, *, is_calm: bool) -> None:
        for begin in range(0, packets, BATCH):
            count = min(BATCH, packets - begin)
            self.lab.server.call(lambda count=count: attack.send(count, is_calm=is_calm))

    def is_isolated(self) -> bool:
        """Return whether weft is master and the tables of all devices keep the tenants apart."""
        if self.manager.report is None or self.manager.election.state != SMState.MASTER:
            return False
        return self.lab.server.call(lambda: prove_isolation(faults.fabric_now(self.devices), self.allocation).ok)

    def refused_smps(self) -> int:
        return int(PortInfo.m_key_violations.get(self.devices.info(self.rogue)))

    def wait(self, condition: Callable[[], bool]) -> None:
        end_s = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end_s:
                raise SystemExit(
                    "no change within five minutes:\n" + "\n".join(list(self.manager.state.log.recent)[-9:])
                )
            time.sleep(POLL_S)

    @contextmanager
    def opensm(self, number: int) -> Iterator[subprocess.Popen[str]]:
        """Run OpenSM with the highest priority on the tenant's host."""
        folder = self.folder / f"opensm-{number}"
        folder.mkdir()
        program = shutil.which("opensm", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise SystemExit("opensm is not installed: make peers")
        words = (program, "-p", "15", "-s", "1", "-f", str(folder / "log"), "-D", "0x43")
        places = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
        process = self.lab.start(ROGUE.split("/")[0], *words, folder=folder, **places)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def measure(packets: int, runs: int, seed: int, *, m_key: bool) -> Figures:
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Lab(weft.load(SPEC), f"isolation-{os.getpid()}-{m_key:d}") as lab:
        site = Site(lab, Path(folder), m_key=m_key)
        beside, after, refused = site.attack(seed), site.attack(seed + 1), 0
        for number in range(runs):
            before = site.refused_smps()
            with site.opensm(number):
                if m_key:
                    site.wait(lambda before=before: site.refused_smps() > before)
                else:
                    site.wait(lambda: site.manager.election.state == SMState.STANDBY and not _has_tenants(site))
                site.send(beside, packets // (2 * runs), is_calm=False)
                refused += site.refused_smps() - before
            site.wait(site.is_isolated)
            site.send(after, -(-packets // (2 * runs)), is_calm=True)
        repaired = len(site.manager.state.repaired)
        site.close()
    return Figures(
        m_key=m_key,
        opensm_runs=runs,
        sent_beside_opensm=_sum(beside, "sent"),
        delivered_beside_opensm=_sum(beside, "delivered"),
        sent_after_repair=_sum(after, "sent"),
        delivered_after_repair=_sum(after, "delivered"),
        controls_sent=after.tallies[CONTROL].sent,
        controls_lost=after.controls_lost,
        refused_smps=refused,
        repaired_ports=repaired,
        seconds=round(time.monotonic() - began_s, 1),
    )


def _has_tenants(site: Site) -> bool:
    """Return whether any host's port still holds a tenant's P_Key."""
    hosts, _ = ports_with_lids(site.lab.fabric)
    keys = site.devices.tables.pkey[hosts] & 0x7FFF
    return bool(((keys != 0) & (keys != 0x7FFF)).any())


def _sum(attack: Attack, name: str) -> int:
    return sum(getattr(attack.tallies[kind], name) for kind in (*CROSSING, RAW))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packets", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--opensm-runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(options.packets, options.opensm_runs, options.seed, m_key=m_key) for m_key in (True, False)]
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    for row in rows:
        print(
            f"{'with' if row.m_key else 'without'} M_Key, {row.opensm_runs} runs of OpenSM, {row.seconds:g} s\n"
            f"  while it ran    {row.delivered_beside_opensm:,} of {row.sent_beside_opensm:,} packets crossed\n"
            f"  afterwards      {row.delivered_after_repair:,} of {row.sent_after_repair:,} packets crossed, "
            f"{row.controls_lost:,} of {row.controls_sent:,} within tenants were lost\n"
            f"  {row.refused_smps:,} SMPs refused, {row.repaired_ports:,} ports repaired"
        )


if __name__ == "__main__":
    main()
