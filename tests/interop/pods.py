"""Run containers of rendered manifests as processes with the isolation of pods.

Each pod has a network namespace on a bridge and folders for its volumes. Each container has its own read-only root
with these mounted, its own process namespace, the user and the capabilities of its security context, and only the
environment of the image and the manifest. The root is that of the image which `make image` built, in the folder that
WEFT_IMAGE names; without that, an overlay of this machine's root with the sources of this checkout.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.interop.conftest import find_peer
from tests.interop.test_roce_namespaces import ip
from tests.patience import PATIENCE_S, wait_until

from weft import user_cache

ROOT = Path(__file__).parents[2]
CACHE = "/opt/cache"  # XDG_CACHE_HOME of the image
_NUMBER = itertools.count()
IMAGE = Path(os.environ["WEFT_IMAGE"]).absolute() if "WEFT_IMAGE" in os.environ else None
_OF_IMAGE = [] if IMAGE else [ROOT, Path(sys.prefix), Path(sys.base_prefix)]  # in place of the files in the image
_DEVICES = "null zero full random urandom tty"
Manifest = dict[str, Any]


def image_config() -> Manifest:
    """Return the environment, entry point and working folder of the image."""
    if IMAGE is not None:
        config: Manifest = json.loads((IMAGE / "config.json").read_text())
        return config
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    variables = {"PATH": path, "XDG_CACHE_HOME": CACHE, "HOME": "/tmp", "PYTHONPATH": str(ROOT / "src")}
    variables |= {name: os.environ[name] for name in ("NUMBA_BOUNDSCHECK",) if name in os.environ}
    return {
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Entrypoint": ["weft"],
        "WorkingDir": "/tmp",
    }


def root_script(folder: Path, mounts: Mapping[str, Path], read_only: Collection[str], hosts: str) -> str:
    """Return the shell commands that create a root at `folder`/root, to be run in a new mount namespace."""
    root, lines = folder / "root", ["set -e", f"mount -t tmpfs tmpfs {folder}"]
    lower = "/" if IMAGE is None else IMAGE / "root"
    lines += [f"mkdir {folder}/upper {folder}/work {root}"]
    lines += [f"mount -t overlay overlay -o lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work {root}"]
    bound = dict(sorted(mounts.items())) | {str(path): path for path in dict.fromkeys(_OF_IMAGE)}
    bound |= {} if IMAGE else {f"{CACHE}/weft": user_cache.root()}
    for parent in {parent for path in _OF_IMAGE for parent in path.parents}:  # here some may be in a private home
        lines += [f"mkdir -p {root}{parent}", f"chmod a+rx {root}{parent}"]
    lines += [f"mount --rbind /sys {root}/sys", f"mount -t proc proc {root}/proc", f"mount -t tmpfs tmpfs {root}/dev"]
    lines += [f"for name in {_DEVICES}; do touch {root}/dev/$name; mount --bind /dev/$name {root}/dev/$name; done"]
    lines += [f"ln -s /proc/self/fd {root}/dev/fd"]
    lines += [f"mkdir -p {root}{at}" for at in bound]
    lines += [f"printf '%b' {shlex.quote(hosts)} > {root}/etc/hosts", f"mount -o remount,ro {root}"]
    for at, path in bound.items():
        lines += [f"mkdir -p {root}{at}", f"mount --bind {path} {root}{at}"]  # a checkout may lie in /tmp, a volume
        lines += [f"mount -o remount,bind,ro {root}{at}"] * (at not in mounts or at in read_only)
    return "\n".join([*lines, f'exec chroot {root} "$@"'])


class Network:
    """The network namespaces of pods, on one bridge."""

    def __init__(self) -> None:
        self.name = f"weft{os.getpid()}n{next(_NUMBER)}"
        self.names = [self.name]
        self.hosts: dict[str, str] = {"localhost": "127.0.0.1"}
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.name, "link", "set", "bridge", "up")
        ip("-n", self.name, "addr", "add", "10.79.0.254/24", "dev", "bridge")

    def add(self) -> tuple[str, str]:
        """Return the namespace and the address of a new pod."""
        number = len(self.names)
        name, address = f"{self.name}p{number}", f"10.79.0.{number}"
        ip("netns", "add", name)
        self.names.append(name)
        ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"pod{number}", "netns", self.name)
        ip("-n", self.name, "link", "set", f"pod{number}", "master", "bridge", "up")
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            ip("-n", name, "link", "set", link, "up")
        return name, address

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(
                [find_peer("ip"), "netns", "del", name], capture_output=True, timeout=PATIENCE_S, check=False
            )


class Pod:
    """A pod of a workload. `secrets`: the data of Secrets by their name."""

    def __init__(
        self, workload: Manifest, network: Network, secrets: Mapping[str, Mapping[str, str]], index: int = 0
    ) -> None:
        template = workload["spec"]["template"]
        self.spec: Manifest = template["spec"]
        self.namespace, self.address = network.add()
        self._network, self._secrets = network, secrets
        self._fields = {"metadata.labels['apps.kubernetes.io/pod-index']": str(index), "status.podIP": self.address}
        self._folder = Path(tempfile.mkdtemp(prefix="weft-pod-", dir="/tmp"))
        self._volumes = {volume["name"]: self._folder / "volumes" / volume["name"] for volume in self.spec["volumes"]}
        user = self.spec["securityContext"]["fsGroup"]
        self._volumes["shm"] = self._folder / "shm"  # of all containers of a pod
        for volume in self._volumes.values():  # as the kubelet makes an emptyDir
            volume.mkdir(parents=True)
            os.chown(volume, 0, user)
            volume.chmod(0o2777)
        self.containers = {
            item["name"]: Container(self, item)
            for item in (*self.spec.get("initContainers", ()), *self.spec["containers"])
        }

    def __getitem__(self, name: str) -> Container:
        return self.containers[name]

    def value(self, field: Manifest) -> str:
        """Return the value of a variable of a manifest."""
        if "value" in field:
            return str(field["value"])
        source = field["valueFrom"]
        if "fieldRef" in source:
            return self._fields[source["fieldRef"]["fieldPath"]]
        key = source["secretKeyRef"]
        return base64.b64decode(self._secrets[key["name"]][key["key"]]).decode()

    def volume(self, name: str) -> Path:
        return self._volumes[name]

    def hosts(self) -> str:
        return "".join(f"{address} {name}\\n" for name, address in self._network.hosts.items())

    def place(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder))

    def remove(self) -> None:
        for container in self.containers.values():
            container.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class Container:
    """A container of a pod, started as the kubelet and the runtime do."""

    def __init__(self, pod: Pod, spec: Manifest) -> None:
        self._pod, self._spec = pod, spec
        self.process: subprocess.Popen[str] | None = None
        self._log = ""
        self._image = image_config()
        self.environment = dict(variable.split("=", 1) for variable in self._image["Env"])
        for field in spec.get("env", ()):
            self.environment[field["name"]] = self._expand(pod.value(field))

    def _expand(self, text: str) -> str:
        return re.sub(r"\$\((\w+)\)", lambda match: self.environment.get(match[1], match[0]), text)

    def command(self) -> list[str]:
        """Return the manifest's command, or the entry point of the image, with its arguments."""
        words = self._spec.get("command") or self._image["Entrypoint"]
        return [self._expand(word) for word in (*words, *self._spec.get("args", ()))]

    def start(self, beside: Container | None = None) -> None:
        """Start the container; `beside`: a container whose process namespace it shares."""
        pod = self._pod
        mounts, read_only = {"/dev/shm": pod.volume("shm")}, set()
        for mount in self._spec["volumeMounts"]:
            mounts[mount["mountPath"]] = pod.volume(mount["name"]) / mount.get("subPath", "")
            read_only |= {mount["mountPath"]} if mount.get("readOnly") else set()
        processes = ["--pid", "--kill-child"] if beside is None else []
        enter = [] if beside is None else [find_peer("nsenter"), "--target", str(beside.init()), "--pid"]
        script = root_script(pod.place(), mounts, read_only, pod.hosts())
        words = [find_peer("ip"), "netns", "exec", pod.namespace, *enter, "unshare", "--mount", "--fork", *processes]
        self.process = subprocess.Popen(
            [*words, "sh", "-c", script, "sh", *self._confined(), *self.command()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _confined(self) -> list[str]:
        """Return the command that starts a program with only the rights and the environment of the container."""
        pod, own = self._pod.spec["securityContext"], self._spec["securityContext"]
        assert pod["runAsNonRoot"]
        assert own["readOnlyRootFilesystem"]
        assert own["capabilities"] == {"drop": ["ALL"]}
        rights = ["--bounding-set=-all", "--inh-caps=-all", "--groups", str(pod["fsGroup"])]
        rights += ["--no-new-privs"] * (not own["allowPrivilegeEscalation"])
        user = ["--reuid", str(pod["runAsUser"]), "--regid", str(pod["runAsGroup"])]
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return ["setpriv", *user, *rights, "env", "-C", self._image["WorkingDir"], "-i", *variables]

    def init(self) -> int:
        """Return the first process of the container, once it has its root."""
        return wait_until(self._first_inside, lambda: f"{self.log()}\nthe container", self.is_running)

    def _first_inside(self) -> int | None:
        assert self.process is not None
        children = [str(self.process.pid)]
        with suppress(OSError):  # a process that prepares the root may have ended
            while children:
                process = children[0]
                if not os.path.samefile(f"/proc/{process}/root", "/"):
                    return int(process)
                children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return None

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def exec(self, *command: str) -> subprocess.Popen[str]:
        """Start a program in the container, as `kubectl exec` and probes do."""
        into = [find_peer("nsenter"), "--target", str(self.init()), "--mount", "--pid", "--net", "--root"]
        pipe = subprocess.PIPE
        return subprocess.Popen([*into, *self._confined(), *command], stdout=pipe, stderr=subprocess.STDOUT, text=True)

    def run(self, *command: str, status: int = 0) -> str:
        program = self.exec(*command)
        printed, _ = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == status, printed
        return printed

    def passes(self, probe: str) -> bool:
        """Run a probe of the manifest once; return whether it succeeds."""
        test = self._spec[probe]
        if "exec" in test:
            program = self.exec(*test["exec"]["command"])
            program.communicate(timeout=PATIENCE_S)
            return program.returncode == 0
        kind = "httpGet" if "httpGet" in test else "tcpSocket"
        (port,) = [item["containerPort"] for item in self._spec["ports"] if item["name"] == test[kind]["port"]]
        if kind == "tcpSocket":
            code = f"import socket; socket.create_connection(('{self._pod.address}', {port})).close()"
            return not subprocess.run(
                in_namespace(self._pod.namespace, "-c", code), capture_output=True, check=False
            ).returncode
        assert test["httpGet"]["scheme"] == "HTTP"
        url = f"http://{self._pod.address}:{port}{test['httpGet']['path']}"
        return get(self._pod.namespace, url).startswith("200")

    def wait_for(self, probe: str) -> None:
        wait_until(lambda: self.passes(probe), lambda: f"{self.log()}\n{probe}", self.is_running)

    def log(self) -> str:
        """End the container and return its output."""
        assert self.process is not None
        self.kill()
        return self._log

    def terminate(self) -> int:
        """Send SIGTERM to its first process, as the kubelet does; return the exit status."""
        assert self.process is not None
        os.kill(self.init(), signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        if self.process is None or self.process.stdout is None or self.process.stdout.closed:
            return
        if (first := self._first_inside()) is not None:
            os.kill(first, signal.SIGKILL)
        self.process.kill()
        self._log = self.process.communicate(timeout=PATIENCE_S)[0]


def in_namespace(namespace: str, *words: str) -> list[str]:
    return [find_peer("ip"), "netns", "exec", namespace, sys.executable, *words]


_GET = """
import sys, urllib.error, urllib.request
headers = {"Authorization": f"Bearer {sys.argv[2]}"} if sys.argv[2] else {}
headers |= {"Content-Type": "application/json"} if sys.argv[3] else {}
try:
    call = urllib.request.Request(sys.argv[1], data=sys.argv[3].encode() or None, headers=headers)
    with urllib.request.urlopen(call, timeout=60) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
except OSError as error:
    print(error)
"""


def get(namespace: str, url: str, token: str = "", body: str = "") -> str:
    """Return the status and the body of a URL, requested from a namespace; by POST if there is a body."""
    command = in_namespace(namespace, "-c", _GET, url, token, body)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
