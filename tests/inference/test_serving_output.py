"""Pictures of the latencies of a run."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from matplotlib.figure import Figure
from tests.inference.serving_cases import table

from weft.inference.serving import output
from weft.inference.serving.figures import tpot_s, ttft_s
from weft.inference.serving.load import Lengths, offline
from weft.inference.serving.run import serve
from weft.inference.serving.service import Limits, Pool, Service


def test_the_picture_of_latencies_marks_half_and_99_percent_of_the_requests(monkeypatch, tmp_path):
    figure = Figure()
    axes = list(figure.subplots(1, 2))
    monkeypatch.setattr(output, "titled_chart", lambda *_, **__: nullcontext(axes))
    load = offline(requests=8, prompt=Lengths(300), output=Lengths(20), seed=1)
    run = serve(Service(pools=(Pool(table=table(), limits=Limits(max_num_seqs=1)),)), load)
    output.draw_latencies(tmp_path / "x.svg", run, "latencies")
    for one, values_s in zip(axes, (ttft_s(run), tpot_s(run)), strict=True):
        expected = [f"p{percent} {1000 * np.percentile(values_s, percent):,.1f} ms" for percent in (50, 99)]
        assert [text.get_text() for text in one.get_legend().get_texts()] == expected
