"""`weft down`, `ps`, `exec`, `break`, `degrade`, `fix`, `swap`, `load`, `traffic`, `capture`: commands for a lab."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import TABLES, Form, LabName, Whole
from weft.errors import ConfigError
from weft.units import format_items, parse_share, parse_size_bytes

if TYPE_CHECKING:
    from weft.cli.output import Cell

_EXEC = """weft exec [--lab NAME] [--sysfs] [--ip] HOST [--] COMMAND...

Run a program as a host of a lab: weft exec h1 ibnetdiscover
With --sysfs it finds the host's adapters in /sys/class/infiniband and /sys/class/net.
With --ip it has the host's IP interfaces, ib0 (10.1.0.1, ...) and eth0 (10.2.0.1, ...), in a network of its own."""


def down(name: str = "", /, *, lab: LabName = "") -> None:
    """Stop a lab.

    Without NAME, stop the only lab that runs.

    Parameters
    ----------
    name
        The lab, as with --lab.
    """
    from weft.lab import control, registry

    if name and lab:
        raise ConfigError(f"use {name} or --lab {lab}, not both")
    entry = registry.find(name or lab)
    control.end(entry)
    print(f"lab {entry.name} is down")


def ps(*, form: Form = TABLES) -> None:
    """List the running labs."""
    from weft.cli.output import console, print_data, table
    from weft.lab import registry
    from weft.lab.control import states as states_of

    states = states_of(registry.running())
    if form.is_data:
        print_data(form, states)
        return
    rows: list[tuple[Cell, ...]] = [
        (
            state["name"],
            str(state["pid"]),
            state["spec"],
            ", ".join(dict.fromkeys(client["at"] for client in state["clients"] if client["is_sm"])),
            len(state["clients"]),
            state["mads"],
            ", ".join(state["broken"] + state["degraded"]),
            sum(state["errors"].values()),
        )
        if state["answers"]
        else (state["name"], str(state["pid"] or ""), "does not answer", "", "", "", "", "")
        for state in states
    ]
    heads = ("lab", "process", "fabric", "subnet manager at", "attached", "MADs", "broken or bad", "errors")
    out = console()
    out.print(table("Labs", heads, rows, "" if rows else "None runs: weft up fat-tree:hosts=16,radix=8"))
    for state in states:
        if not state["answers"]:
            out.print(f"{state['name']} does not answer: process {state['pid']} is stopped or very busy", markup=False)
            continue
        if state["traffic"]:
            out.print(f"{state['name']} carries traffic: {state['traffic']}", markup=False)
        for joined in (state["join"] or {"hosts": []})["hosts"]:
            cut = ", disconnected" if joined["is_cut"] else ""
            out.print(f"{state['name']}: {joined['from']} has joined as {joined['host']}{cut}", markup=False)


def exec_(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run a program as a host of a lab.

    For example: weft exec h1 ibnetdiscover. --lab NAME before HOST selects the lab.

    With --sysfs before HOST it finds the host's adapters in /sys; with --ip it has their IP interfaces.
    """
    from weft.lab import programs, registry
    from weft.lab.control import ask

    if arguments[:1] in (("--help",), ("-h",)):
        print(_EXEC)
        return
    lab, options, host, command = _read_exec(arguments)
    entry = registry.find(lab)
    variables = programs.environment(ask(entry, "host", name=host), entry.cache)
    sysfs = ask(entry, "sysfs", name=host) if "--sysfs" in options else None
    if "--ip" in options:
        from weft.lab.ip import program
        from weft.lab.ip.addresses import IpPort

        program.run([IpPort(**port) for port in ask(entry, "ip_ports", name=host)], command, variables, sysfs)
    programs.become(command, variables, sysfs)


def _read_exec(rest: tuple[str, ...]) -> tuple[str, set[str], str, tuple[str, ...]]:
    """Return the lab, the options without a value, the host and the command of `weft exec`."""
    lab, options = "", set[str]()
    while rest and (rest[0] in ("--lab", "--sysfs", "--ip") or rest[0].startswith("--lab=")):
        name, equals, value = rest[0].partition("=")
        if name in ("--sysfs", "--ip"):
            options.add(name)
            rest = rest[1:]
        else:
            lab, rest = (value, rest[1:]) if equals else ("".join(rest[1:2]), rest[2:])
    if rest[1:2] == ("--",):  # as `weft join` has it
        rest = (rest[0], *rest[2:])
    if len(rest) < 2:
        raise ConfigError(f"weft exec needs a host and a command: {_EXEC.splitlines()[0]}")
    return lab, options, rest[0], rest[1:]


def break_(name: str, /, *, lab: LabName = "") -> None:
    """Pull cables of a lab.

    A port names one cable; a node or a server names all its cables.

    Parameters
    ----------
    name
        `leaf1/5`, `spine1`, `dgx7`.
    """
    _tell(lab, "break", "broken", name=name)


def degrade(
    name: str,
    /,
    *,
    ber: float | None = None,
    one_way: bool = False,
    flaps: float | None = None,
    to: str | None = None,
    drain: str | None = None,
    lab: LabName = "",
) -> None:
    """Degrade a lab cable: bit errors, flaps, lower speed.

    `weft fix` repairs it.

    Parameters
    ----------
    name
        A port, `leaf1/5`; or a node or a server, for all its cables.
    ber
        Bit error rate after error correction: a good cable has 1e-15, a bad one 1e-8.
    one_way
        With --ber: corrupt only packets that NAME receives.
    flaps
        Times per hour that the link goes down and up again.
    to
        The state after the change: 1xNDR, 4xHDR.
    drain
        Share of the line rate that the host at its end drains, 20%; the switches before it run out of credits.
    """
    effects = (
        (ber, f"bit error rate {ber:g}{' in one direction' if one_way else ''}" if ber is not None else ""),
        (flaps, f"flaps {flaps:g} times an hour" if flaps is not None else ""),
        (to, f"speed {to}"),
        (drain, f"host drains {drain}"),
    )
    fault = {"bit_error_rate": ber, "one_way": one_way, "flaps": flaps, "to": to}
    fault["drain"] = parse_share(drain) if drain is not None else None
    _tell(lab, "degrade", ", ".join(text for value, text in effects if value is not None), name=name, **fault)


def fix(name: str = "", /, *, lab: LabName = "") -> None:
    """Reconnect and repair cables of a lab.

    Repairs the cables of NAME, or all cables.

    Parameters
    ----------
    name
        A port, a node or a server. [all cables]
    """
    _tell(lab, "fix", "fixed", name=name)


def swap(name: str, other: str, /, *, lab: LabName = "") -> None:
    """Exchange two cables of a lab.

    Both ends go along, with serial numbers and faults, as where one tests whether errors follow the cable.

    Parameters
    ----------
    name
        A port with a cable, leaf1/5.
    other
        A port with another cable.
    """
    from weft.lab import registry
    from weft.lab.control import ask

    ask(registry.find(lab), "swap", name=name, other=other)
    print(f"{name} and {other}: cables exchanged")


def load(
    *jobs: str, speed: float = 1.0, seed: Whole = 1, advance: float = 0.0, lab: LabName = "", form: Form = TABLES
) -> None:
    """Run background traffic so that counters move.

    Without a job, show the jobs that run.

    Parameters
    ----------
    jobs
        train=ring:h[1-64]@80%: a name, a pattern (ring, all-to-all, permutation, incast, storage), hosts [all], and the
        share of its line rate that each host sends [100%]. They replace the jobs that run.
    speed
        Simulated seconds per real second; 0: time passes only with --advance.
    seed
        Random seed, for permutations, errors and flaps.
    advance
        Skip this many simulated seconds at once.
    """
    from weft.cli.output import console, print_data, table
    from weft.lab import registry
    from weft.lab.control import ask

    entry = registry.find(lab)
    state = ask(entry, "load", None, jobs=jobs, speed=speed, seed=seed) if jobs else ask(entry, "load_state")
    if advance:
        state = ask(entry, "advance", None, seconds=advance)
    if form.is_data:
        print_data(form, state)
        return
    rows: list[tuple[Cell, ...]] = [
        (
            job["name"],
            job["pattern"],
            len(job["hosts"]),
            f"{job['wanted_gbit_s']:,.0f}",
            f"{job['gbit_s']:,.0f}",
            f"{job['slowest']:.1%}",
        )
        for job in state["jobs"]
    ]
    heads = ("job", "pattern", "hosts", "demand Gbit/s", "gets", "slowest pair")
    hint = "" if rows else "None: weft load train=ring@80%"
    clock = f"{state['seconds']:,.0f} simulated seconds so far, {state['speed']:g} in each real one; {hint}"
    console().print(table("Load", heads, rows, clock.rstrip("; ")))


def unload(*names: str, lab: LabName = "") -> None:
    """Stop background traffic.

    Without a name, stop all jobs and the clock.

    Parameters
    ----------
    names
        Names of jobs.
    """
    from weft.lab import registry
    from weft.lab.control import ask

    left = [job["name"] for job in ask(registry.find(lab), "unload", names=names)["jobs"]]
    print(f"still running: {', '.join(left)}" if left else "no job runs")


def traffic(
    pattern: str = "permutation",
    /,
    *,
    size: str = "1M",
    paths: str = "table",
    senders: Whole | None = None,
    seed: Whole = 1,
    lab: LabName = "",
    form: Form = TABLES,
) -> None:
    """Send traffic through a lab with the packet engine.

    Routes come from the lab's subnet manager, and ports count the packets.

    Parameters
    ----------
    pattern
        permutation, incast, uniform, shift, bisection, all-to-all or rails, as in `weft sim`; multicast: all hosts join
        a group, and one sends to it.
    size
        Message size: 64K, 1M.
    paths
        Choice of paths: table, or adaptive if the tables have port groups.
    senders
        Number of senders: of incast [8], of multicast [1].
    seed
        Random seed, for a random pattern.
    """
    from weft.cli.output import console, print_data, progress_bar
    from weft.lab import registry
    from weft.lab.control import ask

    options = {
        "pattern": pattern,
        "size_bytes": parse_size_bytes(size),
        "paths": paths,
        "senders": senders,
        "seed": seed,
    }
    with progress_bar(f"{pattern}, messages delivered") as change:
        result = ask(registry.find(lab), "traffic", None, lambda done, of: change(completed=done, total=of), **options)
    if form.is_data:
        print_data(form, result)
        return
    latency, without_path = result["latency_us"], result["without_path"]
    lines = []
    if without_path:
        lines.append(f"{without_path:,} messages were not sent: the subnet administrator has no path for them")
    if "copies" in result:
        some = ", ".join([*result["copies"]][:8]) + (", ..." if len(result["copies"]) > 8 else "")
        lines.append(f"{sum(result['copies'].values()):,} datagrams came to {len(result['copies']):,} ports: {some}")
    lines += (
        f"{result['traffic']}: {result['delivered']:,} of {format_items(result['messages'], 'message')} delivered, "
        f"{result['goodput_gbit_s']:,.0f} Gbit/s, the last after {latency.get('max', 0):,.1f} us",
        f"{format_items(result['corrupted_packets'], 'packet')} corrupted, {result['retransmitted']:,} sent again; "
        f"seed {seed}",
        "Port counters: weft exec HOST perfquery, ibqueryerrors",
    )
    console().print("\n".join(lines), markup=False)


def capture(
    port: str,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    seconds: float | None = None,
    packets: Whole | None = None,
    lab: LabName = "",
) -> None:
    """Capture the packets of a lab cable for Wireshark.

    MADs and packets of programs are captured; what `weft traffic` and `weft load` send is only counted. Ctrl-C ends it.

    Parameters
    ----------
    port
        A port of the cable: leaf1/5.
    output
        The file to write: x.pcapng.
    seconds
        Seconds to run. [until Ctrl-C]
    packets
        Stop after this many packets.
    """
    from weft.cli.output import progress_bar
    from weft.lab import registry
    from weft.lab.control import ask

    if (seconds is not None and seconds <= 0) or (packets is not None and packets <= 0):
        raise ConfigError("--seconds and --packets must be above 0")
    words = {"port": port, "path": str(output.absolute()), "seconds": seconds, "packets": packets}
    count = 0
    with progress_bar(f"capturing at {port}") as change:

        def tell(so_far: int, most: int) -> None:
            nonlocal count
            count = so_far
            change(description=f"{so_far:,} packets at {port}", completed=so_far, total=most or None)

        with suppress(KeyboardInterrupt):
            count = ask(registry.find(lab), "capture", None, tell, **words)["packets"]
    print(f"{output}: {count:,} packets")


def _tell(lab: str, do: str, done: str, **words: Any) -> None:
    from weft.lab import registry
    from weft.lab.control import ask

    ports = ask(registry.find(lab), do, **words)
    print("\n".join(f"{port}: {done}" for port in ports) or "nothing is broken")
