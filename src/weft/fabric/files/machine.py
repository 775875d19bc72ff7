"""A server as it describes itself, made a template: what `nvidia-smi topo -m` prints, or NCCL's topology XML.

    topo.txt, topo.xml  ->  Machine: processors, groups of devices below one PCIe switch, NVLinks  ->  my-server.yaml

Adapters that share a PCIe switch with a GPU are the compute rails, in the order of those GPUs; the others are for
storage. Where none shares one, all are rails. Switches below switches are one switch, as in the catalog; a processor is
a NUMA domain, since neither file knows sockets. Several EFA devices of a GPU are one rail, as AWS's plugin joins them.
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
from weft.fabric.files import nccl_dump, nvidia_smi
from weft.fabric.files.hostlist import natural
from weft.fabric.files.lab.document import Document
from weft.fabric.files.parts import Machine
from weft.fabric.files.text import first_look, read_text
from weft.fabric.rates import parse_label
from weft.fabric.server_file import template_of

_EFA_GBIT_S = 100  # of one device, or more


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the user knows and the file may not say."""

    gpu: str = ""
    adapter: str = ""
    storage_adapter: str = ""
    compute: Sequence[str] = ()  # the rails, in order: as NCCL_IB_HCA would name them
    height_u: int = 8


def to_yaml(path: Path, known: Known | None = None) -> str:
    """A template of the server that this file describes."""
    known = known or Known()
    with first_look(path, 4096) as begin:
        is_xml = begin.lstrip().startswith(b"<")
        machine = (nccl_dump if is_xml else nvidia_smi).read(path, read_text(path))
    told = _template(path, machine, known)
    template_of(Document(path=path, data=told, text=""), str(path), datetime.date.today())
    return "".join(f"{line}\n" for line in _lines(path, told))


def _template(path: Path, machine: Machine, known: Known) -> dict[str, Any]:
    gpu = _gpu(path, machine, known)
    _refuse_tray(path, machine, gpu)
    near, others = _rails(path, machine, known)
    card = _card(path, machine, near, known.adapter, "--adapter")
    rails = _joined(path, machine, near, card)
    told: dict[str, Any] = {"gpu": gpu.name, "gpus": len(machine.gpus), **_nvlinks(machine, gpu)}
    told |= {"compute_adapter": card, "compute": rails}
    if others:
        other = known.storage_adapter or ("" if machine.cards else known.adapter)
        told |= {"storage_adapter": _card(path, machine, others, other, "--storage-adapter"), "storage": others}
    tree = _tree(machine, [*machine.gpus, *rails, *others])
    told["cpus"] = len(machine.sockets)
    if machine.cpu is not None:
        told["cpu"] = machine.cpu
    told |= {"pcie_switches": sum(name.startswith("pcie") for name in tree), "pcie": machine.pcie or gpu.pcie}
    told |= {"c2c_links": machine.c2c_links} if machine.c2c_links else {}
    told |= {"height_u": known.height_u, "pcie_tree": tree}
    return told | ({"bus_id": machine.bus_id} if machine.bus_id else {})


def _nvlinks(machine: Machine, gpu: catalog.Gpu) -> dict[str, Any]:
    """Over NVSwitches, or directly: where as many for each other GPU as a pair has are all that a GPU has."""
    pairs, others = list(map(list, machine.nvlink_pairs)), len(machine.gpus) - 1
    if machine.only_pairs and machine.nvlink_spread and others > 1 and machine.nvlink_spread[0] * others == gpu.nvlinks:
        pairs = [[*pair, machine.nvlink_spread[0]] for pair in combinations(machine.gpus, 2)]
    return {"nvlink_pairs": pairs} if pairs else {"nvlink_spread": list(machine.nvlink_spread)}


def _gpu(path: Path, machine: Machine, known: Known) -> catalog.Gpu:
    if known.gpu:
        return catalog.gpu(known.gpu)
    if len(machine.gpu_models) == 1:
        return catalog.gpu(machine.gpu_models[0])
    among = ", ".join(machine.gpu_models or [one.name for one in catalog.gpus()])
    raise ConfigError(f"{path} does not say which GPUs it has: say so, --gpu with one of {among}")


def _refuse_tray(path: Path, machine: Machine, gpu: catalog.Gpu) -> None:
    """A rack that is one NVLink domain is one server; a machine of it sees its own GPUs."""
    racks = [one for one in catalog.servers() if one.gpu == gpu.name and one.trays > 1]
    if machine.nvlink_spread and any(len(machine.gpus) <= one.gpus // one.trays for one in racks):
        names = " or ".join(one.name for one in racks)
        raise ConfigError(
            f"{path} has {len(machine.gpus)} {gpu.name}, a tray: its NVLinks go to the switches of a rack, of which it "
            f"does not tell. Take the rack, server={names}, or a template that is like it"
        )


def _rails(path: Path, machine: Machine, known: Known) -> tuple[list[str], list[str]]:
    """Compute adapters in the order of their GPUs, and the others."""
    adapters = sorted(machine.adapters, key=natural)
    if not adapters:
        raise FileError(
            path,
            None,
            "no adapter",
            "adapters beside the GPUs: NIC columns, or <net> elements. Those without RDMA, as Google's gVNIC, are not "
            "told: write them into a template, like: hgx-h100 and compute_adapter: gVNIC-200",
        )
    strange = next((name for name in known.compute if name not in adapters), None)
    if strange is not None:
        raise ConfigError(f"--compute {strange}: {path} has {', '.join(adapters)}")
    near = [group for group in machine.groups if any(name in machine.gpus for name in group)]
    near.sort(key=lambda group: min(machine.gpus.index(name) for name in group if name in machine.gpus))
    rails = list(known.compute) or [name for group in near for name in sorted(group, key=natural) if name in adapters]
    rails = rails or adapters
    return rails, [name for name in adapters if name not in rails]


def _card(path: Path, machine: Machine, adapters: Sequence[str], given: str, flag: str) -> str:
    if given:
        return catalog.adapter(given).name
    cards = {machine.cards.get(name, "") for name in adapters}
    if len(cards) == 1 and "" not in cards:
        return cards.pop()
    told = f"{', '.join(sorted(cards))} among them" if all(cards) else "of which the file does not say the model"
    raise ConfigError(
        f"{path} has adapters {', '.join(adapters)}, {told}: say one, {flag} ConnectX-7; --compute names the rails"
    )


def _joined(path: Path, machine: Machine, rails: list[str], card: str) -> list[str]:
    """The first of each GPU's EFA devices, which AWS's plugin of NCCL makes one network."""
    adapter, many = catalog.adapter(card), len(rails) // len(machine.gpus)
    if adapter.vendor != "AWS" or many <= 1:
        return rails
    if parse_label(adapter.speed)[0].rate_gbit_s() < _EFA_GBIT_S * many:
        raise ConfigError(
            f"{path} has {many} EFA devices for each GPU, which AWS's plugin of NCCL joins: {card} is one of them. Say "
            f"what they are together, --adapter EFA-4x100"
        )
    return rails[::many]


def _tree(machine: Machine, devices: Collection[str]) -> dict[str, list[str]]:
    """Processors, then PCIe switches; a device alone below a switch hangs below the processor itself."""
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


def _lines(path: Path, told: dict[str, Any]) -> list[str]:
    lines = [
        f"# From {path.name}. What it does not know is to be checked: models, height_u; processors are NUMA domains."
    ]
    for key, value in told.items():
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
