"""`weft doctor`: what is installed, what is missing, what stands in the way."""

from __future__ import annotations

import sys

from weft.cli.arguments import TABLES, Form
from weft.cli.output import console, print_data, table


def doctor(*, form: Form = TABLES) -> None:
    """Check this machine: libraries, kernel cache, labs.

    The exit status is 1 if a required part is missing or broken.
    """
    from dataclasses import asdict

    from weft.cli import defaults
    from weft.lab.doctor import Finding, findings

    path = defaults.find()
    words = f"{path} is in use" if path else "no file: flags are what --help says, unless they are given"
    found = [*findings(), Finding("own defaults", "good", words)]
    bad = [one for one in found if one.state == "bad"]
    if form.is_data:
        print_data(form, [asdict(one) for one in found])
    else:
        rows = [(one.what, one.state, one.words) for one in found]
        note = f"In the way: {', '.join(one.what for one in bad)}." if bad else "Nothing is in the way."
        console().print(table("This machine", ("what", "", "in words"), rows, note))
    if bad:
        sys.exit(1)
