"""The terminal of the README: commands that a newcomer would try, run now, and what they print.

python docs/site/terminal.py          writes docs/terminal.svg

Drawn by hand: rich's own SVG fetches a font, and its bytes differ from version to version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "terminal.svg"
RUNTIME = "/run/user/1000"  # stands for the folder of the recording: XDG_RUNTIME_DIR of most
SESSION = (
    "# a fabric that runs, on this machine: 16 hosts, 6 switches, a subnet manager",
    "weft up fat-tree:hosts=16,radix=8 --sm --daemon | head -1",
    "weft diag ibstat --at h2 | grep -E 'State|lid'",
    "weft traffic permutation --size 16M | head -1",
    "weft break leaf1/5",
    "# 256 GPUs: what would all_reduce_perf print?",
    "weft nccl all_reduce -b 64M -e 1G superpod:su=1 | grep -A6 size | cut -c1-85",
)
_WIDTH, _LINE, _TOP = 790, 18, 44
_DOTS = ("#ff7b72", "#e3b341", "#7ee787")
_COLOURS = {"#": "#8b949e", "$": "#7ee787", " ": "#c9d1d9"}  # of comments, of commands, of what they print


def record(programs: Path = Path(sys.executable).parent) -> list[str]:
    """Every line of the session: comments, commands after `$ `, and two blanks before what is printed.

    `weft` is the one in that folder.
    """
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:  # short, as paths of sockets must be
        path = f"{programs}:{os.environ['PATH']}"
        own = {"XDG_RUNTIME_DIR": folder, "WEFT_DEFAULTS": "", "LC_ALL": "C.UTF-8"}
        env = os.environ | own | {"PATH": path, "COLUMNS": "100"}
        for entry in SESSION:
            if entry.startswith("#"):
                lines.append(entry)
                continue
            done = subprocess.run(entry, shell=True, env=env, capture_output=True, text=True, check=False)
            said = (done.stdout + done.stderr).replace(folder, RUNTIME).expandtabs(8)
            lines += [f"$ {entry}", *(f"  {line}".rstrip() for line in said.splitlines())]
        subprocess.run(["weft", "down"], env=env, capture_output=True, check=True)
    return lines


def draw(lines: list[str]) -> str:
    height = _TOP + _LINE * len(lines) + 6
    rows = [
        f'<text x="18" y="{_TOP + _LINE * row}" fill="{_COLOURS[line[:1] or " "]}">{_text(line)}</text>'
        for row, line in enumerate(lines)
        if line
    ]
    dots = [f'<circle cx="{22 + 18 * n}" cy="16" r="5.5" fill="{fill}"/>' for n, fill in enumerate(_DOTS)]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
            "<title>weft in a terminal</title>",
            f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#161b22" stroke="#8b949e" stroke-opacity="0.4"/>',
            *dots,
            '<g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13">',
            *rows,
            "</g>\n</svg>\n",
        )
    )


def _text(line: str) -> str:
    """Blanks as they are: viewers of SVG would draw many as one."""
    return escape(line, quote=False).replace(" ", "\N{NO-BREAK SPACE}")


if __name__ == "__main__":
    PICTURE.write_text(draw(record()), encoding="utf-8")
