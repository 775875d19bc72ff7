"""The routing policy of a subnet: the hosts that may manage it, and the properties of its forwarding tables.

managers = ["h[1-2]"]       hosts and switches that may run a subnet manager; default: any
steady = true               tables change only after a change of cables, LIDs or nodes
proved = true               all pairs arrive, and nothing can deadlock
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.errors import ConfigError, FileError
from weft.fabric.files.hostlist import expand
from weft.fabric.files.lab.document import Document


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A routing policy."""

    managers: tuple[str, ...] = ()  # hostlists; empty: any
    steady: bool = False
    proved: bool = False

    @property
    def manager_names(self) -> set[str]:
        return {name for text in self.managers for name in expand(text)}


def read_policy(path: Path) -> Policy:
    """Read a policy in TOML. Raise FileError, with the line, if it is invalid."""
    document = Document.load(path, ".toml")
    policy = document.convert((), Policy, strict=True)
    if policy == Policy():
        raise FileError(path, None, "no rule", "managers, steady or proved")
    try:
        _ = policy.manager_names
    except ConfigError as error:
        document.refuse_because(("managers",), error)
    return policy
