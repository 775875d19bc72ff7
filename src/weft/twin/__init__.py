"""A model of a running fabric: its history, and the effects of a change before it is made.

    answer = ask(fabric, Change(faults=("dead:spine1",)), ["train=all-to-all@80%"])
    answer.is_safe, answer.cut_off, answer.changed_entries, answer.jobs

history    facts about a fabric with the times between which they held; the differences between two moments
follow     polls of a `source`, recorded in a history: a running subnet, read by `model`, files, or UFM
           (`ufm_source`), beside its `jobs`; `facts` of one poll, `trap_listener`
deviations  differences from a plan, an intent of tenants (`isolation`) and a routing `policy`; `metrics` of them
what_if    a fault, another routing engine, new_servers or partitions: routes, proofs, and the rates of jobs; in rounds
maintenance  reboots and replacements as proved steps; `runbook` writes them as text and runs them on a lab
"""

from weft.twin.history import Difference, History
from weft.twin.what_if import Answer, Change, ask

__all__ = ["Answer", "Change", "Difference", "History", "ask"]
