"""Growth of a fabric: new roles of switches, the order in which cables move, and proofs for every step."""

__all__ = ["growth"]
