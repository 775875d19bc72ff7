"""Pictures of runs: their content, and equal bytes for equal runs."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import incast, uniform
from weft.sim.plots import Curve, draw_cdf, draw_heat, draw_latency, draw_queues, draw_watched
from weft.sim.result import Result
from weft.sim.series import write_messages, write_samples
from weft.sim.traffic import Traffic

SPEC = "fat-tree:hosts=16,radix=8"


@pytest.fixture(scope="module")
def fabric() -> weft.Fabric:
    return route(weft.load(SPEC)).fabric


@pytest.fixture(scope="module")
def run(fabric) -> Result:
    watched = Options(watch=("leaf1/1", "leaf2/5"), watch_every_ps=500_000)
    return PacketEngine().run(fabric, incast(fabric, size_bytes=65_536, senders=6), watched)


@pytest.fixture(scope="module")
def curve(fabric) -> Curve:
    runs = [
        (load, PacketEngine().run(fabric, uniform(fabric, load=load, duration_ps=10_000_000))) for load in (0.2, 0.8)
    ]
    return Curve.of("paths table", runs)


def texts_of(path) -> str:
    """Return the texts of an SVG, which matplotlib stores as comments."""
    return " ".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


def test_a_curve_is_the_median_and_the_99th_percentile(run):
    curve = Curve.of("one", [(0.5, run)])
    assert curve.load.tolist() == [0.5]
    assert curve.p50_us[0] == pytest.approx(np.median(run.latency_ps) / 1e6)
    assert curve.p99_us[0] == pytest.approx(np.percentile(run.latency_ps, 99) / 1e6)


def test_latency_rises_with_load(curve):
    assert curve.p99_us[1] > curve.p99_us[0] >= curve.p50_us[0]


def test_titles_say_fabric_traffic_and_seed(run, curve, tmp_path):
    draw_queues(tmp_path / "queue.svg", run)
    draw_latency(tmp_path / "latency.svg", [curve], SPEC, "uniform, seed 5")
    draw_heat(tmp_path / "heat.svg", run)
    for words in (SPEC, "incast of 6 to h1/1 (seed 1): 6 messages of 64 KiB", "time (µs)", "(KiB)", "leaf2/5, at most"):
        assert words in texts_of(tmp_path / "queue.svg")
    for words in (SPEC, "uniform, seed 5", "paths table, p99", "offered load", "(µs, logarithmic)"):
        assert words in texts_of(tmp_path / "latency.svg")
    for words in (f"{SPEC}: incast of 6 to h1/1 (seed 1)", "utilisation in %, infiniband, paths table"):
        assert words in (tmp_path / "heat.svg").read_text()


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_run_gives_the_same_bytes(run, curve, tmp_path, suffix):
    for name in ("one", "other"):
        draw_queues(tmp_path / f"queue-{name}{suffix}", run)
        draw_latency(tmp_path / f"latency-{name}{suffix}", [curve, curve], SPEC, "")
    for kind in ("queue", "latency"):
        each, other = (tmp_path / f"{kind}-{name}{suffix}" for name in ("one", "other"))
        assert each.read_bytes() == other.read_bytes()


def test_names_of_any_script_and_length_can_be_in_the_title(curve, tmp_path):
    curve = replace(curve, name="経路")
    draw_latency(tmp_path / "latency.svg", [curve], "織物 costs $1 and $2_{ " + "x" * 200, "a long note " * 40)
    texts = texts_of(tmp_path / "latency.svg")
    assert "織物 costs $1 and $2_{" in texts, "dollars are no mathematics"
    assert "a long note a long …" in texts, "cut where the picture ends"
    assert texts.count("x") < 200


def test_a_sweep_in_which_nothing_arrived_still_has_a_picture(tmp_path):
    draw_latency(tmp_path / "latency.svg", [Curve.of("none", [])], SPEC, "")
    texts = texts_of(tmp_path / "latency.svg")
    assert SPEC in texts
    assert "offered load" in texts
    assert "none, p99" in texts


def test_without_watched_ports_there_is_no_queue_to_draw(fabric, tmp_path):
    bare = PacketEngine().run(fabric, Traffic.of(fabric, [("h1", "h2", 8)]))
    with pytest.raises(ConfigError, match="no port was watched"):
        draw_queues(tmp_path / "queue.png", bare)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_suffix_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match=r"\.png, \.svg, \.pdf"):
        draw_queues(tmp_path / "queue.jpg", run)


def test_samples_of_a_watched_port_agree_with_the_totals_of_the_run():
    """Utilisation times the interval is the busy time, pauses and blocked time add up likewise."""
    fabric = route(weft.load("star:hosts=9,speed=400GbE"), RoutingOptions(adaptive=True)).fabric
    traffic = Traffic.of(fabric, [(f"h{i}", "h1", 1 << 20) for i in range(2, 10)])
    ports = ("leaf1/1", "leaf1/2", fabric.find_port("leaf1/2").peer.name)
    options = Options(watch=ports, watch_every_ps=1_000_000, buffer_bytes=65_536)
    result = PacketEngine().run(fabric, traffic, options)
    samples, use = result.samples, result.use
    slots = [fabric.find_port(name).slot for name in ports]
    every_ps = options.watch_every_ps
    assert samples.utilisation.sum(axis=0) * every_ps == pytest.approx(use.busy_ps[slots], abs=1.5 * every_ps)
    assert samples.blocked.sum(axis=0) * every_ps == pytest.approx(use.xmit_wait_ps[slots], abs=1.5 * every_ps)
    assert samples.blocked.min() >= 0
    assert samples.blocked.max() == 1  # a port that waits during a whole interval
    assert (abs(samples.pauses.sum(axis=0) - use.pauses[slots]) <= 1).all()
    assert samples.pauses[:, 1].sum() > 0
    assert np.isnan(samples.credit_bytes).all()  # Ethernet has none
    assert np.isnan(samples.allowed_rate[:, :2]).all()
    assert 0 < np.nanmin(samples.allowed_rate[:, 2]) < 1  # DCQCN slowed the adapter down
    watched = result.report()["watched"]["leaf1/1"]
    assert "credit_bytes" not in watched
    assert len(watched["utilisation"]) == len(watched["queue_bytes"])


def test_messages_and_samples_are_written_as_tables(tmp_path, run):
    write_messages(tmp_path / "times.csv", run)
    with (tmp_path / "times.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["finish_ps"]) for row in rows] == run.finish_ps.tolist()
    write_samples(tmp_path / "ports.csv", run)
    with (tmp_path / "ports.csv").open() as file:
        rows = list(csv.DictReader(file))
    shown = run.samples.until(run.last_arrival_ps)
    assert [int(row["queue_bytes"]) for row in rows] == shown.queue_bytes.ravel().tolist()
    with pytest.raises(ConfigError, match=r"must be \.csv or \.parquet"):
        write_messages(tmp_path / "times.txt", run)


def test_parquet_has_the_same_messages_or_the_error_names_the_package(tmp_path, run):
    try:
        from pyarrow import parquet
    except ImportError:
        with pytest.raises(ConfigError, match=r"Parquet needs pyarrow: pip install 'weft-fabric\[parquet\]'"):
            write_messages(tmp_path / "times.parquet", run)
        return
    write_messages(tmp_path / "times.parquet", run)
    table = parquet.read_table(tmp_path / "times.parquet")
    assert table["finish_ps"].to_pylist() == run.finish_ps.tolist()


@pytest.mark.parametrize("draw_one", [draw_cdf, draw_watched])
def test_the_distribution_of_latency_and_the_watched_ports_are_drawn(draw_one, tmp_path, run):
    draw_one(tmp_path / "chart.svg", run)
    assert "<svg" in (tmp_path / "chart.svg").read_text()
