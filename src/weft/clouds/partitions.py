"""What a cloud does with a partition of a UFM: claim a P_Key, let ports in and out, release it.

A partition belongs to whom its name says. One of another name is somebody else's, whatever its P_Key: it is neither
changed nor deleted. Every step can be done twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.errors import SubnetError, WeftError
from weft.tenants.drivers.ufm_rest import UfmClient, UfmError
from weft.tenants.partitions import Member


class Taken(SubnetError):
    """The P_Key is somebody else's."""


def is_away(error: WeftError) -> bool:
    """Is it worth to ask again? What a UFM refuses, it would refuse again."""
    return isinstance(error, UfmError) and (error.status is None or error.status >= 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """As a cloud wants it."""

    p_key: int
    name: str
    ip_over_ib: bool = True
    index0: bool = False  # its key goes to index 0 of its members, which is the one of ib0


def claim(ufm: UfmClient, partition: Partition) -> None:
    """It is there, with this name; Taken if the P_Key has another."""
    found = ufm.pkey(partition.p_key)
    if found is None:
        refusal = _create(ufm, partition)
        found = ufm.pkey(partition.p_key)  # somebody may have been faster
        if found is None:
            raise refusal or SubnetError(f"{partition.name} is not at UFM {ufm.url}, though it was created")
    if found.partition != partition.name:
        raise Taken(
            f"the P_Key {partition.p_key:#06x} of {partition.name} is taken at UFM {ufm.url}, by {found.partition}"
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
    """These are full members, beside those that are."""
    members = {guid: Member(index0=partition.index0) for guid in guids}
    if members:
        claim(ufm, partition)
        ufm.add_guids(partition.p_key, members, ip_over_ib=partition.ip_over_ib)


def expel(ufm: UfmClient, partition: Partition, guids: Iterable[int]) -> None:
    """These are members no longer. Of a partition that is not ours, nobody is."""
    if _is_ours(ufm, partition):
        ufm.remove_guids(partition.p_key, list(guids))


def release(ufm: UfmClient, partition: Partition) -> None:
    """It is there no longer, and its P_Key is free."""
    if _is_ours(ufm, partition):
        ufm.delete_pkey(partition.p_key)


def _is_ours(ufm: UfmClient, partition: Partition) -> bool:
    found = ufm.pkey(partition.p_key)
    return found is not None and found.partition == partition.name
