"""RoCE v2 over UDP."""

__all__: list[str] = []
