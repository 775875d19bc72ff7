"""`weft server`: create a template of your own server from the output of its tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, File, Whole
from weft.cli.output import report_written
from weft.errors import ConfigError


def server(
    action: Literal["import"],
    path: Annotated[Path, NAMES_FILE],
    /,
    *,
    output: Annotated[File, Parameter(name=["--output", "-o"])] = None,
    gpu: str = "",
    adapter: str = "",
    storage_adapter: str = "",
    compute: str = "",
    height_u: Whole = 8,
) -> None:
    """Import a template of your own server.

    Reads `nvidia-smi topo -m`, `rocm-smi --showtopo` or NCCL's topology XML.

    Parameters
    ----------
    action
        import.
    path
        The output of `nvidia-smi topo -m` or `rocm-smi --showtopo`, or the file of NCCL_TOPO_DUMP_FILE; - is standard
        input.
    output
        The file to write, a template, .yaml; - for standard output.
    gpu
        GPU model of `weft catalog`: H100. Required for nvidia-smi; the XML usually contains it.
    adapter
        Model of the compute adapters: ConnectX-7. Likewise.
    storage_adapter
        Model of the other adapters. [from the file, else as --adapter]
    compute
        The rails in order: mlx5_0,mlx5_3. Required for rocm-smi. [the adapters that share a PCIe switch with a GPU]
    height_u
        Height in rack units.
    """
    from weft.fabric.files.atomic import write_atomically
    from weft.fabric.files.machine import MachineHints, to_yaml

    if output is None:
        raise ConfigError("weft server import needs -o FILE: -o my-server.yaml")
    if output.suffix not in (".yaml", ".yml") and str(output) != "-":
        raise ConfigError(f"-o {output}: the name of a template must end in .yaml")
    rails = [name.strip() for name in compute.split(",") if name.strip()]
    hints = MachineHints(gpu=gpu, adapter=adapter, storage_adapter=storage_adapter, compute=rails, height_u=height_u)
    write_atomically(output, to_yaml(path, hints))
    report_written(output)
