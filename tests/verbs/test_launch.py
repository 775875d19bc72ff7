"""`weft verbs COMMAND`: any program, with weft's pyverbs on its import path."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from tests.warm import WARM

from weft import compiler

pytestmark = pytest.mark.usefixtures("warm")
LAUNCH = [sys.executable, "-m", "weft", "verbs"]  # a separate process, with its own ID and signals
SAYS_WHOSE = "import pyverbs.wr; print(pyverbs.wr.__spec__.name)"
WEFTS = "weft.verbs.pyverbs.wr\n"


def run(*words: object, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [os.environ[WARM], "verbs", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **more,
    )


def script(folder: Path, text: str) -> Path:
    path = folder / "app.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_script_a_module_and_a_line_find_wefts_pyverbs(tmp_path):
    path = script(tmp_path, SAYS_WHOSE)
    for words in ([path], ["-m", "app"], ["-c", SAYS_WHOSE]):
        done = run(sys.executable, *words, cwd=tmp_path)
        assert (done.stdout, done.returncode) == (WEFTS, 0), done.stderr


def test_the_module_itself_runs_a_program(tmp_path):
    module = [sys.executable, "-m", "weft.verbs.pyverbs"]
    done = subprocess.run([*module, script(tmp_path, SAYS_WHOSE)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (WEFTS, 0), done.stderr
    alone = subprocess.run(module, capture_output=True, text=True, check=False)
    assert (alone.stdout, alone.returncode) == ("", 2)
    assert "takes a program" in alone.stderr


def test_children_find_it_too(tmp_path):
    path = script(tmp_path, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SAYS_WHOSE!r}])")
    assert run("sh", "-c", f"exec {sys.executable} {path}").stdout == WEFTS


def test_callers_python_path_is_kept(tmp_path):
    (tmp_path / "mine.py").write_text("word = 'kept'", encoding="utf-8")
    result = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = run(sys.executable, "-c", "import mine, pyverbs.wr; print(mine.word)", env=result)
    assert done.stdout == "kept\n", done.stderr


@pytest.mark.skipif(compiler.find() is None, reason="no C compiler")
def test_ucx_is_told_from_where_on_rdma_pays_unless_the_caller_knows_better():
    for arguments, result in (({}, "32k"), ({"UCX_RNDV_THRESH": "8k"}, "8k")):
        assert run("sh", "-c", "echo $UCX_RNDV_THRESH", env=os.environ | arguments).stdout == f"{result}\n"


@pytest.mark.skipif(compiler.find() is None, reason="no C compiler")
def test_the_module_of_gpudirect_exists_unless_memory_of_gpus_has_no_handles():
    """NCCL and UCX check only that its file exists."""
    program = "import os; print(os.access('/sys/module/nvidia_peermem/version', os.F_OK))"
    for arguments, result in (({}, True), ({"NCCL_CUMEM_ENABLE": "0"}, True), ({"NCCL_CUMEM_ENABLE": "1"}, False)):
        assert run(sys.executable, "-c", program, env=os.environ | arguments).stdout == f"{result}\n"
    assert run("sh", "-c", "echo $NCCL_CUMEM_ENABLE").stdout == "0\n"


def test_words_of_the_program_are_its_own():
    words = ("--help", "--roce", "10.0.0.1", "-h", "--", "a b", "")
    done = run(sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    assert done.stdout == f"{list(words)}\n", done.stderr


def test_the_tools_of_rdma_are_there():
    assert run("ibv_devinfo", "-l").stdout.split() == ["1", "HCA", "found:", "mlx5_0"]


def test_the_program_takes_the_place_of_the_launcher():
    """So its process ID, its exit status and its signal handling are its own."""
    with subprocess.Popen(
        [*LAUNCH, "sh", "-c", "echo $$; read line; exit 7"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as launched:
        assert int(launched.stdout.readline()) == launched.pid
        launched.communicate("\n", timeout=PATIENCE_S)
        assert launched.returncode == 7


def test_a_signal_ends_it():
    with subprocess.Popen([*LAUNCH, "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE) as launched:
        launched.stdout.readline()
        launched.send_signal(signal.SIGTERM)
        assert launched.wait(PATIENCE_S) == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_signal_is_ignored_that_the_caller_did_not_ignore():
    output = subprocess.check_output([*LAUNCH, "cat", "/proc/self/status"], text=True)
    mask = next(line for line in output.splitlines() if line.startswith("SigIgn"))
    mine = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigIgn"))
    pythons = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert int(mask.split()[1], 16) == int(mine.split()[1], 16) & ~pythons


def test_an_address_makes_it_roce_over_udp():
    program = "import pyverbs.device as d; print(d.Context(name='mlx5_0').query_gid(1, 3).gid)"
    done = run("--roce", "127.0.0.9", sys.executable, "-c", program)
    assert done.stdout == "0000:0000:0000:0000:0000:ffff:7f00:0009\n", done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs a command: weft verbs [--roce ADDRESS] COMMAND..."),
        (["--roce", "127.0.0.1"], "needs a command"),
        (["--rocket", "ls"], "needs a command"),
        (["no-such-program"], "there is no program 'no-such-program' in the PATH"),
        (["app.py"], "weft verbs python app.py"),
        (["--roce", "here", "ls"], "--roce here is not an IP address"),
    ],
)
def test_command_that_cannot_run_is_reported(words, says):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_file_that_is_no_program_is_told(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes(b"\0")
    path.chmod(0o755)
    done = run(path)
    assert (done.returncode, f"{path} cannot be run: Exec format error" in done.stderr) == (2, True)


def test_help_is_about_the_launcher():
    done = run("--help")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "weft verbs [--roce ADDRESS] COMMAND...")


def test_a_python_without_numpy_is_told_what_to_do():
    done = run(sys.executable, "-S", "-c", "import pyverbs.device")
    assert "ImportError: weft's pyverbs needs numpy" in done.stderr
