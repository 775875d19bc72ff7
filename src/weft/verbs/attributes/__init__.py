"""Structures of verbs.h as values: of devices, ports and addresses; numbers of C's widths, and their text."""
