"""Replace pyverbs: after `install()`, `import pyverbs.qp` imports `weft.verbs.pyverbs.qp`.

    from weft.verbs import pyverbs
    pyverbs.install()

The modules are the same objects under two names, so classes and exceptions are the same too.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

from weft.errors import ConfigError
from weft.verbs.pyverbs.absent import PACKAGES, AbsentModule, is_absent

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # importlib.abc imports tempfile, and programs in C install nothing

__all__ = [
    "OTHER_NAMES",
    "addr",
    "cmid",
    "cq",
    "device",
    "eec",
    "fork",
    "install",
    "mem_alloc",
    "mr",
    "pd",
    "qp",
    "srq",
    "wr",
    "xrcd",
]

# Modules that have another name in weft. rdma-core 57 renamed the enumerations.
OTHER_NAMES = {
    "base": "weft.verbs.attributes.objects",
    "cm_enums": "weft.verbs.enums.cm",
    "enums": "weft.verbs.enums",
    "libibverbs_enums": "weft.verbs.enums",
    "librdmacm_enums": "weft.verbs.enums.cm",
    "pyverbs_error": "weft.verbs.errors",
    "utils": "weft.verbs.attributes.text",
}


class _Loader(Loader):
    """A loader that provides weft's module under the name of pyverbs' module."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return AbsentModule(spec.name) if is_absent(_inner(spec.name)) else None

    def exec_module(self, module: ModuleType) -> None:
        target = _target(module.__name__)
        if target:
            sys.modules[module.__name__] = importlib.import_module(target)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.split(".")[0] != "pyverbs":
            return None
        inner = _inner(fullname)
        if inner and not is_absent(inner) and inner not in PACKAGES and not _target(fullname):
            return None
        return ModuleSpec(fullname, _LOADER, origin="weft.verbs", is_package=not inner or inner in PACKAGES)


_LOADER, _FINDER = _Loader(), _Finder()


def _inner(fullname: str) -> str:
    """Return the name below pyverbs, empty for pyverbs itself."""
    return fullname.partition(".")[2]


def _target(fullname: str) -> str | None:
    """Return the name of weft's module for a module of pyverbs."""
    inner = _inner(fullname)
    if not inner or "." in inner or is_absent(inner):
        return None
    name = OTHER_NAMES.get(inner, f"weft.verbs.pyverbs.{inner}")
    return name if importlib.util.find_spec(name) else None


def install() -> None:
    """Provide weft's modules for all later imports of pyverbs. A second call changes nothing."""
    module = sys.modules.get("pyverbs")
    if module is not None and getattr(module.__spec__, "loader", None) is not _LOADER:
        raise ConfigError(
            f"pyverbs is already imported, from {getattr(module, '__file__', None) or module}\n"
            "  Call weft.verbs.pyverbs.install() before anything imports pyverbs."
        )
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
