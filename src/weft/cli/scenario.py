"""`weft scenario`: claims about InfiniBand, run and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from weft.cli.arguments import TABLES, File, Form, Whole
from weft.cli.output import console, print_data, progress_bar, say_written, table

if TYPE_CHECKING:
    from weft.scenarios.finding import Finding

scenario = App(name="scenario", help="Test a claim about InfiniBand with numbers. With no NAME, list the scenarios.")


@scenario.default
def list_scenarios(name: str | None = None, /, *, form: Form = TABLES) -> None:
    """Test a claim about InfiniBand with numbers. With no NAME, list the scenarios.

    Parameters
    ----------
    name
        A scenario: qos, incast, bad-link, ib-vs-ethernet, gpudirect, sm-faults or sm-failover.
    """
    from weft.errors import UnknownName
    from weft.scenarios import SCENARIOS

    if name is not None:
        raise UnknownName("scenario", name, SCENARIOS)
    if form.is_data:
        print_data(form, [{"scenario": one, "question": question} for one, question in SCENARIOS.items()])
    else:
        note = "Run one: weft scenario NAME. Its options: weft scenario NAME --help"
        console().print(table("Scenarios", ("scenario", "question"), list(SCENARIOS.items()), note))


@scenario.command
def qos(
    *,
    servers: Whole = 6,
    messages: Whole = 600,
    size: str = "64",
    buffer: str = "0",
    seed: Whole = 1,
    picture: File = None,
    form: Form = TABLES,
) -> None:
    """Does bulk storage traffic block small MPI messages, and what do virtual lanes do about it?

    Parameters
    ----------
    servers
        Storage servers that send at the same time, 1 to 6.
    messages
        MPI messages in all.
    size
        Bytes of an MPI message: 64, 16K.
    buffer
        Bytes of the input buffer of each port and lane; 0 for two round trips of the cable and four packets.
    seed
        Of the moments at which ranks send.
    picture
        The distribution of latencies, .png or .svg.
    """
    from weft.scenarios import qos as asked
    from weft.units import parse_size_bytes

    _run(
        asked.run,
        asked.draw,
        picture,
        form,
        servers=servers,
        messages=messages,
        size_bytes=parse_size_bytes(size),
        buffer_bytes=parse_size_bytes(buffer),
        seed=seed,
    )


@scenario.command
def incast(
    *,
    senders: Whole = 8,
    size: str = "16M",
    buffer: str = "0",
    seed: Whole = 1,
    picture: File = None,
    form: Form = TABLES,
) -> None:
    """Many send to one: what happens to a flow that only shares a cable with them, network by network?

    Parameters
    ----------
    senders
        How many send to one receiver; half of them from another leaf.
    size
        Bytes that each sends: 16M.
    buffer
        Bytes of the input buffer of each port, where Ethernet pauses or drops; 0 for the usual ones.
    seed
        Of the marking by chance.
    picture
        The victim's rate, and the queue at the receiver over time, .png or .svg.
    """
    from weft.scenarios import incast as asked
    from weft.units import parse_size_bytes

    _run(
        asked.run,
        asked.draw,
        picture,
        form,
        senders=senders,
        size_bytes=parse_size_bytes(size),
        buffer_bytes=parse_size_bytes(buffer),
        seed=seed,
    )


@scenario.command(name="bad-link")
def bad_link(
    *,
    hosts: Whole = 16,
    size: str = "16M",
    steps: Whole = 4,
    bit_error_rate: tuple[float, ...] = (1e-8, 1e-7, 1e-6),
    ack_timeout: Whole = 14,
    seed: Whole = 1,
    picture: File = None,
    form: Form = TABLES,
) -> None:
    """One cable loses packets: which jobs become slower, by how much, and how is it found?

    Parameters
    ----------
    hosts
        Of both jobs together: 8, 12, 16, ...
    size
        Bytes of gradients that a job sums in each step.
    steps
        Training steps.
    bit_error_rate
        Of the bad cable, after error correction; give it several times for several runs.
    ack_timeout
        Acknowledgement timeout of a queue pair: 4.096 µs times 2 to this power, as `ibv_modify_qp` takes it.
    seed
        Of the errors.
    picture
        The slowdown of both jobs, .png or .svg.
    """
    from weft.scenarios import bad_link as asked
    from weft.units import parse_size_bytes

    _run(
        asked.run,
        asked.draw,
        picture,
        form,
        hosts=hosts,
        size_bytes=parse_size_bytes(size),
        steps=steps,
        bit_error_rates=bit_error_rate,
        ack_timeout_exponent=ack_timeout,
        seed=seed,
    )


@scenario.command(name="ib-vs-ethernet")
def ib_vs_ethernet(
    *, servers: Whole = 16, size: str = "16M", seed: Whole = 1, picture: File = None, form: Form = TABLES
) -> None:
    """InfiniBand or Ethernet: which claims about latency, processors, loss and all-reduce hold?

    Parameters
    ----------
    servers
        DGX H100 that all-reduce together, 2 to 16.
    size
        Bytes of each message of the permutations.
    seed
        Of permutations, hashes and marking.
    picture
        Latency, the tail of a permutation and all-reduce by network, .png or .svg.
    """
    from weft.scenarios import ib_vs_ethernet as asked
    from weft.units import parse_size_bytes

    _run(asked.run, asked.draw, picture, form, servers=servers, size_bytes=parse_size_bytes(size), seed=seed)


@scenario.command
def gpudirect(
    *,
    servers: Whole = 2,
    server: str = "dgx-h100",
    seed: Whole = 1,
    picture: File = None,
    form: Form = TABLES,
) -> None:
    """What does it cost when data between GPUs is copied through host memory?

    Parameters
    ----------
    servers
        How many all-reduce together.
    server
        Their template in the catalog: dgx-a100, dgx-h100, dgx-b200.
    seed
        Of the run.
    picture
        Latency and all-reduce by size, .png or .svg.
    """
    from weft.scenarios import gpudirect as asked

    _run(asked.run, asked.draw, picture, form, servers=servers, server=server, seed=seed)


@scenario.command(name="sm-faults")
def sm_faults(
    *,
    fabric: str = "fat-tree:hosts=54,radix=6",
    engine: str = "auto",
    links: Whole = 12,
    switches: Whole = 6,
    all_: Annotated[bool, Parameter("--all", negative=())] = False,
    seed: Whole = 1,
    picture: File = None,
    form: Form = TABLES,
) -> None:
    """Every cable and every switch fails once: what does the subnet manager make of it?

    Parameters
    ----------
    fabric
        A topology or the path of a file.
    engine
        Routing engines, as `weft sm` takes them: auto, fat-tree, up-down, dfsssp, ...
    links
        How many cables between switches fail.
    switches
        How many switches fail.
    all_
        All cables between switches and all switches fail, one by one.
    seed
        Of the choice among them.
    picture
        Entries that changed against those that had led through what failed, .png or .svg.
    """
    from weft.scenarios import sm_faults as asked

    def run(**given: Any) -> Finding:
        with progress_bar() as change:
            return asked.run(
                **given, progress=lambda done, of, name: change(description=name, completed=done, total=of)
            )

    _run(
        run,
        asked.draw,
        picture,
        form,
        fabric=fabric,
        engine=engine,
        links=links,
        switches=switches,
        all_elements=all_,
        seed=seed,
    )


@scenario.command(name="sm-failover")
def sm_failover(
    *,
    polling: Whole = 500,
    retries: Whole = 4,
    seed: Whole = 1,
    picture: File = None,
    form: Form = TABLES,
) -> None:
    """The subnet manager is killed: what goes on, what stops, and for how long?

    Parameters
    ----------
    polling
        Milliseconds between two questions of the standby to the master.
    retries
        So many intervals without an answer, and the master is gone.
    seed
        Of the order in which hosts send to others.
    picture
        Messages and path queries around the kill, .png or .svg.
    """
    from weft.scenarios import sm_failover as asked

    _run(asked.run, asked.draw, picture, form, polling_ms=polling, retries=retries, seed=seed)


def _run(
    run: Callable[..., Finding], draw: Callable[[Finding, Path], None], picture: Path | None, form: Form, **given: Any
) -> None:
    from weft.draw.chart import check_suffix

    if picture is not None:
        check_suffix(picture)
    finding = run(**given)
    if picture is not None:
        draw(finding, picture)
    if form.is_data:
        print_data(form, finding.report(), "rows")
        return
    _print(finding)
    if picture is not None:
        say_written(picture)


def _print(finding: Finding) -> None:
    out = console()
    out.print(f'The claim: "{finding.claim}"\n  ({finding.source})', markup=False)
    out.print(f"What ran: {finding.ran}; seed {finding.options['seed']}", markup=False)
    out.print(table("", finding.columns, finding.rows))
    out.print(f"What was found: {finding.finding}", markup=False)
    out.print(f"How far to trust it: {finding.trust}", markup=False)
