"""`weft up`: a lab, with what is wanted beside it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import Spec
from weft.cli.join import how, say_how
from weft.cli.sm_flags import NOTHING, SmFlags, dump_folder, log_file, read_flags

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.fabric.model import Fabric
    from weft.lab.lab import Lab
    from weft.lab.registry import Entry

CONSOLE_S = 120.0  # until it is up, on a machine that has much else to do


def up(
    spec: Spec,
    /,
    *,
    name: str = "lab",
    daemon: bool = False,
    sm: bool = False,
    web: bool = False,
    timed: bool = False,
    join: str = "",
    flags: Annotated[SmFlags, Parameter(name="*", group="Of the subnet manager, with --sm")] = NOTHING,
) -> None:
    """Start a lab: an emulated fabric for real tools.

    OpenSM, infiniband-diags and RDMA programs run in it. On a terminal it opens a prompt.

    Parameters
    ----------
    name
        Name of the lab, if several run.
    daemon
        Return when it is up; `weft down` ends it.
    sm
        With weft's own subnet manager on the first host: all ports Active when it is up.
    web
        With that, and the console in a browser: `weft serve` beside the lab, until it ends.
    timed
        RDMA programs feel the latency and the rate of the links on their way, as `weft sim` has them.
    join
        ADDRESS:PORT at which other machines and containers may join it as hosts, by `weft join`.
    """
    from weft.cli.output import progress_bar
    from weft.errors import ConfigError
    from weft.fabric.spec import load
    from weft.lab import daemon as process

    sm = sm or web
    if flags.given and not sm:
        raise ConfigError(f"{', '.join(flags.given)} is for the subnet manager: add --sm, or start one with `weft sm`")
    with progress_bar(f"reading {spec}"):  # and ends with it: a lab is forked, and no thread may draw then
        fabric = load(spec)
    manage = _manager(fabric, flags) if sm else lambda entry: None
    if daemon:
        entry = process.start(fabric, name, timed=timed, join=join)
        manage(entry)
        say_how(entry, fabric)
        _show(entry, web)
        print(f"lab {name} is up: {fabric.spec}; try `weft exec {_host(fabric)} ibstat`, `weft down`; log {entry.log}")
    elif sys.stdin.isatty() and sys.stdout.isatty():
        entry = process.start(fabric, name, timed=timed, join=join, follow=True)
        manage(entry)
        say_how(entry, fabric)
        _show(entry, web)
        _prompt(entry)
    elif sm:
        flag = "--web" if web else "--sm"
        raise ConfigError(f"{flag} needs a lab that runs beside this process: add --daemon, or call it on a terminal")
    else:
        process.serve(fabric, name, _say_up, timed=timed, join=join)


def _manager(fabric: Fabric, flags: SmFlags) -> Callable[[Entry], None]:
    """Return the function that starts the subnet manager of a lab; its options are checked before there is a lab."""
    from weft.lab.places import Places
    from weft.mad.power_up import switch_on

    options, host = read_flags(flags), flags.at or _host(fabric)
    if flags.at:
        Places(switch_on(fabric)).find(flags.at)
    dump, log = dump_folder(flags, options), log_file(options)

    def manage(entry: Entry) -> None:
        from weft.lab import control, subnet_manager

        sockname = control.ask(entry, "state")["sockname"]
        place = subnet_manager.launch(entry, sockname, host, options, dump=dump, log=log).wait()
        print(f"SUBNET UP by the subnet manager on {host}; `weft sm status`; log {place}")

    return manage


def _show(entry: Entry, web: bool) -> None:
    """The console, if it is wanted: a service that ends with the lab."""
    if not web:
        return
    import subprocess
    import time

    from weft.errors import SubnetError

    place = entry.folder / f"{entry.name}.web.log"
    words = ("--lab", entry.name, "--port", "0", "--database", f"sqlite:///{entry.cache}/web.db", "--ends-with-lab")
    with place.open("w") as log:
        service = subprocess.Popen(
            [sys.executable, "-m", "weft", "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + CONSOLE_S
    while service.poll() is None:
        if time.monotonic() > until:
            service.kill()
            service.wait()
            raise SubnetError(
                f"the console says nothing for {CONSOLE_S:g} s, and was ended: see {place}. The lab runs: "
                f"`weft serve --lab {entry.name}` is another, `weft down` ends it"
            )
        said = [line for line in place.read_text().splitlines() if line.startswith("console ")]
        if said:
            print(said[0])
            return
        time.sleep(0.05)
    raise SubnetError(f"the console has ended before it was up: see {place}")


def _host(fabric: Fabric) -> str:
    return fabric.hcas[0].name if fabric.hcas else fabric.switches[0].name


def _say_up(lab: Lab) -> None:
    import logging

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    print(f"lab {lab.name} is up: {lab.fabric.spec}; `weft down` or SIGTERM ends it", flush=True)
    if lab.join_server is not None:
        print(how(lab.join_server.address, lab.join_server.token, lab.fabric), flush=True)


def _prompt(entry: Entry) -> None:
    import readline  # noqa: F401  (input() then has history)

    from weft.lab import control
    from weft.lab.prompt import Prompt

    try:
        Prompt(entry).run()
    finally:
        control.end(entry)
