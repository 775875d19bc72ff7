"""Define the structures of verbs.h for devices, ports and addresses, integers of C's widths, and their text."""

__all__: list[str] = []
