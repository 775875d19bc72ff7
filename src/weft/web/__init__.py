"""The console as a browser loads it: files built from `web/` of the sources, or one page that says how to get them.

No node and no npm is needed to run it, and no request leaves the machine: POLICY tells the browser to make none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_BUILT = Path(__file__).parent / "dist"
_MEDIA = {
    "index.html": "text/html; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# Reports are opened from memory, and have this page's policy: their inks are in style attributes.
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MISSING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>weft</title>
<style>body { font: 16px/1.6 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }</style>
<h1>The console is not built</h1>
<p>Everything else of this service works, <a href="docs">its routes</a> too. In a checkout of weft:</p>
<pre>make web</pre>
<p>That takes node 18 or newer, or fetches one from PyPI, and the packages that the page is made of from npm. Once; then
load this page again. A weft that was installed as a wheel has the console in it.</p></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    body: bytes
    media: str


def is_built() -> bool:
    return all((_BUILT / name).is_file() for name in _MEDIA)


def files() -> dict[str, File]:
    """By path: `/` is the page. Read anew each time, so that a service need not be started again after a build."""
    if not is_built():
        return {"/": File(body=_MISSING.encode(), media=_MEDIA["index.html"])}
    found = {f"/{name}": File(body=(_BUILT / name).read_bytes(), media=media) for name, media in _MEDIA.items()}
    return {"/": found.pop("/index.html"), **found}


PATHS = ("/", *(f"/{name}" for name in _MEDIA if name != "index.html"))
