"""A cluster sized for a served model: its service, and the traffic between and into its servers."""

from __future__ import annotations

import pytest

import weft
from weft.errors import ConfigError
from weft.inference.deployment import find_deployment
from weft.inference.serving.figures import latencies
from weft.inference.serving.placement import Placement
from weft.plan.north_south import START_S, size_networks
from weft.plan.plan import make_plan
from weft.plan.report import command
from weft.plan.request import Request
from weft.plan.serving import PROMPT_TOKEN_BYTES, Demand, Serving, _text_parts, count_servers, plan_serving
from weft.plan.size import size

KV_BYTES = 2 * 80 * 8 * 128 * 2  # per token of Llama 3 70B: keys and values, layers, heads, size, bf16
DEMAND = Demand(model="llama3-70b", rate=20, prompt=1000, answer=100, tpot_s=0.03)
REQUEST = Request(servers=2)


@pytest.fixture(scope="module")
def serving() -> Serving:
    return plan_serving(DEMAND, size(REQUEST))


def test_the_service_is_that_of_the_search_over_layouts_and_keeps_its_objective(serving):
    assert serving.replicas == "3 × tp 2 for prompts and 1 × tp 4 for answers"
    assert serving.keeps
    assert count_servers(DEMAND, REQUEST) == serving.servers == 2


def test_handed_over_bytes_are_those_of_all_prompts(serving):
    """All replicas for prompts are in the first server, and the one for answers in the second."""
    handed, prompts, _ = serving.flows
    seconds = serving.served.load.arrival_s[-1]
    bytes_per_s = len(serving.served.load) * DEMAND.prompt * KV_BYTES / seconds
    assert handed.mean_gbit_s == pytest.approx(8e-9 * bytes_per_s)
    assert handed.mean_gbit_s < handed.peak_gbit_s < 2 * handed.mean_gbit_s
    assert handed.share == pytest.approx(handed.peak_gbit_s / (8 * 400))
    assert prompts.mean_gbit_s == pytest.approx(8e-9 * DEMAND.rate * DEMAND.prompt * PROMPT_TOKEN_BYTES)


def test_storage_is_sized_for_servers_that_start_together_and_management_for_text(serving):
    storage, management = serving.networks
    assert storage.server_gbit_s == pytest.approx(8 * serving.weights_gbyte / START_S)
    assert (storage.total_gbit_s, storage.ports) == (2 * storage.server_gbit_s, 1)
    _, prompts, answers = serving.flows
    assert management.total_gbit_s == answers.peak_gbit_s > prompts.peak_gbit_s
    assert {network["name"] for network in serving.report()["networks"]} == {"storage", "management"}


@pytest.mark.parametrize(
    ("fabric", "servers", "ports", "storage_servers"),
    [
        ("ndr", 1, 1, 1),
        ("ndr", 12, 1, 4),  # 2 ports of 400 Gbit/s, filled to 80 %, give 640 of the 720 of the disks
        ("eth-100-tcp", 12, 3, 14),  # 2 ports give 160
    ],
)
def test_slower_ports_need_more_of_them_and_more_storage_servers(fabric, servers, ports, storage_servers):
    """1,350 GB within a minute are 180 Gbit/s."""
    storage, _ = size_networks(text_gbit_s=(0.0, 0.0), weights_gbyte=1350, servers=servers, storage=fabric)
    assert storage.server_gbit_s == 180
    assert (storage.ports, storage.storage_servers) == (ports, storage_servers)


def test_servers_without_replicas_for_prompts_get_none():
    """Three replicas for prompts lie in the first of two servers: its port has all of them."""
    deployment = find_deployment("llama3-8b", gpus=16, tp=2)
    assert _text_parts(Placement(deployment=deployment, prefill=3, decode=4)) == (1.0, 0.75)
    assert _text_parts(Placement(deployment=deployment, both=8)) == (0.5, 0.5)


def test_a_storage_fabric_without_a_number_has_the_servers_that_the_model_needs():
    plan = weft.plan(servers=2, serve=Demand(model="llama3-8b", rate=2, prompt=500, answer=50), storage_fabric="ndr")
    assert plan.site.networks[0].bill.servers[0].count == plan.serving.networks[0].storage_servers == 1
    with pytest.raises(ConfigError, match="with --serve"):
        weft.plan(servers=2, storage_fabric="ndr")


def test_fewer_rails_take_a_larger_share_and_more_time(serving):
    narrow = plan_serving(DEMAND, size(Request(servers=2, rails=2)))
    assert narrow.flows[0].share == pytest.approx(4 * serving.flows[0].share, rel=0.2)
    one, other = (latencies(each.served)["ttft"].mean_s for each in (serving, narrow))
    assert one < other


def test_a_service_in_one_server_hands_nothing_over():
    small = Demand(model="llama3-8b", rate=2, prompt=500, answer=50)
    flows = plan_serving(small, size(Request(servers=1))).flows
    assert {flow.name for flow in flows} <= {"KV hand-offs", "prompts in", "answers out"}
    assert not sum(flow.mean_gbit_s for flow in flows if flow.name == "KV hand-offs")


def test_replicas_on_several_servers_exchange_the_sums_of_every_layer():
    """Llama 3 405B in bf16 needs two DGX H100: two all-reduces of each layer cross between them as rings."""
    demand = Demand(model="llama3-405b", rate=0.5, prompt=1000, answer=100, ttft_s=5, tpot_s=0.2)
    result = plan_serving(demand, size(Request(servers=2)))
    (steps,) = (flow for flow in result.flows if flow.name == "exchanges of steps")
    model = find_deployment("llama3-405b", gpus=16, tp=16).model
    of_token = 2 * len(model.kinds) * 2 * model.hidden * 2 / 2  # two all-reduces, there and back, bf16, two servers
    assert result.replicas == "1 × tp 16 for both phases"
    assert steps.mean_gbit_s == pytest.approx(8e-9 * 0.5 * 1100 * of_token)


def test_a_cluster_that_is_too_small_is_refused():
    with pytest.raises(ConfigError, match=r"20 requests/s of llama3-70b need 2 servers, and there are 1: give"):
        plan_serving(DEMAND, size(Request(servers=1)))
    with pytest.raises(ConfigError, match=r"--rate must be above 0, got 0"):
        Demand(model="llama3-70b", rate=0)
    with pytest.raises(ConfigError, match="has no GPUs to serve a model"):
        count_servers(DEMAND, Request(servers=1, server="host"))


def test_a_plan_without_a_size_has_the_servers_that_the_model_needs():
    plan = weft.plan(serve=DEMAND)
    assert plan.size.report()["servers"] == 2
    assert plan.report()["serving"]["keeps_objective"]
    assert "--serve llama3-70b --rate 20" in command(plan)
    assert plan.serving is not None
    assert plan.serving.weights_gbyte == pytest.approx(141, rel=0.01)


def test_a_given_fabric_serves_too():
    fabric = size(REQUEST)
    plan = make_plan(size(REQUEST), demand=DEMAND)
    given = weft.plan(fabric.spec, serve=DEMAND)
    assert plan.serving is not None
    assert given.serving is not None
    assert given.serving.flows == plan.serving.flows
