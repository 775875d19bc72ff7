"""MPI by the OSU micro-benchmarks: predicted results of osu_latency, osu_bw, osu_allreduce and others.

bench          settings and rows: the way in
report         their text, as the programs print it, and JSON
calibration    published runs beside the model, and each cluster beside bands without it
band           bands, from the errors of published figures of a kind
collective     the time of a collective: all commands ask here
choose         what a library does for a collective of one size
libraries      which algorithm Open MPI's coll/tuned and MVAPICH2 take, as data
han            Open MPI's coll/han: inside the nodes and between them
clock          ranks that send and receive in the rounds of a program
message        what MPI adds to a message: matching, copies, rendezvous, registration; shared memory
interconnect   times of messages between servers: a lone one, and all of a round together
times          constants, read
"""

__all__ = ["band", "bench", "calibration"]
