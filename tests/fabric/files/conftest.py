"""Small examples, and fuzzed input for every reader of files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of small examples."""
    return Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def mutate() -> Callable[[bytes], st.SearchStrategy[bytes]]:
    """A file with lines lost, doubled, moved or garbled, and bytes changed."""
    return mutations


@st.composite
def mutations(draw: st.DrawFn, content: bytes) -> bytes:
    lines = content.split(b"\n")
    for _ in range(draw(st.integers(1, 4))):
        i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        change = draw(st.sampled_from(["lose", "double", "move", "splice", "garble", "byte", "number"]))
        line = bytearray(lines[i])
        at = draw(st.integers(0, max(len(line) - 1, 0)))
        if change == "lose":
            lines[i : i + draw(st.integers(1, 5))] = [b""]
        elif change == "double":
            lines.insert(j, lines[i])
        elif change == "move":
            lines[i], lines[j] = lines[j], lines[i]
        elif change == "splice":
            lines[i] = lines[i][:at] + lines[j][at:]
        elif change == "garble":
            lines[i] = draw(st.binary(max_size=40))
        elif change == "byte":
            line[at : at + 1] = draw(st.binary(max_size=2))
            lines[i] = bytes(line)
        else:
            number = draw(st.sampled_from([b"0", b"255", b"256", b"49152", b"65536", b"9" * 5000, b"-1"]))
            lines[i] = lines[i][:at] + re.sub(rb"\d+", number, lines[i][at:], count=1)
    return b"\n".join(lines)
