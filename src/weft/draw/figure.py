"""A matplotlib figure as PNG, SVG or PDF: deterministic bytes, in fonts that have all its characters."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = "DejaVu Sans"  # comes with matplotlib
_STAMPS: dict[str, Any] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def to_bytes(figure: Figure, suffix: str) -> bytes:
    """Return the file's bytes, without dates and versions."""
    from matplotlib.text import Text

    output = io.BytesIO()
    texts = figure.findobj(Text)
    families = _families("".join({text.get_text() for text in texts}))
    for text in texts:
        text.set_fontfamily(families)
    font_log = logging.getLogger("matplotlib.font_manager")  # which would warn of every font without a bold face
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # reported below, in one line
        font_log.disabled = True
        figure.savefig(output, format=suffix[1:], dpi=figure.dpi, metadata=_STAMPS[suffix])
        font_log.disabled = False
    return output.getvalue()


def _families(text: str) -> list[str]:
    """Return the default font, and installed fonts for characters that it lacks."""
    from matplotlib.font_manager import findfont, fontManager

    left, families = {c for c in text if c.isprintable()} - _letters(findfont(FONT)), [FONT]
    for font in sorted(fontManager.ttflist, key=lambda font: ("Sans" not in font.name, font.name)) if left else ():
        if covered := left & _letters(font.fname):
            families.append(font.name)
            left -= covered
    if left:
        some = "".join(sorted(left)[:8])
        hint = "boxes are shown instead; install a font that has them, such as Noto Sans CJK"
        print(f"weft: no installed font has {some}: {hint}", file=sys.stderr)
    return families


@cache
def _letters(path: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    return frozenset(map(chr, FT2Font(path).get_charmap()))
