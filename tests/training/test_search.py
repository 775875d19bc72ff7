"""The best layout."""

import pytest

from weft.errors import ConfigError
from weft.training.job import run_job
from weft.training.search import layouts, search
from weft.training.site import find_site
from weft.training.step import run_step
from weft.training.transformer import find

SITE = find_site("ndr", gpus=16)
BATCH = {"global_batch": 32, "seq": 4096}


@pytest.mark.parametrize(
    ("model", "given"), [("llama3-8b", {"zero": 1, "tp": 2}), ("mixtral-8x7b", {"micro_batch": 1, "tp": 1})]
)
def test_the_best_is_no_worse_than_any_that_fits(model, given):
    one, given = find(model), BATCH | given
    found = search(one, SITE, given)
    times = [run_step(one, layout, SITE.gpu, SITE.over(layout)).step_s for layout, _ in layouts(one, SITE, given)]
    assert len(times) == len(found) > 10
    assert found[0].step.step_s == min(times)
    assert [one.step.step_s for one in found] == sorted(times)
    for kept, value in given.items():
        assert {getattr(one.layout, kept) for one in found} == {value}


def test_zero_2_is_tried_where_there_is_no_pipeline():
    tried = {(layout.zero, layout.pp > 1) for layout, _ in layouts(find("llama3-8b"), SITE, BATCH)}
    assert tried == {(1, False), (1, True), (2, False), (3, False)}


def test_all_of_them_fit_and_run():
    one = find("llama3-8b")
    for layout, held in layouts(one, SITE, BATCH | {"micro_batch": 1, "cp": 1}):
        assert held.fits(80)
        assert layout.gpus == 16
    run_job(one, layout, SITE)


def test_of_recomputing_only_the_least_that_fits_is_tried():
    one = find("llama3-8b")
    given = BATCH | {"tp": 1, "pp": 1, "cp": 1, "zero": 1}
    tried = {layout.micro_batch: layout.recompute for layout, _ in layouts(one, SITE, given)}
    forced = {layout.micro_batch for layout, _ in layouts(one, SITE, given | {"recompute": "none"})}
    assert forced == {size for size, recompute in tried.items() if recompute == "none"}
    assert "full" in tried.values()


def test_what_cannot_be_is_named():
    with pytest.raises(
        ConfigError, match=r"no layout of llama3-8b on 16 × H100 divides with global_batch = 3, .* tp = 1"
    ):
        search(find("llama3-8b"), SITE, {"global_batch": 3, "seq": 4096, "tp": 1, "pp": 1, "cp": 1})
    with pytest.raises(ConfigError, match="fits on 16 × H100 in no layout"):
        search(find("gpt3-175b"), SITE, {"global_batch": 32, "seq": 2048})


def test_layouts_whose_groups_lie_unevenly_on_servers_are_found():
    """Of 24 GPUs, two stages have 12 each: a server and a half."""
    given = BATCH | {"global_batch": 48, "tp": 1, "cp": 1, "vp": 1, "micro_batch": 1}
    stages = {one.layout.pp for one in search(find("llama3-8b"), find_site("ndr", gpus=24), given)}
    assert stages >= {1, 2}
