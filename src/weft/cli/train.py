"""`weft train`: predict the step time of a training job on a fabric, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli import train_tables as tables
from weft.cli.arguments import NAMES_FILE
from weft.cli.output import check_explain, print_data, progress_bar, report_written
from weft.cli.train_flags import NO_CUT, NO_OUTPUTS, NO_SHAPE, NO_WHERE, Cut, Outputs, Shape, Where
from weft.cli.train_trouble import NO_TROUBLE, Trouble, check_trouble, failure_options, print_trouble
from weft.cli.train_validation import print_validation
from weft.errors import ConfigError
from weft.units import parse_count
from weft.version import __version__

if TYPE_CHECKING:
    from weft.training.prediction import Progress
    from weft.training.scaling import Prediction
    from weft.training.site import Site
    from weft.training.transformer import Transformer
    from weft.training.trouble import FailureReport


def train(
    model: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    where: Annotated[Where, Parameter(name="*", group="Hardware")] = NO_WHERE,
    cut: Annotated[Cut, Parameter(name="*", group="Parallelism")] = NO_CUT,
    shape: Annotated[Shape, Parameter(name="*", group="Model shape")] = NO_SHAPE,
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
        rest = (model, where, cut, shape, trouble, replace(outputs, validate=False, form=NO_OUTPUTS.form))
        if rest != ("", NO_WHERE, NO_CUT, NO_SHAPE, NO_TROUBLE, NO_OUTPUTS):
            raise ConfigError("--validate prints published steps and runs nothing: leave out all but --json or --csv")
        print_validation(outputs.form)
        return
    _check(where, outputs)
    tokens = None if outputs.tokens is None else parse_count("tokens", outputs.tokens)
    transformer, layout = _transformer(model, shape), _changed(cut, NO_CUT)
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
