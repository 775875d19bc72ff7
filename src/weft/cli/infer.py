"""`weft infer`: predict throughput and latency of a served model on a fabric, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli import infer_tables as tables
from weft.cli.arguments import NAMES_FILE
from weft.cli.infer_flags import NO_CUT, NO_OUTPUTS, NO_REQUESTS, NO_WHERE, Cut, Outputs, Requests, Where
from weft.cli.infer_load import NO_SERVING, NO_TRAFFIC, Serving, Traffic, check_traffic, read_traffic
from weft.cli.output import check_explain, print_data, progress_bar, report_written
from weft.errors import ConfigError
from weft.version import __version__

if TYPE_CHECKING:
    from weft.inference.deployment import Deployment
    from weft.inference.load import Load
    from weft.inference.prediction import Inference


def infer(
    model: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    where: Annotated[Where, Parameter(name="*", group="Hardware")] = NO_WHERE,
    cut: Annotated[Cut, Parameter(name="*", group="Layout and software")] = NO_CUT,
    requests: Annotated[Requests, Parameter(name="*", group="Load")] = NO_REQUESTS,
    traffic: Annotated[Traffic, Parameter(name="*", group="Requests in time")] = NO_TRAFFIC,
    serving: Annotated[
        Serving, Parameter(name="*", group="Replicas and scheduling, with requests in time")
    ] = NO_SERVING,
    outputs: Annotated[Outputs, Parameter(name="*", group="Results")] = NO_OUTPUTS,
) -> None:
    """Predict throughput and latency of a served model.

    Parameters
    ----------
    model
        The name of a model, llama3-70b or deepseek-v3, or the path of a Hugging Face config.json. Not with
        --validate.
    """
    from weft.inference.deployment import check_effect
    from weft.inference.prediction import compare_fabrics, find_pareto
    from weft.inference.prediction import infer as predict
    from weft.sim.engines import find_engine

    if outputs.validate:
        rest = (model, where, cut, requests, traffic, serving, replace(outputs, validate=False, form=NO_OUTPUTS.form))
        if rest != ("", NO_WHERE, NO_CUT, NO_REQUESTS, NO_TRAFFIC, NO_SERVING, NO_OUTPUTS):
            raise ConfigError("--validate prints published figures and runs nothing: leave out all but --json or --csv")
        tables.print_validation(outputs.form)
        return
    _check(where, cut, outputs)
    lengths = requests.input_len, requests.output_len
    check_traffic(
        traffic,
        serving,
        requests.batch_size,
        requests.phase,
        requests.concurrency,
        has_lengths=lengths != (NO_REQUESTS.input_len, NO_REQUESTS.output_len),
    )
    load, clock = read_load(requests), find_engine(where.engine or "flow")
    if traffic.is_active:
        _serve_traffic(model, where, cut, requests, traffic, serving, outputs)
        return
    with progress_bar(f"{model} on {where.fabric or 'its fabric'}"):
        if outputs.pareto:
            runs = find_pareto(lambda sizes: find(model, where, cut, sizes), _most_gpus(where), load, clock)
        elif outputs.fabrics is not None:
            names = [name.strip() for name in outputs.fabrics.split(",") if name.strip()]
            runs = compare_fabrics(_named(model), names, load, clock, **_place(where), **_fields(cut))
        else:
            deployment = find(model, where, cut)
            if where.engine is not None:
                check_effect("--engine", deployment.site, _fields(cut))
            runs = [predict(deployment, load, clock)]
    _print(runs, outputs)


def _serve_traffic(
    model: str, where: Where, cut: Cut, requests: Requests, traffic: Traffic, serving: Serving, outputs: Outputs
) -> None:
    """Serve requests one by one."""
    from weft.cli.infer_traffic import Run, compare_traffic, fleet_of, run_traffic
    from weft.inference.prediction import check_fabrics
    from weft.sim.engines import find_engine

    if outputs.pareto or outputs.picture is not None:
        raise ConfigError("--pareto and --picture show means: leave out --rate, --request-trace and --simulate")
    if outputs.explain and (serving.find or outputs.fabrics is not None):
        raise ConfigError("--explain is for one service: leave out --find and --fabrics")
    if outputs.fabrics is not None and any((serving.find, serving.write_requests, serving.picture_cdf, serving.bands)):
        raise ConfigError("--fabrics serves one load: leave out --find, --bands, --write-requests and --picture-cdf")
    if serving.find == "gpus" and (where.gpus is not None or serving.prefill or serving.decode):
        raise ConfigError("--find gpus finds the number of GPUs and replicas: leave out --gpus, --prefill and --decode")
    if serving.find == "layout":
        _check_layouts(cut, serving)
    output = read_load(requests).output
    one = replace(where, gpus=None, servers="") if serving.find == "layout" else where

    def run_on(fabric: str | None) -> Run:
        there = replace(one, fabric=fabric)

        def find_one(gpus: int | None, sizes: Mapping[str, int]) -> Deployment:
            if gpus is not None and there.gpus is not None:
                raise ConfigError(f"these replicas need {gpus} GPUs: give --gpus {gpus}, or fewer of them")
            return find(model, there if gpus is None else replace(there, gpus=gpus, servers=""), cut, sizes)

        return Run(
            fleet=fleet_of(find_one, serving, find_engine(where.engine or "flow")),
            traffic=traffic,
            serving=serving,
            load_of=lambda other: read_traffic(other, requests.input_len, output, requests.concurrency, where.seed),
            most_gpus=where.gpus or _gpus_of_server(where),
            seed=where.seed,
        )

    with progress_bar(f"{model} on {where.fabric or 'its fabric'}") as change:
        if outputs.fabrics is not None:
            names = [name.strip() for name in outputs.fabrics.split(",") if name.strip()]
            check_fabrics(names)
            show = compare_traffic([run_on(name) for name in names], outputs.form)
        else:
            show = run_traffic(
                run_on(where.fabric), outputs.form, lambda text: change(description=text), explain=outputs.explain
            )
    show()


def find(model: str, where: Where, cut: Cut, sizes: Mapping[str, int] | None = None) -> Deployment:
    """Return the deployment of these options, with other sizes of its layout if they are given."""
    from weft.inference.deployment import find_deployment

    return find_deployment(_named(model), where.fabric, **_place(where), **_fields(cut) | dict(sizes or {}))


def _check_layouts(cut: Cut, serving: Serving) -> None:
    sizes = [getattr(cut, name) > 1 for name in ("tp", "pp", "dp", "ep")]
    decode = [getattr(serving, f"decode_{name}") for name in ("tp", "pp", "dp", "ep")]
    if any(sizes) or any(decode) or serving.prefill or serving.decode:
        raise ConfigError(
            "--find layout finds layouts and replicas: leave out --tp, --pp, --dp, --ep, the same of decode replicas, "
            "--prefill and --decode; --gpus is the most GPUs of a replica"
        )


def _gpus_of_server(where: Where) -> int:
    from weft.fabric import catalog
    from weft.training.site import find_site

    has_size = where.fabric not in (None, *(each.name for each in catalog.interconnects()))
    return find_site(where.fabric, servers="" if has_size else "1", server=where.server).template.gpus


def read_load(requests: Requests) -> Load:
    """Return the load of these options."""
    from weft.inference.load import Load, default_output

    output = default_output(requests.phase) if requests.output_len is None else requests.output_len
    return Load(
        input=requests.input_len,
        output=output,
        concurrency=requests.concurrency,
        batch=requests.batch_size,
        phase=requests.phase,
    )


def _named(model: str) -> str:
    from weft.training.transformer import presets

    if not model:
        raise ConfigError(f"which model? Give one of {', '.join(presets())}, the path of a config.json, or --validate")
    return model


def _place(where: Where) -> dict[str, Any]:
    names = ("gpus", "servers", "server", "network", "paths", "seed")
    return {name: getattr(where, name) for name in names}


def _fields(cut: Cut) -> dict[str, Any]:
    """Return the fields of a deployment that differ from their defaults."""
    return {name: value for name, value in asdict(cut).items() if value != getattr(NO_CUT, name)}


def _check(where: Where, cut: Cut, outputs: Outputs) -> None:
    """Refuse conflicting options and unwritable files before a long run."""
    from weft.draw.chart import check_suffix

    check_explain(outputs.explain, outputs.form)
    if outputs.fabrics and where.fabric:
        raise ConfigError("--fabrics stands instead of --fabric: leave out one of them")
    if outputs.pareto and outputs.fabrics:
        raise ConfigError("use --pareto or --fabrics, not both")
    if outputs.pareto and any(getattr(cut, name) > 1 for name in ("tp", "pp", "dp", "ep")):
        raise ConfigError("--pareto tries all layouts: leave out --tp, --pp, --dp and --ep")
    if outputs.picture is not None:
        if not outputs.pareto:
            raise ConfigError("--picture draws the curve of --pareto: add it")
        check_suffix(outputs.picture)
    for flag, limit in (("--max-num-seqs", cut.max_batch), ("--max-num-batched-tokens", cut.max_tokens)):
        if limit is not None and limit < 1:
            raise ConfigError(f"{flag} must be 1 or more, got {limit}")
    if cut.acceptance is not None and not cut.drafts:
        raise ConfigError("--acceptance is of draft tokens: add --drafts")
    if cut.imbalance is not None and cut.ep == 1:
        raise ConfigError("--imbalance is of experts on several GPUs: add --ep")


def _most_gpus(where: Where) -> int:
    from weft.training.site import find_site

    if where.gpus is None:
        raise ConfigError("--pareto needs --gpus, the most GPUs of a replica")
    return find_site(where.fabric, gpus=where.gpus, server=where.server).gpus


def _print(runs: list[Inference], outputs: Outputs) -> None:
    from weft.inference.prediction import draw_pareto

    if outputs.picture is not None:
        draw_pareto(outputs.picture, runs)
    has_several = outputs.pareto or outputs.fabrics is not None
    if outputs.form.is_data:
        facts = {"weft": __version__}
        reports = [run.report() for run in runs]
        print_data(outputs.form, facts | ({"runs": reports} if has_several else reports[0]), *["runs"] * has_several)
        return
    if outputs.pareto:
        tables.print_pareto(runs, explain=outputs.explain)
    elif outputs.fabrics is not None:
        tables.print_fabrics(runs, explain=outputs.explain)
    else:
        tables.print_run(runs[0], explain=outputs.explain)
    report_written(outputs.picture)
