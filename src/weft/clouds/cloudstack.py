"""CloudStack's networks as partitions: the executable of a NetworkOrchestrator extension.

    weft-cloudstack COMMAND PAYLOAD-FILE TIMEOUT

CloudStack runs it on its management server for each event of a network that the extension provides. The VLAN of the
network is the P_Key; a NIC's GUID is found by its MAC (`weft.tenants.guids`). Where the UFM is, and what it lets in,
are details of the registered extension: ufm_url, ufm_token_file or ufm_user and ufm_password_file, ufm_ca_file,
ip_over_ib, index0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.clouds.partitions import Partition, admit, claim, expel, release
from weft.errors import ConfigError, WeftError
from weft.ids import Guid
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.tenants.guids import guid_of_mac

_CALLS = 8  # of a UFM by one command, at most: each has its share of the time that CloudStack waits
_LAST_VLAN = 4095
# Of services that a partition has none of: CloudStack sends them to every extension, and nothing is to be done.
_OTHERS = """
    implement-vpc shutdown-vpc update-vpc-source-nat-ip assign-ip release-ip add-static-nat delete-static-nat
    add-port-forward delete-port-forward apply-fw-rules apply-network-acl add-dhcp-entry remove-dhcp-entry
    config-dhcp-subnet remove-dhcp-subnet set-dhcp-options add-dns-entry remove-dns-entry config-dns-subnet
    remove-dns-subnet save-vm-data save-password save-userdata save-sshkey save-hypervisor-hostname apply-lb-rules
""".split()  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class Event:
    details: Mapping[str, Any]  # of the physical network's extension
    payload: Mapping[str, Any]
    ufm: UfmClient

    @property
    def partition(self) -> Partition:
        network, vlan = self.payload.get("network_id", ""), str(self.payload.get("vlan", ""))
        if not vlan.isdecimal() or not 0 < int(vlan) < _LAST_VLAN:
            raise ConfigError(
                f"network {network} has the VLAN {vlan!r}: it must be from 1 to {_LAST_VLAN - 1}, which is its P_Key; "
                "give the physical network the isolation method VLAN"
            )
        return Partition(
            p_key=int(vlan),
            name=f"cloudstack-{network}",
            ip_over_ib=_is_true(self.details.get("ip_over_ib", "true")),
            index0=_is_true(self.details.get("index0", "false")),
        )

    def guids(self, *macs: str) -> set[int]:
        ports = [Guid.parse(port.guid) for port in self.ufm.ports(sys_type="Computer")]
        return {guid_of_mac(mac, ports) for mac in macs}


def main() -> None:
    """Status 1 if what CloudStack or its operator gives is at fault, 2 if the UFM is."""
    try:
        if len(sys.argv) != 4:
            raise ConfigError("usage: weft-cloudstack COMMAND PAYLOAD-FILE TIMEOUT")
        said = obey(*sys.argv[1:])
    except WeftError as error:
        print(f"weft-cloudstack: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, ConfigError) else 2)
    if said is not None:
        print(json.dumps(said))


def obey(command: str, payload_file: str, timeout: str) -> Any:
    """What is to be printed, if anything."""
    if command in _OTHERS:
        return None
    if command not in _COMMANDS:
        raise ConfigError(f"the command {command!r} is refused: it is none of {', '.join(_COMMANDS)}")
    given = _read(payload_file)
    details = given.get("physical-network-extension-details") or {}
    # custom-action has its words beside the details, all others have them in an object of their own
    return _COMMANDS[command](Event(details, given.get("payload", given), _connect(details, timeout)))


def _read(path: str) -> dict[str, Any]:
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the payload {path} cannot be read: {error}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"the payload {path} is refused: it must be a JSON object")
    return given


def _connect(details: Mapping[str, Any], timeout: str) -> UfmClient:
    if not details.get("ufm_url"):
        raise ConfigError("the extension has no detail ufm_url: give it with registerExtension details[0].ufm_url=…")
    return UfmClient(
        details["ufm_url"],
        token=_secret(details.get("ufm_token_file")),
        user=details.get("ufm_user"),
        password=_secret(details.get("ufm_password_file")),
        ca_file=details.get("ufm_ca_file"),
        timeout_s=float(timeout) / _CALLS,
    )


def _secret(path: str | None) -> str | None:
    """From a file: details of an extension are seen by every admin."""
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the secret in {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _ensure(event: Event) -> Any:
    """CloudStack keeps what is printed with the network, and shows it to operators."""
    return {"ufm": event.ufm.url, "ufm_version": event.ufm.version()}


def _implement(event: Event) -> None:
    claim(event.ufm, event.partition)


def _shut_down(event: Event) -> None:
    release(event.ufm, event.partition)


def _prepare_nic(event: Event) -> None:
    admit(event.ufm, event.partition, event.guids(event.payload.get("mac", "")))


def _release_nic(event: Event) -> None:
    expel(event.ufm, event.partition, event.guids(event.payload.get("mac", "")))


def _restore(event: Event) -> None:
    """After a restart: all of its machines are members, and nobody else is."""
    partition = event.partition
    wanted = event.guids(*(one["mac"] for one in (event.payload.get("restore_data") or {}).get("vms", [])))
    claim(event.ufm, partition)
    admit(event.ufm, partition, wanted)
    found = event.ufm.pkey(partition.p_key)
    if strangers := set(found.members if found else ()) - wanted:
        expel(event.ufm, partition, strangers)


def _act(event: Event) -> Any:
    action = event.payload.get("action")
    if action != "show":
        raise ConfigError(f"the action {action!r} is refused: there is show, with the parameter vlan")
    p_key = int((event.payload.get("action-params") or {}).get("vlan", 0))
    found = event.ufm.pkey(p_key)
    guids = [str(Guid(guid)) for guid in found.members] if found else []
    return {"p_key": f"{p_key:#06x}", "partition": found.partition if found else None, "guids": guids}


def _is_true(word: Any) -> bool:
    return str(word).lower() == "true"


_COMMANDS: dict[str, Callable[[Event], Any]] = {
    "ensure-network-device": _ensure,
    "implement-network": _implement,
    "shutdown-network": _shut_down,
    "destroy-network": _shut_down,
    "prepare-nic": _prepare_nic,
    "release-nic": _release_nic,
    "restore-network": _restore,
    "custom-action": _act,
}
