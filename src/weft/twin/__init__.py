"""Questions about a change of a fabric, answered on its model before the change is made.

    answer = ask(fabric, Change(faults=("dead:spine1",)), ["train=all-to-all@80%"])
    answer.is_safe, answer.cut_off, answer.changed_entries, answer.jobs

what_if    a fault, a repair that takes a switch away, or another routing engine: routes, proofs, and the rates of jobs
"""

from weft.twin.what_if import Answer, Change, ask

__all__ = ["Answer", "Change", "ask"]
