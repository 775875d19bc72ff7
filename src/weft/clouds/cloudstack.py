"""CloudStack's networks as partitions: the executable of a NetworkOrchestrator extension.

    weft-cloudstack COMMAND PAYLOAD-FILE TIMEOUT

CloudStack runs it on its management server for each event of a network that the extension provides. The VLAN of the
network is the P_Key; a NIC's GUID is found by its MAC (`weft.tenants.guids`). The address and credentials of UFM are
details of the registered extension: ufm_url, ufm_token_file or ufm_user and ufm_password_file, ufm_ca_file, ip_over_ib,
index0.
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

_CALLS = 8  # most calls of UFM by one command; they share CloudStack's timeout
_LAST_VLAN = 4095
# Commands of services that partitions do not have. CloudStack sends them to every extension; they are ignored.
_IGNORED = """
    implement-vpc shutdown-vpc update-vpc-source-nat-ip assign-ip release-ip add-static-nat delete-static-nat
    add-port-forward delete-port-forward apply-fw-rules apply-network-acl add-dhcp-entry remove-dhcp-entry
    config-dhcp-subnet remove-dhcp-subnet set-dhcp-options add-dns-entry remove-dns-entry config-dns-subnet
    remove-dns-subnet save-vm-data save-password save-userdata save-sshkey save-hypervisor-hostname apply-lb-rules
""".split()  # noqa: SIM905


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a CloudStack network, with the UFM to call."""

    details: Mapping[str, Any]  # the extension details of the physical network
    payload: Mapping[str, Any]
    ufm: UfmClient

    @property
    def partition(self) -> Partition:
        network, vlan = self.payload.get("network_id", ""), str(self.payload.get("vlan", ""))
        if not vlan.isdecimal() or not 0 < int(vlan) < _LAST_VLAN:
            raise ConfigError(
                f"network {network}: the VLAN is the P_Key and must be 1 to {_LAST_VLAN - 1}, got {vlan!r}; "
                "set the isolation method VLAN on the physical network"
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
    """Run a command. Exit status 1: wrong arguments or settings; 2: UFM failed."""
    try:
        if len(sys.argv) != 4:
            raise ConfigError("usage: weft-cloudstack COMMAND PAYLOAD-FILE TIMEOUT")
        answer = run_command(*sys.argv[1:])
    except WeftError as error:
        print(f"weft-cloudstack: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, ConfigError) else 2)
    if answer is not None:
        print(json.dumps(answer))


def run_command(command: str, payload_file: str, timeout: str) -> Any:
    """Run a command and return the object to print, or None."""
    if command in _IGNORED:
        return None
    if command not in _COMMANDS:
        raise ConfigError(f"unknown command {command!r}; use one of {', '.join(_COMMANDS)}")
    payload = _read(payload_file)
    details = payload.get("physical-network-extension-details") or {}
    # custom-action has its parameters beside the details; all others have an object "payload"
    return _COMMANDS[command](Event(details, payload.get("payload", payload), _connect(details, timeout)))


def _read(path: str) -> dict[str, Any]:
    try:
        payload = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the payload {path}: {error}") from None
    if not isinstance(payload, dict):
        raise ConfigError(f"the payload {path} must be a JSON object")
    return payload


def _connect(details: Mapping[str, Any], timeout: str) -> UfmClient:
    if not details.get("ufm_url"):
        raise ConfigError("the extension has no detail ufm_url; set it with registerExtension details[0].ufm_url=…")
    return UfmClient(
        details["ufm_url"],
        token=_secret(details.get("ufm_token_file")),
        user=details.get("ufm_user"),
        password=_secret(details.get("ufm_password_file")),
        ca_file=details.get("ufm_ca_file"),
        timeout_s=float(timeout) / _CALLS,
    )


def _secret(path: str | None) -> str | None:
    """Read a secret from a file: every admin can read the details of an extension."""
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the secret file {path}: {getattr(error, 'strerror', None) or error}") from None


def _ensure(event: Event) -> Any:
    """Return facts about UFM, which CloudStack stores with the network and shows to operators."""
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
    """Make the machines of a network the only members of its partition, after a restart of the network."""
    partition = event.partition
    expected = event.guids(*(vm["mac"] for vm in (event.payload.get("restore_data") or {}).get("vms", [])))
    claim(event.ufm, partition)
    admit(event.ufm, partition, expected)
    current = event.ufm.pkey(partition.p_key)
    if unexpected := set(current.members if current else ()) - expected:
        expel(event.ufm, partition, unexpected)


def _show(event: Event) -> Any:
    action = event.payload.get("action")
    if action != "show":
        raise ConfigError(f"unknown action {action!r}; use show, with the parameter vlan")
    p_key = int((event.payload.get("action-params") or {}).get("vlan", 0))
    partition = event.ufm.pkey(p_key)
    guids = [str(Guid(guid)) for guid in partition.members] if partition else []
    return {"p_key": f"{p_key:#06x}", "partition": partition.partition if partition else None, "guids": guids}


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
    "custom-action": _show,
}
