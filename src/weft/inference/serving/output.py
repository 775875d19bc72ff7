"""Write the requests of a run as CSV or Parquet, and draw the distribution of their latencies.

write_requests("requests.csv", served)     arrival_s, prompt, output, ttft_s, tpot_s, e2e_s, queue_s, prefill_s, ...
draw_latencies("latency.svg", served)      cumulative distributions of TTFT and TPOT
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft.draw.chart import COLOURS, titled_chart
from weft.inference.serving.figures import e2e_s, tpot_s, ttft_s
from weft.inference.serving.run import Served
from weft.sim.series import Columns, write_columns
from weft.version import __version__

_POINTS = 4000  # in a drawn curve


def write_requests(path: Path | str, served: Served) -> None:
    """Write a row for each request."""
    write_columns(path, _columns(served))


def _columns(served: Served) -> Columns:
    requests = served.requests
    waits = {
        "queue_s": requests.scheduled_s - requests.arrival_s,
        "prefill_s": requests.prefilled_s - requests.scheduled_s,
    }
    if served.service.disaggregated:
        began_s = np.maximum(requests.handoff_s, requests.prefilled_s)
        handed = requests.handoff_s >= 0
        waits["kv_wait_s"] = np.where(handed, began_s - requests.prefilled_s, 0.0)
        waits["wire_s"] = np.where(handed, requests.first_s - began_s, 0.0)
    columns = {
        "arrival_s": requests.arrival_s,
        "prompt": requests.prompt,
        "output": requests.output,
        "ttft_s": ttft_s(served),
        "tpot_s": tpot_s(served),
        "e2e_s": e2e_s(served),
        **waits,
        "preempted_s": requests.preempted_s,
        "cached_tokens": requests.hit,
        "preemptions": requests.preemptions,
        "retries": requests.retries,
        "replica": requests.replica,
    }
    return {name: values.tolist() for name, values in columns.items()}


def draw_latencies(path: Path | str, served: Served, title: str) -> None:
    """Plot the share of requests within each time to the first token and between tokens."""
    note = f"{served.load.description}; weft {__version__}"
    several = served.requests.output > 1
    curves = (("time to first token (ms)", ttft_s(served)), ("time per output token (ms)", tpot_s(served)[several]))
    with titled_chart(path, title, note, panels=len(curves)) as all_axes:
        for axes, (label, values_s) in zip(all_axes, curves, strict=True):
            share = np.linspace(0, 1, min(_POINTS, max(len(values_s), 2)))
            times_ms = 1000 * np.quantile(values_s, share) if len(values_s) else np.zeros_like(share)
            axes.step(times_ms, share, where="post", color=COLOURS[0], linewidth=1.8)
            for percent, colour in ((50, COLOURS[1]), (99, COLOURS[2])):
                ms = float(np.interp(percent / 100, share, times_ms))
                axes.axvline(ms, color=colour, linestyle=(0, (4, 2.5)), linewidth=1.2, label=f"p{percent} {ms:,.1f} ms")
            axes.set_ylim(0, 1)
            axes.set_xlabel(label)
            axes.legend(loc="lower right", fontsize=8)
        all_axes[0].set_ylabel("share of requests")
