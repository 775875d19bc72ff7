"""`weft train`: how long a step of a training job takes on a fabric, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli import train_tables as tables
from weft.cli.arguments import NAMES_FILE
from weft.cli.output import print_data, progress_bar, report_written
from weft.cli.train_flags import NO_CUT, NO_OUTPUTS, NO_SHAPE, NO_WHERE, Cut, Outputs, Shape, Where
from weft.cli.train_trouble import NO_TROUBLE, Trouble, check_trouble, print_trouble, trouble_facts
from weft.cli.train_validation import print_validation

if TYPE_CHECKING:
    from weft.training.job import Run
    from weft.training.parallel import Layout
    from weft.training.scaling import Curve
    from weft.training.site import Site
    from weft.training.transformer import Transformer


def train(
    model: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    where: Annotated[Where, Parameter(name="*", group="What it runs on")] = NO_WHERE,
    cut: Annotated[Cut, Parameter(name="*", group="How it is cut")] = NO_CUT,
    shape: Annotated[Shape, Parameter(name="*", group="Another shape of the model")] = NO_SHAPE,
    trouble: Annotated[Trouble, Parameter(name="*", group="What goes wrong")] = NO_TROUBLE,
    outputs: Annotated[Outputs, Parameter(name="*", group="What is asked, printed and written")] = NO_OUTPUTS,
) -> None:
    """Predict the step time of a training job.

    Parameters
    ----------
    model
        By name, llama3-70b or gpt3-175b; or the path of a Hugging Face config.json. Needed but for --validate.
    """
    from weft.errors import ConfigError
    from weft.sim.engines import find_engine
    from weft.units import parse_count

    if outputs.validate:
        rest = (model, where, cut, shape, trouble, replace(outputs, validate=False, form=NO_OUTPUTS.form))
        if rest != ("", NO_WHERE, NO_CUT, NO_SHAPE, NO_TROUBLE, NO_OUTPUTS):
            raise ConfigError("--validate prints published steps and runs nothing: leave out all but --json or --csv")
        print_validation(outputs.form)
        return
    _check(where, outputs)
    tokens = None if outputs.tokens is None else parse_count("tokens", outputs.tokens)
    one = _model(model, shape)
    engine = find_engine(where.engine or "flow")
    sites = _sites(where, cut, outputs)
    check_trouble(trouble, sites[0][0], outputs)
    if outputs.search:
        _search(one, sites[0][0], cut, outputs)
        return
    with progress_bar(f"{one.name} on {where.fabric or 'its fabric'}") as change:
        layouts = _layouts(one, sites, cut, outputs.strong, change)
        curves = _run(one, sites, layouts, engine, where.slowest, change)
        told = trouble_facts(curves[0].runs[0], trouble, engine, tokens)
    _write(curves, outputs)
    _tell(curves, tokens, told, outputs)


# -- what was asked ---------------------------------------------------------------------------------------------------


def _check(where: Where, outputs: Outputs) -> None:
    """Refuse before a long run what makes no sense together, or could not be written after it."""
    from weft.draw.chart import check_suffix
    from weft.errors import ConfigError

    many = outputs.compare is not None or outputs.scale is not None
    for flag, given, clash, other in (
        ("--compare", outputs.compare, where.fabric, "--fabric"),
        ("--scale", outputs.scale, where.gpus, "--gpus"),
        ("--scale", outputs.scale, where.servers, "--servers"),
        ("--search", outputs.search, many, "--compare and --scale"),
        ("--search", outputs.search, outputs.picture or outputs.timeline or outputs.trace, "pictures"),
        ("--timeline and --trace", outputs.timeline or outputs.trace, many, "--compare and --scale"),
    ):
        if given and clash:
            raise ConfigError(f"{flag} stands instead of {other}: leave out one of them")
    closed = {"--tokens": outputs.tokens, "--slowest": where.slowest, "--engine": where.engine}
    for flag in (flag for flag, given in closed.items() if outputs.search and given is not None):
        raise ConfigError(f"{flag} changes nothing in --search, which compares layouts in closed form: leave it out")
    if outputs.picture is not None and not many:
        raise ConfigError("--picture draws what --scale or --compare finds: add one of them; --timeline draws one step")
    if outputs.strong and outputs.scale is None:
        raise ConfigError("--strong says how --scale scales: add --scale 8..1024")
    for path in filter(None, (outputs.picture, outputs.timeline)):
        check_suffix(path)
    if outputs.trace is not None:
        check_suffix(outputs.trace, (".json",))


def _model(name: str, shape: Shape) -> Transformer:
    from weft.errors import ConfigError
    from weft.training.transformer import find, presets, reshape

    if not name:
        raise ConfigError(f"which model? Give one of {', '.join(presets())}, the path of a config.json, or --validate")
    changes = {field: value for field, value in asdict(shape).items() if value is not None}
    return reshape(find(name), **changes) if changes else find(name)


def _sites(where: Where, cut: Cut, outputs: Outputs) -> list[list[Site]]:
    """By fabric, then by size."""
    from weft.errors import ConfigError
    from weft.training.scaling import parse_sizes

    names: list[str | None] = [where.fabric]
    if outputs.compare is not None:
        names = [name.strip() for name in outputs.compare.split(",") if name.strip()]
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice or not names:
            raise ConfigError(f"--compare {outputs.compare}: name fabrics, each once: ndr,roce-400,eth-100-tcp")
    sizes = [where.gpus] if outputs.scale is None else parse_sizes(outputs.scale)
    return [[_site(replace(where, fabric=name, gpus=gpus), cut) for gpus in sizes] for name in names]


def _site(where: Where, cut: Cut) -> Site:
    from weft.errors import ConfigError
    from weft.fabric import catalog
    from weft.fabric.spec import as_kinds
    from weft.training.site import find_site

    each = (cut.tp or 1) * (cut.pp or 1) * (cut.cp or 1)
    unsaid = where.gpus is None and not where.servers
    gpus = cut.dp * each if unsaid and cut.dp is not None else where.gpus
    rules = {"network": where.network, "paths": where.paths}
    if where.kinds and (where.fabric is None or where.fabric in {one.name for one in catalog.interconnects()}):
        raise ConfigError(
            f"--as {where.kinds} is about the servers of a file: give --fabric FILE; else --server says it"
        )
    fabric = as_kinds(where.fabric, where.kinds) if where.fabric else None
    site = find_site(fabric, gpus=gpus, servers=where.servers, server=where.server, seed=where.seed, **rules)
    for flag in (f"--{name}" for name, given in rules.items() if given is not None and site.servers == 1):
        raise ConfigError(f"{flag} changes nothing here: one {site.template.name} sends nothing over a network")
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


# -- layouts ----------------------------------------------------------------------------------------------------------


def _layouts(
    one: Transformer, sites: Sequence[Sequence[Site]], cut: Cut, strong: bool, change: Any
) -> list[list[Layout]]:
    """By fabric, then by size: as given, with Megatron's defaults for the other sizes; the fastest where none is given.

    All must divide and fit before one is run.
    """
    from weft.training.memory import check_fits
    from weft.training.parallel import Layout, check
    from weft.training.scaling import grow
    from weft.training.search import SIZES

    first, given = sites[0][0], _given(cut, one, sites[0][0].gpus)
    batches = [grow(given["global_batch"], first.gpus, site.gpus, strong=strong) for site in sites[0]]
    if cut.dp is None and all(getattr(cut, size) is None for size in SIZES):
        return [
            [
                _fastest(one, site, given | {"global_batch": batch}, change)
                for site, batch in zip(row, batches, strict=True)
            ]
            for row in sites
        ]
    made = [
        Layout(gpus=site.gpus, **given | {"global_batch": batch}) for site, batch in zip(sites[0], batches, strict=True)
    ]
    for each in made:
        check(each, one)
        check_fits(each, one, first.gpu.entry.memory_gbyte)
    _check_idle(made, one, cut)
    return [made for _ in sites]


def _check_idle(made: Sequence[Layout], one: Transformer, cut: Cut) -> None:
    """Refuse what was given and changes nothing in any of these layouts."""
    from weft.errors import ConfigError
    from weft.training.idle import without_effect

    changed = {field: value for field, value in asdict(cut).items() if value != getattr(NO_CUT, field)}
    for field, value in changed.items():
        reasons = [without_effect(layout, one).get(field) for layout in made]
        if all(reasons):
            flag = f"--{'no-' * (value is False)}{field.replace('_', '-')}"
            raise ConfigError(f"{flag} changes nothing here: {reasons[0]}. Leave it out")


def _fastest(one: Transformer, site: Site, given: dict[str, Any], change: Any) -> Layout:
    from weft.training.search import search

    change(description=f"layouts of {one.name} on {site.gpus:,} GPUs, {site.name}")
    return search(one, site, given, lambda done, of: change(completed=done, total=of))[0].layout


def _search(one: Transformer, site: Site, cut: Cut, outputs: Outputs) -> None:
    from weft.training.search import search

    with progress_bar(f"layouts of {one.name}") as change:
        found = search(one, site, _given(cut, one, site.gpus), lambda done, of: change(completed=done, total=of))
    if outputs.form.is_data:
        print_data(outputs.form, tables.search_facts(found, site), "layouts")
    else:
        tables.print_search(found, site)


# -- runs -------------------------------------------------------------------------------------------------------------


def _run(
    one: Transformer,
    sites: Sequence[Sequence[Site]],
    layouts: Sequence[Sequence[Layout]],
    engine: Any,
    slowest: float | None,
    change: Any,
) -> list[Curve]:
    from weft.training.job import run_job
    from weft.training.scaling import Curve

    curves, done, of = [], 0, sum(map(len, sites))
    for row, cuts in zip(sites, layouts, strict=True):
        runs: list[Run] = []
        for site, layout in zip(row, cuts, strict=True):
            change(description=f"{engine.name} engine over {site.spec}", completed=done, total=of if of > 1 else None)
            runs.append(run_job(one, layout, site, engine, slowest=slowest))
            done += 1
        curves.append(Curve(runs=tuple(runs)))
    return curves


def _write(curves: Sequence[Curve], outputs: Outputs) -> None:
    from weft.training.profile import draw_timeline, spans
    from weft.training.scaling import draw_parts, draw_scaling
    from weft.training.timeline import write_chrome

    run = curves[0].runs[0]
    if outputs.timeline is not None:
        draw_timeline(outputs.timeline, run)
    if outputs.trace is not None:
        write_chrome(spans(run.step), outputs.trace)
    if outputs.picture is not None and outputs.scale is not None:
        draw_scaling(outputs.picture, curves, strong=outputs.strong)
    elif outputs.picture is not None:
        draw_parts(outputs.picture, [curve.runs[0] for curve in curves])


def _tell(curves: Sequence[Curve], tokens: float | None, told: dict[str, Any], outputs: Outputs) -> None:
    from weft.training.scaling import report

    many = outputs.compare is not None or outputs.scale is not None
    if outputs.form.is_data and many:
        print_data(outputs.form, report(curves, tokens), "runs")
    elif outputs.form.is_data:
        print_data(outputs.form, tables.facts(curves[0].runs[0], tokens) | told)
    else:
        if many:
            tables.print_runs(curves, tokens)
        else:
            tables.print_run(curves[0].runs[0], tokens)
            print_trouble(told)
        report_written(outputs.picture, outputs.timeline, outputs.trace)
