"""Live jobs: real programs as ranks on the hosts of a lab, and the key-value store of a job."""

__all__ = ["job"]
