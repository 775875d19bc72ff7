"""Register and move memory of GPUs like host memory."""

__all__ = ["cuda"]
