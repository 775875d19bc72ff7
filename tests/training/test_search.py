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
    item, given = find(model), BATCH | given
    calls = []
    result = search(item, SITE, given, progress=lambda *call: calls.append(call))
    assert calls == [(done, len(result)) for done in range(1, len(result) + 1)]
    times = [run_step(item, layout, SITE.gpu, SITE.over(layout)).step_s for layout, _ in layouts(item, SITE, given)]
    assert len(times) == len(result) > 10
    assert result[0].step.step_s == min(times)
    assert [item.step.step_s for item in result] == sorted(times)
    for remaining, value in given.items():
        assert {getattr(item.layout, remaining) for item in result} == {value}


def test_zero_2_is_tried_where_there_is_no_pipeline():
    tried = {(layout.zero, layout.pp > 1) for layout, _ in layouts(find("llama3-8b"), SITE, BATCH)}
    assert tried == {(1, False), (1, True), (2, False), (3, False)}


def test_all_of_them_fit_and_run():
    item = find("llama3-8b")
    for layout, held in layouts(item, SITE, BATCH | {"micro_batch": 1, "cp": 1}):
        assert held.fits(80)
        assert layout.gpus == 16
    run_job(item, layout, SITE)


def test_of_recomputing_only_the_least_that_fits_is_tried():
    item = find("llama3-8b")
    arguments = BATCH | {"tp": 1, "pp": 1, "cp": 1, "zero": 1}
    tried = {layout.micro_batch: layout.recompute for layout, _ in layouts(item, SITE, arguments)}
    forced = {layout.micro_batch for layout, _ in layouts(item, SITE, arguments | {"recompute": "none"})}
    assert forced == {size for size, recompute in tried.items() if recompute == "none"}
    assert "full" in tried.values()


def test_invalid_layout_is_named():
    with pytest.raises(
        ConfigError, match=r"no layout of llama3-8b on 16 × H100 divides with global_batch = 3, .* tp = 1"
    ):
        search(find("llama3-8b"), SITE, {"global_batch": 3, "seq": 4096, "tp": 1, "pp": 1, "cp": 1})
    with pytest.raises(ConfigError, match="fits on 16 × H100 in no layout"):
        search(find("gpt3-175b"), SITE, {"global_batch": 32, "seq": 2048})


def test_layouts_whose_groups_lie_unevenly_on_servers_are_found():
    """Two stages of 24 GPUs have 12 each: one and a half servers."""
    arguments = BATCH | {"global_batch": 48, "tp": 1, "cp": 1, "vp": 1, "micro_batch": 1}
    stages = {item.layout.pp for item in search(find("llama3-8b"), find_site("ndr", gpus=24), arguments)}
    assert stages >= {1, 2}
