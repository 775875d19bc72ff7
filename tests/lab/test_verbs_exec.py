"""`weft exec h1 python app.py`: unmodified programs for pyverbs, as processes on hosts of a lab."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab.rdma import running, wait_until
from tests.patience import PATIENCE_S

from weft.fabric.counters import Counter
from weft.lab import programs

TALKER = Path(__file__).parent / "talker.py"
WHO = "import pyverbs.device as d; print(d.__name__, *[one.name.decode() for one in d.get_device_list()])"


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


def start(lab, host: str, *words: str) -> subprocess.Popen[str]:
    variables = programs.environment(lab.host(host))
    return subprocess.Popen(
        [sys.executable, *words], env=dict(os.environ) | variables, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(("kind", "size"), [("RC", 3000), ("UC", 3000), ("UD", 900)])
def test_two_hosts_play_ping_pong(lab, tmp_path, kind, size):
    before = lab.fabric.counters[:, Counter.PORT_XMIT_PKTS].sum()
    words = [kind, "20", str(size)]
    players = [
        start(lab, host, str(TALKER), str(tmp_path), own, peer, *words)
        for host, own, peer in (("h2", "a", "b"), ("h7", "b", "a"))
    ]
    output = [json.loads(player.communicate(timeout=PATIENCE_S)[0].splitlines()[-1]) for player in players]
    assert output == [{"turns": 20, "statuses": [0], "wrong": 0, "name": "mlx5_0"}] * 2
    sent = lab.fabric_now().counters[:, Counter.PORT_XMIT_PKTS].sum() - before
    assert sent >= 40 * (size // 1024 + 1) * 4, "four links each way"


@pytest.mark.parametrize("how", ["script", "-c", "-m", "child"])
def test_pyverbs_is_weft_however_python_is_started(lab, tmp_path, how):
    (tmp_path / "who.py").write_text(WHO)
    words = {
        "script": [sys.executable, str(tmp_path / "who.py")],
        "-c": [sys.executable, "-c", WHO],
        "-m": [sys.executable, "-m", "who"],
        "child": ["sh", "-c", f"cd / && '{sys.executable}' '{tmp_path}/who.py'"],
    }[how]
    done = lab.run("h3", *words, folder=tmp_path)
    assert done.stdout == "weft.verbs.pyverbs.device mlx5_0\n", done.stderr


def test_a_program_that_is_killed_gives_back_what_it_had(lab, tmp_path):
    slot = lab.fabric["h4/1"].slot
    hold = "import pyverbs.device as d, time; c = d.Context(name='mlx5_0'); print('up', flush=True); time.sleep(9999)"
    program = start(lab, "h4", "-c", hold)
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    assert lab.server.call(lab.verbs.slots).count(slot) == 1
    program.send_signal(signal.SIGKILL)
    program.wait()
    program.stdout.close()
    wait_until(lambda: slot not in lab.server.call(lab.verbs.slots))


def test_a_process_that_was_forked_has_an_adapter_of_its_own(lab, tmp_path):
    text = """
import os, pyverbs.device as d
first = d.Context(name='mlx5_0')
child = os.fork()
number = d.Context(name='mlx5_0').adapter.carrier.program
if child == 0:
    print(number, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(number, first.query_port(1).state)
"""
    done = lab.run("h5", sys.executable, "-c", text, folder=tmp_path)
    assert done.stdout == "1\n0 4\n", done.stderr
