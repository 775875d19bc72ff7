"""Serve a language model on two hosts of a lab: one prefills prompts, one decodes answers, RDMA moves the KV cache.

    python examples/serve_model.py [nixl|mooncake|verbs]

The model is a small transformer in PyTorch, in Llama's form with random weights, on a GPU if there is one. The prefill
rank computes the keys and values of a prompt and writes them into the memory of the decode rank by NIXL or by
Mooncake's transfer engine, unmodified, or by verbs alone, over weft's adapter. In the middle a cable that the bytes use
is pulled. The program checks that all tokens are those of one process that does both, prints the KV bytes beside the
port counters that perfquery reads, and the times of these hand-offs that `weft infer` predicts on H100s and NDR
InfiniBand. With a GPU it also prints how many bytes were copied there, and how many through host memory.

Needs torch, and for NIXL and Mooncake the wheels of docs/verbs.md (`--no-deps nixl==1.5.1 nixl-cu13==1.5.1`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import weft.verbs.enums as e
from weft.verbs.gpudirect.cuda import in_use
from weft.verbs.pyverbs.addr import AHAttr
from weft.verbs.pyverbs.cq import CQ
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from weft.verbs.pyverbs.wr import SGE, SendWR

FABRIC, PREFILL, DECODE = "fat-tree:hosts=8,radix=4", "h1", "h8"
WEFT = shutil.which("weft") or str(Path(sys.executable).with_name("weft"))
REQUESTS, PROMPT_TOKENS, ANSWER_TOKENS = 12, 192, 24
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
}
HEAD = CONFIG["hidden_size"] // CONFIG["num_attention_heads"]
CACHE = (CONFIG["num_hidden_layers"], 2, CONFIG["max_position_embeddings"], CONFIG["num_key_value_heads"] * HEAD)
TOKEN_BYTES = 2 * CACHE[3]  # of one layer's keys or values, in bf16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model:
    """A transformer in Llama's form, with the same random weights in every process."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(1)
        width, narrow, inner = CONFIG["hidden_size"], CACHE[3], CONFIG["intermediate_size"]

        def weight(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, generator=generator) / columns**0.5).bfloat16().to(DEVICE)

        shapes = {"q": (width, width), "k": (narrow, width), "v": (narrow, width), "o": (width, width)}
        shapes |= {"gate": (inner, width), "up": (inner, width), "down": (width, inner)}
        self.layers = [{name: weight(*shape) for name, shape in shapes.items()} for _ in range(CACHE[0])]
        self.embedding = weight(CONFIG["vocab_size"], width) * 4

    @torch.inference_mode()
    def next_token(self, tokens: list[int], start: int, cache: Tensor) -> int:
        """Return the most likely token after `tokens`, the first of which has position `start`; extend the cache."""
        state, end = self.embedding[tokens], start + len(tokens)
        positions = torch.arange(start, end, device=DEVICE)
        visible = torch.arange(end, device=DEVICE) <= positions[:, None]
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            x = functional.rms_norm(state, state.shape[-1:])
            keys[start:end], values[start:end] = _rotate(x @ layer["k"].T, positions), x @ layer["v"].T
            query, key, value = (_heads(_rotate(x @ layer["q"].T, positions)), _heads(keys[:end]), _heads(values[:end]))
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible, enable_gqa=True)
            state = state + mixed[0].transpose(0, 1).flatten(1) @ layer["o"].T
            x = functional.rms_norm(state, state.shape[-1:])
            state = state + (functional.silu(x @ layer["gate"].T) * (x @ layer["up"].T)) @ layer["down"].T
        return int((functional.rms_norm(state[-1:], state.shape[-1:]) @ self.embedding.T).argmax())

    def decode(self, first: int, cache: Tensor) -> list[int]:
        """Return the answer whose first token the prefill has computed."""
        answer = [first]
        while len(answer) < ANSWER_TOKENS:
            answer.append(self.next_token(answer[-1:], PROMPT_TOKENS + len(answer) - 1, cache))
        return answer


def _heads(rows: Tensor) -> Tensor:
    """Return rows of [token, head x size] as [1, head, token, size]."""
    return rows.unflatten(1, (-1, HEAD)).transpose(0, 1)[None]


def _rotate(rows: Tensor, positions: Tensor) -> Tensor:
    """Rotate pairs of elements by angles that grow with the position."""
    angles = positions[:, None, None] * 10_000 ** (-torch.arange(HEAD // 2, device=DEVICE) / (HEAD // 2))
    left, right = rows.unflatten(1, (-1, 2, HEAD // 2)).float().unbind(2)
    turned = (left * angles.cos() - right * angles.sin(), left * angles.sin() + right * angles.cos())
    return torch.stack(turned, 2).flatten(1).to(rows.dtype)


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(CONFIG["vocab_size"], (REQUESTS, PROMPT_TOKENS), generator=generator).tolist()


class Nixl:
    """NIXL's agent over UCX's verbs transport."""

    memory = "VRAM" if DEVICE == "cuda" else "DRAM"

    def __init__(self, role: str, cache: Tensor) -> None:
        os.environ["NIXL_LOG_LEVEL"] = "WARN"
        transports = "rc_v,self,cuda_copy" if DEVICE == "cuda" else "rc_v,self"  # neither sockets nor shared memory
        os.environ |= {"UCX_TLS": transports, "UCX_NET_DEVICES": "mlx5_0:1"}
        from nixl import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
        self.agent.register_memory(self.agent.get_reg_descs([(cache.data_ptr(), cache.nbytes, 0, "")], self.memory))

    def address(self) -> Any:
        return self.agent.get_agent_metadata()

    def connect(self, address: Any) -> None:
        self.peer = self.agent.add_remote_agent(address)

    def write(self, sources: list[int], targets: list[int], size_bytes: int) -> None:
        ours, theirs = (
            self.agent.get_xfer_descs([(start, size_bytes, 0) for start in starts], self.memory)
            for starts in (sources, targets)
        )
        request = self.agent.initialize_xfer("WRITE", ours, theirs, self.peer)
        state = self.agent.transfer(request)
        while state == "PROC":
            time.sleep(1e-4)
            state = self.agent.check_xfer_state(request)
        assert state == "DONE", f"NIXL's transfer ended with {state}"
        self.agent.release_xfer_handle(request)


class Mooncake:
    """Mooncake's transfer engine over its RDMA transport."""

    def __init__(self, role: str, cache: Tensor) -> None:
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        assert self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
        assert self.engine.register_memory(cache.data_ptr(), cache.nbytes) == 0

    def address(self) -> Any:
        return f"127.0.0.1:{self.engine.get_rpc_port()}"

    def connect(self, address: Any) -> None:
        self.peer = address

    def write(self, sources: list[int], targets: list[int], size_bytes: int) -> None:
        status = self.engine.batch_transfer_sync_write(self.peer, sources, targets, [size_bytes] * len(sources))
        assert status == 0, f"Mooncake's transfer ended with {status}"


class Verbs:
    """A queue pair of libibverbs' Python interface, without an engine."""

    rights = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE

    def __init__(self, role: str, cache: Tensor) -> None:
        self.context = Context(name="mlx5_0")
        self.pd, self.cq = PD(self.context), CQ(self.context, 16)
        cap = QPCap(max_send_wr=16, max_recv_wr=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap))
        self.mr = MR(self.pd, 0, self.rights, address=cache)

    def address(self) -> Any:
        return self.context.query_port(1).lid, self.qp.qp_num, self.mr.rkey

    def connect(self, address: Any) -> None:
        attr, (lid, number, self.rkey) = QPAttr(port_num=1), address
        attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = self.rights, number, e.IBV_MTU_4096
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7  # 67 ms: a route may have to be found anew
        attr.ah_attr = AHAttr(dlid=lid, port_num=1)
        self.qp.to_rts(attr)

    def write(self, sources: list[int], targets: list[int], size_bytes: int) -> None:
        for source, target in zip(sources, targets, strict=True):
            part = [SGE(source, size_bytes, self.mr.lkey)]
            work = SendWR(num_sge=1, sg=part, opcode=e.IBV_WR_RDMA_WRITE, send_flags=e.IBV_SEND_SIGNALED)
            work.set_wr_rdma(self.rkey, target)
            self.qp.post_send(work)
        left = len(sources)
        while left:
            done = self.cq.poll(left)[1]
            assert all(each.status == e.IBV_WC_SUCCESS for each in done), [each.status for each in done]
            left -= len(done)


ENGINES = {"nixl": Nixl, "mooncake": Mooncake, "verbs": Verbs}


def starts(base: int) -> list[int]:
    """Return the addresses of each layer's keys and values in a cache."""
    return [base + row * CACHE[2] * TOKEN_BYTES for row in range(CACHE[0] * CACHE[1])]


def prefill(engine_name: str, router: Connection) -> None:
    """Compute the cache of each prompt, and write it into the memory of the decode rank."""
    model, cache = Model(), empty_cache()
    engine = ENGINES[engine_name]("prefill", cache)
    router.send(engine.address())
    address, far_base = router.recv()
    engine.connect(address)
    for prompt in iter(router.recv, None):
        first = model.next_token(prompt, 0, cache)
        begin_s = time.perf_counter()
        engine.write(starts(cache.data_ptr()), starts(far_base), PROMPT_TOKENS * TOKEN_BYTES)
        router.send((first, time.perf_counter() - begin_s))
    router.send(copied())


def decode(engine_name: str, router: Connection) -> None:
    """Compute the answer to each prompt from the cache that the prefill rank has written."""
    model, cache = Model(), empty_cache()
    engine = ENGINES[engine_name]("decode", cache)
    router.send((engine.address(), cache.data_ptr()))
    engine.connect(router.recv())
    for first in iter(router.recv, None):
        answer = model.decode(first, cache)
        clear(cache)  # the next answer can use no keys but those that arrive
        router.send(answer)
    router.send(copied())


def empty_cache() -> Tensor:
    """Return a cache of zeros, written when this returns: the adapter does not wait for kernels of a GPU."""
    cache = torch.empty(CACHE, dtype=torch.bfloat16, device=DEVICE)
    clear(cache)
    return cache


def clear(cache: Tensor) -> None:
    cache.zero_()
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def copied() -> Counter[str]:
    """Return the bytes that the GPU's driver has copied for weft, by direction: DtoD, HtoD, DtoH."""
    driver = in_use()
    return Counter(driver.copied_bytes if driver else {})


class Outcome(NamedTuple):
    """The answers, the time of each hand-off, the pulled cable, and the bytes that the GPU's driver has copied."""

    answers: list[list[int]]
    seconds: list[float]
    cable: str
    copied: Counter[str]


def serve(engine: str, folder: str) -> Outcome:
    """Run both ranks on hosts of the lab."""
    with Listener(f"{folder}/router") as router:
        ranks, hosts = [], {"prefill": PREFILL, "decode": DECODE}
        try:
            for role, host in hosts.items():
                words = [sys.executable, __file__, engine, role, router.address]
                ranks.append(subprocess.Popen([WEFT, "exec", "--lab", "serving", host, "--", *words]))
            connections = {(connection := router.accept()).recv(): connection for _ in ranks}
            return _route(connections["prefill"], connections["decode"])
        finally:
            for rank in ranks:
                rank.terminate()
                rank.wait()


def _route(prefill: Connection, decode: Connection) -> Outcome:
    """Pass each prompt to the prefill rank and its first token to the decode rank; pull a cable in the middle."""
    prefill_address, decode_address = prefill.recv(), decode.recv()
    prefill.send(decode_address)
    decode.send(prefill_address)
    answers, seconds, cable = [], [], ""
    for index, prompt in enumerate(prompts()):
        prefill.send(prompt)
        if index == REQUESTS // 2:
            cable = used_cable()
            weft("break", cable, "--lab", "serving")
        first, handoff_s = prefill.recv()
        seconds.append(handoff_s)
        decode.send(first)
        answers.append(decode.recv())
    for rank in (prefill, decode):
        rank.send(None)
    return Outcome(answers, seconds, cable, prefill.recv() + decode.recv())


def used_cable() -> str:
    """Return the port of the first leaf by which packets to the decode host leave, as ibtracert prints the route."""
    hops = diag("ibtracert", lid(PREFILL), lid(DECODE)).splitlines()
    leaf, port = re.search(r'"(\w+)"$', hops[1]), re.match(r"\[(\d+)\]", hops[2])
    if leaf is None or port is None:
        sys.exit(f"no route from {PREFILL} to {DECODE}: {hops}")
    return f"{leaf[1]}/{port[1]}"


def lid(host: str) -> str:
    return re.findall(r"Base lid: (\d+)", diag("ibstat", at=host))[0]


def sent_bytes(host: str) -> int:
    """Return the bytes that the port of a host has sent, as perfquery reads them."""
    counters = re.findall(r"PortXmitData:\.*(\d+)", diag("perfquery", "-x", at=host))
    return 4 * int(counters[0])


def diag(*words: str, at: str = PREFILL) -> str:
    return weft("diag", *words, "--lab", "serving", "--at", at)


def weft(*words: str) -> str:
    return subprocess.run([WEFT, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def predict_handoff_s(folder: str) -> float:
    """Return the mean time of these hand-offs on two H100s and NDR InfiniBand, as `weft infer` predicts it."""
    config, trace = Path(folder, "config.json"), Path(folder, "requests.csv")
    config.write_text(json.dumps(CONFIG))
    rows = [f"{index},{PROMPT_TOKENS},{ANSWER_TOKENS}" for index in range(REQUESTS)]
    trace.write_text("\n".join(["arrival_s,prompt,output", *rows]) + "\n")
    layout = ("--server", "dgx-h100", "--prefill", "1", "--decode", "1", "--request-trace", str(trace))
    return json.loads(weft("infer", str(config), *layout, "--json"))["breakdown_s"]["wire"]


def main(engine: str) -> None:
    if engine not in ENGINES:
        sys.exit(f"unknown engine {engine!r}: give {', '.join(ENGINES)}")
    with tempfile.TemporaryDirectory() as folder:
        weft("up", FABRIC, "--sm", "--name", "serving", "--daemon")
        try:
            before_bytes = sent_bytes(PREFILL)
            answers, seconds, cable, bytes_copied = serve(engine, folder)
            other_cable = used_cable()
            port_bytes = sent_bytes(PREFILL) - before_bytes
        finally:
            weft("down", "serving")
        predicted_s = predict_handoff_s(folder)
    model, cache = Model(), empty_cache()
    alone = [model.decode(model.next_token(prompt, 0, cache), cache) for prompt in prompts()]
    assert answers == alone, "the answers differ from those of one process"
    kv_bytes = REQUESTS * PROMPT_TOKENS * CACHE[0] * CACHE[1] * TOKEN_BYTES
    assert port_bytes > kv_bytes, "the KV cache did not cross the port"
    assert other_cable != cable, "the subnet manager still routes over the cut cable"
    cut_s = seconds.pop(REQUESTS // 2)
    print(f"{REQUESTS} answers of {ANSWER_TOKENS} tokens are bit-equal to those of one process")
    print(f"KV cache moved by {engine}: {kv_bytes:,} bytes; perfquery: the port of {PREFILL} sent {port_bytes:,}")
    if DEVICE == "cuda":
        through_host = bytes_copied["DtoH"] + bytes_copied["HtoD"]
        print(f"copies for weft: {bytes_copied['DtoD']:,} bytes on the GPU, {through_host:,} through host memory")
    median_ms, cut_ms = 1000 * statistics.median(seconds), 1000 * cut_s
    print(f"hand-off: {median_ms:.1f} ms in the median, {cut_ms:.1f} ms when {cable} was cut; then by {other_cable}")
    print(f"hand-off by weft infer on two H100s with NDR: {1000 * predicted_s:.2f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        with Client(sys.argv[3]) as connection:
            connection.send(sys.argv[2])
            {"prefill": prefill, "decode": decode}[sys.argv[2]](sys.argv[1], connection)
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "nixl")
