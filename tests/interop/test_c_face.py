"""libibverbs.so.1 under unmodified programs: Debian's ibverbs-utils."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.c_programs import (
    compile_program,
    fields,
    free_port,
    listening_ports,
    on,
    outside_of_labs,
    program,
    run_pair,
    started,
)
from tests.interop.conftest import do_without, find_peer
from tests.lab.rdma import Host, running
from tests.patience import PATIENCE_S, wait_until

import weft
import weft.verbs.c
from weft import compiler
from weft.fabric.counters import Counter
from weft.lab.lab import Lab
from weft.verbs import hardware, launch
from weft.verbs.attributes.device import DeviceAttr
from weft.verbs.c import build

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
ABI = Path(weft.verbs.c.__file__).parent / "lib" / "abi.h"
QUICK = tuple("-O0" if flag == "-O2" else flag for flag in build._FLAGS)  # to compile
NEWER = {"wr_flush", "active_speed_ex"}  # than the verbs.h that Debian 12 has


def devinfo(environment: dict[str, str], *more: str) -> dict[str, str]:
    done = subprocess.run(
        [program("ibv_devinfo"), *more],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return fields(done.stdout)


def test_devinfo_says_what_the_adapter_is():
    output, attr = devinfo(outside_of_labs(), "-v"), DeviceAttr()
    assert output["hca_id"] == "mlx5_0"
    assert output["state"] == "PORT_ACTIVE (4)"
    assert output["link_layer"] == "Ethernet"
    for name in ("max_qp", "max_qp_wr", "max_cqe", "max_sge", "max_srq_wr", "max_mcast_grp", "phys_port_cnt"):
        assert output[name] == str(getattr(attr, name)), name


@pytest.mark.parametrize(
    ("kind", "size"), [("rc", "4096"), ("rc", "60"), ("uc", "4096"), ("ud", "2048"), ("ud", "60"), ("xsrq", "4096")]
)
def test_pingpong_goes_through_shared_memory(kind, size):
    """`-c`, where the program has it, compares every byte; a short message is in the completion itself."""
    checks = [] if kind == "xsrq" else ["-c"]
    words = [program(f"ibv_{kind}_pingpong"), "-g", "1", "-n", "200", "-s", size, *checks]
    output = run_pair(words, *[outside_of_labs()] * 2)
    for item in output:
        assert "success" in item if kind == "xsrq" else re.search(r"^200 iters in", item, re.M), item


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


@pytest.fixture(scope="module")
def library_without_python(tmp_path_factory) -> Path:
    """A library that cannot load its libpython."""
    real = build._python()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_FLAGS", QUICK)
        patch.setattr(build, "_python", lambda: re.sub(r"(?m)^(#define WEFT_LIBPYTHON).*", r'\1 "/nowhere"', real))
        folder = build.folder(tmp_path_factory.mktemp("library"))
    assert folder is not None
    return folder


@pytest.mark.parametrize("place", ["outside", "192.0.2.9", "2001:db8::12:3456", "fe80::7%eth9", "dgx2"])
def test_listing_devices_starts_no_python(place, library_without_python):
    """Most programs that MPI and UCX start only list devices. Names and GUIDs equal those in Python."""
    environment = {name: value for name, value in os.environ.items() if name not in (hardware.LAB, hardware.ROCE)}
    environment["LD_LIBRARY_PATH"] = str(library_without_python)
    with Lab(weft.load("fat-tree:hosts=2,server=dgx-h100"), f"list{os.getpid()}") as lab:
        if place == "dgx2":
            environment |= {hardware.LAB: lab.host(place)["verbs"], hardware.HOST: place}
        elif place != "outside":
            environment |= {hardware.ROCE: place}
        names = hardware.LAB, hardware.HOST, hardware.ROCE
        devices = hardware._present(*(environment.get(name, "") for name in names))
        done = subprocess.run([program("ibv_devices")], env=environment, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert (rows, done.stderr) == ([[device.name, f"{device.guid:016x}"] for device in devices], "")


def packets(lab) -> int:
    """Return the number of data packets that all ports sent."""
    sent = Counter.PORT_XMIT_PKTS
    return int(lab.server.call(lambda: (lab.metered_paths.collect(), lab.fabric.counters[:, sent].sum())[1]))


def test_in_a_lab_the_port_is_as_the_manager_set_it_and_traffic_is_counted(lab, monkeypatch):
    host = Host(lab, "h1", monkeypatch)
    lid = host.ctx.query_port(1).lid
    host.close()
    output = devinfo(on(lab, "h1"))
    assert (output["port_lid"], output["link_layer"]) == (str(lid), "InfiniBand")
    before = packets(lab)
    run_pair([program("ibv_rc_pingpong"), "-n", "100", "-c", "-e"], on(lab, "h1"), on(lab, "h8"))
    hops, messages, packets_each = 4, 200, 4096 // 1024
    assert packets(lab) - before >= hops * messages * (packets_each + 1)
    before = packets(lab)
    run_pair([program("ibv_ud_pingpong"), "-n", "100", "-c"], on(lab, "h1"), on(lab, "h8"))
    assert packets(lab) - before >= hops * messages


# -- a program of our own, compiled with verbs.h -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> str:
    return compile_program("c_face_program", tmp_path_factory.mktemp("c"))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("wrong rkey", ["remote access error"]),
        ("wrong lkey", ["local protection error"]),
        ("events", ["completion", "local access violation work queue error there"]),
        ("threads", ["3000 done, 0 failed"]),
        ("fork", ["child 0", "success"]),
        ("without python", ["40 datagrams, 40 of UC"]),
        ("pages", ["registered", "Bad address", "Bad address"]),
        ("libraries", ["success", "remote access error", "0 compilers"]),
        ("lacking", ["Operation not supported"]),
    ],
)
def test_programs_end_as_the_standard_requires(compiled, what, said):
    """And an object in use cannot be closed."""
    environment = os.environ | launch.environment()
    done = subprocess.run(
        [compiled, what], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [*said, "busy 1"]), done.stderr
    assert ("ibv_create_wq: weft's adapter does not have this verb" in done.stderr) == (what == "lacking")


def test_threads_connect_queue_pairs_at_the_same_time_in_a_lab(compiled, lab):
    words = [compiled, "connecting threads"]
    done = subprocess.run(words, env=on(lab, "h1"), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["8 connected", "busy 1"]), done.stdout + done.stderr


@pytest.mark.parametrize("place", ["lab", "roce"])
def test_a_program_that_sends_packets_loads_no_compiler(compiled, lab, place):
    """The first request goes through shared memory; the second, with a wrong key, as packets."""
    environment = on(lab, "h1") if place == "lab" else outside_of_labs() | {hardware.ROCE: roce_addresses()[0]}
    words = [compiled, "libraries"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    output = ["success", "remote access error", "0 compilers", "busy 1"]
    assert (done.returncode, done.stdout.splitlines()) == (0, output), done.stdout + done.stderr


def test_a_peer_that_is_killed_is_an_error_and_not_the_end_of_the_library():
    """The program writes all the time: as on real adapters, a program that only waits for data is not notified."""
    port = free_port()
    words = ["stdbuf", "-oL", program("ib_write_bw"), "-x", "1", "-s", "64", "-n", "100000000", "-p", str(port)]
    with started(words, outside_of_labs()) as server:
        wait_until(lambda: port in listening_ports(), going=lambda: server.poll() is None)
        with started([*words, "127.0.0.1"], outside_of_labs()) as client:
            assert client.stdout is not None
            while (line := client.stdout.readline()) and "#bytes" not in line:
                pass
            server.kill()
            output = client.communicate(timeout=PATIENCE_S)[0]
    assert client.returncode == 1, output
    assert "Failed status 12" in output, output  # transport retry counter exceeded


# -- errors and warnings -----------------------------------------------------------------------------------------------


def run_with(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.fixture(scope="module")
def odd_build(tmp_path_factory) -> Path:
    """The libraries of a weft that runs with Python 2.7, which was built without a shared library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_libpython", lambda: "")
        real, ours = build._python(), f'"{sys.version_info.major}.{sys.version_info.minor}."'
        assert ours in real
        patch.setattr(build, "_python", lambda: real.replace(ours, '"2.7."'))
        patch.setattr(build, "_FLAGS", QUICK)
        folder = build.folder(tmp_path_factory.mktemp("libraries"))
    assert folder is not None
    return folder


def test_a_python_without_a_shared_library_is_said_so(odd_build):
    done = run_with(odd_build, program("ibv_devices"))
    assert "was built without a shared libpython" in done.stderr
    assert done.returncode == 1
    assert "Function not implemented" in done.stdout + done.stderr


def test_a_program_that_is_another_python_is_said_so(odd_build):
    lists = "import ctypes; print(ctypes.CDLL('libibverbs.so.1').ibv_get_device_list(None))"
    done = run_with(odd_build, sys.executable, "-c", lists)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert "and weft runs with 2.7." in done.stderr


def test_without_a_compiler_a_program_is_told_why_it_sees_nothing(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    variables = launch.environment()
    assert "LD_LIBRARY_PATH" not in variables
    launch.warn_if_unusable(program("ibv_devices"), variables)
    assert "cannot use weft's devices: it uses libibverbs.so.1, and there is no C compiler" in capfd.readouterr().err
    launch.warn_if_unusable(sys.executable, variables)
    assert not capfd.readouterr().err


def test_a_program_that_loads_no_library_of_wefts_is_told_so(tmp_path, capfd):
    """Such a program is setuid or linked statically; any other gets no warning."""
    variables, copy = launch.environment(), tmp_path / "ibv_devices"
    shutil.copy(program("ibv_devices"), copy)
    launch.warn_if_unusable(str(copy), variables)
    assert not capfd.readouterr().err
    copy.chmod(0o4755)
    launch.warn_if_unusable(str(copy), variables)
    assert "cannot use weft's devices: it is setuid or setgid" in capfd.readouterr().err
    source, static = tmp_path / "static.c", tmp_path / "static"
    source.write_text('char *verb = "ibv_get_device_list"; int main(void) { return !*verb; }', encoding="utf-8")
    cc = compiler.find()
    assert cc is not None
    subprocess.run([cc, "-static", "-O0", str(source), "-o", str(static)], check=True)
    launch.warn_if_unusable(str(static), variables)
    assert "is linked statically with libibverbs" in capfd.readouterr().err


def test_the_systems_libpython_is_taken_where_this_python_has_none(monkeypatch, tmp_path):
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    own = {"LIBDIR": str(tmp_path), "MULTIARCH": "none", "INSTSONAME": name.replace("so.1.0", "a")}
    monkeypatch.setattr(build.sysconfig, "get_config_vars", lambda *names: [own[one] for one in names])
    monkeypatch.setattr(build.sys, "base_prefix", str(tmp_path))
    assert build._libpython() == ""
    (tmp_path / name).touch()
    assert build._libpython() == str(tmp_path / name)


def roce_addresses() -> list[str]:
    """Return two addresses of this machine that no other process uses."""
    return [f"127.{os.getpid() >> 8 & 0x7F | 0x80}.{os.getpid() & 0xFF}.{number}" for number in (1, 2)]


@pytest.mark.parametrize("by_packets", [False, True], ids=["shared-memory", "roce"])
def test_a_program_in_c_and_one_in_python_talk_to_each_other(by_packets):
    """Debian's ibv_rc_pingpong connects to weft's own, which is Python; packets show that both use the same MTU."""
    ends = [outside_of_labs() | ({hardware.ROCE: address} if by_packets else {}) for address in roce_addresses()]
    words = ["-g", "1", "-n", "100", "-p", str(port := free_port())]
    with started([sys.executable, "-m", "weft", "verbs", "ibv_rc_pingpong", *words], ends[0]) as server:
        wait_until(lambda: port in listening_ports(), going=lambda: server.poll() is None)
        command = [program("ibv_rc_pingpong"), *words, "127.0.0.1"]
        done = subprocess.run(command, env=ends[1], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        output = server.communicate(timeout=PATIENCE_S)[0]
    assert (server.returncode, done.returncode) == (0, 0), output + done.stdout + done.stderr
    assert "100 iters in" in done.stdout


def test_two_machines_talk_roce():
    ends = [outside_of_labs() | {hardware.ROCE: address} for address in roce_addresses()]
    for output in run_pair([program("ibv_rc_pingpong"), "-g", "1", "-n", "100", "-c"], *ends):
        assert "100 iters in" in output


WORDS = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for name in ("ibv_event_type_str", "ibv_wc_status_str", "ibv_node_type_str", "ibv_port_state_str"):
    says = getattr(library, name)
    says.restype = ctypes.c_char_p
    print(name, [says(number) for number in range(-1, 40)])
for name in ("ibv_rate_to_mult", "mult_to_ibv_rate", "ibv_rate_to_mbps"):
    print(name, [getattr(library, name)(number) for number in range(-1, 24)])
"""


def test_numbers_have_the_words_of_the_systems_libibverbs():
    """ibv_asyncwatch prints them, for example."""
    theirs, folder = find_system(build.NAME), build.folder()
    assert folder is not None
    output = [
        subprocess.check_output([sys.executable, "-c", WORDS, file], text=True)
        for file in (theirs, folder / build.NAME)
    ]
    assert output[0] == output[1]


# -- the binary interface ----------------------------------------------------------------------------------------------


def structures(abi: Path) -> dict[str, list[str]]:
    """Return the named fields of each structure of abi.h."""
    text = re.sub(r"/\*.*?\*/", "", abi.read_text(encoding="utf-8"), flags=re.S)
    result = {}
    one_line = re.findall(r"^struct (\w+) \{([^\n]*)\};$", text, re.M)
    for name, body in one_line + re.findall(r"^struct (\w+) \{\n(.*?)^\};$", text, re.S | re.M):
        while "{" in body:
            body = re.sub(r"\{[^{}]*\}", "", body)
        pointers = re.findall(r"\(\*(\w+)\)\(", body)
        plain = re.sub(r"[^;]*\(\*\w+\)\([^;]*;", "", body)
        words = [re.findall(r"(\w+)(?:\[\w+\])?\s*$", part) for line in plain.split(";") for part in line.split(",")]
        kinds = {"struct", "union"}
        result[name] = [*pointers, *(word[0] for word in words if word and word[0] not in kinds)]
    return result


def offsets(header: str, folder: Path, abi: Path = ABI) -> dict[str, str]:
    lines = [f"#include {header}\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{"]
    for name, names in structures(abi).items():
        older = [field for field in names if field not in NEWER]
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));' for field in older]
    (folder / "offsets.c").write_text("\n".join([*lines, "}"]))
    words = [
        compiler.find() or "cc",
        "-w",
        f"-I{ABI.parent}",
        f"-I{abi.parent}",
        str(folder / "offsets.c"),
        "-o",
        str(folder / "offsets"),
    ]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return dict(line.split() for line in subprocess.check_output([folder / "offsets"], text=True).splitlines())


def test_every_structure_is_as_verbs_h_has_it(tmp_path):
    if not Path("/usr/include/infiniband/verbs.h").is_file():
        do_without("libibverbs-dev")
    ours, theirs = offsets('"abi.h"', tmp_path), offsets("<infiniband/verbs.h>", tmp_path)
    assert len(ours) > 300
    different = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    assert different.keys() <= {"ibv_qp_ex", "ibv_port_attr"}  # rdma-core has appended fields to these


def find_system(name: str) -> Path:
    """Return the path of the system's library with this name."""
    result = next((path for folder in ("/usr/lib", "/lib") for path in Path(folder).rglob(name)), None)
    return result or do_without(name)


def exported(library: Path) -> set[str]:
    nm = find_peer("nm")
    lines = subprocess.check_output([nm, "-D", "--defined-only", library], text=True).splitlines()
    return {line.split()[-1].replace("@@", "@") for line in lines if "@" in line}


def test_all_public_calls_are_there_under_the_versions_that_programs_ask_for():
    """Except for versions before 2008 of calls that also exist in a newer version."""
    folder = build.folder()
    assert folder is not None
    theirs, ours = exported(find_system(build.NAME)), exported(folder / build.NAME)
    newer = {name.partition("@")[0] for name in theirs if not name.endswith("@IBVERBS_1.0")}
    missing = {
        name for name in theirs - ours if not (name.endswith("@IBVERBS_1.0") and name.partition("@")[0] in newer)
    }
    assert not missing
