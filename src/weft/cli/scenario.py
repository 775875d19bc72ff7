"""`weft scenario`: test claims about InfiniBand in simulations and labs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import Parameter as Place
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from cyclopts import App, Parameter

from weft.cli.arguments import TABLES, File, Form, Whole
from weft.cli.output import console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError, UnknownName
from weft.scenarios import SCENARIOS
from weft.units import format_size_bytes, parse_size_bytes

if TYPE_CHECKING:
    from weft.scenarios.finding import Finding


def _question(name: str) -> str:
    """Return the question of a scenario; for a plugin that cannot be loaded, the error, so that others still run."""
    try:
        return SCENARIOS[name].question
    except ConfigError as error:
        return str(error).splitlines()[0]


scenario = App(
    name="scenario",
    help_format="markdown",
)
for _name in SCENARIOS:
    scenario.command(f"{__name__}:{_name}", name=_name, help=_question(_name))


@scenario.default
def list_scenarios(name: str | None = None, /, *, form: Form = TABLES) -> None:
    """Test a claim about InfiniBand with numbers.

    Without NAME, list the scenarios.

    Parameters
    ----------
    name
        A scenario: qos, incast, bad-link, bad-cable, ib-vs-ethernet, gpudirect, real-jobs, real-workloads,
        mpi-allreduce, cxl-or-rdma, converged, cable-plan, sm-faults, sm-failover or tenants.
    """
    if name is not None:
        raise UnknownName("scenario", name, SCENARIOS)
    if form.is_data:
        print_data(form, [{"scenario": key, "question": _question(key)} for key in SCENARIOS])
    else:
        note = "Run one: weft scenario NAME. Its options: weft scenario NAME --help"
        rows = [(scenario_name, _question(scenario_name)) for scenario_name in SCENARIOS]
        console().print(table("Scenarios", ("scenario", "question"), rows, note))


def __getattr__(name: str) -> Callable[..., None]:
    """Build the command of a scenario, with the parameters of its `run` and those common to all."""
    if name not in SCENARIOS:
        raise AttributeError(name)
    module = import_module(SCENARIOS[name].module)
    hints = get_type_hints(module.run, include_extras=True)
    own = {key: place for key, place in signature(module.run).parameters.items() if key != "progress"}

    def command(*, picture: Path | None = None, form: Form = TABLES, **options: Any) -> None:
        sizes = {key: parse_size_bytes(value) for key, value in options.items() if key.endswith("_bytes")}
        _run(module, picture, form, options | sizes)

    drawn = Parameter(help=f"{(module.draw.__doc__ or '').rstrip('.')}, .png, .svg or .pdf.")
    places = [_flag(key, hints[key], place.default) for key, place in own.items()]
    places.append(Place("picture", Place.KEYWORD_ONLY, default=None, annotation=Annotated[File, drawn]))
    places.append(Place("form", Place.KEYWORD_ONLY, default=TABLES, annotation=Form))
    command.__doc__ = SCENARIOS[name].question
    command.__annotations__ = {place.name: place.annotation for place in places}
    vars(command)["__signature__"] = Signature(places)
    return command


def _flag(name: str, hint: Any, default: Any) -> Place:
    """Return the flag for a parameter of `run`."""
    kind, (meaning, *flag) = hint.__origin__, hint.__metadata__
    parameter = Parameter(name=flag or [f"--{name.removesuffix('_bytes').replace('_', '-')}"], help=meaning)
    if name.endswith("_bytes"):
        kind, default = str, format_size_bytes(default)
    return Place(
        name, Place.KEYWORD_ONLY, default=default, annotation=Annotated[Whole if kind is int else kind, parameter]
    )


def _run(module: Any, picture: Path | None, form: Form, options: dict[str, Any]) -> None:
    from weft.draw.chart import check_suffix

    if picture is not None:
        check_suffix(picture)
    with progress_bar("running") as change:
        if "progress" in signature(module.run).parameters:
            options["progress"] = lambda done, of, name: change(description=name, completed=done, total=of)
        finding = module.run(**options)
    if picture is not None:
        module.draw(finding, picture)
    if form.is_data:
        print_data(form, finding.report(), "rows")
        return
    _print(finding)
    report_written(picture)


def _print(finding: Finding) -> None:
    out = console()
    out.print(f'Claim: "{finding.claim}"\n  ({finding.source})', markup=False)
    out.print(f"Runs: {finding.ran}; seed {finding.options['seed']}", markup=False)
    out.print(table("", finding.columns, finding.rows))
    out.print(f"Result: {finding.finding}", markup=False)
    out.print(f"How far to trust it: {finding.trust}", markup=False)
