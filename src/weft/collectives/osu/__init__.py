"""MPI by the OSU micro-benchmarks: what osu_latency, osu_bw, osu_allreduce and their like would print.

bench          settings and rows: the way in
report         their text, as the programs print it, and JSON
calibration    published runs beside the model
libraries      which algorithm Open MPI and MVAPICH2 take, as data
clock          ranks that send and receive in the rounds of a program
message        what MPI adds to a message: matching, copies, rendezvous, registration; shared memory
wire           what the fabric gives: a lone message, and all messages of a round together
times          constants, read
"""
