"""`weft --install-completion`."""

from __future__ import annotations

from cyclopts.completion.install import create_install_completion_command

from weft.cli import app

install_completion = create_install_completion_command(app.install_completion, add_to_startup=False)
