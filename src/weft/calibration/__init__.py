"""Comparison of published figures with weft's: errors, bands, and cross-validation.

A domain (perftest, NCCL, MPI, training) has its own runs in a TOML file, and predicts the figures of a run.

chance              sources with few figures in their bands, beside the number that chance gives
cross_validation    each cluster's figures, with constants and bands that were made without it
conformal           bands that hold on sources without published figures
band                a band, and the older rule for its width
figure              a published figure and weft's prediction of it; errors of several
groups              errors by group, with all constants and with sources left out
run                 published runs, read from a file
"""

__all__ = ["band", "chance", "conformal", "cross_validation", "figure", "groups", "run"]
