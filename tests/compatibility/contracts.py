"""The interfaces of weft as lines of text, one for each function of Python and each operation of REST.

    python -m tests.compatibility.contracts python|rest     print the lines of this version

`version_1/*.txt` holds the lines of version 1, to which those of later versions may add.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import weft

VERSION_1 = Path(__file__).with_name("version_1")


def of_python() -> list[str]:
    """Return a line for each public function: its name and parameters, in brackets if they may be left out."""
    functions = {name: getattr(weft, name) for name in weft.__all__}
    functions |= {f"Fabric.{name}": item for name, item in vars(weft.Fabric).items() if not name.startswith("_")}
    return [f"{name}: {' '.join(_parameters(item))}" for name, item in functions.items() if inspect.isfunction(item)]


def _parameters(function: Any) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        yield parameter.name if needed else f"[{parameter.name}]"


def of_rest() -> list[str]:
    """Return lines for each operation: the parameters and fields that it takes, those in brackets may be left out, and
    the fields of its answer.
    """
    document = rest_document()
    lines = []
    for path, methods in sorted(document["paths"].items()):
        if path.startswith("/ufmRest"):
            continue  # as UFM has it
        for method, operation in sorted(methods.items()):
            given = [_optional(each["name"], each.get("required")) for each in operation.get("parameters", ())]
            content = operation.get("requestBody", {}).get("content", {})
            schema = _resolve(document, content.get("application/json", {}).get("schema", {}))
            given += [_optional(name, name in schema.get("required", ())) for name in schema.get("properties", ())]
            lines.append(f"{method.upper()} {path}: {' '.join(given)}")
            if answered := _answered(document, operation):
                lines.append(f"{method.upper()} {path} answers: {' '.join(answered)}")
    return lines


def rest_document() -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    from tests.serve.service import Service

    with tempfile.TemporaryDirectory() as folder:
        service = Service(f"sqlite:///{folder}/ledger.db")
        try:
            document: dict[str, Any] = service.client.get("/api/v1/openapi.json").json()
        finally:
            service.close()
    return document


def _answered(document: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    """Return the fields of the answer, or of the elements of a list."""
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            schema = _resolve(document, answer.get("content", {}).get("application/json", {}).get("schema", {}))
            return list(_resolve(document, schema.get("items", schema)).get("properties", ()))
    return []


def _resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _optional(name: str, required: bool | None) -> str:
    return name if required else f"[{name}]"


if __name__ == "__main__":
    print("\n".join({"python": of_python, "rest": of_rest}[sys.argv[1]]()))
