"""`weft train`: how long a step of a training job takes on a fabric, and where the time goes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE
from weft.cli.output import Cell, console, print_data, progress_bar, table
from weft.cli.train_flags import NO_CUT, NO_OUTPUTS, NO_SHAPE, NO_WHERE, Cut, Outputs, Shape, Where

if TYPE_CHECKING:
    from weft.training.job import Run
    from weft.training.site import Site
    from weft.training.transformer import Transformer

_TRUST = (
    "How far to trust it: docs/training.md has published steps beside weft's. Left out: failures, input, evaluation."
)


def train(
    model: Annotated[str, NAMES_FILE],
    /,
    *,
    where: Annotated[Where, Parameter(name="*", group="What it runs on")] = NO_WHERE,
    cut: Annotated[Cut, Parameter(name="*", group="How it is cut")] = NO_CUT,
    shape: Annotated[Shape, Parameter(name="*", group="Another shape of the model")] = NO_SHAPE,
    outputs: Annotated[Outputs, Parameter(name="*", group="What is asked, printed and written")] = NO_OUTPUTS,
) -> None:
    """Train a transformer on a fabric: step time, tokens/s, MFU, memory, where the time goes.

    Parameters
    ----------
    model
        By name, llama3-70b or gpt3-175b; or the path of a Hugging Face config.json.
    """
    from weft.sim.engines import find_engine
    from weft.training.job import run_job
    from weft.training.parallel import Layout

    tokens = _tokens(outputs.tokens)
    one = _model(model, shape)
    engine = find_engine(where.engine)
    site = _site(where, cut)
    given = _given(cut, one, site.gpus)
    with progress_bar(f"{one.name} on {site.name}") as change:
        fields = given if _is_cut(cut) else _best(one, site, given, change)
        layout = Layout(gpus=site.gpus, **fields)
        change(description=f"{where.engine} engine over {site.spec}", total=None)
        run = run_job(one, layout, site, engine)
    if outputs.form.is_data:
        print_data(outputs.form, _facts(run, tokens))
    else:
        _print(run, tokens)


# -- what was asked ---------------------------------------------------------------------------------------------------


def _tokens(text: str | None) -> float | None:
    from weft.units import parse_count

    return None if text is None else parse_count("tokens", text)


def _model(name: str, shape: Shape) -> Transformer:
    from weft.training.transformer import find, reshape

    changes = {field: value for field, value in asdict(shape).items() if value is not None}
    return reshape(find(name), **changes) if changes else find(name)


def _site(where: Where, cut: Cut) -> Site:
    from weft.errors import ConfigError
    from weft.training.site import find_site

    each = (cut.tp or 1) * (cut.pp or 1) * (cut.cp or 1)
    gpus = cut.dp * each if where.gpus is None and cut.dp is not None else where.gpus
    site = find_site(
        where.fabric,
        gpus=gpus,
        server=where.server,
        seed=where.seed,
        network=where.network,
        paths=where.paths,
    )
    if cut.dp is not None and cut.dp * each != site.gpus:
        raise ConfigError(
            f"dp*tp*pp*cp = {cut.dp}*{cut.tp or 1}*{cut.pp or 1}*{cut.cp or 1} = {cut.dp * each} and there are "
            f"{site.gpus} GPUs: leave out --dp, it follows"
        )
    return site


def _given(cut: Cut, one: Transformer, gpus: int) -> dict[str, Any]:
    """Fields of a layout: those that were set, with a batch and a sequence."""
    from weft.training.job import SEQUENCES_PER_GPU

    given = {field: value for field, value in asdict(cut).items() if value is not None and field != "dp"}
    return {"global_batch": SEQUENCES_PER_GPU * gpus, "seq": one.seq} | given


def _is_cut(cut: Cut) -> bool:
    """Whether one of the sizes was given: Megatron's defaults are then the others."""
    from weft.training.search import SIZES

    return cut.dp is not None or any(getattr(cut, size) is not None for size in SIZES)


def _best(one: Transformer, site: Site, given: dict[str, Any], change: Any) -> dict[str, Any]:
    from weft.training.search import SIZES, search

    change(description=f"layouts of {one.name}")
    best = search(one, site, given, lambda done, of: change(completed=done, total=of))[0].layout
    return given | {size: getattr(best, size) for size in SIZES}


# -- one job ----------------------------------------------------------------------------------------------------------


def _facts(run: Run, tokens: float | None) -> dict[str, Any]:
    from weft.version import __version__

    asked = {} if tokens is None else {"tokens": tokens, "days": run.days(tokens)}
    return {"weft": __version__, **run.report(), **asked}


def _print(run: Run, tokens: float | None) -> None:
    out = console()
    for name, said in _headline(run, tokens).items():
        out.print(f"{name:<13} {said}", markup=False)
    out.print()
    out.print(table("Where the time goes", ("part", "seconds", "%", "what"), _where(run)))
    out.print(_TRUST, markup=False)
    out.print(f"{run.engine} engine over {run.site.spec}; seed {run.site.options.seed}", markup=False)


def _headline(run: Run, tokens: float | None) -> dict[str, str]:
    from weft.training.words import show_layout, show_memory
    from weft.units import format_count

    step, one = run.step, run.step.transformer
    per_gpu = step.tokens_per_s / run.site.gpus
    flop = step.mfu * run.site.gpu.peak_flop_s(run.layout.precision) / 1e12
    said = {
        "model": f"{one.name}, {one.parameters / 1e9:,.1f} B parameters",
        "on": f"{run.site.gpus:,} × {run.site.template.gpu} in {run.site.servers:,} × {run.site.template.name}",
        "layout": show_layout(run.layout),
        "step": f"{step.step_s:.4g} s for {run.layout.global_batch:,} sequences of {run.layout.seq:,} tokens",
        "tokens/s": f"{step.tokens_per_s:,.0f}, {per_gpu:,.0f} on each GPU",
        "MFU": f"{100 * step.mfu:.1f} % of the peak in {run.layout.precision}, {flop:,.0f} TFLOP/s on each GPU",
        "memory": show_memory(run),
    }
    if tokens is not None:
        said["time to train"] = f"{run.days(tokens):,.1f} days for {format_count(tokens)} tokens, nothing broken"
    return said


_PARTS = {
    "products": "matrix products",
    "attention": "attention",
    "memory": "norms, activations, residuals: passes over memory",
    "tp": "tensor parallel, not hidden",
    "cp": "context parallel, not hidden",
    "ep": "expert parallel: tokens to their experts and back",
    "slowest": "waiting for the slowest GPU",
    "bubble": "pipeline bubble, with sends that nothing hides",
    "dp": "gradients and parameters of the copies, not hidden",
    "optimizer": "Adam",
}


def _where(run: Run) -> list[tuple[Cell, ...]]:
    step = run.step
    return [
        (part, round(seconds, 4), round(100 * seconds / step.step_s, 1), _PARTS[part])
        for part, seconds in step.parts.items()
        if seconds > 0
    ]
