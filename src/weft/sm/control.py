"""A client of a subnet manager's socket.

    manager = ManagerSocket(socket_of(state_file))
    current = manager.allocation()
    red = PartitionDefinition(name="Red", p_key=0x0101, members=(MemberDefinition(0x0002c90300001231),))
    manager.allocate(current.revision, define=[red], remove=[0x0102])

`allocate` returns when the devices have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft import json_lines
from weft.errors import NoResponseError, SubnetError
from weft.sm.allocation import Saved, qos_fields
from weft.sm.conf.qos_options import QosOptions
from weft.sm.control_server import Checked, ManagerStatus
from weft.sm.control_server import socket_of as socket_of
from weft.sm.inventory import Subnet
from weft.sm.pkey.definitions import MemberDefinition as MemberDefinition
from weft.sm.pkey.definitions import PartitionDefinition as PartitionDefinition

_TIMEOUT_S = 120.0  # for an order: it may be in the middle of a sweep of a large subnet
_QUESTION_S = 30.0  # questions wait for nothing
_ORDER, _CHECK = "allocate", "check"
_NOTHING = "nothing was changed"
T = TypeVar("T")


class OutOfDate(SubnetError):
    """The allocation is no longer the one that was to be changed."""


class ManagerSocket:
    """A client of the manager's socket. SubnetError: no answer, or the fabric refuses; ConfigError: invalid request."""

    def __init__(self, path: Path, timeout_s: float = _TIMEOUT_S) -> None:
        self.path, self.timeout_s = path, timeout_s

    def status(self) -> ManagerStatus:
        return self._ask("status", ManagerStatus)

    def subnet(self) -> Subnet:
        """Return the subnet of the last sweep; query it again when `status().subnet_revision` has changed."""
        return self._ask("subnet", Subnet)

    def allocation(self) -> Saved:
        return self._ask("allocation", Saved)

    def allocate(
        self,
        revision: str | None = None,
        *,
        define: Iterable[PartitionDefinition] = (),
        remove: Iterable[int] = (),
        qos: QosOptions | msgspec.UnsetType | None = msgspec.UNSET,
        default_is_full: bool | None = None,
    ) -> str:
        """Change the allocation and return the new revision; raise OutOfDate if the current one is not `revision`.

        Each definition replaces the earlier one of its P_Key. `qos` None: lanes as the manager's files say. Arguments
        that are not given change nothing.
        """
        words: dict[str, Any] = {"revision": revision, "set": list(define), "remove": list(remove)}
        if not isinstance(qos, msgspec.UnsetType):
            words["qos"] = qos_fields(qos)
        if default_is_full is not None:
            words["default_is_full"] = default_is_full
        return str(self._ask(_ORDER, dict[str, str], **words)["revision"])

    def check(self, *, repair: bool) -> Checked:
        """Compare the ports with their settings; `repair`: they are as they should be when it returns."""
        return self._ask(_CHECK, Checked, repair=repair)

    def _ask(self, do: str, form: type[T], **words: Any) -> T:
        is_order = do in (_ORDER, _CHECK)
        timeout_s = self.timeout_s if is_order else min(self.timeout_s, _QUESTION_S)
        try:
            return msgspec.convert(json_lines.request(self.path, do, timeout_s, **words), form)
        except json_lines.CommandRefused as refusal:
            raise OutOfDate(str(refusal)) from None
        except TimeoutError:
            outcome = "it may still apply the change: read its state again" if is_order else _NOTHING
            raise NoResponseError(
                f"the subnet manager at {self.path} has not answered within {timeout_s:g} s: {outcome}\n"
                "  Its process is stopped, or has more to do than it can; `weft sm status` shows it."
            ) from None
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise SubnetError(
                f"no subnet manager answers at {self.path}: {reason}; `weft sm status` shows those that run"
            ) from None
