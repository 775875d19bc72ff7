"""Each of the listed behaviours has a test."""

from __future__ import annotations

import re
from pathlib import Path

BEHAVIOURS = 53


def test_each_behaviour_has_a_test_with_its_number():
    files = Path(__file__).parent.glob("test_behaviours*.py")
    numbers = {
        int(result) for file in files for result in re.findall(r"^def test_(\d\d)_", file.read_text(), re.MULTILINE)
    }
    assert numbers == set(range(1, BEHAVIOURS + 1))
