"""Memory that processes share: how queues lie in it, and how they are read and written."""

__all__: list[str] = []
