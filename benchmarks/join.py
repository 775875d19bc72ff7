"""Compare a joined host with a host of the lab's machine: the cost of the path through `weft join`.

    python benchmarks/join.py [--iterations 500]

Two ends of weft's perftest: h1 by `weft exec`, the other as h2 by `weft exec` with a degraded cable, so that the lab
carries
every packet; and as h3 by `weft join` over loopback. The same packets take the same path through the lab: the ratio
is the
cost of one more connection, its signatures and its process. Neither is encrypted.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence

LAB = "bench"
WEFT = [sys.executable, "-m", "weft"]


def weft(*arguments: str) -> str:
    return subprocess.run([*WEFT, *arguments], check=True, capture_output=True, text=True).stdout


def figures(test: Sequence[str], as_client: Sequence[str]) -> list[float]:
    """Return the last row of perftest's table."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    server = subprocess.Popen([*WEFT, "exec", "h1", *test, "-p", port], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    while "Waiting" not in server.stdout.readline():
        pass
    output = subprocess.run(
        [*WEFT, *as_client, *test, "-p", port, "127.0.0.1"], check=True, capture_output=True, text=True
    ).stdout
    server.communicate()
    rows = [line.split() for line in output.splitlines() if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line)]
    return [float(cell) for cell in rows[-1]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=500)
    iterations = str(parser.parse_args().iterations)
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/tmp") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        up = weft("up", "star:hosts=4", "--sm", "--daemon", "--name", LAB, "--join", "127.0.0.1:0")
        try:
            match = re.search(r"weft join (\S+) --token (\S+)", up)
            assert match
            os.environ["WEFT_JOIN_TOKEN"] = match[2]
            weft("degrade", "h2/1", "--ber", "1e-15")
            ends = {"lab": ("exec", "h2"), "joined": ("join", match[1], "--as", "h3", "--")}
            for name, test, column, unit in (
                ("ib_send_lat, 64 bytes", ("ib_send_lat", "-s", "64", "-n", iterations), 4, "us"),
                ("ib_write_bw, 64 KiB", ("ib_write_bw", "-s", "65536", "-n", iterations), 3, "MB/s"),
            ):
                lab, joined = (figures(test, end)[column] for end in ends.values())
                ratio = joined / lab
                print(f"{name}: {lab:,.0f} {unit} in the lab, {joined:,.0f} {unit} joined, {ratio:.2f} times")
        finally:
            weft("down", "--lab", LAB)


if __name__ == "__main__":
    main()
