"""Measure weft's software adapter between two processes of this machine, and the machine itself, in the same run.

    python benchmarks/verbs.py [--times 5] [--sizes 1M 4M 16M 64M] [--json]

    latency       64-byte SEND, half a round trip: `weft perf send_lat --live`, whose loop is compiled as perftest's is;
                  the same by a Python program that creates SGE and SendWR each time, and by one that reuses them;
                  a blocking ping-pong over TCP on loopback, also in Python
    bandwidth     RDMA WRITE, `weft perf write_bw --live`, and a plain copy (memmove) of as many bytes between two
                  buffers of one process; process_vm_writev of 1 MiB into another, as used for memory that is not shared
    rate          64-byte messages per second, `weft perf send_bw --live`
    RoCE v2       RDMA WRITE over UDP on loopback with 4 KiB packets, ICRCs computed and checked: verbs_roce.py

Compared programs run in turn, `--times` times, so that other load on the machine affects both equally; the best of
each counts.
Two polling processes need two cores: on a busy machine latencies are those of the scheduler, so the load is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.units import parse_size_bytes

HERE = Path(__file__).parent
SMALL_BYTES = 64
ROUNDS = 20_000
COPIED_BYTES = 1 << 28  # in one measurement, at least


def perf(*arguments: str) -> dict[str, Any]:
    """Return the result of `weft perf ... --live --json` for its only size."""
    command = [sys.executable, "-m", "weft", "perf", *arguments, "--live", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    report = json.loads(done.stdout)
    return {"engine": report["engine"], **report["results"][0]}


def send_latency_us() -> float:
    result = perf("send_lat", "-s", str(SMALL_BYTES), "-n", str(ROUNDS))
    assert result["engine"] == "compiled"
    return float(result["t_typical"])


def tcp_latency_us() -> float:
    """Measure a blocking ping-pong, with the other end in another process."""
    server = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if not child:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(SMALL_BYTES):
            connection.sendall(data)
        os._exit(0)
    near = socket.create_connection(server.getsockname())
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message, halves = bytes(SMALL_BYTES), []
    for _ in range(ROUNDS // 4):
        began_ns = time.perf_counter_ns()
        near.sendall(message)
        near.recv(SMALL_BYTES)
        halves.append((time.perf_counter_ns() - began_ns) / 2000)
    near.close()
    server.close()
    os.waitpid(child, 0)
    return statistics.median(halves)


def python_latency_us(*options: str) -> float:
    done = subprocess.run(
        [sys.executable, HERE / "verbs_pingpong.py", str(ROUNDS // 4), *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return float(done.stdout)


def write_gb_s(size: int) -> float:
    count = max(20, COPIED_BYTES // size)
    result = perf("write_bw", "-s", str(size), "-n", str(count), "--report_gbits")
    assert result["engine"] == "compiled"
    return float(result["BW_average"]) / 8


def copy_gb_s(size: int) -> float:
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    count = max(20, COPIED_BYTES // size)
    began_s = time.perf_counter()
    for _ in range(count):
        ctypes.memmove(target.ctypes.data, source.ctypes.data, size)
    return size * count / (time.perf_counter() - began_s) / 1e9


class _Vector(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size", ctypes.c_size_t))


def process_vm_gb_s(size: int = 1 << 20) -> float:
    """Write into a forked process, which has its buffer at the same address."""
    buffer = np.ones(size, np.uint8)
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        buffer[:] = 2  # makes its own copy
        os.write(write_end, b"!")
        time.sleep(60)
        os._exit(0)
    os.read(read_end, 1)
    write = ctypes.CDLL(None, use_errno=True).process_vm_writev
    write.restype = ctypes.c_ssize_t
    vector = ctypes.byref(_Vector(buffer.ctypes.data, size))
    count, began_s = COPIED_BYTES // size, time.perf_counter()
    for _ in range(count):
        assert write(child, vector, ctypes.c_ulong(1), vector, ctypes.c_ulong(1), ctypes.c_ulong(0)) == size
    took_s = time.perf_counter() - began_s
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for file in (read_end, write_end):
        os.close(file)
    return size * count / took_s / 1e9


def rate_mpps() -> float:
    return float(perf("send_bw", "-s", str(SMALL_BYTES), "-n", "200000")["MsgRate"])


def roce() -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, HERE / "verbs_roce.py", "--json"], capture_output=True, text=True, check=True, timeout=300
    )
    return {name: float(value) for name, value in json.loads(done.stdout).items() if isinstance(value, int | float)}


def in_turn(times: int, *measures: Callable[[], float]) -> list[list[float]]:
    columns: list[list[float]] = [[] for _ in measures]
    for _ in range(times):
        for column, measure in zip(columns, measures, strict=True):
            column.append(measure())
    return columns


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--sizes", nargs="*", default=["1M", "4M", "16M", "64M"])
    options.add_argument("--json", action="store_true")
    parsed = options.parse_args()
    load = os.getloadavg()[0]
    perf("send_bw", "-s", "64", "-n", "1000")  # compile
    sends, tcps, pythons, reusing = in_turn(
        parsed.times, send_latency_us, tcp_latency_us, python_latency_us, lambda: python_latency_us("--reuse")
    )
    latency = {
        "send_us": min(sends),
        "tcp_us": min(tcps),
        "python_us": min(pythons),
        "python_kept_us": min(reusing),
        "tcp/send": min(tcps) / min(sends),
    }
    bandwidth = []
    for text in parsed.sizes:
        size = parse_size_bytes(text)
        writes, copies = in_turn(parsed.times, lambda size=size: write_gb_s(size), lambda size=size: copy_gb_s(size))  # type: ignore[misc]
        bandwidth.append({"bytes": size, "write_gb_s": max(writes), "copy_gb_s": max(copies)})
    rates, unshared = in_turn(parsed.times, rate_mpps, process_vm_gb_s)
    figures = {
        "weft": weft.__version__,
        "cpus": os.cpu_count(),
        "load_1min_before": load,
        "times": parsed.times,
        "latency_64_bytes": latency,
        "bandwidth": bandwidth,
        "process_vm_writev_1_mib_gb_s": max(unshared),
        "send_rate_mpps": max(rates),
        "roce_v2": roce(),
    }
    print(json.dumps(figures, indent=2) if parsed.json else report(figures))


def report(figures: dict[str, Any]) -> str:
    latency = figures["latency_64_bytes"]
    lines = [
        f"weft {figures['weft']}, {figures['cpus']} cores, load {figures['load_1min_before']:.1f} before,"
        f" best of {figures['times']}",
        "",
        "64 bytes, one way         µs",
        f"  SEND, compiled loop  {latency['send_us']:7.2f}",
        f"  SEND, Python loop    {latency['python_us']:7.2f}   {latency['python_kept_us']:.2f} if requests are reused",
        f"  TCP, blocking        {latency['tcp_us']:7.2f}   {latency['tcp_us'] / latency['send_us']:.1f} times that",
        "",
        "RDMA WRITE          GB/s    copy   ratio",
    ]
    lines += [
        f"  {row['bytes'] >> 20:3d} MiB         {row['write_gb_s']:7.2f} {row['copy_gb_s']:7.2f}"
        f"   {row['write_gb_s'] / row['copy_gb_s']:.2f}"
        for row in figures["bandwidth"]
    ]
    lines += [f"  process_vm_writev {figures['process_vm_writev_1_mib_gb_s']:6.2f}   of 1 MiB"]
    lines += ["", f"64-byte SENDs       {figures['send_rate_mpps']:7.2f} million a second", "", "RoCE v2 over UDP"]
    lines += [f"  {name:24s} {value:7.2f}" for name, value in figures["roce_v2"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
