"""Send and receive RoCE v2 over a UDP socket in bulk, with many packets per system call."""

__all__: list[str] = []
