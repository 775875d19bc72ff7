"""Tables as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any


def shown_by(place: str, thing: object) -> str:
    """What module:function of a layer above makes of a thing. Notebooks ask the thing, which knows no pictures."""
    module, _, function = place.partition(":")
    shown: str = getattr(import_module(module), function)(thing)
    return shown


def to_html(heads: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """Looks are the notebook's own. What no file can hold, half a character, is a question mark."""
    head, *body = (
        f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in row)}</tr>"
        for tag, row in (("th", heads), *(("td", row) for row in rows))
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    made = f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>{below}"
    return made.encode("utf-8", "replace").decode("utf-8")
