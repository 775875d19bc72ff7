"""Predict a training job: on one fabric, on several side by side, or at several numbers of GPUs.

sites = find_sites(["ndr", "eth-100-tcp"], [64, 128], layout={"tp": 2})
prediction = predict(find("llama3-8b"), sites, {"tp": 2})
prediction.curves[0].runs[1].step.step_s       the step on 128 GPUs over NDR InfiniBand
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.fabric.spec import as_kinds
from weft.training.framework import choose_framework, with_defaults
from weft.training.idle import without_effect, without_effect_on
from weft.training.job import SEQUENCES_PER_GPU, run_job
from weft.training.memory import check_fits, recompute_to_fit
from weft.training.parallel import Layout, check
from weft.training.scaling import Curve, Prediction, grow
from weft.training.search import SIZES, SearchResult, search
from weft.training.site import Site, find_site
from weft.training.transformer import Transformer

if TYPE_CHECKING:
    from weft.sim.result import Engine

Progress = Callable[[str, int, int | None], None]  # current task, tasks done, tasks in all


def find_sites(
    fabrics: Sequence[str | Fabric | None] = (None,),
    gpus: Sequence[int | None] = (None,),
    *,
    layout: Mapping[str, Any] | None = None,
    servers: str = "",
    server: str | None = None,
    kinds: str = "",
    network: str | None = None,
    paths: str | None = None,
    seed: int = 1,
) -> list[list[Site]]:
    """Return the sites of a job by fabric, then by number of GPUs. Without a number, `dp` of the layout gives it.

    kinds: server types for hosts in a file without GPU information, as `as_kinds` reads them.
    """
    fields = layout or {}
    repeated = next((name for index, name in enumerate(fabrics) if name in fabrics[:index]), None)
    if repeated is not None or not fabrics:
        raise ConfigError("name at least one fabric, and each once: ndr,roce-400,eth-100-tcp")
    unit = fields.get("tp", 1) * fields.get("pp", 1) * fields.get("cp", 1)
    has_copies = "dp" in fields and not servers
    rules = {"network": network, "paths": paths}
    sites = []
    for name in fabrics:
        fabric = _with_kinds(name, kinds)
        counts = [fields["dp"] * unit if count is None and has_copies else count for count in gpus]
        sites.append(
            [find_site(fabric, gpus=count, servers=servers, server=server, seed=seed, **rules) for count in counts]
        )
    for site in (site for row in sites for site in row):
        _check_site(site, rules, fields, unit)
    return sites


def _with_kinds(fabric: str | Fabric | None, kinds: str) -> str | Fabric | None:
    if isinstance(fabric, Fabric):
        return fabric
    if kinds and (fabric is None or fabric in {interconnect.name for interconnect in catalog.interconnects()}):
        raise ConfigError(f"--as {kinds} is about the servers of a file: give --fabric FILE; else use --server")
    return as_kinds(fabric, kinds) if fabric else None


def _check_site(site: Site, rules: Mapping[str, str | None], fields: Mapping[str, Any], unit: int) -> None:
    for flag in (f"--{name}" for name, value in rules.items() if value is not None and site.servers == 1):
        raise ConfigError(f"{flag} changes nothing here: one {site.template.name} sends nothing over a network")
    copies = fields.get("dp")
    if copies is not None and copies * unit != site.gpus:
        sizes = [fields.get(name, 1) for name in ("tp", "pp", "cp")]
        raise ConfigError(
            f"dp*tp*pp*cp = {copies}*{'*'.join(map(str, sizes))} = {copies * unit} and there are {site.gpus} GPUs: "
            "leave out --dp, it follows"
        )


def find_layouts(
    transformer: Transformer, site: Site, layout: Mapping[str, Any], progress: Progress | None = None
) -> list[SearchResult]:
    """Return all layouts that divide and fit, in closed form, the fastest first. Fields that are set are kept."""
    _refuse(layout, without_effect_on(transformer))
    return _search(transformer, site, layout, progress)


def _search(
    transformer: Transformer, site: Site, layout: Mapping[str, Any], progress: Progress | None
) -> list[SearchResult]:
    label = f"layouts of {transformer.name} on {site.gpus:,} GPUs, {site.name}"
    report = None if progress is None else lambda done, total: progress(label, done, total)
    return search(transformer, site, _with_defaults(layout, transformer, site), report)


def predict(
    transformer: Transformer,
    sites: Sequence[Sequence[Site]],
    layout: Mapping[str, Any] | None = None,
    *,
    engine: Engine | None = None,
    slowest: float | None = None,
    strong: bool = False,
    progress: Progress | None = None,
) -> Prediction:
    """Run a step on each site, by default with the flow engine.

    layout: the fields of a Layout that are set; without sizes each site gets its fastest layout.
    strong: keep the global batch at all numbers of GPUs; else each GPU has the same work.
    """
    layouts = _layouts(transformer, sites, layout or {}, strong, progress)
    count, done, curves = sum(map(len, sites)), 0, []
    for row, row_layouts in zip(sites, layouts, strict=True):
        runs = []
        for site, site_layout in zip(row, row_layouts, strict=True):
            if progress is not None:
                name = "flow" if engine is None else engine.name
                progress(f"{name} engine over {site.spec}", done, count if count > 1 else None)
            runs.append(run_job(transformer, site_layout, site, engine, slowest=slowest))
            done += 1
        curves.append(Curve(runs=tuple(runs)))
    return Prediction(curves=tuple(curves))


def _with_defaults(layout: Mapping[str, Any], transformer: Transformer, site: Site) -> dict[str, Any]:
    """Return the fields of a Layout, with a batch, a sequence and a framework. `dp` follows from the others."""
    framework = choose_framework(layout, site.gpu.entry.sm)
    fields = {"global_batch": SEQUENCES_PER_GPU * site.gpus, "seq": transformer.seq}
    fields |= with_defaults({**layout, "framework": framework})
    fields.pop("dp", None)
    return fields


def _layouts(
    transformer: Transformer,
    sites: Sequence[Sequence[Site]],
    layout: Mapping[str, Any],
    strong: bool,
    progress: Progress | None,
) -> list[list[Layout]]:
    """Return the layouts by fabric, then by number of GPUs; the fastest if no size is set.

    All must divide and fit before one is run.
    """
    first = sites[0][0]
    fields = _with_defaults(layout, transformer, first)
    batches = [grow(fields["global_batch"], first.gpus, site.gpus, strong=strong) for site in sites[0]]
    if not {"dp", *SIZES} & layout.keys():
        _refuse(layout, without_effect_on(transformer))
        return [
            [
                _search(transformer, site, fields | {"global_batch": batch}, progress)[0].layout
                for site, batch in zip(row, batches, strict=True)
            ]
            for row in sites
        ]
    fixed = [
        Layout(gpus=site.gpus, **fields | {"global_batch": batch})
        for site, batch in zip(sites[0], batches, strict=True)
    ]
    memory_gbyte = first.gpu.entry.memory_gbyte
    for each in fixed:
        check(each, transformer)
    if "recompute" not in layout:
        fixed = [recompute_to_fit(each, transformer, memory_gbyte) for each in fixed]
    for each in fixed:
        check_fits(each, transformer, memory_gbyte)
    _check_effect(fixed, transformer, layout)
    return [fixed for _ in sites]


def _check_effect(layouts: Sequence[Layout], transformer: Transformer, fields: Mapping[str, Any]) -> None:
    """Refuse a field that was set and changes nothing in any of these layouts."""
    reasons = [without_effect(layout, transformer) for layout in layouts]
    _refuse(fields, {field: why for field, why in reasons[0].items() if all(field in each for each in reasons)})


def _refuse(fields: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Raise ConfigError for a field that was set and changes nothing."""
    for field in (field for field in fields if field in reasons):
        flag = f"--{'no-' * (fields[field] is False)}{field.replace('_', '-')}"
        raise ConfigError(f"{flag} changes nothing here: {reasons[field]}. Leave it out")
