"""Typical programs for pyverbs' connection manager: two processes, each with its own script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from weft.verbs.carriers.processes.carrier import PROCESSES_MAX, USUAL, ProcessCarrier

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share the adapter on Linux only")
PATIENCE_S = 300  # the tests detect hangs, not slow programs

INSTALL = """
from weft.verbs import pyverbs
pyverbs.install()
"""
# From rdma-core's Documentation/pyverbs.md, "CMID", except for the address and the port
EXAMPLE = """
from pyverbs.qp import QPInitAttr, QPCap
from pyverbs.cmid import CMID, AddrInfo
import pyverbs.cm_enums as ce


cap = QPCap(max_recv_wr=1)
qp_init_attr = QPInitAttr(cap=cap)
server = '127.0.0.1'
port = '%s'
"""
PASSIVE = """
sai = AddrInfo(server, port, ce.RDMA_PS_TCP, ce.RAI_PASSIVE)
sid = CMID(creator=sai, qp_init_attr=qp_init_attr)
sid.listen()  # listen for incoming connection requests
print("listening", flush=True)
new_id = sid.get_request()  # check if there are any connection requests
new_id.accept()  # new_id is connected to remote peer and ready to communicate
"""
ACTIVE = """
cai = AddrInfo(server, port, ce.RDMA_PS_TCP)
cid = CMID(creator=cai, qp_init_attr=qp_init_attr)
cid.connect()  # send connection request to server
"""


def port_of(test: int) -> str:
    """Return a port that no other run uses."""
    return str(20_000 + (os.getpid() * 8 + test) % 20_000)


@contextmanager
def running(*parts: str, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    script = "".join(textwrap.dedent(part) for part in (INSTALL, *parts))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored if the tests run in the background
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    """Return the output of a process that ended without an error."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out


def both(server: tuple[str, ...], client: tuple[str, ...]) -> tuple[str, str]:
    """Return the output of a server after its line "listening", and of a client that starts then."""
    with running(*server) as passive:
        assert passive.stdout is not None
        line = passive.stdout.readline()
        assert line == "listening\n", passive.communicate(timeout=PATIENCE_S)
        with running(*client) as active:
            output = ended(active)
        return ended(passive), output


def test_the_example_of_pyverbs_documentation_connects():
    example = EXAMPLE % port_of(0)
    messages = "print(%s.qp.qp_type, %s.qp.qp_state, qp_init_attr.cap.max_recv_wr)"
    passive, active = both(
        (example, PASSIVE, messages % ("new_id", "new_id")), (example, ACTIVE, messages % ("cid", "cid"))
    )
    assert passive == active == "2 3 1\n"  # IBV_QPT_RC, IBV_QPS_RTS


def test_a_repeated_request_to_a_listener_that_has_closed_is_not_rejected():
    """Programs close their listener after the first request; each process also receives its own requests."""
    example = EXAMPLE % port_of(7)
    _, client = both(
        (example, PASSIVE.replace("new_id.accept()", "import time; sid.close(); time.sleep(0.5); new_id.accept()")),
        ("from weft.verbs.cm import connection\nconnection.ANSWER_S = 0.01\n", example, ACTIVE, "print('connected')"),
    )
    assert client == "connected\n"


HANDSHAKE = """
import time
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cm_enums import *
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

port, kind, opcode, size = '%s', %d, %d, 13

def meet(cmid, text='hello'):
    came = cmid.reg_msgs(100)
    cmid.post_recv(came)
    own = cmid.reg_msgs(len(text))
    own.write(text, len(text))
    cmid.post_send(own, 0, len(text))
    done = cmid.get_recv_comp()
    cmid.get_send_comp()
    return came.read(done.byte_len, 0).decode()

def run(cmid, is_server):
    meet(cmid)
    ctx = Context(name='mlx5_0')
    pd, cq = PD(ctx), CQ(ctx, 100)
    cap = QPCap(max_send_wr=16, max_recv_wr=16)
    qp = QP(pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=cap, sq_sig_all=True))
    head = 40 if kind == IBV_QPT_UD and is_server else 0
    mr = MR(pd, size + head, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
    mr.write(('s' if is_server else 'c') * (size + head), size + head)
    sgl = [SGE(mr.buf, mr.length, mr.lkey)]
    gid, number, address, rkey = meet(cmid, f'{ctx.query_gid(1, 1)} {qp.qp_num} {mr.buf} {mr.rkey}').split()
    to = AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=1), is_global=1, port_num=1)
    attr = QPAttr()
    if kind != IBV_QPT_UD:
        attr.ah_attr, attr.dest_qp_num, attr.path_mtu = to, int(number), IBV_MTU_4096
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE
    qp.to_rts(attr)
    if is_server and opcode == IBV_WR_SEND:
        qp.post_recv(RecvWR(1, 1, sgl))
    meet(cmid)
    if not is_server:
        work = SendWR(2, opcode=opcode, num_sge=1, sg=sgl)
        if kind == IBV_QPT_UD:
            work.set_wr_ud(AH(pd, attr=to), int(number), 0)
        elif opcode != IBV_WR_SEND:
            work.set_wr_rdma(int(rkey), int(address))
        qp.post_send(work)
    if not is_server or opcode == IBV_WR_SEND:
        while not (found := cq.poll()[1]):
            time.sleep(0.0005)
        assert found[0].status == IBV_WC_SUCCESS
    meet(cmid)
    print(mr.read(size, head).decode())
    return cmid
"""
SERVER = """
info = AddrInfo(src='0.0.0.0', src_service=port, port_space=RDMA_PS_TCP, flags=RAI_PASSIVE)
listener = CMID(creator=info, qp_init_attr=QPInitAttr(cap=QPCap(max_recv_wr=1)))
listener.listen()
print("listening", flush=True)
cmid = listener.get_request()
cmid.accept()
listener.close()
left = run(cmid, True)  # it is never closed
"""
CLIENT = """
info = AddrInfo(src='0.0.0.0', dst='127.0.0.1', dst_service=port, port_space=RDMA_PS_TCP, flags=0)
cmid = CMID(creator=info, qp_init_attr=QPInitAttr(cap=QPCap(max_recv_wr=1)))
cmid.connect()

class Owner:
    def __del__(self):
        self.cmid.close()

owner = Owner()
owner.cmid = run(cmid, False)
"""


@pytest.mark.parametrize(
    ("kind", "opcode", "server", "client"),
    [(2, 2, "c", "c"), (2, 0, "c", "c"), (2, 4, "s", "s"), (4, 2, "c", "c")],
    ids=["RC SEND", "RC WRITE", "RC READ", "UD SEND"],
)
def test_programs_that_meet_by_the_connection_manager_and_send_by_queue_pairs_of_their_own(
    kind, opcode, server, client
):
    common = HANDSHAKE % (port_of(1 + kind + opcode), kind, opcode)
    assert both((common, SERVER), (common, CLIENT)) == (server * 13 + "\n", client * 13 + "\n")


DATAGRAMS = """
from pyverbs.addr import AH
from pyverbs.cm_enums import *
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam, UDParam
from pyverbs.enums import IBV_QPT_UD
from pyverbs.qp import QPCap, QPInitAttr

port = '%s'
init = QPInitAttr(qp_type=IBV_QPT_UD, cap=QPCap(max_recv_wr=4))
channel = CMEventChannel()

def expect(kind):
    event = CMEvent(channel)
    assert event.event_type == kind, event.event_str()
    return event
"""
DATAGRAM_SERVER = """
listener = CMID(creator=channel, port_space=RDMA_PS_UDP)
listener.bind_addr(AddrInfo(src='127.0.0.1', src_service=port, port_space=RDMA_PS_UDP, flags=RAI_PASSIVE))
listener.listen()
print("listening", flush=True)
cmid = CMID(creator=expect(RDMA_CM_EVENT_CONNECT_REQUEST), listen_id=listener)
cmid.create_qp(init)
came = cmid.reg_msgs(40 + 9)
cmid.post_recv(came)
cmid.accept(ConnParam(qp_num=cmid.qpn))
cmid.get_recv_comp()
print(came.read(9, 40).decode())
"""
DATAGRAM_CLIENT = """
cmid = CMID(creator=channel, port_space=RDMA_PS_UDP)
cmid.resolve_addr(AddrInfo(dst='127.0.0.1', dst_service=port, port_space=RDMA_PS_UDP))
expect(RDMA_CM_EVENT_ADDR_RESOLVED)
cmid.resolve_route()
expect(RDMA_CM_EVENT_ROUTE_RESOLVED)
cmid.create_qp(init)
cmid.connect(ConnParam())
there = UDParam(expect(RDMA_CM_EVENT_ESTABLISHED))
own = cmid.reg_msgs(9)
own.write('datagrams', 9)
cmid.post_ud_send(own, AH(cmid.pd, attr=there.ah_attr), there.qp_num)
cmid.get_send_comp()
"""


def test_programs_that_exchange_datagrams_by_the_connection_manager():
    common = DATAGRAMS % port_of(7)
    assert both((common, DATAGRAM_SERVER), (common, DATAGRAM_CLIENT)) == ("datagrams\n", "")


@pytest.mark.parametrize("first", [0, len(USUAL) - 20], ids=["lowest", "highest"])
def test_queue_pair_numbers_of_processes_have_as_many_digits(first, monkeypatch):
    """Programs exchange them as text and expect a message as long as their own, for any process ID."""
    device = f"digits{os.getpid()}"
    monkeypatch.setattr(os, "getpid", lambda: first)
    carriers = [ProcessCarrier((1,), device) for _ in range(20)]
    try:
        assert {len(str(number)) for carrier in carriers for number in (carrier.numbers[0], carrier.numbers[-1])} == {7}
        assert len({carrier.numbers[0] for carrier in carriers}) == 20 < PROCESSES_MAX
    finally:
        for carrier in carriers:
            carrier.close()


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "left",
    [
        "c = CMID(creator=CMEventChannel())",
        "c = CMID(creator=AddrInfo('127.0.0.1', flags=RAI_PASSIVE)); c.listen()",
        "c = CMID(creator=AddrInfo(dst='127.0.0.1', dst_service='1'), qp_init_attr=QPInitAttr(cap=QPCap()))",
    ],
    ids=["nothing done yet", "listens", "has a queue pair"],
)
def test_a_script_that_leaves_an_identifier_behind_ends(left):
    names = """
    from pyverbs.cm_enums import RAI_PASSIVE
    from pyverbs.cmid import CMID, AddrInfo, CMEventChannel
    from pyverbs.qp import QPCap, QPInitAttr
    """
    with running(names, left) as program:
        assert ended(program) == ""


def test_exit_without_disconnect_is_reported_as_disconnect():
    """The kernel does the same: it closes the connections of a process."""
    example = EXAMPLE % port_of(6)
    waits = """
    from pyverbs.cmid import CMEvent
    print(CMEvent(new_id._own_channel).event_str())
    """
    assert both((example, PASSIVE, waits), (example, ACTIVE)) == ("RDMA_CM_EVENT_DISCONNECTED\n", "")


def test_ctrl_c_while_kernels_are_compiled_ends_the_program(tmp_path):
    """The first use of RoCE compiles for a while; Ctrl-C must end it at once."""
    script = """
    from pyverbs.cm_enums import RAI_PASSIVE
    from pyverbs.cmid import CMID, AddrInfo, CMEventChannel
    from weft.verbs.carriers.roce.carrier import RoceCarrier

    def compile_and_say(self, _compile=RoceCarrier._compile):
        print("compiling", flush=True)
        _compile(self)

    RoceCarrier._compile = compile_and_say
    c = CMID(creator=CMEventChannel())
    c.bind_addr(AddrInfo('127.93.0.1', flags=RAI_PASSIVE))
    """
    environment = {"XDG_CACHE_HOME": str(tmp_path), "WEFT_VERBS_ROCE": "127.93.0.1"}
    with running(script, environment=environment) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "compiling\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(PATIENCE_S) == -signal.SIGINT


def test_ctrl_c_that_falls_into_a_callback_of_the_compiler_ends_the_program(tmp_path):
    """Most signals do: LLVM handles none, and the first Python code after it runs in a callback."""
    script = """
    import os, signal
    from llvmlite.binding import ExecutionEngine
    from pyverbs.device import Context

    def interrupted(self, module, find=ExecutionEngine._find_module_ptr):
        ExecutionEngine._find_module_ptr = find
        os.kill(os.getpid(), signal.SIGINT)
        return find(self, module)

    ExecutionEngine._find_module_ptr = interrupted
    Context(name="mlx5_0")
    assert ExecutionEngine._find_module_ptr is not interrupted, "nothing was compiled"
    """
    environment = {"XDG_CACHE_HOME": str(tmp_path), "WEFT_VERBS_ROCE": "127.93.0.2"}
    with running(script, environment=environment) as program:
        _, err = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == -signal.SIGINT, err
