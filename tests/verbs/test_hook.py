"""weft under the name of pyverbs."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE_S

FIRST = "from weft.verbs import pyverbs as hook; hook.install()\n"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_module_of_pyverbs_is_the_one_of_weft():
    done = run(
        FIRST + "import pyverbs.wr, weft.verbs.pyverbs.wr\n"
        "assert pyverbs.wr is weft.verbs.pyverbs.wr\n"
        "assert weft.verbs.pyverbs.wr.__spec__.name == 'weft.verbs.pyverbs.wr'\n"
        "from pyverbs.base import PyverbsRDMAErrno, inc_rkey\n"
        "import pyverbs.enums, pyverbs.libibverbs_enums\n"
        "assert pyverbs.enums is pyverbs.libibverbs_enums\n"
        "from pyverbs import cm_enums\n"
        "assert cm_enums.RDMA_PS_TCP == 262\n"
    )
    assert done.returncode == 0, done.stderr


def test_exceptions_are_caught_under_either_name():
    done = run(
        FIRST + "from pyverbs.pyverbs_error import PyverbsUserError\n"
        "from weft.verbs.pyverbs.addr import GID\n"
        "try: GID('x')\n"
        "except PyverbsUserError: print('caught')\n"
    )
    assert done.stdout == "caught\n", done.stderr


def test_vendor_modules_import_and_are_not_supported():
    done = run(
        FIRST + "import errno\n"
        "from pyverbs.pyverbs_error import PyverbsRDMAError\n"
        "from pyverbs.providers.mlx5 import mlx5dv\n"
        "import pyverbs.providers.efa.efa_enums as efa\n"
        "from pyverbs.flow import Flow\n"
        "assert efa.EFADV_DEVICE_ATTR_CAPS_RDMA_READ == 0\n"
        "for kind in mlx5dv.Mlx5Context, Flow:\n"
        "    try: kind(1, name='x')\n"
        "    except PyverbsRDMAError as error: print(error.error_code == errno.EOPNOTSUPP, error)\n"
        "try: mlx5dv.Mlx5QP.modify_lag_port(1, 2)\n"
        "except PyverbsRDMAError as error: print(error.error_code == errno.EOPNOTSUPP, error)\n"
    )
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["True", "True", "True"], done.stderr
    assert "Failed to create Mlx5Context" in lines[0]
    assert "Failed to call Mlx5QP.modify_lag_port" in lines[2]


def test_a_module_that_pyverbs_has_not_is_not_found():
    done = run(FIRST + "import pyverbs.nothing")
    assert "ModuleNotFoundError: No module named 'pyverbs.nothing'" in done.stderr


def test_a_second_call_changes_nothing():
    done = run(FIRST + FIRST + "import sys; print(sum(type(f).__module__ == hook.__name__ for f in sys.meta_path))")
    assert done.stdout == "1\n", done.stderr


def test_it_refuses_when_pyverbs_is_already_there(tmp_path):
    (tmp_path / "pyverbs.py").touch()
    done = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyverbs\n{FIRST}")
    assert f"pyverbs is already imported, from {tmp_path}/pyverbs.py" in done.stderr
    assert "before anything imports pyverbs" in done.stderr
