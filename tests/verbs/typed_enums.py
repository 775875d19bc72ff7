"""Generate the stubs that give type checkers every constant of weft.verbs.enums.

python tests/verbs/typed_enums.py
"""

from __future__ import annotations

import textwrap
from enum import IntEnum
from pathlib import Path
from types import ModuleType

from weft.verbs import enums
from weft.verbs.enums import cm

STUBS = {"names.pyi": (enums.adapter, enums.queues, enums.steering), "cm_names.pyi": (cm,)}
FOLDER = Path(enums.__file__).parent


def stub(*modules: ModuleType) -> str:
    """Return lines such as `A, B = ibv_some_enum`: type checkers too get the members by iterating over it."""
    lines = ["# Made by tests/verbs/typed_enums.py: what `globals().update` does, for type checkers."]
    for module in modules:
        own = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, IntEnum)]
        own = [item for item in own if item.__module__ == module.__name__]
        lines += [f"import {module.__name__} as {module.__name__.rpartition('.')[2]}", ""]
        for enumeration in own:
            names = textwrap.wrap(", ".join(enumeration.__members__) + ",", 115)
            lines += [
                "(",
                *(f"    {line}" for line in names),
                f") = {enumeration.__module__.rpartition('.')[2]}.{enumeration.__name__}",
            ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, modules in STUBS.items():
        (FOLDER / name).write_text(stub(*modules), encoding="utf-8")
