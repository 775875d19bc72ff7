"""Measure the CPU time of `weft plan` with all its files, by part.

python benchmarks/plan.py [--gpus 131072] [--fabric xdr]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise

import weft


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=131_072)
    parser.add_argument("--fabric", default="xdr")
    options = parser.parse_args()
    steps = [("sizing", time.process_time())]
    with tempfile.TemporaryDirectory() as folder:
        weft.plan(
            gpus=options.gpus,
            fabric=options.fabric,
            folder=f"{folder}/plan",
            progress=lambda step: steps.append((step, time.process_time())),
        )
    steps.append(("", time.process_time()))
    for (name, begin), (_, end) in pairwise(steps):
        print(f"{name:32} {end - begin:6.1f} s of CPU")
    print(f"{'all':32} {steps[-1][1] - steps[0][1]:6.1f} s of CPU")


if __name__ == "__main__":
    main()
