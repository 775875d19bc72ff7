"""librdmacm.so.1 under unmodified programs: Debian's rdmacm-utils and perftest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.interop.c_programs import compile_program, free_port, on, output, outside_of_labs, program, started
from tests.interop.conftest import do_without
from tests.interop.test_c_face import exported, offsets
from tests.interop.test_rdma_core import find_python, peers_folder, run
from tests.lab.rdma import running
from tests.patience import PATIENCE_S, wait_until, without_notices

import weft.verbs.c
from weft import compiler, runtime
from weft.verbs import hardware, launch
from weft.verbs.c import build
from weft.verbs.carriers.places import place_of

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
ABI = Path(weft.verbs.c.__file__).parent / "lib" / "cm" / "cm_abi.h"
PYTHON_SERVER = """
from weft.verbs import pyverbs
pyverbs.install()
from pyverbs.qp import QPInitAttr, QPCap
from pyverbs.cmid import CMID, AddrInfo
import pyverbs.cm_enums as ce

init = QPInitAttr(cap=QPCap(max_recv_wr=1, max_send_wr=1))
listener = CMID(creator=AddrInfo('127.0.0.1', '%d', ce.RDMA_PS_TCP, ce.RAI_PASSIVE), qp_init_attr=init)
listener.listen()
id = listener.get_request()
came, own = id.reg_msgs(16), id.reg_msgs(16)
id.post_recv(came)
id.accept()
print(id.get_recv_comp().byte_len)
own.write('0123456789abcdef', 16)
id.post_send(own)
id.get_send_comp()
id.disconnect()
"""


def services(environment: Mapping[str, str]) -> set[Path]:
    """Return the services on which any program of that environment listens."""
    lab = environment.get(hardware.LAB)
    return set((place_of(lab) if lab else runtime.folder() / "verbs").glob("service-*"))


def run_pair(
    server: Sequence[str], client: Sequence[str], one: Mapping[str, str], other: Mapping[str, str]
) -> tuple[str, str]:
    """Return the output of both programs, which must end without an error."""
    before = services(one)
    with started(server, one) as passive:
        wait_until(lambda: services(one) - before, lambda: output(passive), lambda: passive.poll() is None)
        active = subprocess.run(
            client, env=dict(other), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        text = passive.communicate(timeout=PATIENCE_S)[0]
    assert active.returncode == 0, active.stdout + active.stderr + text
    assert passive.returncode == 0, text
    return without_notices(text), active.stdout


@pytest.mark.parametrize(
    ("server", "client", "says"),
    [
        ("rping -s -C 5 -V -p {port}", "rping -c -a 127.0.0.1 -C 5 -V -v -p {port}", "ping data: rdma-ping-4"),
        ("rdma_server -p {port}", "rdma_client -s 127.0.0.1 -p {port}", "rdma_client: end 0"),
        ("ib_write_bw -R -n 50 -p {port}", "ib_write_bw -R -n 50 -p {port} 127.0.0.1", " 65536      50 "),
    ],
    ids=["rping", "endpoints", "perftest"],
)
def test_programs_connect_by_address_and_port(server, client, says):
    port = free_port()
    words = [line.format(port=port).split() for line in (server, client)]
    _, text = run_pair(*([program(word[0]), *word[1:]] for word in words), *[outside_of_labs()] * 2)
    assert says in text


def test_a_send_completes_before_the_answer_to_it(tmp_path):
    """First by packets, then through shared memory, with a completion channel as in tutorials."""
    result, port = compile_program("cm_order_program", tmp_path, "-lrdmacm"), str(free_port())
    _, text = run_pair([result, "server", port], [result, "client", port], *[outside_of_labs()] * 2)
    assert text == "0 early\n"


def test_a_program_in_c_talks_to_one_in_python():
    port = free_port()
    server = [sys.executable, "-c", PYTHON_SERVER % port]
    client = [program("rdma_client"), "-s", "127.0.0.1", "-p", str(port)]
    text, _ = run_pair(server, client, os.environ, outside_of_labs())
    assert text == "16\n"


PYTHON_END = """
import os, signal
from weft.verbs import pyverbs
pyverbs.install()
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.qp import QPInitAttr, QPCap
import pyverbs.cm_enums as ce

channel = CMEventChannel()
listener = CMID(creator=channel)
listener.bind_addr(AddrInfo('127.0.0.1', '%d', ce.RDMA_PS_TCP, ce.RAI_PASSIVE))
listener.listen()
asked = CMEvent(channel)
id = CMID(creator=asked, listen_id=listener)
print(bytes(asked.private_data[:6]), flush=True)
"""
REFUSES = "id.reject(b'not today', 9)"
DIES = """
id.create_qp(QPInitAttr(qp_type=2, cap=QPCap(max_recv_wr=1, max_send_wr=1)))
id.accept(ConnParam())
assert CMEvent(channel).event_type == ce.RDMA_CM_EVENT_ESTABLISHED
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("then", "last"),
    [
        (REFUSES, "RDMA_CM_EVENT_REJECTED 28 not today"),
        (DIES, "RDMA_CM_EVENT_DISCONNECTED 0 "),
    ],
    ids=["refused", "killed"],
)
def test_a_program_hears_how_it_ends(tmp_path, then, last):
    port, environment, client = free_port(), outside_of_labs(), compile_program("cm_client", tmp_path, "-lrdmacm")
    before = services(os.environ)
    with started([sys.executable, "-c", PYTHON_END % port + then], os.environ) as server:
        wait_until(lambda: services(os.environ) - before, lambda: output(server), lambda: server.poll() is None)
        text = subprocess.run(
            [client, str(port)], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert text.returncode == 0, text.stdout + text.stderr
        assert server.communicate(timeout=PATIENCE_S)[0] == "b'may I?'\n"
    assert text.stdout.splitlines()[-1] == last, text.stdout


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


@pytest.mark.parametrize(("name", "address"), [("ucmatose", "h1"), ("udaddy", "127.1.0.1")])
def test_hosts_of_a_lab_have_names_and_addresses(lab, name, address):
    """Connections and datagrams go to the first host."""
    _, text = run_pair([program(name)], [program(name), "-s", address], on(lab, "h1"), on(lab, "h8"))
    assert "data transfers complete" in text


def test_groups_are_joined_in_a_lab(lab):
    words = ["stdbuf", "-oL", program("mckey"), "-m", "239.1.2.3"]
    with started(words, on(lab, "h2")) as receiver:
        assert receiver.stdout is not None
        lines = iter(receiver.stdout.readline, "")
        assert any("joined dgid: ff12:4001:" in line for line in lines)
        subprocess.run([*words, "-s"], env=on(lab, "h7"), capture_output=True, timeout=PATIENCE_S, check=True)
        assert "data transfers complete" in receiver.communicate(timeout=PATIENCE_S)[0]


def test_rdma_cores_own_tests_pass_with_the_real_pyverbs():
    """They cover connections, datagrams and groups. This pyverbs holds Python's lock while it waits for an event."""
    environment = os.environ | launch.environment()
    environment["PYTHONPATH"] = str(peers_folder() / "usr/lib/python3/dist-packages")
    words = [find_python(), str(Path(__file__).with_name("rdma_core.py")), "--real", "test_rdmacm"]
    assert run(words, environment) >= 10


# -- the binary interface ----------------------------------------------------------------------------------------------


def test_every_structure_is_as_rdma_cma_h_has_it(tmp_path):
    if not Path("/usr/include/rdma/rdma_cma.h").is_file():
        do_without("librdmacm-dev")
    ours, theirs = (
        offsets('"cm_abi.h"', tmp_path, ABI),
        offsets("<rdma/rdma_cma.h>\n#include <infiniband/ib.h>", tmp_path, ABI),
    )
    assert len(ours) > 60
    assert ours == theirs


def test_all_public_calls_are_there_under_the_versions_that_programs_ask_for():
    system = next((path for folder in ("/usr/lib", "/lib") for path in Path(folder).rglob(build.CM_NAME)), None)
    if system is None:
        do_without("librdmacm1")
    folder = build.folder()
    assert folder is not None
    assert not exported(system) - exported(folder / build.CM_NAME)
