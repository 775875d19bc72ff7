"""weft's versions of perftest's and rdma-core's tools: they run, print the same format, and transfer the bytes."""

from __future__ import annotations

import itertools
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from types import SimpleNamespace

import numpy as np
import pytest
from tests.patience import PATIENCE_S
from tests.verbs.hosts import Node, poll

from weft.cli import GROUPS, main
from weft.errors import ConfigError, SimulationBug, SubnetError, WeftError
from weft.verbs.attributes.device import DeviceAttr
from weft.verbs.enums import IBV_MTU_1024, IBV_QPT_RC
from weft.verbs.perftest import compiled_loop, devinfo, exchange, perftest, pingpong
from weft.verbs.perftest.compiled_loop import CompiledLoop
from weft.verbs.perftest.endpoint import Endpoint
from weft.verbs.perftest.exchange import Listener, Peer, free_port, is_over
from weft.verbs.perftest.kinds import Test, parse_test
from weft.verbs.perftest.loop import PythonLoop, Watch
from weft.verbs.perftest.plan import Plan, parse
from weft.verbs.perftest.programs import PROGRAMS, command, program_folder
from weft.verbs.perftest.report import BandwidthRow, LatencyRow, Times, bandwidth_row, row_of
from weft.verbs.pyverbs.addr import GID, AHAttr, GlobalRoute
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.qp import QPCap
from weft.verbs.pyverbs.wr import RecvWR, SendWR

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share an adapter on Linux only")


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    """Restore the interval between thread switches, which the loops shorten."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


class Pair:
    """A pair of ends in this process, with the server in a thread."""

    def __init__(self) -> None:
        self.server: list[str] = []
        self.client: list[str] = []
        self.failed: BaseException | None = None

    def run(
        self, main: Callable[..., None], name: str, *words: str, server_words: tuple[str, ...] | None = None
    ) -> str:
        """Return the client's output. Without arguments the server has only the port."""
        port, waits = ("-p", str(free_port())), threading.Event()

        def say(line: str) -> None:
            self.server.append(line)
            if line == perftest.WAITING or "local address" in line:
                waits.set()

        def serve() -> None:
            try:
                main(name, [*port, *(server_words or ())], say)
            except WeftError as error:
                self.failed = error
            waits.set()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert waits.wait(PATIENCE_S)
            main(name, ["127.0.0.1", *port, *words], self.client.append)
        finally:
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
        return "\n".join(self.client)


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture(params=["python", "compiled"])
def engine(request, monkeypatch) -> str:
    """The kind of loop: in Python, used without a shared-memory path, or compiled."""
    if request.param == "python":
        monkeypatch.setattr("weft.verbs.perftest.compiled_loop.compiled_loop", lambda end, watch: None)
    return request.param


def rows(text: str) -> list[list[str]]:
    """Return the lines after `#bytes` that begin with a number, as scripts read them."""
    return [line.split() for line in text.partition("#bytes")[2].splitlines()[1:] if re.match(r"\s*\d", line)]


# -- perftest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", list(Test))
def test_every_test_prints_perftests_columns_at_both_ends(pair, test, engine):
    text = pair.run(perftest.main, test, "-n", "20")
    assert pair.failed is None
    size = "8" if "atomic" in test else "2" if test.is_latency else "65536"
    for output in (text, "\n".join(pair.server)):
        (row,) = rows(output)
        assert row[:2] == [size, "20"]
        assert len(row) == (9 if test.is_latency else 5)
        figures = [float(value) for value in row[2:]]
        if test.is_latency:
            least, most, typical, average, _, percentile_99, percentile_999 = figures
            assert 0 < least <= typical <= percentile_99 <= percentile_999 <= most
            assert least <= average <= most
        else:  # a busy machine may give 0.00, but both rates have the same basis
            _, average, rate = figures
            assert abs(average * 2**20 / int(size) / 1e6 - rate) <= 0.006 * 2**20 / int(size) / 1e6 + 1e-6
    lines = text.splitlines()
    assert lines[0] == lines[-1] == "-" * 87
    names = {"write": "RDMA_Write", "read": "RDMA_Read", "send": "Send", "atomic": "Atomic FETCH_AND_ADD"}
    assert lines[1].strip() == f"{names[test.verb]} {'Latency' if test.is_latency else 'BW'} Test"
    assert " Dual-port       : OFF\t\tDevice         : mlx5_0" in lines
    assert " Mtu             : 4096[B]" in lines
    assert f" Data ex. method : Ethernet\t\tEngine         : {engine}" in lines
    own = [re.sub("local", "remote", line) for line in pair.server if " local address" in line]
    assert own
    assert set(own) <= set(lines), "each prints the other's address"
    assert " GID: 00:00:00:00:00:00:00:00:00:00:255:255:127:00:00:01" in lines


@pytest.mark.parametrize("test", ["ib_write_bw", "ib_read_bw", "ib_send_lat"])
def test_all_sizes_arrive(pair, test, monkeypatch):
    monkeypatch.setattr("weft.verbs.perftest.kinds.ALL_SIZES", tuple(2**power for power in range(1, 17)))
    text = pair.run(perftest.main, test, "-a", "-n", "5")
    assert [int(row[0]) for row in rows(text)] == [2**power for power in range(1, 17)]


@pytest.mark.parametrize(
    ("test", "words", "iterations"),
    [
        ("ib_write_bw", ("-c", "UC", "-s", "1000"), 50),
        ("ib_send_lat", ("-c", "UC"), 50),
        ("ib_send_lat", ("-c", "UD", "-s", "700"), 50),
        ("ib_write_bw", ("-b", "-q", "3", "-s", "4K"), 150),
        ("ib_send_bw", ("-b", "-s", "1K", "-r", "64"), 50),
        ("ib_read_bw", ("-q", "2", "-o", "4", "-m", "1024"), 100),
        ("ib_atomic_bw", ("-A", "CMP_AND_SWAP", "-q", "2"), 100),
        ("ib_atomic_lat", ("-A", "CMP_AND_SWAP"), 50),
        ("ib_write_lat", ("-s", "1", "-I", "0", "-x", "0"), 50),
        ("ib_send_bw", ("-t", "4", "-Q", "3", "-r", "5", "-s", "64", "-N"), 50),
    ],
)
def test_options_of_perftest_do_what_they_say(pair, test, words, iterations, engine):
    (row,) = rows(pair.run(perftest.main, test, "-n", "50", *words))
    assert int(row[1]) == iterations
    assert pair.failed is None


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("ib_write_bw", ("-q", "2", "-Q", "7")),
        ("ib_send_bw", ("-b", "-s", "100")),
        ("ib_read_lat", ()),
        ("ib_write_lat", ()),
        ("ib_send_lat", ()),
    ],
)
def test_requests_without_shared_memory_go_as_packets(pair, test, words, monkeypatch):
    """Kernels return at every message, and continue where they stopped."""

    def closed(end: Endpoint, watch: Watch) -> CompiledLoop:
        loop = result(end, watch)
        assert isinstance(loop, CompiledLoop)
        for path in loop._paths:
            monkeypatch.setattr(path._peer.meter, "is_open", 0)  # until the end: all paths share it
        return loop

    result = compiled_loop.compiled_loop
    monkeypatch.setattr(compiled_loop, "compiled_loop", closed)
    facts = json.loads(pair.run(perftest.main, test, "-n", "40", *words, "--json"))
    assert (facts["engine"], facts["verified"]) == ("compiled", True)
    assert pair.failed is None


def test_datagrams_that_are_lost_are_counted_and_hold_nobody_up(pair, capsys):
    """The server has room for one message, so some are lost."""
    text = pair.run(perftest.main, "ib_send_bw", "-c", "UD", "-s", "512", "-n", "300", "-r", "1")
    assert rows(text)[0][:2] == ["512", "300"]
    lost = re.search(r"(\d+) messages were lost: UD", capsys.readouterr().err)
    assert lost
    assert 0 < int(lost[1]) < 300


@pytest.mark.parametrize("test", ["ib_write_bw", "ib_read_lat"])
def test_a_duration_takes_its_time(pair, test, monkeypatch):
    clock_s = itertools.count(step=0.1)
    monkeypatch.setattr(perftest, "time", SimpleNamespace(monotonic=lambda: next(clock_s)))
    facts = json.loads(pair.run(perftest.main, test, "-D", "1", "-s", "256", "--json"))
    (row,) = facts["results"]
    assert row["n_iterations"] > 200, "more than one batch"
    assert 1.0 <= next(clock_s) < 1.5
    assert facts["options"]["duration_s"] == 1


def test_missing_messages_give_no_result(pair, monkeypatch):
    """The tools compare bytes: a loop that reports messages without sending them is detected."""
    now = np.arange(1, 11)
    fake = lambda self, batch, **more: (Times(posted_ns=now, done_ns=now + 1), 0)  # noqa: E731
    for loop in (PythonLoop, CompiledLoop):
        monkeypatch.setattr(loop, "bandwidth", fake)
    with pytest.raises(SimulationBug, match="wrong bytes arrived at the server"):
        pair.run(perftest.main, "ib_write_bw", "-n", "10")
    assert not rows("\n".join(pair.client))


def test_json_says_what_ran(pair):
    facts = json.loads(pair.run(perftest.main, "ib_send_bw", "-n", "10", "-s", "64,1K", "-q", "2", "--json"))
    assert (facts["test"], facts["engine"], facts["device"], facts["verified"]) == (
        "ib_send_bw",
        "compiled",
        "mlx5_0",
        True,
    )
    assert facts["options"]["qps"] == 2
    assert facts["options"]["sizes"] == [64, 1024]
    assert facts["engine_of_server"] == "compiled"
    assert {"name", "cpus", "load_1min", "python"} <= set(facts["host"])
    assert [row["MsgSize"] for row in facts["results"]] == [64, 1024]
    assert {"BW_peak", "BW_average", "MsgRate"} <= set(facts["results"][0])


@pytest.mark.parametrize(
    ("words", "server_words", "match"),
    [
        (("-c", "UC"), ("-c", "UD"), "connection: the server has UD, the client UC"),
        (("-n", "10"), ("-q", "4"), "qps: the server has 4, the client 1"),
        (("-c", "UD", "-s", "5000"), (), "at most 4096 bytes"),
    ],
)
def test_both_ends_must_agree(pair, words, server_words, match):
    with pytest.raises(ConfigError, match=match):
        pair.run(perftest.main, "ib_send_bw", *words, server_words=server_words)
    assert match in str(pair.failed)


@pytest.mark.parametrize(
    ("test", "words", "match"),
    [
        ("ib_write_bx", (), "did you mean ib_write_bw"),
        ("ib_write_bw", ("-c", "UD"), "use ib_send_bw"),
        ("ib_read_lat", ("-c", "UC"), "only RC has"),
        ("ib_atomic_bw", ("-s", "16"), "always uses 8 bytes"),
        ("ib_write_lat", ("-q", "2"), "one message in flight"),
        ("ib_send_bw", ("-c", "UD", "-b"), "may lose messages"),
        ("ib_write_bw", ("-s", "0"), "size 0"),
        ("ib_write_bw", ("-s", "2", "-a"), "leave out -s"),
        ("ib_write_bw", ("-n", "4"), "iters 4 is not a number from 5"),
        ("ib_write_bw", ("-m", "1000"), "-m 1000 is not one of 256"),
        ("ib_write_bw", ("-p", "99999"), "port 99999"),
        ("ib_write_bw", ("-c", "XRC"), "connection type 'XRC'"),
        ("ib_write_bw", ("--rdma_cm",), "unrecognized arguments: --rdma_cm; `ib_write_bw --help`"),
        ("ib_write_bw", ("-d", "mlx5_1"), "RDMA device 'mlx5_1'; did you mean mlx5_0"),
        ("ib_write_bw", ("-i", "2"), "mlx5_0 has no port 2"),
        ("ib_write_bw", ("-x", "4"), "has no GID 4"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(test, words, match):
    with pytest.raises(ConfigError, match=re.escape(match)):
        perftest.main(test, ["127.0.0.1", *words], print)


def test_a_port_in_use_and_a_server_that_is_not_there_are_named():
    port = free_port()
    with pytest.raises(ConfigError, match=f"cannot reach 127.0.0.1 at port {port}"):
        exchange.call("127.0.0.1", port)
    holder = Listener("127.0.0.1", port)
    with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use"):
        perftest.main("ib_write_bw", ["-p", str(port)], lambda line: None)
    threading.Thread(target=lambda: exchange.call("127.0.0.1", port).close()).start()
    holder.accept().close()


# -- exchange between the ends -----------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[Peer, Peer]]:
    listening = socket.create_server(("127.0.0.1", 0))
    near = Peer(socket.create_connection(listening.getsockname()))
    far = Peer(listening.accept()[0])
    listening.close()
    yield near, far
    near.close()
    far.close()


def test_a_waiting_end_reports_a_closed_connection(ends):
    near, far = ends
    plan = Plan(test=Test.SEND_BW)
    assert not is_over(near, plan, 100)
    far.close()
    with pytest.raises(SubnetError, match="the peer closed"):
        is_over(near, plan, 0)
    with pytest.raises(SubnetError, match="the peer closed"):
        near.expect("hello")


@pytest.mark.parametrize("line", [b"GET / HTTP/1.0\r\n\r\n", b"\xff\xfe\n", b"[1]\n", b'{"hello": 3}\n', b"{}\n"])
def test_another_program_at_the_port_is_an_error(ends, line):
    near, far = ends
    far._socket.sendall(line)
    with pytest.raises(SubnetError, match=r"not a tool of weft|another program"):
        near.expect("hello", "plan")


def test_a_host_of_the_lab_is_on_this_machine_and_must_be_the_one_that_was_called(monkeypatch):
    port = free_port()
    listener = Listener("127.0.0.1", port)
    monkeypatch.setenv("WEFT_VERBS_HOST", "h1")
    exchange.call("h2", port).close()
    listener.accept().close()
    for fine in ("h2", "localhost", "127.0.0.1", "h2/mlx5_0"):
        exchange.check_host(fine, "h2")
    exchange.check_host("h2", "")  # outside a lab the host is unknown
    with pytest.raises(ConfigError, match="runs on h3, not on h2"):
        exchange.check_host("h2", "h3")


# -- figures ----------------------------------------------------------------------------------------------------------


def test_latency_is_summed_up_as_perftest_does():
    row = LatencyRow.of(2, np.arange(1000, 0, -1) / 10)
    assert (row.min_us, row.max_us, row.iterations) == (0.1, 100.0, 1000)
    assert row.typical_us == row.average_us == pytest.approx(50.05)
    assert row.deviation_us == pytest.approx(np.sqrt((1000**2 - 1) / 12) / 10)
    assert (row.p99_us, row.p999_us) == pytest.approx((99.1, 100.0))
    assert row_of(json.loads(json.dumps(row.facts()))) == row


def test_the_peak_is_the_best_stretch_from_a_posting_to_a_completion():
    """Ten messages: the sixth to eighth are posted together and complete within a microsecond."""
    posted = np.arange(10) * 1000
    posted[5:8] = 5000
    done = posted + 1000
    row = bandwidth_row(1000, [Times(posted_ns=posted, done_ns=done)])
    assert row.average_gbit_s == pytest.approx(8)
    assert row.message_rate_mpps == pytest.approx(1)
    assert row.peak_gbit_s == pytest.approx(3 * 8)
    assert bandwidth_row(1000, [Times(posted_ns=posted, done_ns=done)], no_peak=True).peak_gbit_s == 0


def test_pauses_between_batches_do_not_count():
    item = Times(posted_ns=np.array([0, 500]), done_ns=np.array([500, 1000]))
    later = Times(posted_ns=item.posted_ns + 10**9, done_ns=item.done_ns + 10**9)
    assert bandwidth_row(8, [item, later]).message_rate_mpps == pytest.approx(2)


def test_a_row_is_printed_as_perftest_prints_it():
    row = BandwidthRow(size_bytes=65536, iterations=5000, peak_gbit_s=97.5, average_gbit_s=96, message_rate_mpps=0.183)
    assert row.line(gbits=True) == " 65536      5000             97.50              96.00  \t\t     0.183000"
    assert row.line(gbits=False).split()[3] == "11444.09"


# -- rdma-core's ------------------------------------------------------------------------------------------------------


def test_devinfo_says_what_queries_say():
    text, attr = devinfo.main(["-v"]), Context(name="mlx5_0").query_device()
    output = dict(re.findall(r"^\t([a-z_]+):\t+(\S+)", text, re.MULTILINE))
    numbers = {field.name for field in fields(DeviceAttr)} & {
        name for name, value in output.items() if value.isdecimal()
    }
    assert len(numbers) > 20
    assert {name: int(output[name]) for name in numbers} == {name: getattr(attr, name) for name in numbers}
    assert output["node_guid"] == "0077:65ff:fe66:7401"
    assert "\t\t\t\t\tMEM_WINDOW_TYPE_2B\n" in text
    assert "\t\t\tactive_mtu:\t\t4096 (5)\n" in text
    assert "\t\t\tGID[  3]:\t\t::ffff:127.0.0.1, RoCE v2" in text
    assert "Unknown flags" not in text


def test_devinfo_lists_the_on_demand_paging_of_each_transport():
    lines = devinfo.main(["-v"]).splitlines()
    caps = [lines.index(f"\t{name}_odp_caps:") for name in ("general", "rc", "uc", "ud", "xrc")]
    assert caps == sorted(caps)
    assert all(line.startswith("\t\t") for at in caps for line in lines[at + 1 : at + 2])
    assert not [line for line in lines if "SUPPORT_SRQ_RECV" in line]


def test_devinfo_in_short():
    assert devinfo.main(["-l"]) == "1 HCA found:\n\tmlx5_0\n"
    short = devinfo.main(["-d", "mlx5_0", "-i", "1"]).splitlines()
    assert short[:3] == ["hca_id:\tmlx5_0", "\ttransport:\t\t\tInfiniBand (0)", "\tfw_ver:\t\t\t\t1.0.0"]
    assert short[-1] == "\t\t\tlink_layer:\t\tEthernet"
    assert devinfo.devices().splitlines()[2] == "    mlx5_0          \t007765fffe667401"
    for words, match in ((["-d", "mlx5_1"], "did you mean mlx5_0"), (["-i", "2"], "mlx5_0 has no port 2")):
        with pytest.raises(ConfigError, match=match):
            devinfo.main(words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ibv_rc_pingpong", ("-m", "1024", "-r", "3", "-g", "0")),
        ("ibv_rc_pingpong", ("-e", "-c", "-l", "1")),
        ("ibv_uc_pingpong", ()),
        ("ibv_ud_pingpong", ("-r", "3")),
    ],
)
def test_a_pingpong_prints_rdma_cores_lines(pair, name, words):
    both = ("-n", "30", "-s", "1000", *words)
    lines = pair.run(pingpong.main, name, *both, server_words=both).splitlines()
    address = r"LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID \S+"
    assert re.fullmatch(f"  local address:  {address}", lines[0])
    assert re.fullmatch(f"  remote address: {address}", lines[1])
    assert re.fullmatch(r"60000 bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec", lines[2])
    assert re.fullmatch(r"30 iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter", lines[3])
    assert pair.server[0].partition(":")[2] == lines[1].partition(":")[2].replace(" ", "  ", 1)
    assert pair.failed is None


def test_a_pingpong_server_serves_rdma_cores_client(pair):
    """The exchange equals that of rdma-core's ibv_rc_pingpong, byte for byte: 52 bytes each way, then "done"."""

    def client(name, words, say):
        del name, say
        port = int(words[words.index("-p") + 1])
        with Node() as node, socket.create_connection(("127.0.0.1", port)) as line:
            cap = QPCap(max_send_wr=1, max_recv_wr=10)
            qp = node.qp(IBV_QPT_RC, cap=cap)
            line.sendall(b"%04x:%06x:%06x:%s\0" % (0, qp.qp_num, 7, node.ctx.query_gid(1, 1).raw.hex().encode()))
            output = line.recv(52, socket.MSG_WAITALL)
            assert len(output) == 52
            assert output.endswith(b"\0")
            _, number, psn, gid = output.rstrip(b"\0").split(b":")
            assert bytes.fromhex(gid.decode()) in node.ctx.hardware.gids()
            attr = node.connected_attr(int(number, 16))
            attr.sq_psn, attr.rq_psn, attr.path_mtu = 7, int(psn, 16), IBV_MTU_1024
            route = GlobalRoute(dgid=GID.of(bytes.fromhex(gid.decode())), sgid_index=1)
            attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
            attr.timeout = 0  # no packet is lost, and a busy machine may be slow
            qp.to_rts(attr)
            line.sendall(b"done\0")
            line.close()
            for _ in range(10):
                qp.post_recv(RecvWR(1, 1, [node.sge(0, 4096)]))
            for _ in range(5):
                qp.post_send(SendWR(2, num_sge=1, sg=[node.sge(0, 4096)]))
                assert [wc.status for wc in poll(node.cq, 2, 120)] == [0, 0]

    pair.run(
        lambda name, words, say: (client if "127.0.0.1" in words else pingpong.main)(name, words, say),
        "ibv_rc_pingpong",
        server_words=("-n", "5"),
    )
    assert pair.failed is None
    assert pair.server[-1].startswith("5 iters in ")


def test_a_pingpong_refuses_what_the_other_end_does_not_do(pair):
    with pytest.raises(ConfigError, match=r"--size is (100|200) here and (100|200) at the peer"):
        pair.run(pingpong.main, "ibv_rc_pingpong", "-s", "100", server_words=("-s", "200"))


# -- as programs ------------------------------------------------------------------------------------------------------


def weft(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_perf_live_runs_both_ends_as_processes():
    done = weft("perf", "write_bw", "--live", "-s", "4K", "-n", "50", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["test"], facts["verified"], facts["results"][0]["MsgSize"]) == ("ib_write_bw", True, 4096)
    assert facts["weft"]


def test_a_pingpong_between_processes():
    port = str(free_port())
    server = subprocess.Popen(command("ibv_rc_pingpong", "-p", port, "-n", "20"), stdout=subprocess.PIPE, text=True)
    with server:
        try:
            assert server.stdout is not None
            assert "local address" in server.stdout.readline()
            client = weft("ibv_rc_pingpong", "localhost", "-p", port, "-n", "20")
            assert client.returncode == 0, client.stderr
            assert "20 iters in" in client.stdout
            assert "20 iters in" in server.communicate(timeout=PATIENCE_S)[0]
        finally:
            server.kill()


@pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens:UserWarning")  # they are in sys.argv
@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("write_bw", "h1", "--live"), "two hosts of a lab, or none"),
        (("write_bw", "h1", "h2", "star:hosts=2", "--live"), "leave out spec star:hosts=2"),
        (("write_bw", "--live", "--memory", "gpudirect"), "leave out memory gpudirect"),
        (("write_bw", "h1", "h2", "star:hosts=2", "--lab", "x"), "add --live"),
        (("write_bw", "--live", "-c", "UD"), "use ib_send_bw"),
    ],
)
def test_perf_live_refuses_what_it_cannot_run(words, match, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["weft", "perf", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert match in capsys.readouterr().err


def test_all_tools_are_in_the_folder_for_a_path(tmp_path):
    folder = program_folder(tmp_path)
    assert program_folder(tmp_path) == folder
    assert (
        {path.name for path in folder.iterdir()}
        == set(PROGRAMS)
        == {*Test, *pingpong.NAMES, "ibv_devices", "ibv_devinfo"}
    )
    done = subprocess.run([folder / "ibv_devices"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.rstrip("\n") == devinfo.devices()


@pytest.mark.parametrize("name", GROUPS["RDMA programs"])
def test_every_tool_has_a_help_page(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["weft", name, "--help"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert name in capsys.readouterr().out or name == "perftest"


def test_names_of_tests_go_with_and_without_the_prefix():
    assert parse_test("write_bw") is parse_test("ib_write_bw") is Test.WRITE_BW
    plan, seat, style = parse(Test.WRITE_BW, ["h2", "-s64", "--iters=100", "-x", "1", "-F", "--report_gbits"])
    assert (plan.sizes, plan.iterations, seat.host, seat.gid_index, style.gbits) == ((64,), 100, "h2", 1, True)
    assert Plan.of(json.loads(json.dumps(asdict(plan)))) == plan
