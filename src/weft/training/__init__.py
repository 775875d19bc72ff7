"""A training job on a fabric: how long one optimizer step takes, and where the time goes."""

__all__ = [
    "communication",
    "failures",
    "findings",
    "goodput",
    "gpu",
    "job",
    "memory",
    "parallel",
    "prediction",
    "scaling",
    "search",
    "site",
    "step",
    "storage",
    "traces",
    "transformer",
]
