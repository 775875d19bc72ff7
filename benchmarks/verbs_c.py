"""Measure Debian's unmodified perftest on weft's libibverbs between two processes, and the machine itself, in one run.

    python benchmarks/verbs_c.py [--times 5] [--json]

    ib_send_lat   64 bytes, half a round trip, typical
    ib_write_bw   1 MiB, average; and process_vm_writev of 1 MiB, the copy between processes on which it is based
    ib_send_bw    64 bytes, messages per second
    ... -c UD     ib_send_lat of 64 bytes, ib_send_bw of 2048
    ... -c UC     ib_send_lat of 64 bytes, ib_write_bw of 1 MiB

Compared programs run in turn, `--times` times; the best of each counts. Two polling processes need two cores: the
load is
printed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from verbs import in_turn, process_vm_gb_s
from weft.verbs import launch

_TIMEOUT_S = 120
_MIB = 1 << 20


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def perftest(name: str, *arguments: str) -> list[str]:
    """Return the figures of the client's only row."""
    command = [f"/usr/bin/{name}", "-x", "1", "-p", _free_port(), *arguments]
    environment = os.environ | launch.environment()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(_TIMEOUT_S):
                time.sleep(1)  # it starts and loads kernels
                client = subprocess.run(
                    [*command, "127.0.0.1"], env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
                )
                if client.returncode == 0 or server.poll() is not None:
                    break
        finally:
            server.terminate()
    rows = client.stdout.splitlines()
    head = next(index for index, row in enumerate(rows) if row.lstrip().startswith("#bytes"))
    return rows[head + 1].split()


def send_latency_us() -> float:
    return float(perftest("ib_send_lat", "-s", "64", "-n", "20000")[4])


def write_gb_s() -> float:
    return float(perftest("ib_write_bw", "-s", str(_MIB), "-n", "2000")[3]) * _MIB / 1e9


def rate_mpps() -> float:
    return float(perftest("ib_send_bw", "-s", "64", "-n", "500000")[4])


def datagram_latency_us() -> float:
    return float(perftest("ib_send_lat", "-c", "UD", "-s", "64", "-n", "20000")[4])


def datagrams_gb_s() -> float:
    return float(perftest("ib_send_bw", "-c", "UD", "-s", "2048", "-n", "100000")[3]) * _MIB / 1e9


def unreliable_latency_us() -> float:
    return float(perftest("ib_send_lat", "-c", "UC", "-s", "64", "-n", "20000")[4])


def unreliable_gb_s() -> float:
    return float(perftest("ib_write_bw", "-c", "UC", "-s", str(_MIB), "-n", "2000")[3]) * _MIB / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="measurements of each")
    parser.add_argument("--json", action="store_true", help="figures and nothing else")
    chosen = parser.parse_args()
    if not Path("/usr/bin/ib_send_lat").is_file():
        sys.exit("perftest is not installed: apt install perftest")
    latencies, writes, copies, rates, *unreliable = in_turn(
        chosen.times,
        send_latency_us,
        write_gb_s,
        lambda: process_vm_gb_s(_MIB),
        rate_mpps,
        datagram_latency_us,
        datagrams_gb_s,
        unreliable_latency_us,
        unreliable_gb_s,
    )
    figures = {
        "ib_send_lat_64_us": min(latencies),
        "ib_write_bw_1_mib_gb_s": max(writes),
        "process_vm_writev_1_mib_gb_s": max(copies),
        "write_of_copy": max(writes) / max(copies),
        "ib_send_bw_64_mpps": max(rates),
        "ib_send_lat_ud_64_us": min(unreliable[0]),
        "ib_send_bw_ud_2048_gb_s": max(unreliable[1]),
        "ib_send_lat_uc_64_us": min(unreliable[2]),
        "ib_write_bw_uc_1_mib_gb_s": max(unreliable[3]),
        "load": os.getloadavg()[0],
    }
    if chosen.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:30} {value:8.2f}")


if __name__ == "__main__":
    main()
