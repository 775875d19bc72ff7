"""Pictures of benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

from weft.draw.sizes import Point, draw_sizes

ONE = Point(size_bytes=1 << 30, value=4.0, low=3.0, high=5.0, choice="Ring")
TEXTS = {"note": "simulated", "y_label": "GB/s", "choices": "algorithm"}


def test_one_size_has_its_band_too(tmp_path: Path) -> None:
    """A single size has no area to fill."""
    picture = tmp_path / "one.svg"
    draw_sizes(picture, [ONE], title="one", **TEXTS)
    (band,) = re.findall(r'<g id="LineCollection_1">(.*?)</g>', picture.read_text(), re.DOTALL)
    assert "stroke-width: 12" in band


def test_a_long_title_has_its_ends(tmp_path: Path) -> None:
    picture = tmp_path / "long.svg"
    draw_sizes(picture, [ONE], title=f"all_reduce_perf, 128 GPUs of {'x' * 100}.txt", **TEXTS)
    (title,) = (
        item for item in re.findall("<!-- (.*?) -->", picture.read_text()) if item.startswith("all_reduce_perf")
    )
    assert title.endswith("xx.txt")
    assert "…" in title
    assert len(title) < 80
