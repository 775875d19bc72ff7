"""Comparison of published figures with weft's: errors, bands, and cross-validation.

A domain (perftest, NCCL, MPI, training) has its own runs in a TOML file, and predicts the figures of a run.

cross_validation    each cluster's figures, with constants and bands that were made without it
band                the width of a band
figure              a published figure and weft's prediction of it; errors of several
run                 published runs, read from a file
"""

__all__ = ["band", "cross_validation", "figure", "run"]
