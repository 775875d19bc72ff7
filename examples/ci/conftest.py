"""Programs under test."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def replicate(tmp_path_factory):
    """The path of the compiled program."""
    program = tmp_path_factory.mktemp("build") / "replicate"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", program, HERE / "replicate.c", "-libverbs"], check=True)
    return str(program)
