"""Find the instructions of this processor that compute CRC-32, without starting a compiler."""

from __future__ import annotations

_INSTRUCTIONS = frozenset(("crc32", "pmull", "pclmulqdq"))  # as Linux calls them; of ARM, of ARM, of x86-64


def crc_instructions() -> frozenset[str]:
    """Return the names of such instructions that Linux lists for the first processor."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.lower().startswith(("features", "flags")):
                    return _INSTRUCTIONS.intersection(line.split())
    except OSError:
        pass
    return frozenset()
