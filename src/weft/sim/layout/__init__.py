"""The layout that every engine needs before it starts: rules of the network, ports, messages and paths as records."""

__all__: list[str] = []
