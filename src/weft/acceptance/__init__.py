"""Acceptance of a cluster: expected and acceptable results of benchmarks, and the causes of a shortfall.

    expectation = expect(Setup(spec="superpod:su=1", servers="4"))
    for output in read_outputs(Path("all_reduce.txt")):
        verdict = check(expectation, output)
        verdict.passed, verdict.failures, find_causes(expectation.setup, output)

prediction     a benchmark on a cluster: nccl-tests, perftest and OSU's at every size, with the end of its 90 % band
expectation    all benchmarks of a cluster; its file; a measured output held to it
outputs        the text and JSON that the benchmarks print
causes         the same benchmark predicted again with a defect: no GPUDirect, TCP, a slow adapter, colliding paths
"""

from weft.acceptance.causes import find_causes
from weft.acceptance.expectation import check, expect, read_expectation, write_expectation
from weft.acceptance.outputs import read_outputs
from weft.acceptance.prediction import Setup

__all__ = ["Setup", "check", "expect", "find_causes", "read_expectation", "read_outputs", "write_expectation"]
