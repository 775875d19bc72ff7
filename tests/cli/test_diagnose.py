"""`weft diagnose`, where docs/diagnose.md does not look."""

from __future__ import annotations

import pytest

from weft.cli import app
from weft.errors import ConfigError


@pytest.mark.parametrize(("words", "why"), [("--polls 1", "counts may be old"), ("--every 0", "give seconds")])
def test_what_says_nothing_is_refused(words, why):
    with pytest.raises(ConfigError, match=why):
        app(["diagnose", *words.split()])
