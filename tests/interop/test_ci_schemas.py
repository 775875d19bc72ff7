"""Workflows, the action for GitHub and the template for GitLab follow the schemas of their services."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.conftest import do_without

ROOT = Path(__file__).parents[2]
SCHEMAS = {
    ".github/workflows/ci.yml": "vendor.github-workflows",
    ".github/workflows/release.yml": "vendor.github-workflows",
    "action.yml": "vendor.github-actions",
    "ci/gitlab.yml": "vendor.gitlab-ci",
}


@pytest.mark.interop
@pytest.mark.parametrize(("path", "schema"), SCHEMAS.items(), ids=SCHEMAS)
def test_files_of_continuous_integration_follow_their_schemas(path, schema):
    program = shutil.which("check-jsonschema", path=str(Path(sys.executable).parent))
    if program is None:
        do_without("check-jsonschema")
    command = [program, "--builtin-schema", schema, str(ROOT / path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.interop
def test_all_workflows_are_checked():
    assert {path for path in SCHEMAS if "workflows" in path} == {
        f".github/workflows/{path.name}" for path in (ROOT / ".github" / "workflows").iterdir()
    }
