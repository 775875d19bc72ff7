"""`weft server`: a template of a server of one's own, from what the machine says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, File, Whole
from weft.cli.output import report_written


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

    Reads `nvidia-smi topo -m` or NCCL's topology XML.

    Parameters
    ----------
    action
        import.
    path
        What `nvidia-smi topo -m` printed, or the file of NCCL_TOPO_DUMP_FILE; - is standard input.
    output
        The file to write, a template, .yaml; - for standard output.
    gpu
        Which GPUs, as `weft catalog` calls them: H100. nvidia-smi does not tell; XML does, mostly.
    adapter
        Which compute adapters: ConnectX-7. Likewise.
    storage_adapter
        Which other adapters. Else as --adapter where the file does not tell.
    compute
        The rails in their order, by commas: mlx5_0,mlx5_3. Else the adapters that share a PCIe switch with a GPU.
    height_u
        Units of a rack, which no file tells.
    """
    from weft.errors import ConfigError
    from weft.fabric.files.atomic import write_atomically
    from weft.fabric.files.machine import MachineHints, to_yaml

    if output is None:
        raise ConfigError("weft server import needs -o FILE: where to write, my-server.yaml")
    if output.suffix not in (".yaml", ".yml") and str(output) != "-":
        raise ConfigError(f"-o {output}: a template goes by its path, which ends as .yaml")
    rails = [name.strip() for name in compute.split(",") if name.strip()]
    hints = MachineHints(gpu=gpu, adapter=adapter, storage_adapter=storage_adapter, compute=rails, height_u=height_u)
    write_atomically(output, to_yaml(path, hints))
    report_written(output)
