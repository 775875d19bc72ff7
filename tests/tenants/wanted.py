"""Fabrics and intents for tests of tenants."""

from __future__ import annotations

import textwrap
from pathlib import Path

from weft.fabric.files.lab.document import Document
from weft.tenants.intent import Intent, intent_of, lines_of
from weft.tenants.slices import EndPort, Inventory


def fabric(hosts: int = 8, *, ports: int = 1, **every: int) -> Inventory:
    """h1, h2 ... with GUIDs 0x101, 0x102 ...: the host's number times 0x100, plus the port's."""
    return Inventory(
        tuple(
            EndPort(
                guid=0x100 * host + port,
                name=f"h{host}/{port}",
                host=f"h{host}",
                node_guid=0x100 * host,
                number=port,
                **every,
            )
            for host in range(1, hosts + 1)
            for port in range(1, ports + 1)
        )
    )


def document(tmp_path: Path, text: str) -> Document:
    file = tmp_path / "tenants.toml"
    file.write_text(textwrap.dedent(text))
    return Document.load(file)


def intent(tmp_path: Path, text: str) -> Intent:
    return intent_of(document(tmp_path, text))


def refusal(tmp_path: Path, text: str, inventory: Inventory, **there: object) -> str:
    """What is said of it, with its line."""
    from weft.errors import ConfigError
    from weft.tenants.compile import compile_intent

    wanted = document(tmp_path, text)
    try:
        with lines_of(wanted):
            compile_intent(intent_of(wanted), inventory, **there)  # type: ignore[arg-type]
    except ConfigError as error:
        return str(error).removeprefix(f"{tmp_path}/")
    raise AssertionError("nothing is refused")
