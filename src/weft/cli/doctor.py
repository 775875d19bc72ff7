"""`weft doctor`: check the libraries, caches and labs of this machine."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from weft.cli.arguments import TABLES, Form
from weft.cli.output import console, print_data, table


def doctor(*, compile_: Annotated[bool, Parameter(name="--compile")] = False, form: Form = TABLES) -> None:
    """Check this machine: libraries, kernel cache, labs.

    The exit status is 1 if a required part is missing or broken.

    Parameters
    ----------
    compile_
        Compile the kernels first, and the library for programs in C if there is a C compiler; the cache keeps them.
    """
    if compile_:
        from weft.lab.precompile import compile_all

        for name in compile_all():
            print(f"weft: compiling kernels: {name}", file=sys.stderr, flush=True)

    from weft.cli import defaults
    from weft.lab.doctor import Finding, findings

    path = defaults.find()
    text = f"{path} is in use" if path else "no file: flags are what --help says, unless they are given"
    checks = [*findings(), Finding("own defaults", "good", text)]
    bad = [check for check in checks if check.state == "bad"]
    if form.is_data:
        print_data(form, [asdict(check) for check in checks])
    else:
        rows = [(check.what, check.state, check.words) for check in checks]
        note = f"In the way: {', '.join(check.what for check in bad)}." if bad else "Nothing is in the way."
        console().print(table("This machine", ("what", "", "in words"), rows, note))
    if bad:
        sys.exit(1)
