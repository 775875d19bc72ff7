"""Claims of documents about InfiniBand, each tested by a small program with a number.

    from weft.scenarios import qos
    print(qos.run(servers=3).finding)

A scenario is a module with two functions: `run`, which takes the options and returns a `Finding`, and `draw`, which
draws a chart of one. The parameters of `run` are the flags of its command: Annotated[type, help], or Annotated[type,
help, flag] if the flag has another name; `size_bytes` is --size, which takes 16M.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.plugins import Registry

__all__ = ["SCENARIOS", "Scenario", "finding"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario's module and question; the question is here so that listing them imports no engine."""

    module: str
    question: str


_OWN = {
    "qos": "Does bulk storage traffic block small MPI messages, and what do virtual lanes do about it?",
    "incast": "Many send to one: what happens to a flow that only shares a cable with them, network by network?",
    "bad-link": "One cable loses packets: which jobs become slower, by how much, and how is it found?",
    "bad-cable": "One cable degrades under load: after how many polls is it found, and what did it cost the job?",
    "ib-vs-ethernet": "InfiniBand or Ethernet: which claims about latency, processors, loss and all-reduce hold?",
    "gpudirect": "What does it cost when data between GPUs is copied through host memory?",
    "real-jobs": "Which jobs are ten times as fast on InfiniBand, which 1.2 times, and what do mixed fabrics cost?",
    "real-workloads": "Five real programs, run here and predicted: which gain 10x by InfiniBand, which 1.2x?",
    "mpi-allreduce": "MPI_Allreduce thousands of times a second: does latency dominate, and on which network?",
    "inference-fabric": "Models are served: which services send nothing between servers, and which need RDMA?",
    "cxl-or-rdma": "Memory of a CXL device or pool, or of another host by RDMA: which wins at which size?",
    "converged": "One network for compute and storage, or two: what do lanes cost and what does the bill say?",
    "cable-plan": "Switches at the wrong end of the row: how many optical cables is that, and how many dollars?",
    "sm-faults": "Every cable and every switch fails once: how does the subnet manager recover?",
    "sm-failover": "The subnet manager is killed: what goes on, what stops, and for how long?",
    "tenants": "A million packets from tenant to tenant, forged keys among them: does one get across?",
}
SCENARIOS: Registry[Scenario] = Registry(
    "weft.scenarios",
    {name: Scenario(f"{__name__}.{name.replace('-', '_')}", question) for name, question in _OWN.items()},
    "a weft.scenarios.Scenario(module, question)",
    lambda _, scenario: isinstance(scenario, Scenario),
)
