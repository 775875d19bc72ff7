"""The examples in the docstrings of public functions run, and each function documents its parameters."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys

import pytest

import weft

FUNCTIONS = {name: getattr(weft, name) for name in weft.__all__ if name != "Fabric"}
EXAMPLES = {"weft": weft, **FUNCTIONS, "Fabric.without": weft.Fabric.without}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_prints_what_the_docstring_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(EXAMPLES[name])
    flags = doctest.ELLIPSIS
    example = doctest.DocTestParser().get_doctest(text, {"weft": weft}, name, None, 0)
    assert example.examples, f"{name} has no example"
    output: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=flags).run(example, out=output.append)
    assert failed == 0, "".join(output)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstring_has_every_parameter_and_the_result(name):
    text = inspect.getdoc(FUNCTIONS[name])
    parameters, _, rest = text.partition("Parameters\n----------\n")[2].partition("\nReturns\n-------\n")
    documented = [word.strip() for line in parameters.splitlines() if line[:1].strip() for word in line.split(",")]
    assert documented == list(inspect.signature(FUNCTIONS[name]).parameters)
    assert "\nExamples\n--------\n" in rest


def test_random_seeds_are_1_unless_given():
    seeds = [inspect.signature(function).parameters.get("seed") for function in FUNCTIONS.values()]
    assert {seed.default for seed in seeds if seed} == {1}


def test_functions_keep_their_names_after_packages_of_the_same_name_load():
    program = (
        "import weft; import weft.plan.size, weft.draw.svg, weft.compare.job; from weft import plan, draw, compare;"
        "print(weft.plan is plan, plan.__module__, draw.__module__, compare.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "weft.api.purchases", "weft.api.fabrics", "weft.api.purchases"]


def test_import_of_weft_loads_no_numpy():
    program = "import sys, weft; dir(weft); print('numpy' in sys.modules, 'weft.api' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_help_begins_with_an_example_and_lists_every_function():
    import pydoc

    text = pydoc.render_doc(weft, renderer=pydoc.plaintext)
    assert text.index("weft.load(") < 800
    assert all(f"    {name}(" in text.partition("\nFUNCTIONS\n")[2] for name in FUNCTIONS)
