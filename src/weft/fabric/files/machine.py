"""Convert a server's own description to a template: `nvidia-smi topo -m`, `rocm-smi --showtopo`, or NCCL's XML.

    topo.txt, topo.xml  ->  Machine: processors, groups of devices below one PCIe switch, NVLinks  ->  my-server.yaml

Adapters that share a PCIe switch with a GPU are the compute rails, in the order of those GPUs; the others are for
storage. If none shares one, all are rails. Switches below switches are one switch, as in the catalog; a processor is a
NUMA domain, since neither file has sockets. Several EFA devices of a GPU are one rail, as AWS's plugin joins them.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, FileError
from weft.fabric import catalog
from weft.fabric.files import nccl_dump, nvidia_smi, rocm_smi
from weft.fabric.files.hostlist import natural
from weft.fabric.files.lab.document import FORMAT, Document
from weft.fabric.files.parts import Machine
from weft.fabric.files.text import peek, read_text
from weft.fabric.rates import parse_label
from weft.fabric.server_file import template_of

_EFA_GBIT_S = 100  # one device, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineHints:
    """The facts from the user that the file may lack."""

    gpu: str = ""
    adapter: str = ""
    storage_adapter: str = ""
    compute: Sequence[str] = ()  # the rails in order, as in NCCL_IB_HCA
    height_u: int = 8


def to_yaml(path: Path, hints: MachineHints | None = None) -> str:
    """Return a template of the server that a file describes."""
    hints = hints or MachineHints()
    with peek(path, 4096) as begin:
        is_xml = begin.lstrip().startswith(b"<")
        if not is_xml and rocm_smi.is_rocm(begin):
            machine = rocm_smi.read(path, read_text(path), hints.compute, hints.gpu)
        else:
            machine = (nccl_dump if is_xml else nvidia_smi).read(path, read_text(path))
    keys = _template(path, machine, hints)
    template_of(Document(path=path, data=keys, text=""), str(path), datetime.date.today())
    return "".join(f"{line}\n" for line in _lines(path, keys))


def _template(path: Path, machine: Machine, hints: MachineHints) -> dict[str, Any]:
    gpu = _gpu(path, machine, hints)
    _refuse_tray(path, machine, gpu)
    near, others = _rails(path, machine, hints)
    card = _card(path, machine, near, hints.adapter, "--adapter")
    rails = _joined(path, machine, near, card)
    keys: dict[str, Any] = {"gpu": gpu.name, "gpus": len(machine.gpus), **_nvlinks(machine, gpu)}
    keys |= {"compute_adapter": card, "compute": rails}
    if others:
        other = hints.storage_adapter or ("" if machine.cards else hints.adapter)
        keys |= {"storage_adapter": _card(path, machine, others, other, "--storage-adapter"), "storage": others}
    tree = _tree(machine, [*machine.gpus, *rails, *others])
    keys["cpus"] = len(machine.sockets)
    if machine.cpu is not None:
        keys["cpu"] = machine.cpu
    keys |= {"pcie_switches": sum(name.startswith("pcie") for name in tree), "pcie": machine.pcie or gpu.pcie}
    keys |= {"c2c_links": machine.c2c_links} if machine.c2c_links else {}
    keys |= {"height_u": hints.height_u, "pcie_tree": tree}
    return keys | ({"bus_id": machine.bus_id} if machine.bus_id else {})


def _nvlinks(machine: Machine, gpu: catalog.Gpu) -> dict[str, Any]:
    """Return NVLinks over NVSwitches, or direct ones if the links of a pair times the peers are all links of a GPU."""
    pairs, others = list(map(list, machine.nvlink_pairs)), len(machine.gpus) - 1
    if machine.only_pairs and machine.nvlink_spread and others > 1 and machine.nvlink_spread[0] * others == gpu.nvlinks:
        pairs = [[*pair, machine.nvlink_spread[0]] for pair in combinations(machine.gpus, 2)]
    return {"nvlink_pairs": pairs} if pairs else {"nvlink_spread": list(machine.nvlink_spread)}


def _gpu(path: Path, machine: Machine, hints: MachineHints) -> catalog.Gpu:
    if hints.gpu:
        return catalog.gpu(hints.gpu)
    if len(machine.gpu_models) == 1:
        return catalog.gpu(machine.gpu_models[0])
    choices = ", ".join(machine.gpu_models or [each.name for each in catalog.gpus()])
    raise ConfigError(f"{path} does not name its GPUs: give --gpu with one of {choices}")


def _refuse_tray(path: Path, machine: Machine, gpu: catalog.Gpu) -> None:
    """Refuse a tray of a rack that is one NVLink domain: the whole rack is one server."""
    racks = [rack for rack in catalog.servers() if rack.gpu == gpu.name and rack.trays > 1]
    if machine.nvlink_spread and any(len(machine.gpus) <= rack.gpus // rack.trays for rack in racks):
        names = " or ".join(rack.name for rack in racks)
        raise ConfigError(
            f"{path} has {len(machine.gpus)} {gpu.name}, a tray: its NVLinks go to switches of the rack, which are "
            f"not in the file. Use the rack, server={names}, or a template like it"
        )


def _rails(path: Path, machine: Machine, hints: MachineHints) -> tuple[list[str], list[str]]:
    """Return the compute adapters in the order of their GPUs, and the others."""
    adapters = sorted(machine.adapters, key=natural)
    if not adapters:
        raise FileError(
            path,
            None,
            "no adapter",
            "adapters beside the GPUs: NIC columns, or <net> elements. Adapters without RDMA, such as Google's gVNIC, "
            "are not listed: write them into a template, like: hgx-h100 and compute_adapter: gVNIC-200",
        )
    unknown = next((name for name in hints.compute if name not in adapters), None)
    if unknown is not None:
        raise ConfigError(f"--compute {unknown}: {path} has {', '.join(adapters)}")
    near = [group for group in machine.groups if any(name in machine.gpus for name in group)]
    near.sort(key=lambda group: min(machine.gpus.index(name) for name in group if name in machine.gpus))
    rails = list(hints.compute) or [name for group in near for name in sorted(group, key=natural) if name in adapters]
    rails = rails or adapters
    return rails, [name for name in adapters if name not in rails]


def _card(path: Path, machine: Machine, adapters: Sequence[str], requested: str, flag: str) -> str:
    if requested:
        return catalog.adapter(requested).name
    cards = {machine.cards.get(name, "") for name in adapters}
    if len(cards) == 1 and "" not in cards:
        return cards.pop()
    models = f"{', '.join(sorted(cards))} among them" if all(cards) else "and the file does not name their model"
    raise ConfigError(
        f"{path} has adapters {', '.join(adapters)}, {models}: give {flag} ConnectX-7; --compute names the rails"
    )


def _joined(path: Path, machine: Machine, rails: list[str], card: str) -> list[str]:
    """Return the first of each GPU's EFA devices, which AWS's NCCL plugin joins into one network."""
    adapter, many = catalog.adapter(card), len(rails) // len(machine.gpus)
    if adapter.vendor != "AWS" or many <= 1:
        return rails
    if parse_label(adapter.speed)[0].rate_gbit_s() < _EFA_GBIT_S * many:
        raise ConfigError(
            f"{path} has {many} EFA devices for each GPU, which AWS's NCCL plugin joins; {card} is a single one. Give "
            f"the joined adapter, --adapter EFA-4x100"
        )
    return rails[::many]


def _tree(machine: Machine, devices: Collection[str]) -> dict[str, list[str]]:
    """Return processors, then PCIe switches; a single device below a switch is attached to the processor itself."""
    below: dict[str, list[str]] = {f"cpu{number}": [] for number in range(len(machine.sockets))}
    switches = 0
    for number, groups in enumerate(machine.sockets):
        for whole in groups:
            group: Sequence[str] = [name for name in whole if name in devices]
            if len(group) > 1:
                below[f"pcie{switches}"] = list(group)
                group = (f"pcie{switches}",)
                switches += 1
            below[f"cpu{number}"] += group
    return below


def _lines(path: Path, keys: dict[str, Any]) -> list[str]:
    lines = [f"# From {path.name}. Check the models and height_u; processors are NUMA domains.", f"format: {FORMAT}"]
    for key, value in keys.items():
        if isinstance(value, dict):
            lines.append(f"{key}:")
            lines += [f"  {name}: {_flow(inner)}" for name, inner in value.items()]
        else:
            lines.append(f"{key}: {_flow(value)}")
    return lines


def _flow(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return (
        json.dumps(value)
        if isinstance(value, str) and not value.replace("_", "").replace("-", "").isalnum()
        else str(value)
    )
