"""The page /docs: the OpenAPI document as one HTML page without external files (clusters are often offline)."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: #f5f5f5; padding: .6rem; overflow-x: auto }
summary { cursor: pointer } details { margin: .35rem 0 } dd { margin: 0 0 0 1.5rem }
.method { display: inline-block; width: 4.5rem; font-weight: bold }
"""


def render(document: dict[str, Any]) -> str:
    title = html.escape(f"{document['info']['title']} {document['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>Send <code>Authorization: Bearer TOKEN</code>. For programs: "
        f'<a href="api/v1/openapi.json">openapi.json</a>.</p>'
        f"{''.join(_groups(document))}<h2>Schemas</h2>{''.join(_schemas(document))}</html>"
    )


def _groups(document: dict[str, Any]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation.get("tags", ["health"])[0], []).append(_operation(path, method, operation))
    for tag, operations in groups.items():
        yield f"<h2>{html.escape(tag)}</h2>{''.join(operations)}"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    description = html.escape(operation.get("description", ""))
    lines = [f"<p>{description}</p>"] if description else []
    named = operation.get("parameters", ())
    lines += [f"<div>{parameter['in']} <code>{html.escape(parameter['name'])}</code></div>" for parameter in named]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        lines.append(f"<div>body <code>{html.escape(media)}</code> {_named(content)}</div>")
    for status, response in operation["responses"].items():
        names = " ".join(_named(content) for content in response.get("content", {}).values())
        lines.append(f"<div>{status} {html.escape(response['description'])} {names}</div>")
    head = f'<span class="method">{method.upper()}</span><code>{html.escape(path)}</code>'
    return f"<details><summary>{head}</summary><dd>{''.join(lines)}</dd></details>"


def _named(content: dict[str, Any]) -> str:
    """Return a link to the schema of a body, if it has a name."""
    schema = content.get("schema", {})
    reference = schema.get("$ref") or schema.get("items", {}).get("$ref")
    if not reference:
        return ""
    name = html.escape(reference.rpartition("/")[2])
    link = f'<a href="#{name}">{name}</a>'
    return f"list of {link}" if "items" in schema else link


def _schemas(document: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(document["components"]["schemas"].items()):
        text = html.escape(json.dumps(schema, indent=2))
        yield f'<h3 id="{html.escape(name)}">{html.escape(name)}</h3><pre>{text}</pre>'
