"""weft: a complete InfiniBand fabric in software.

Load a fabric, ask a question, get an object with the answer:

    >>> import weft
    >>> fabric = weft.load("superpod:su=1,servers=2")       # or the path of a file
    >>> weft.time(fabric, "all_reduce", "1G").time_us
    4436.0...
    >>> weft.check(weft.route(fabric)).ok
    True
    >>> broken = fabric.without("dgx1/mlx5_0/1")            # a cable, a switch or a server
    >>> weft.time(broken, "all_reduce", "1G").time_us
    4475.9...

Look at a fabric
    load         read a topology or a file
    draw         write a picture
    export       write a file for another tool
Route it
    route        compute forwarding tables
    check        prove that all pairs arrive and that nothing can deadlock
    rate         measure the load of its links
    path         list the hops from one host to another
Predict
    simulate     run traffic by the packet, flow or analytic engine
    time         predict a collective, as nccl-tests would measure it
    train        predict a step of a training job
    infer        predict throughput and latency of a served model
Plan and buy
    compare      compare InfiniBand, RoCE and TCP for a job
    plan         size a cluster; place, cable and price it
    bill         price a fabric
Operate
    diagnose     find the bad cables of a running lab

Each does what the command of the same purpose does (`weft --help`). A fabric is given as an object, a spec or the path
of a file. Sizes are numbers of bytes, or "64K", "1M", "1G". Errors are `weft.errors.ConfigError` for wrong arguments
and `weft.errors.SubnetError` for failures of the fabric. `help(weft.time)` has the parameters and an example;
docs/python.md is the tutorial.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from weft.version import __version__ as __version__

if TYPE_CHECKING:
    from weft.api.fabrics import draw as draw
    from weft.api.fabrics import export as export
    from weft.api.fabrics import load as load
    from weft.api.operations import diagnose as diagnose
    from weft.api.predictions import infer as infer
    from weft.api.predictions import simulate as simulate
    from weft.api.predictions import time as time
    from weft.api.predictions import train as train
    from weft.api.purchases import bill as bill
    from weft.api.purchases import compare as compare
    from weft.api.purchases import plan as plan
    from weft.api.routes import check as check
    from weft.api.routes import path as path
    from weft.api.routes import rate as rate
    from weft.api.routes import route as route
    from weft.fabric.model import Fabric as Fabric

_MODULES = {
    "weft.fabric.model": ("Fabric",),
    "weft.api.fabrics": ("load", "draw", "export"),
    "weft.api.routes": ("route", "check", "rate", "path"),
    "weft.api.predictions": ("simulate", "time", "train", "infer"),
    "weft.api.purchases": ("compare", "plan", "bill"),
    "weft.api.operations": ("diagnose",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = [*_MODULE_OF]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that `import weft` costs no numpy."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


class _Weft(ModuleType):
    """The package, whose functions `draw`, `compare` and `plan` stay its attributes when the packages load."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Weft
