"""Run unmodified programs in C, usually as a pair: a server that listens and a client that connects to it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.interop.conftest import do_without, find_peer
from tests.patience import PATIENCE_S, wait_until

from weft import compiler
from weft.lab import programs
from weft.lab.lab import Lab
from weft.verbs import launch

_NO_CLOCK = "Can't produce a report"  # perftest cannot measure the clock's frequency on a busy processor
_TRIES = 20


def program(name: str) -> str:
    """Return the path of the system's own program, not of weft's program of that name."""
    beside = [folder for folder in os.environ.get("PATH", "").split(":") if "weft" not in folder]
    result = next((path for folder in (*beside, "/usr/bin") if (path := Path(folder, name)).is_file()), None)
    return str(result) if result else find_peer(f"{name} of {name}")


def compile_program(name: str, folder: Path, *libraries: str) -> str:
    """Compile one of the programs in C beside this file, with the system's verbs.h and rdma_cma.h."""
    for header, package in (("infiniband/verbs.h", "libibverbs-dev"), ("rdma/rdma_cma.h", "librdmacm-dev")):
        if not Path("/usr/include", header).is_file():
            do_without(package)
    source, result = Path(__file__).with_name(f"{name}.c"), folder / name
    words = [compiler.find() or "cc", source, "-o", result, *libraries, "-libverbs", "-pthread"]
    subprocess.run(words, check=True)
    return str(result)


def outside_of_labs() -> dict[str, str]:
    return os.environ | launch.environment() | {"WEFT_VERBS_SAY": "1"}


def on(lab: Lab, host: str) -> dict[str, str]:
    """Return the environment of a program under `weft exec`."""
    return os.environ | programs.environment(lab.host(host)) | {"WEFT_VERBS_SAY": "1"}


def listening_ports() -> set[int]:
    """Return the TCP ports on which this machine listens, of both versions of IP."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {int(words[1].rpartition(":")[2], 16) for words in lines if words[3] == "0A"}


def free_port() -> int:
    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        return int(item.getsockname()[1])


def run_pair(
    words: Sequence[str], one: Mapping[str, str], other: Mapping[str, str], port_flag: str = "-p"
) -> tuple[str, str]:
    """Return the output of both programs, which must end without an error."""
    for _ in range(_TRIES):
        server_status, text, client = _run_once(words, one, other, port_flag)
        if _NO_CLOCK not in text + client.stdout + client.stderr:
            break
    assert client.returncode == 0, client.stdout + client.stderr + text
    assert server_status == 0, text
    return text, client.stdout


def _run_once(
    words: Sequence[str], one: Mapping[str, str], other: Mapping[str, str], port_flag: str
) -> tuple[int, str, subprocess.CompletedProcess[str]]:
    """Return the server's exit status, the server's output, and the completed client."""
    port = free_port()
    command = [*words, port_flag, str(port)]
    with started(command, one) as server:
        wait_until(lambda: port in listening_ports(), lambda: output(server), lambda: server.poll() is None)
        client = subprocess.run(
            [*command, "127.0.0.1"], env=other, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        text = server.communicate(timeout=PATIENCE_S)[0]
    return server.returncode, text, client


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def output(process: subprocess.Popen[str]) -> str:
    process.kill()
    return str(process.communicate()[0])


def fields(devinfo: str) -> dict[str, str]:
    """Return the fields that ibv_devinfo prints as `name: value`."""
    return dict(re.findall(r"^\s*(\w+):\s+(.+)$", devinfo, re.M))
