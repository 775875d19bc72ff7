"""Every number of the verbs interface, by the name that verbs.h gives it.

Each enumeration is an `IntEnum` and each member is also a constant of this module, as in pyverbs; so `A | B` is a plain
number. The values are the binary interface of rdma-core: programs put them on wires and into files.
"""

from __future__ import annotations

from enum import IntEnum
from types import ModuleType
from typing import TYPE_CHECKING

from weft.verbs.enums import adapter, queues, steering
from weft.verbs.enums.adapter import *  # noqa: F403
from weft.verbs.enums.queues import *  # noqa: F403
from weft.verbs.enums.steering import *  # noqa: F403

# Constants that belong to no enumeration.
IBV_LINK_LAYER_UNSPECIFIED = 0
IBV_LINK_LAYER_INFINIBAND = 1
IBV_LINK_LAYER_ETHERNET = 2
IBV_QPF_GRH_REQUIRED = 1
IBV_WC_STANDARD_FLAGS = 0x7F

# pyverbs gives constants that are not of C's `int` an underscore.
_IBV_DEVICE_RAW_SCATTER_FCS = 1 << 34
_IBV_DEVICE_PCI_WRITE_END_PADDING = 1 << 36
_IBV_DEVICE_CC_DMA_BOUNCE = 1 << 41
_IBV_ALLOCATOR_USE_DEFAULT = (1 << 64) - 1
_IBV_ADVISE_MR_ADVICE_PREFETCH = 0
_IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1
_IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2
_IBV_ADVISE_MR_FLAG_FLUSH = 1


def members(module: ModuleType) -> dict[str, IntEnum]:
    """Return all members of all enumerations of a module by name."""
    classes = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, IntEnum)]
    return {name: member for enumeration in classes for name, member in enumeration.__members__.items()}


globals().update(members(adapter) | members(queues) | members(steering))

if TYPE_CHECKING:
    from weft.verbs.enums.names import *  # noqa: F403

# pyverbs' programs import all of them with `*`.
__all__ = [name for name in list(globals()) if name.lower().startswith("ibv_")]
