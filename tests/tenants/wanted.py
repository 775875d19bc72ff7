"""Fabrics and intents for tests of tenants."""

from __future__ import annotations

import textwrap
from pathlib import Path

from hypothesis import strategies as st

from weft.fabric.files.lab.document import Document
from weft.tenants.intent import Class, Intent, Service, Tenant, intent_of, lines_of
from weft.tenants.partitions import EndPort, Inventory

EXAMPLE = """
    p_keys = "0x0100-0x7ffe"
    [class.mpi]
    share = 50
    priority = "high"
    [class.storage]
    share = 40
    [tenant.acme]
    hosts = ["h[1-2]"]
    class = "mpi"
    ipoib = true
    [tenant.beta]
    ports = ["h3/2"]
    guids = ["0x0401"]
    absent = ["0x0000000000009901"]
    p_key = 0x0200
    [service.nas]
    hosts = ["h8"]
    tenants = ["acme"]
    class = "storage"
"""


NAMES = st.sampled_from("abcdefgh")
TENANTS = st.builds(
    Tenant,
    hosts=st.lists(st.sampled_from([f"h{i}" for i in range(1, 9)]), max_size=4).map(tuple),
    class_=st.sampled_from([None, "x", "y"]),
    p_key=st.sampled_from([None, None, None, None, "0x0003"]),
    exclusive=st.just(False),
    ipoib=st.booleans(),
)
INTENTS = st.builds(
    lambda tenants, services: Intent(
        classes={"x": Class(share=50, priority="high"), "y": Class(share=30)},
        tenants={name: one if one.p_key is None or name == "a" else Tenant() for name, one in tenants.items()},
        services={name.upper(): one for name, one in services.items()},
    ),
    st.dictionaries(NAMES, TENANTS),
    st.dictionaries(NAMES, st.builds(Service, hosts=st.just(("h8",)))),
)


def fabric(hosts: int = 8, *, ports: int = 1, **every: int) -> Inventory:
    """Return an inventory of hosts h1, h2 ... with GUIDs 0x101, 0x201 ...: host number times 0x100 plus port number."""
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
    """Return the error of an intent, with its line."""
    from weft.errors import ConfigError
    from weft.tenants.compile import compile_intent

    expected = document(tmp_path, text)
    try:
        with lines_of(expected):
            compile_intent(intent_of(expected), inventory, **there)  # type: ignore[arg-type]
    except ConfigError as error:
        return str(error).removeprefix(f"{tmp_path}/")
    raise AssertionError("nothing is refused")
