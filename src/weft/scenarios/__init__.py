"""What the documents on InfiniBand claim, each as a small program with a number.

    from weft.scenarios import qos
    print(qos.run(servers=3).finding)

A scenario is a module with two functions: `run`, which takes the options and returns a `Finding`, and `draw`, which
makes a picture of one.
"""

from __future__ import annotations

# The question of each; written here so that a list of them imports no engine.
SCENARIOS = {
    "qos": "Does bulk storage traffic block small MPI messages, and what do virtual lanes do about it?",
    "incast": "Many send to one: what happens to a flow that only shares a cable with them, network by network?",
    "bad-link": "One cable loses packets: which jobs become slower, by how much, and how is it found?",
    "ib-vs-ethernet": "InfiniBand or Ethernet: which claims about latency, processors, loss and all-reduce hold?",
    "gpudirect": "What does it cost when data between GPUs is copied through host memory?",
    "sm-faults": "Every cable and every switch fails once: what does the subnet manager make of it?",
    "sm-failover": "The subnet manager is killed: what goes on, what stops, and for how long?",
}
