"""RCCL, the library of AMD's GPUs: its choice of algorithm and protocol, and the times of its collectives.

band              bands around times
calibration       published runs of rccl-tests beside the model, and each machine left out
estimate          the time of a collective
tuning            RCCL's tuning model and its choice
constants         RCCL's own constants, and fitted times

`weft.collectives.nccl.estimate` comes here for GPUs with an architecture of AMD's.
"""

__all__ = ["band", "calibration", "constants", "estimate", "tuning"]
