"""Provide the modules of pyverbs for features that weft's adapter lacks: importing them works, using them fails.

These are vendor interfaces, flow steering of raw Ethernet packets, and completion counters. A program that uses
them gets EOPNOTSUPP, as with an adapter that lacks them. Their constants are 0.
"""

from __future__ import annotations

import errno
from types import ModuleType
from typing import Any

from weft.verbs.errors import PyverbsRDMAError

PACKAGES = ("providers", "providers.mlx5", "providers.efa")
MODULES = ("flow", "spec", "wq", "dmabuf", "comp_cntr")


def is_absent(name: str) -> bool:
    """Return whether weft's adapter lacks the features of a module of pyverbs."""
    return name in MODULES or (name.startswith("providers.") and name not in PACKAGES)


class _Absent(type):
    def __call__(cls, *args: object, **kwargs: object) -> Any:
        reason = f"weft's adapter has no {cls.__module__}"
        raise PyverbsRDMAError(f"Failed to create {cls.__name__}", errno.EOPNOTSUPP, reason)

    def __getattr__(cls, name: str) -> Any:
        if name.isupper():
            return 0
        if name.startswith("_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")

        def refuse(*args: object, **kwargs: object) -> Any:
            reason = f"weft's adapter has no {cls.__module__}"
            raise PyverbsRDMAError(f"Failed to call {cls.__name__}.{name}", errno.EOPNOTSUPP, reason)

        return refuse


class AbsentModule(ModuleType):
    """A module that has every name, so that programs for any version of pyverbs can import it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = 0 if name.isupper() else _Absent(name, (), {"__module__": self.__name__})
        setattr(self, name, value)
        return value
