"""weft's software adapter between two processes of this machine, and what the machine itself does, in the same run.

    python benchmarks/verbs.py [--times 5] [--sizes 1M 4M 16M 64M] [--json]

    latency       64-byte SEND, half a round trip: `weft perf send_lat --live`, whose loop is compiled as perftest's is;
                  the same by a Python program that makes SGE and SendWR, posts and polls, and by one that keeps them;
                  a blocking ping-pong over TCP on loopback, in Python too
    bandwidth     RDMA WRITE, `weft perf write_bw --live`, and a plain copy (memmove) of as many bytes between two
                  buffers of one process; process_vm_writev of 1 MiB into another, which memory that is not shared takes
    rate          64-byte messages in a second, `weft perf send_bw --live`
    RoCE v2       RDMA WRITE over UDP on loopback with 4 KiB packets, ICRCs made and checked: benchmarks/verbs_roce.py

What is compared runs in turn, `--times` times, so that whatever else the machine does meets both alike; the best of
each counts. Two processes that poll need two cores: on a busy machine latencies are those of the scheduler, so the
load is printed.
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


def perf(*words: str) -> dict[str, Any]:
    """What `weft perf ... --live --json` says of its only size."""
    command = [sys.executable, "-m", "weft", "perf", *words, "--live", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    said = json.loads(done.stdout)
    return {"engine": said["engine"], **said["results"][0]}


def send_latency_us() -> float:
    said = perf("send_lat", "-s", str(SMALL_BYTES), "-n", str(ROUNDS))
    assert said["engine"] == "compiled"
    return float(said["t_typical"])


def tcp_latency_us() -> float:
    """Blocking, the other end in a process of its own."""
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
    said = perf("write_bw", "-s", str(size), "-n", str(count), "--report_gbits")
    assert said["engine"] == "compiled"
    return float(said["BW_average"]) / 8


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
    """Into a process that was forked, so that it has its buffer at the same address."""
    buffer = np.ones(size, np.uint8)
    there, here = os.pipe()
    child = os.fork()
    if not child:
        buffer[:] = 2  # a copy of its own
        os.write(here, b"!")
        time.sleep(60)
        os._exit(0)
    os.read(there, 1)
    write = ctypes.CDLL(None, use_errno=True).process_vm_writev
    write.restype = ctypes.c_ssize_t
    vector = ctypes.byref(_Vector(buffer.ctypes.data, size))
    count, began_s = COPIED_BYTES // size, time.perf_counter()
    for _ in range(count):
        assert write(child, vector, ctypes.c_ulong(1), vector, ctypes.c_ulong(1), ctypes.c_ulong(0)) == size
    took_s = time.perf_counter() - began_s
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for file in (there, here):
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
    seen: list[list[float]] = [[] for _ in measures]
    for _ in range(times):
        for column, measure in zip(seen, measures, strict=True):
            column.append(measure())
    return seen


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--sizes", nargs="*", default=["1M", "4M", "16M", "64M"])
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    load = os.getloadavg()[0]
    perf("send_bw", "-s", "64", "-n", "1000")  # compiles what is not in the cache
    sends, tcps, pythons, kept = in_turn(
        chosen.times, send_latency_us, tcp_latency_us, python_latency_us, lambda: python_latency_us("--kept")
    )
    latency = {
        "send_us": min(sends),
        "tcp_us": min(tcps),
        "python_us": min(pythons),
        "python_kept_us": min(kept),
        "tcp/send": min(tcps) / min(sends),
    }
    bandwidth = []
    for text in chosen.sizes:
        size = parse_size_bytes(text)
        writes, copies = in_turn(chosen.times, lambda size=size: write_gb_s(size), lambda size=size: copy_gb_s(size))  # type: ignore[misc]
        bandwidth.append({"bytes": size, "write_gb_s": max(writes), "copy_gb_s": max(copies)})
    rates, unshared = in_turn(chosen.times, rate_mpps, process_vm_gb_s)
    figures = {
        "weft": weft.__version__,
        "cpus": os.cpu_count(),
        "load_1min_before": load,
        "times": chosen.times,
        "latency_64_bytes": latency,
        "bandwidth": bandwidth,
        "process_vm_writev_1_mib_gb_s": max(unshared),
        "send_rate_mpps": max(rates),
        "roce_v2": roce(),
    }
    print(json.dumps(figures, indent=2) if chosen.json else report(figures))


def report(figures: dict[str, Any]) -> str:
    latency = figures["latency_64_bytes"]
    lines = [
        f"weft {figures['weft']}, {figures['cpus']} cores, load {figures['load_1min_before']:.1f} before,"
        f" best of {figures['times']}",
        "",
        "64 bytes, one way         µs",
        f"  SEND, compiled loop  {latency['send_us']:7.2f}",
        f"  SEND, Python loop    {latency['python_us']:7.2f}   {latency['python_kept_us']:.2f} if requests are kept",
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
