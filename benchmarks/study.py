"""Compare a study of 200 runs on one local process and on two, in turn, in the same run.

    python benchmarks/study.py [--runs 200] [--times 2] [--json]

The time is from the start of `weft study` to its table, including the start of workers, which takes a second for any
number of
them: with runs much shorter than these, of a tenth of a second each, two processes gain less. The best of `--times`
counts. Two
cores must be free.
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
    arguments = [
        "study",
        *RUN,
        "--grid",
        f"seed=1..{runs}",
        "--workers",
        str(workers),
        "-o",
        f"{workers}.csv",
        "--restart",
    ]
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-m", "weft", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_s(1, 1, folder)  # compile
        measured = [
            (measure_s(1, options.runs, folder), measure_s(2, options.runs, folder)) for _ in range(options.times)
        ]
        assert (folder / "1.csv").read_bytes() == (folder / "2.csv").read_bytes()
    one_s, two_s = (min(column) for column in zip(*measured, strict=True))
    if options.json:
        print(json.dumps({"runs": options.runs, "one_s": one_s, "two_s": two_s, "ratio": one_s / two_s}))
    else:
        print(
            f"{options.runs} runs: {one_s:.1f} s on one process, {two_s:.1f} s on two, "
            f"{one_s / two_s:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
