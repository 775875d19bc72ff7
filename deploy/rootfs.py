"""Build the image's root file system from the Dockerfile without a container engine, by mmdebstrap.

    python deploy/rootfs.py out/image [--arch arm64]        # as root; --arch needs qemu-user-static

    out/image/root           the root file system
    out/image/config.json    environment, user, entry point, ... of its containers, as OCI names them

The Dockerfile is the only list: FROM is a suite of Debian, COPY copies from the checkout, and each RUN is run in the
root with mounts and processes of its own. Other instructions than those of the Dockerfile are refused.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
_STEP = re.compile(r"^([A-Z]+) ((?:.*\\\n)*.*)$", re.M)
_BASE = re.compile(r"debian:([a-z]+)-slim")
# What a build inherits from this machine, as from `docker build`: its proxies, and where pip finds packages.
_INHERITED = re.compile(r"(?i)(?:https?|no)_proxy|PIP_\w+")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Debian's image has it
_IN_ROOT = """set -e
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
touch "$1/etc/resolv.conf"
mount --bind /etc/resolv.conf "$1/etc/resolv.conf"
[ -z "$PIP_CERT" ] || cp "$PIP_CERT" "$1/run/certificates"
root=$1; shift
exec chroot "$root" env -i "$@"
"""


class BuildError(Exception):
    """The root file system cannot be built; the message has the reason."""


@dataclass
class Build:
    """A root file system under construction."""

    root: Path
    arch: str
    source: Path = CHECKOUT
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    config: dict[str, Any] = field(default_factory=dict)

    def make_base(self, text: str) -> None:
        """FROM: install Debian's smallest system, which the official images are, too."""
        suite = _BASE.fullmatch(text)
        if suite is None:
            raise BuildError(f"FROM {text}: only debian:SUITE-slim can be built without a container engine")
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
        kept = "--dpkgopt=path-include=/usr/share/doc/*/copyright"
        options = ["--quiet", "--variant=minbase", f"--architectures={self.arch}", *left_out, kept]
        _run(["mmdebstrap", *options, suite[1], str(self.root)])

    def run(self, text: str) -> None:
        """RUN: execute a shell command in the root."""
        inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}
        if "PIP_CERT" in inherited:
            inherited["PIP_CERT"] = "/run/certificates"
        variables = [f"{name}={value}" for name, value in (inherited | self.environment).items()]
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        script = ["sh", "-c", f"PIP_CERT={shlex.quote(os.environ.get('PIP_CERT', ''))}\n{_IN_ROOT}", "sh"]
        _run([*alone, *script, str(self.root), *variables, "/bin/sh", "-c", text])

    def copy(self, text: str) -> None:
        """COPY: copy files, or what is in folders, without what .dockerignore leaves out everywhere."""
        *names, target = text.split()
        to = self.root / target.lstrip("/")
        ignored = shutil.ignore_patterns("__pycache__", "node_modules", ".node")
        for name in names:
            if (self.source / name).is_dir():
                shutil.copytree(self.source / name, to, ignore=ignored, dirs_exist_ok=True)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.source / name, to)

    def set_environment(self, text: str) -> None:
        """ENV: set variables of later commands and of containers."""
        self.environment |= dict(word.split("=", 1) for word in shlex.split(text))
        self.config["Env"] = [f"{name}={value}" for name, value in self.environment.items()]

    def set_healthcheck(self, text: str) -> None:
        options, command = text.split(" CMD ")
        self.config["Healthcheck"] = {"Test": ["CMD", *json.loads(command)], "Options": options.split()}

    def instructions(self) -> dict[str, Callable[[str], None]]:
        """Return the method of each instruction."""
        return {
            "FROM": self.make_base,
            "RUN": self.run,
            "COPY": self.copy,
            "ENV": self.set_environment,
            "HEALTHCHECK": self.set_healthcheck,
            "USER": lambda text: self.config.update(User=text),
            "WORKDIR": lambda text: self.config.update(WorkingDir=text),
            "ENTRYPOINT": lambda text: self.config.update(Entrypoint=json.loads(text)),
            "CMD": lambda text: self.config.update(Cmd=json.loads(text)),
        }


def steps(dockerfile: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their text, continued lines joined."""
    return [(name, text.replace("\\\n", "")) for name, text in _STEP.findall(dockerfile)]


def build(folder: Path, arch: str) -> None:
    """Build folder/root and folder/config.json."""
    work = Build(folder / "root", arch)
    known = work.instructions()
    script = steps((CHECKOUT / "Dockerfile").read_text(encoding="utf-8"))
    if unknown := sorted({name for name, _ in script} - set(known)):
        raise BuildError(f"the Dockerfile has {', '.join(unknown)}, which deploy/rootfs.py does not know: add it there")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for at, (name, text) in enumerate(script, 1):
        print(f"weft: {at} of {len(script)}: {name} {shlex.join(text.split())[:80]}", flush=True)
        known[name](text)
    (folder / "config.json").write_text(json.dumps(work.config, indent=1) + "\n", encoding="utf-8")


def _run(command: list[str]) -> None:
    status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if status:
        raise BuildError(f"{command[0]} failed with status {status}")


def _require() -> None:
    if os.geteuid() != 0:
        raise BuildError("only root can build a root file system: run it with sudo")
    if missing := [name for name in ("mmdebstrap", "unshare", "chroot") if shutil.which(name) is None]:
        raise BuildError(f"missing: {', '.join(missing)}: apt-get install mmdebstrap debian-archive-keyring")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    parser.add_argument("--arch", default=machine, help="Debian's name of the architecture [this machine's]")
    arguments = parser.parse_args()
    try:
        _require()
        build(arguments.folder, arguments.arch)
    except BuildError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 1
    print(f"weft: {arguments.folder}/root is built")
    return 0


if __name__ == "__main__":
    sys.exit(main())
