"""A study of 200 runs on one local process and on two, in turn, in the same run.

    python benchmarks/study.py [--runs 200] [--times 2] [--json]

From the start of `weft study` to its table, start of workers included, which takes a second however many there are: of
runs much shorter than these, of a tenth of a second each, two processes win less. The better of `--times`. Two cores
must be free.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = ("sim", "fat-tree:hosts=432,radix=12", "--traffic", "permutation", "--size", "1M", "--engine", "packet")


def measure_s(workers: int, runs: int, folder: Path) -> float:
    words = ["study", *RUN, "--grid", f"seed=1..{runs}", "--workers", str(workers), "-o", f"{workers}.csv", "--restart"]
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "weft", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_s(1, 1, folder)  # compiles what is not compiled yet
        measured = [(measure_s(1, asked.runs, folder), measure_s(2, asked.runs, folder)) for _ in range(asked.times)]
        assert (folder / "1.csv").read_bytes() == (folder / "2.csv").read_bytes()
    one_s, two_s = (min(column) for column in zip(*measured, strict=True))
    if asked.json:
        print(json.dumps({"runs": asked.runs, "one_s": one_s, "two_s": two_s, "ratio": one_s / two_s}))
    else:
        print(
            f"{asked.runs} runs: {one_s:.1f} s on one process, {two_s:.1f} s on two, {one_s / two_s:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
