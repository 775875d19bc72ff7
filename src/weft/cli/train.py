"""`weft train`: predict the step time of a training job on a fabric, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli import train_tables as tables
from weft.cli.accuracy import group_columns, group_rows
from weft.cli.arguments import NAMES_FILE, Form
from weft.cli.output import Cell, check_explain, console, print_data, progress_bar, report_written, table
from weft.cli.train_flags import NO_CUT, NO_INPUT, NO_OUTPUTS, NO_SHAPE, NO_WHERE, Cut, Input, Outputs, Shape, Where
from weft.errors import ConfigError
from weft.units import parse_count
from weft.version import __version__

if TYPE_CHECKING:
    from weft.training.prediction import Progress
    from weft.training.scaling import Prediction
    from weft.training.site import Site
    from weft.training.transformer import Transformer
    from weft.training.trouble import FailureReport
if TYPE_CHECKING:
    from weft.cli.train_flags import Outputs
    from weft.training.site import Site


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """The options for faults during the job, its checkpoints and its failure rate."""

    fault: tuple[str, ...] = ()
    """A fault: cut:leaf1/40, slow:leaf1/3=4xHDR, dead:spine1 or flap:dgx1/mlx5_0/1@5s. Each strikes alone in the middle
    of the job. Repeat it for several."""
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
    step_s = fault["under_step_s"] or fault["restarted_step_s"]
    ratio = None if step_s is None else step_s / fault["before_step_s"]
    return fault["fault"], step_s, ratio, fault["stands_s"], fault["changed_entries"], _effect(fault)


def _effect(fault: dict[str, Any]) -> str:
    cut_off = fault["cut_off"]
    hosts = f"{cut_off[0]}{f' and {len(cut_off) - 1} more' if len(cut_off) > 1 else ''} cut off: " if cut_off else ""
    if not fault["survives"]:
        again = "from its checkpoint" if fault["restarted_step_s"] is None else "on its other rails"
        return f"{hosts}the job ends, and restarts {again}"
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


def print_validation(form: Form) -> None:
    from weft.calibration.chance import shortfalls_of
    from weft.training.accuracy import class_errors, report, source_errors, source_fits
    from weft.training.band import leave_sources_out
    from weft.training.validate import validate

    if form.is_data:
        print_data(form, report(), "rows")
        return
    columns = ("job, GPUs, precision, release", "measured s", "weft s", "error %", "MFU %")
    lines = [
        (
            figure.run,
            figure.measured,
            round(figure.predicted, 3),
            round(100 * figure.error, 1),
            round(100 * figure.step.mfu, 1),
        )
        for figure in validate()
    ]
    console().print(table("Published steps beside weft's", columns, lines))
    note = (
        "Left out: predicted without the constants and bands that the source was used for. Bands are to hold nine of "
        "ten steps. Constants belong to a GPU or a framework, none to a step; an ideal network. Sources: --json."
    )
    console().print(table("Errors by source", group_columns("source", "steps"), group_rows(source_errors())))
    console().print(table("Errors by class", group_columns("class", "steps"), group_rows(class_errors()), note))
    console().print(shortfalls_of(leave_sources_out()), markup=False)
    rows = source_fits()
    counts = ", ".join(f"{row.source} {row.fit} of {row.steps}" for row in rows)
    fit, steps = sum(row.fit for row in rows), sum(row.steps for row in rows)
    others = "; ".join(name for row in rows for name in row.others)
    too_large = f" These do not fit: {others}." if others else ""
    console().print(f"Memory: {fit} of {steps} steps fit into their GPUs by their recipes: {counts}.{too_large}")


def train(
    model: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    where: Annotated[Where, Parameter(name="*", group="Hardware")] = NO_WHERE,
    cut: Annotated[Cut, Parameter(name="*", group="Parallelism")] = NO_CUT,
    shape: Annotated[Shape, Parameter(name="*", group="Model shape")] = NO_SHAPE,
    data: Annotated[Input, Parameter(name="*", group="Input")] = NO_INPUT,
    trouble: Annotated[Trouble, Parameter(name="*", group="Faults and failures")] = NO_TROUBLE,
    outputs: Annotated[Outputs, Parameter(name="*", group="Results")] = NO_OUTPUTS,
) -> None:
    """Predict the step time of a training job.

    Parameters
    ----------
    model
        The name of a model, llama3-70b or gpt3-175b, or the path of a Hugging Face config.json. Not with --validate.
    """
    from weft.sim.engines import find_engine
    from weft.training.prediction import predict
    from weft.training.trouble import predict_failures

    if outputs.validate:
        rest = (model, where, cut, shape, data, trouble, replace(outputs, validate=False, form=NO_OUTPUTS.form))
        if rest != ("", NO_WHERE, NO_CUT, NO_SHAPE, NO_INPUT, NO_TROUBLE, NO_OUTPUTS):
            raise ConfigError("--validate prints published steps and runs nothing: leave out all but --json or --csv")
        print_validation(outputs.form)
        return
    _check(where, outputs)
    tokens = None if outputs.tokens is None else parse_count("tokens", outputs.tokens)
    transformer, layout = _transformer(model, shape), _changed(cut, NO_CUT) | _changed(data, NO_INPUT)
    engine = find_engine(where.engine or "flow")
    sites = _sites(where, layout, outputs)
    check_trouble(trouble, sites[0][0], outputs)
    if outputs.search:
        _search(transformer, sites[0][0], layout, outputs)
        return
    with progress_bar(f"{transformer.name} on {where.fabric or 'its fabric'}") as change:
        prediction = predict(
            transformer,
            sites,
            layout,
            engine=engine,
            slowest=where.slowest,
            strong=outputs.strong,
            progress=_show_progress(change),
        )
        failures = predict_failures(prediction.runs[0], engine, **failure_options(trouble))
        change(description="errors against published steps")
        _ = prediction.runs[0].band  # seconds on first use, which the bar shows
    _write(prediction, outputs)
    _print(prediction, tokens, failures, outputs)


def _show_progress(change: Any) -> Progress:
    return lambda label, done, total: change(description=label, completed=done, total=total)


def _changed(options: Any, defaults: Any) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    return {field: value for field, value in asdict(options).items() if value != getattr(defaults, field)}


def _check(where: Where, outputs: Outputs) -> None:
    """Refuse conflicting options and unwritable files before a long run."""
    from weft.draw.chart import check_suffix

    check_explain(outputs.explain, outputs.form)
    many = outputs.fabrics is not None or outputs.scale is not None
    for flag, value, clash, other in (
        ("--fabrics", outputs.fabrics, where.fabric, "--fabric"),
        ("--scale", outputs.scale, where.gpus, "--gpus"),
        ("--scale", outputs.scale, where.servers, "--servers"),
        ("--search", outputs.search, many, "--fabrics and --scale"),
        ("--search", outputs.search, outputs.picture or outputs.timeline or outputs.trace, "pictures"),
        ("--timeline and --trace", outputs.timeline or outputs.trace, many, "--fabrics and --scale"),
    ):
        if value and clash:
            raise ConfigError(f"{flag} stands instead of {other}: leave out one of them")
    closed = {"--tokens": outputs.tokens, "--slowest": where.slowest, "--engine": where.engine}
    for flag in (flag for flag, value in closed.items() if outputs.search and value is not None):
        raise ConfigError(f"{flag} changes nothing in --search, which compares layouts in closed form: leave it out")
    if outputs.picture is not None and not many:
        raise ConfigError("--picture draws what --scale or --fabrics finds: add one of them; --timeline draws one step")
    if outputs.strong and outputs.scale is None:
        raise ConfigError("--strong says how --scale scales: add --scale 8..1024")
    for path in filter(None, (outputs.picture, outputs.timeline)):
        check_suffix(path)
    if outputs.trace is not None:
        check_suffix(outputs.trace, (".json",))


def _transformer(name: str, shape: Shape) -> Transformer:
    from weft.training.transformer import find, presets, reshape

    if not name:
        raise ConfigError(f"which model? Give one of {', '.join(presets())}, the path of a config.json, or --validate")
    changes = _changed(shape, NO_SHAPE)
    return reshape(find(name), **changes) if changes else find(name)


def _sites(where: Where, layout: Mapping[str, Any], outputs: Outputs) -> list[list[Site]]:
    from weft.training.prediction import find_sites
    from weft.training.scaling import parse_sizes

    names: list[str | None] = [where.fabric]
    if outputs.fabrics is not None:
        names = [name.strip() for name in outputs.fabrics.split(",") if name.strip()]
    return find_sites(
        names,
        [where.gpus] if outputs.scale is None else parse_sizes(outputs.scale),
        layout=layout,
        servers=where.servers,
        server=where.server,
        kinds=where.kinds,
        network=where.network,
        paths=where.paths,
        seed=where.seed,
    )


def _search(transformer: Transformer, site: Site, layout: Mapping[str, Any], outputs: Outputs) -> None:
    from weft.training.prediction import find_layouts
    from weft.training.search import report

    with progress_bar(f"layouts of {transformer.name}") as change:
        results = find_layouts(transformer, site, layout, _show_progress(change))
    if outputs.form.is_data:
        print_data(outputs.form, report(results, site), "layouts")
    else:
        tables.print_search(results, site, explain=outputs.explain)


def _write(prediction: Prediction, outputs: Outputs) -> None:
    from weft.training.profile import draw_timeline, spans
    from weft.training.scaling import draw_parts, draw_scaling
    from weft.training.timeline import write_chrome

    run = prediction.runs[0]
    if outputs.timeline is not None:
        draw_timeline(outputs.timeline, run)
    if outputs.trace is not None:
        write_chrome(spans(run.step), outputs.trace)
    if outputs.picture is not None and outputs.scale is not None:
        draw_scaling(outputs.picture, prediction.curves, strong=outputs.strong)
    elif outputs.picture is not None:
        draw_parts(outputs.picture, prediction.runs)


def _print(prediction: Prediction, tokens: float | None, failures: FailureReport, outputs: Outputs) -> None:
    run = prediction.runs[0]
    has_several = outputs.fabrics is not None or outputs.scale is not None
    if outputs.form.is_data and has_several:
        print_data(outputs.form, prediction.report(tokens), "runs")
    elif outputs.form.is_data:
        print_data(outputs.form, {"weft": __version__, **run.report(tokens), **failures.report(tokens)})
    else:
        if has_several:
            tables.print_runs(prediction, tokens, explain=outputs.explain, strong=outputs.strong)
        else:
            effects = failures.report(tokens)
            tables.print_run(run, tokens, explain=outputs.explain, has_failures=bool(effects))
            print_trouble(effects)
            tables.print_trust([run], explain=outputs.explain, has_failures=bool(effects))
        report_written(outputs.picture, outputs.timeline, outputs.trace)
