"""Operations of a cloud on UFM partitions: claim a P_Key, add and remove ports, release the P_Key.

The name of a partition identifies its owner. A partition with another name is neither changed nor deleted, whatever its
P_Key. All operations are idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.errors import SubnetError, WeftError
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError
from weft.tenants.partitions import Member


class PKeyTakenError(SubnetError):
    """An error: another partition has the P_Key."""


def is_away(error: WeftError) -> bool:
    """Return whether UFM is unavailable, so that a retry can succeed. A refusal would be repeated."""
    return isinstance(error, UfmError) and (error.status is None or error.status >= 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition that a cloud requests."""

    p_key: int
    name: str
    ip_over_ib: bool = True
    index0: bool = False  # the P_Key goes to index 0 of the members' tables, which ib0 uses


def claim(ufm: UfmClient, partition: Partition) -> None:
    """Create a partition unless it exists. Raise PKeyTakenError if the P_Key has another name."""
    current = ufm.pkey(partition.p_key)
    if current is None:
        refusal = _create(ufm, partition)
        current = ufm.pkey(partition.p_key)  # another client may have created it first
        if current is None:
            raise refusal or SubnetError(f"UFM at {ufm.url} accepted {partition.name} but does not list it; try again")
    if current.partition != partition.name:
        raise PKeyTakenError(
            f"the P_Key {partition.p_key:#06x} of {partition.name} is taken at UFM {ufm.url}, by {current.partition}"
        )


def _create(ufm: UfmClient, partition: Partition) -> UfmError | None:
    try:
        ufm.create_pkey(partition.p_key, partition.name, ip_over_ib=partition.ip_over_ib)
    except UfmError as error:
        if is_away(error):
            raise
        return error
    return None


def admit(ufm: UfmClient, partition: Partition, guids: Iterable[int]) -> None:
    """Add ports to a partition as full members, and create it if needed."""
    members = {guid: Member(index0=partition.index0) for guid in guids}
    if members:
        claim(ufm, partition)
        ufm.add_guids(partition.p_key, members, ip_over_ib=partition.ip_over_ib)


def expel(ufm: UfmClient, partition: Partition, guids: Iterable[int]) -> None:
    """Remove ports from a partition. Do nothing if the P_Key has another owner."""
    if _is_ours(ufm, partition):
        ufm.remove_guids(partition.p_key, list(guids))


def release(ufm: UfmClient, partition: Partition) -> None:
    """Delete a partition, which frees its P_Key. Do nothing if the P_Key has another owner."""
    if _is_ours(ufm, partition):
        ufm.delete_pkey(partition.p_key)


def _is_ours(ufm: UfmClient, partition: Partition) -> bool:
    current = ufm.pkey(partition.p_key)
    return current is not None and current.partition == partition.name
