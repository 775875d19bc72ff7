"""HTML tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any


def render_with(function_path: str, value: object) -> str:
    """Render a value with module:function of a higher layer, which the value's own module must not import."""
    module, _, function = function_path.partition(":")
    html: str = getattr(import_module(module), function)(value)
    return html


def to_html(heads: Sequence[str], rows: Iterable[Sequence[Any]], note: str = "") -> str:
    """Return an HTML table in the notebook's own style. Unpaired surrogates become question marks."""
    head, *body = (
        f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in row)}</tr>"
        for tag, row in (("th", heads), *(("td", row) for row in rows))
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    html = f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>{below}"
    return html.encode("utf-8", "replace").decode("utf-8")
