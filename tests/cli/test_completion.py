"""`weft --install-completion`, in a shell that then completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

COMPLETE = """
. "$HOME/.local/share/bash-completion/completions/weft"
COMP_WORDS=({words}); COMP_CWORD={last}; COMP_LINE="{words}"; COMP_POINT=${{#COMP_LINE}}
_weft; echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash: its completion cannot be tried")
def test_commands_and_options_are_completed(tmp_path):
    env = os.environ | {"HOME": str(tmp_path), "SHELL": "/bin/bash"}
    subprocess.run([sys.executable, "-m", "weft", "--install-completion"], env=env, check=True, capture_output=True)
    assert not (tmp_path / ".bashrc").exists()  # bash-completion loads the script without a line there
    for words, expected in (
        ("weft topo", "topologies"),
        ("weft sim --traf", "--traffic"),
        ("weft scenario inc", "incast"),
    ):
        script = COMPLETE.format(words=words, last=len(words.split()) - 1)
        done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [expected]
