"""A figure of matplotlib as PNG, SVG or PDF: the same bytes from the same figure, in fonts that have its letters."""

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
    """What says when or by which version it was made is left out."""
    from matplotlib.text import Text

    output = io.BytesIO()
    texts = figure.findobj(Text)
    families = _families("".join({text.get_text() for text in texts}))
    for text in texts:
        text.set_fontfamily(families)
    told = logging.getLogger("matplotlib.font_manager")  # which would tell of every font that has no bold
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # said below, in one line
        told.disabled = True
        figure.savefig(output, format=suffix[1:], dpi=figure.dpi, metadata=_STAMPS[suffix])
        told.disabled = False
    return output.getvalue()


def _families(text: str) -> list[str]:
    """The house's font, and after it any installed ones that it takes for letters which that one lacks."""
    from matplotlib.font_manager import findfont, fontManager

    left, families = {c for c in text if c.isprintable()} - _letters(findfont(FONT)), [FONT]
    for font in sorted(fontManager.ttflist, key=lambda font: ("Sans" not in font.name, font.name)) if left else ():
        if has := left & _letters(font.fname):
            families.append(font.name)
            left -= has
    if left:
        some = "".join(sorted(left)[:8])
        way_out = "boxes stand in their place; install one that does, such as Noto Sans CJK"
        print(f"weft: no installed font has {some}: {way_out}", file=sys.stderr)
    return families


@cache
def _letters(path: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    return frozenset(map(chr, FT2Font(path).get_charmap()))
