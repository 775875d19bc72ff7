"""The files of the web console, built from `web/` in the sources, or a page that explains how to build them.

Node and npm are needed to build it, not to run it. POLICY forbids the browser any request to other machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PATHS", "POLICY", "File", "files", "is_built"]

_BUILT = Path(__file__).parent / "dist"
_MEDIA = {
    "index.html": "text/html; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# Reports are opened as blobs and inherit this page's policy; their colours are in style attributes.
POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MISSING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>weft</title>
<style>body { font: 16px/1.6 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem }</style>
<h1>The console is not built</h1>
<p>The rest of the service works, including <a href="docs">the REST API</a>. In a checkout of weft, run:</p>
<pre>make web</pre>
<p>This needs node 18 or newer (else it is fetched from PyPI), and fetches the page's packages from npm, once. Then
reload this page. Wheels of weft include the console.</p></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to serve."""

    body: bytes
    media: str


def is_built() -> bool:
    """Return whether the files of the console exist."""
    return all((_BUILT / name).is_file() for name in _MEDIA)


def files() -> dict[str, File]:
    """Return the files by path; `/` is the page. They are read at each call, so a new build needs no restart."""
    if not is_built():
        return {"/": File(body=_MISSING.encode(), media=_MEDIA["index.html"])}
    built = {f"/{name}": File(body=(_BUILT / name).read_bytes(), media=media) for name, media in _MEDIA.items()}
    return {"/": built.pop("/index.html"), **built}


PATHS = ("/", *(f"/{name}" for name in _MEDIA if name != "index.html"))
