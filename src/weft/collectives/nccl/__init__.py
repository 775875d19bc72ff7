"""NCCL: its choice of algorithm, the times of its collectives, and the output of nccl-tests.

rccl              AMD's library: its choices and times
cross_validation  the errors of the model on clusters without calibration
curve             a picture of a run
tuner             the file of NCCL's tuner plugin
nccl_tests        a run as nccl-tests prints it
bench             a collective at every size
band              bands around times
refit             constants fitted without a cluster
calibration       published runs beside the model
kind              properties by which times are compared
estimate          the time of a collective
pairs             times of sends and receives between pairs
symmetric_times   times of symmetric kernels
parts             the parts of a time, by algorithm
case              one collective on one cluster by one algorithm
measure           the bandwidth and latency of a fabric's routes
ideal             the same of an ideal network
network           the network as a collective sees it
choose            NCCL's choice, with its reasons
tuning            NCCL's tuning model
symmetric         NCCL's symmetric kernels
graphs            NCCL's topology search: channels and speeds
cluster           GPUs and the links between them
board             servers without NVSwitches
environment       NCCL's environment variables
times, constants  fitted times, and NCCL's own constants
"""

__all__ = ["band", "bench", "calibration", "choose", "cluster", "estimate", "measure", "nccl_tests", "network"]
