"""The flags of `weft train` for faults and failures, and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import Faults
from weft.cli.output import Cell, console, table
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.cli.train_flags import Outputs
    from weft.training.site import Site


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """The options for faults during the job, its checkpoints and its failure rate."""

    fault: Faults = ()
    goodput: str | None = None
    """Print the share of time spent training under a published failure rate: llama3, rsc-1 or rsc-2."""
    checkpoint_minutes: float | None = None
    """With --goodput: minutes between two checkpoints. [default: the best]"""
    checkpoint_waits: bool = False
    """With --goodput: block the job until a checkpoint is on disk; otherwise until it is in host memory."""
    storage: str | None = None
    """Servers of the fabric, not of the job, that store checkpoints: dgx33,dgx34. [default: storage on a separate
    network]"""

    def __post_init__(self) -> None:
        if self.checkpoint_minutes is not None and not 0 < self.checkpoint_minutes < 1e6:
            raise ConfigError(f"--checkpoint-minutes {self.checkpoint_minutes:g} must be above 0")
        if self.goodput is None and (self.checkpoint_minutes is not None or self.checkpoint_waits):
            raise ConfigError("--checkpoint-minutes and --checkpoint-waits are part of --goodput: add --goodput llama3")

    @property
    def storage_servers(self) -> list[str]:
        return [name.strip() for name in (self.storage or "").split(",") if name.strip()]


NO_TROUBLE = Trouble()


def check_trouble(trouble: Trouble, site: Site, outputs: Outputs) -> None:
    """Refuse faults and failures that could not be predicted, before a long run."""
    from weft.training.trouble import check_failures

    if trouble != NO_TROUBLE and (outputs.search or outputs.fabrics or outputs.scale):
        raise ConfigError("--fault, --goodput and --storage are of one job: leave out --search, --fabrics and --scale")
    storage = None if trouble.storage is None else trouble.storage_servers
    check_failures(site, trouble.fault, trouble.goodput, storage)


def failure_options(trouble: Trouble) -> dict[str, Any]:
    """Return the arguments of `predict_failures`."""
    return {
        "faults": trouble.fault,
        "goodput": trouble.goodput,
        "storage": trouble.storage_servers,
        "waits": trouble.checkpoint_waits,
        "interval_s": 60 * (trouble.checkpoint_minutes or 0),
    }


def print_trouble(facts: dict[str, Any]) -> None:
    out = console()
    if "faults" in facts:
        columns = ("fault", "step s", "ratio", "stops s", "entries changed", "effect")
        out.print(table("Faults", columns, [_row(fault) for fault in facts["faults"]]))
    if "checkpoint" in facts:
        out.print(table("Checkpoint", ("property", "value"), _checkpoint(facts["checkpoint"])))
    if "goodput" in facts:
        out.print(table("Goodput", ("share", "value"), _goodput(facts["goodput"])))


def _row(fault: dict[str, Any]) -> tuple[Cell, ...]:
    figures = [fault[name] for name in ("under_step_s", "slowdown", "stands_s", "changed_entries")]
    return fault["fault"], *figures, _effect(fault)


def _effect(fault: dict[str, Any]) -> str:
    cut_off = fault["cut_off"]
    hosts = f"{cut_off[0]}{f' and {len(cut_off) - 1} more' if len(cut_off) > 1 else ''} cut off: " if cut_off else ""
    if not fault["survives"]:
        return f"{hosts}the job ends, and restarts from its checkpoint"
    if not fault["on_its_way"]:
        return "the job sends nothing there"
    if fault["outage_s"] == 0:
        return "all wait for the slow cable"
    return f"{hosts}continues at the next retry" if cut_off else "continues over other routes"


def _checkpoint(checkpoint: dict[str, Any]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = [
        ("size", f"{checkpoint['total_bytes'] / 1e9:,.0f} GB"),
        ("written after", f"{checkpoint['written_s']:.3g} s, limited by the {checkpoint['limit']}"),
        ("the job waits", f"{checkpoint['blocks_s']:.3g} s"),
    ]
    if checkpoint["beside_step_s"] is not None:
        rows.append(("a step meanwhile", f"{checkpoint['beside_step_s']:.4g} s"))
    return rows


def _goodput(goodput: dict[str, Any]) -> list[tuple[Cell, ...]]:
    parts = {name: f"{100 * part:.2f} %" for name, part in goodput["parts"].items()}
    failure = f"{goodput['restart_s']:g} s after a failure every {goodput['mttf_s'] / 3600:.3g} hours"
    every, best_s = f"one every {goodput['interval_s'] / 60:.1f} minutes", goodput["best_interval_s"]
    if best_s is not None and best_s < 0.9 * goodput["interval_s"]:
        every += f" (by failures alone best every {best_s / 60:.1f})"
    rows: list[tuple[Cell, ...]] = [
        ("training (ETTR)", parts["training"]),
        ("checkpoints", f"{parts['checkpoint']}, {every}"),
        ("restarts", f"{parts['restart']}, {failure}"),
        ("done again", parts["lost"]),
        ("failure rate", f"{goodput['rate']}: {goodput['source']}"),
    ]
    if "days" in goodput:
        rows.append(("time to train", f"{goodput['days']:,.1f} days with failures"))
    return rows
