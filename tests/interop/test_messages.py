"""Tables longer than a MAD, over every carrier: ibsim carries the segments, saquery reads replies of a lab's SA.

ibsim_client <-> ibsim_client          by ibsim
umad (libumad2sim) <-> ibsim_client    by ibsim, either one asking
umad (weft's preload) <-> ibsim_client, saquery    by a lab
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from tests.patience import PATIENCE_S

from weft.fabric.files import ibnetdiscover
from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.fabric.spec import load
from weft.lab import programs
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier

pytestmark = pytest.mark.interop

SUITES = Path(__file__).parents[1] / "conformance"
FABRIC = "fat-tree:hosts=8,radix=4,speed=HDR"
OF_HOST = 1  # the suite's own subnet manager gives its own host the first LID
LOAD = """
import importlib.util, sys
def suite(name):
    spec = importlib.util.spec_from_file_location(name, f"{sys.argv[1]}/{name}.py")
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
agents, messages = suite("agents"), suite("messages")
from weft.mad.umad import UmadCarrier
carrier = UmadCarrier()
"""
SERVE = """
carrier.set_is_sm(True)
messages.listen(carrier)
agents.bring_up(carrier, agents.discover(carrier))
print("ready", flush=True)
while True:
    carrier.poll(0.1)
    messages.answer(carrier, otherwise=500)
"""
ASK = """
for records in sys.argv[3:]:
    messages.ask_table(carrier, int(sys.argv[2]), int(records))
    print(records, flush=True)
carrier.close()
"""


def suite(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"conformance_{name}", SUITES / f"{name}.py")
    result = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(result)
    return result


agents, messages = suite("agents"), suite("messages")
SIZES = (0, 1, 2, messages.SOME_200_KB)


@contextmanager
def program(text: str, environment: dict[str, str], folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program with a carrier over libibumad as a separate process; end it after the block."""
    running = subprocess.Popen(
        [sys.executable, "-c", LOAD + text, str(SUITES), *words],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
            running.communicate(timeout=PATIENCE_S)


def await_ready(running: subprocess.Popen[str]) -> None:
    if running.stdout.readline() != "ready\n":
        pytest.fail(f"no SA: {running.communicate(timeout=PATIENCE_S)[1][-2000:]}")


class OnIbsim:
    """An ibsim with the fabric, and carriers at its hosts."""

    def __init__(self, ibsim: Callable) -> None:
        fabric = load(FABRIC)
        self.running = ibsim(ibnetdiscover.to_text(fabric))
        self.hosts = [node_id(NodeKind.HCA, host.guid) for host in fabric.hcas]

        self.open: list[IbsimCarrier] = []

    def carrier(self, host: int) -> IbsimCarrier:
        self.open.append(IbsimCarrier(self.hosts[host], self.running.name))
        return self.open[-1]

    def umad(self, host: int) -> dict[str, str]:
        library = next(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))
        return {"LD_PRELOAD": str(library), "IBSIM_SOCKNAME": self.running.name, "SIM_HOST": self.hosts[host]}


@pytest.fixture
def on_ibsim(ibsim) -> Iterator[OnIbsim]:
    result = OnIbsim(ibsim)
    yield result
    for carrier in result.open:
        carrier.close()


def serve(carrier: IbsimCarrier) -> IbsimCarrier:
    carrier.set_is_sm(True)
    messages.listen(carrier)
    agents.bring_up(carrier, agents.discover(carrier))
    return carrier


def test_over_ibsims_sockets_both_ways(on_ibsim):
    answering, asker = serve(on_ibsim.carrier(0)), on_ibsim.carrier(5)
    messages.check_messages(asker, answering, OF_HOST)


def test_libumad2sim_answers(on_ibsim, tmp_path):
    with program(SERVE, on_ibsim.umad(0), tmp_path) as running:
        await_ready(running)
        asker = on_ibsim.carrier(5)
        for records in SIZES:
            messages.ask_table(asker, OF_HOST, records)


def test_libumad2sim_asks_and_what_it_would_cut_off_is_refused(on_ibsim, tmp_path):
    answering = serve(on_ibsim.carrier(0))
    with program(ASK, on_ibsim.umad(5), tmp_path, str(OF_HOST), "0", "1", "2") as running:
        while running.poll() is None:
            answering.poll(0.05)
            messages.answer(answering)
        output, complaint = running.communicate()
    assert output.split() == ["0", "1"]
    assert "libumad2sim hands on 224 bytes of a MAD, and this table has more" in complaint


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(load(FABRIC), f"messages-{os.getpid()}") as running:
        yield running


def test_a_sa_over_wefts_libibumad_serves_saquery_and_clients_of_both_kinds(lab, tmp_path, peer):
    peer("cc")
    with program(SERVE, programs.environment(lab.host("h1")), tmp_path) as running:
        await_ready(running)
        with closing(IbsimCarrier("h6", lab.sockname)) as asker:
            for records in SIZES:
                messages.ask_table(asker, OF_HOST, records)
        with program(ASK, programs.environment(lab.host("h5")), tmp_path, str(OF_HOST), *map(str, SIZES)) as asking:
            _, complaint = asking.communicate(timeout=PATIENCE_S)
            assert asking.returncode == 0, complaint[-2000:]
        done = programs.run([peer("saquery"), "NodeRecord"], programs.environment(lab.host("h7")), folder=tmp_path)
        numbers = re.findall(r"NodeDescription\.+n(\d+)", done.stdout)
        assert numbers == [str(number) for number in range(1, 501)], done.stdout[-500:] + done.stderr
