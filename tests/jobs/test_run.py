"""`weft run` on one lab: placement, environment, output, how jobs end, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft import runtime
from weft.cli.run import run
from weft.errors import ConfigError, SubnetError
from weft.jobs import processes
from weft.lab import control, daemon, own_lab
from weft.lab.registry import Entry

WEFT = (sys.executable, "-m", "weft", "run")
SHELL = ("sh", "-c")


@pytest.fixture(scope="module")
def lab(compiled: None) -> Iterator[Entry]:
    """Start a lab of two servers with eight GPUs each."""
    fabric = weft.load("fat-tree:hosts=2,server=dgx-h100")
    with own_lab.own_lab(fabric, f"jobs-{os.getpid()}") as running:
        yield running.entry


def words(lab: Entry, n: int, *more: str) -> list[str]:
    return ["-n", str(n), "--lab", lab.name, *more]


def job(lab: Entry, n: int, *more: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(*words(lab, n, *more))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def wait_for(path: Path) -> str:
    """Return shell code that waits for a file."""
    return f"while ! [ -e {path} ]; do sleep 0.01; done;"


def left() -> list[str]:
    """Return the names of job files in the runtime folder."""
    return [path.name for path in runtime.folder().glob("run-*")]


def shows(printed: str) -> dict[str, list[str]]:
    """Return printed lines by their prefix."""
    by_prefix: dict[str, list[str]] = {}
    for line in printed.splitlines():
        prefix, _, text = line.partition(" ")
        by_prefix.setdefault(prefix, []).append(text)
    return by_prefix


def test_each_rank_gets_its_place_and_the_adapter_of_its_gpu(lab, capfd):
    names = (
        "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK MASTER_ADDR WEFT_VERBS_HOST "
        "WEFT_ADAPTER UCX_NET_DEVICES NCCL_IB_HCA OMP_NUM_THREADS"
    )
    text = " ".join(f"${name}" for name in names.split())
    assert job(lab, 10, *SHELL, f"echo {text}; echo $MASTER_PORT $TORCHELASTIC_RUN_ID $WEFT_JOB") == 0
    printed = shows(capfd.readouterr().out)
    cards = [0, 3, 4, 5, 6, 9, 10, 11, 0, 3]  # the compute adapters of a DGX H100, by GPU
    for rank, card in enumerate(cards):
        host, local = divmod(rank, 8)
        place = f"{rank} 10 {local} {2 if host else 8} {host} 2 {rank} 127.1.0.1 dgx{host + 1}"
        assert printed[f"[{rank}]"][0] == f"{place} mlx5_{card} mlx5_{card}:1 =mlx5_{card}:1 1"
    shared = {lines[1] for lines in printed.values()}
    assert len(shared) == 1, "all ranks have the same rendezvous"
    port, name, store = shared.pop().split()
    assert 0 < int(port) < 1 << 16
    assert store.endswith(f"{name}.store")


def test_per_host_and_hosts_place_ranks(lab, capfd):
    assert job(lab, 3, "--per-host", "2", "--hosts", "dgx[2,1]", *SHELL, "echo $WEFT_VERBS_HOST $WEFT_ADAPTER") == 0
    assert shows(capfd.readouterr().out) == {
        "[0]": ["dgx2 mlx5_0"],
        "[1]": ["dgx2 mlx5_3"],
        "[2]": ["dgx1 mlx5_0"],
    }


def test_ranks_exchange_data_and_the_report_counts_it(lab, capfd, tmp_path):
    program, report = Path(__file__).with_name("exchange.py"), tmp_path / "report.json"
    rows = tmp_path / "report.csv"
    assert job(lab, 3, "--per-host", "2", "--json", str(report), "--csv", str(rows), str(program), "65536") == 0
    output = capfd.readouterr()
    assert [row.split(",")[:2] for row in rows.read_text().splitlines()] == [
        ["host", "ranks"],
        ["dgx1", "2"],
        ["dgx2", "1"],
    ]
    assert {f"[{rank}]": [f"got 65536 bytes of {(rank + 2) % 3}"] for rank in range(3)} == shows(output.out)
    hosts = json.loads(report.read_text())["hosts"]
    assert [host["ranks"] for host in hosts.values()] == [2, 1]
    assert hosts["dgx2"]["sent_bytes"] == sum(port["sent_bytes"] for port in hosts["dgx2"]["ports"]) > 65536
    assert hosts["dgx2"]["received_packets"] >= 65536 // 4096
    assert hosts["dgx1"]["sent_bytes"] > 2 * 65536, "ranks of one server talk through their adapters as well"
    assert "3 ranks on 2 hosts" in output.err


def test_output_lines_stay_whole_and_stdout_and_stderr_stay_separate(lab, capfd):
    text = "for i in 1 2 3; do printf a; printf 'b\\n'; printf 'c\\n' >&2; done; printf end"
    assert job(lab, 4, "--quiet", *SHELL, text) == 0
    output = capfd.readouterr()
    assert shows(output.out) == {f"[{rank}]": ["ab", "ab", "ab", "end"] for rank in range(4)}
    assert shows(output.err) == {f"[{rank}]": ["c", "c", "c"] for rank in range(4)}
    assert job(lab, 2, "--quiet", "--no-prefix", "echo", "[x] y") == 0
    assert capfd.readouterr().out == "[x] y\n" * 2


def test_the_first_rank_that_fails_ends_the_job_and_is_named(lab, capfd, tmp_path):
    rest = f"trap 'echo told; exit 0' TERM; touch {tmp_path}/$RANK; while :; do sleep 0.01; done"
    text = f"[ $RANK = 1 ] || {{ {rest}; }}; {' '.join(wait_for(tmp_path / n) for n in '02')} echo why >&2; exit 7"
    assert job(lab, 3, "--quiet", "--grace", "600", *SHELL, text) == 7
    output = capfd.readouterr()
    assert shows(output.out) == {"[0]": ["told"], "[2]": ["told"]}
    how = "weft: rank 1 on dgx1 ended with status 7, and so all ended; its last lines of errors:"
    assert output.err.startswith("[1] why\n")
    assert output.err.endswith(f"{how}\n  why\n")
    assert left() == []


def test_other_ranks_can_print_errors_after_a_rank_failed(lab, capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LAST_WORDS_S", PATIENCE_S)
    first = f"echo $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/first; exit 7"
    other = f"{wait_for(tmp_path / 'first')} read first < {tmp_path}/first; while kill -0 $first; do sleep 0.01; done"
    text = f"[ $RANK = 1 ] && {{ {first}; }}; {{ {other}; }} 2>&-; echo it has gone >&2; exit 8"
    assert job(lab, 2, "--quiet", *SHELL, text) == 7
    how = "weft: rank 1 on dgx1 ended with status 7, and so all ended"
    assert capfd.readouterr().err == f"[0] it has gone\n{how}\n"


def test_ranks_that_ignore_sigterm_are_killed_with_their_children(lab, capfd):
    text = "trap '' TERM; setsid sleep 1000 & echo $!; [ $RANK = 1 ] && kill -SEGV $$; while :; do sleep 1000; done"
    assert job(lab, 2, "--quiet", "--grace", "0.1", *SHELL, text) == 128 + signal.SIGSEGV
    output = capfd.readouterr()
    assert output.err == "weft: rank 1 on dgx1 was killed by SIGSEGV, and so all ended\n"
    for lines in shows(output.out).values():
        assert is_gone(lines[0])


def is_gone(process: str) -> bool:
    """Return whether a process has ended (or is a zombie)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def launched(command: Sequence[str], n: int) -> tuple[subprocess.Popen[str], list[str]]:
    """Start a launcher; return it and the process ids that its ranks print."""
    launcher = subprocess.Popen([*WEFT, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert launcher.stdout
    return launcher, [launcher.stdout.readline().split()[1] for _ in range(n)]


def test_a_signal_to_the_launcher_ends_all_ranks(lab):
    launcher, ranks = launched(words(lab, 2, "--quiet", *SHELL, "echo $$; while :; do sleep 1000; done"), 2)
    launcher.send_signal(signal.SIGTERM)
    _, errors = launcher.communicate(timeout=PATIENCE_S)
    assert errors == "weft: SIGTERM: all ranks were ended\n"
    assert launcher.returncode == 128 + signal.SIGTERM
    assert all(map(is_gone, ranks))
    assert left() == []


def test_a_second_signal_skips_the_grace_period(lab):
    text = "trap 'echo told' TERM; echo $$; while :; do sleep 0.01; done"
    launcher, ranks = launched(words(lab, 2, "--grace", "100000", *SHELL, text), 2)
    launcher.send_signal(signal.SIGINT)
    assert launcher.stdout
    assert launcher.stdout.readline().endswith("told\n")
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=PATIENCE_S)
    assert launcher.returncode == 128 + signal.SIGINT
    assert all(map(is_gone, ranks))


def test_a_killed_launcher_leaves_no_process_or_file():
    """Its lab, subnet manager, ranks, sockets and files go."""
    launcher, ranks = launched(["-n", "2", *SHELL, "echo $$; while :; do sleep 1000; done"], 2)
    assert left()
    state = control.ask(next(e for e in map(entry_of, left()) if e), "state")
    launcher.kill()
    launcher.communicate(timeout=PATIENCE_S)
    wait_until(lambda: all(map(is_gone, [*ranks, str(state["pid"])])) and not left(), lambda: f"{left()} going away")


def entry_of(name: str) -> Entry | None:
    return Entry(name.removesuffix(".sock"), runtime.folder()) if name.endswith(".sock") else None


def test_a_failed_rank_is_named_even_if_its_lab_has_ended(capfd, tmp_path):
    with own_lab.own_lab(weft.load("star:hosts=2"), f"gone-{os.getpid()}") as running:
        text = f"touch {tmp_path}/$RANK; {wait_for(tmp_path / 'end')} exit 4"
        waiting = threading.Thread(
            target=end_when, args=(running.entry, [tmp_path / n for n in "01"], tmp_path / "end")
        )
        waiting.start()
        assert job(running.entry, 2, *SHELL, text) == 4
        waiting.join()
    assert "ended with status 4" in capfd.readouterr().err


def end_when(lab: Entry, expected: Sequence[Path], then: Path) -> None:
    wait_until(lambda: all(path.exists() for path in expected))
    control.end(lab)
    then.touch()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["-n", "0", "true"], "-n must be at least 1, got 0"),
        (["-n", "1.5", "true"], "-n 1.5: give a whole number"),
        (["-n"], "-n has no value"),
        (["true"], "-n is missing"),
        (["-n", "2"], "no program to run"),
        (["-n", "2", "--lab"], "--lab has no value"),
        (["-n", "2", "--hots", "h1", "true"], "there is no option '--hots'; did you mean --hosts"),
        (["-n", "2", "--per-host", "0", "true"], "--per-host must be at least 1, got 0"),
        (["-n", "2", "--grace", "soon", "true"], "--grace soon: give seconds"),
        (["-n", "2", "--grace", "-1", "true"], "--grace must be 0 or more seconds"),
        (["-n", "2", "--json", "no/such/folder", "true"], "--json no/such/folder: cannot write this file"),
        (["-n", "2", "no-such-program"], "there is no program 'no-such-program'"),
        (["-n", "2", "--mpi=no-mpirun", "true"], "there is no program 'no-mpirun'"),
        (["-n", "2", "--mpi=true", "true"], "--mpi=true: /usr/bin/true is neither Open MPI's mpirun nor MPICH's"),
        (["-n", "2", "no_such.py"], "no_such.py: no such file"),
        (["-n", "2", "--lab", "no-such-lab", "true"], "there is no lab, topology or file 'no-such-lab'"),
        (["-n", "2", "--hosts", "h1", "true"], "--hosts h1 needs a lab"),
        (["-n", "5", "--lab", "star:hosts=4", "true"], "-n 5: 4 hosts have room for 4 ranks"),
        (["-n", "2", "--lab", "star:hosts=4", "--hosts", "h5,h1", "true"], "there is no host 'h5'; did you mean"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(wrong, says):
    with pytest.raises(ConfigError) as refused:
        run(*wrong)
    assert str(refused.value).startswith(says)
    assert left() == []


def test_a_lab_without_a_subnet_manager_is_refused():
    entry = daemon.start(weft.load("star:hosts=2"), f"bare-{os.getpid()}", follow=True)
    try:
        with pytest.raises(SubnetError, match="mlx5_0 on h1 is Initialize: no subnet manager has brought it up"):
            run("-n", "2", "--lab", entry.name, "true")
    finally:
        control.end(entry)
