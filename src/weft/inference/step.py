"""The time of one engine step: its kernels, the collectives that they wait for, and the host's work.

             norm  qkv  attention  proj  all-reduce   norm  up  act  down  all-reduce
    tp       ####  ###  #########  ####  ==========   ####  ##  ###  ####  ==========

             norm  qkv  attention  proj   norm  router  dispatch  experts  combine
    dp, ep   ####  ###  #########  ####   ####  ######  ========  #######  =======

A product takes the longer of its multiplications and of reading its matrices (`weft.training.gpu`): at few tokens the
weights. A layer with experts reads those that the tokens of the step are routed to, E (1 - (1 - k/E)^T) of E. With a
pipeline, pp micro-batches are at work in pp stages, each with 1/pp of the tokens; a step is one turn of all.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from weft.inference.communication import Exchange
from weft.inference.deployment import WEIGHT_BYTES, Deployment
from weft.training.framework import find_kernel
from weft.training.gpu import BF16_BYTES, OPERAND_BYTES
from weft.training.layers import Time
from weft.training.transformer import Kind, Shapes

PARTS = {
    "products": "matrix products, limited by tensor cores",
    "weights": "matrix products, limited by reading weights",
    "experts": "products of experts",
    "attention": "attention of prefilled tokens",
    "kv": "attention of decoding requests: reading the KV cache",
    "memory": "norms, activations, sampling: passes over memory",
    "all_reduce": "all-reduces of tensor parallel",
    "dispatch": "tokens to their experts",
    "combine": "tokens back from their experts",
    "send": "activations between stages of the pipeline",
    "launch": "starts of attention kernels, the host's work in a step",
}
_FP32_BYTES = 4
_LOGIT_PASSES = 3  # over the logits: to fp32, the largest or the sum, the choice
_SMS_OF_EXCHANGE = 20  # SMs of DeepEP's kernels, which products lack while both run


class Step:
    """A model of the steps of a deployment."""

    def __init__(self, deployment: Deployment, exchange: Exchange | None = None) -> None:
        self.deployment, self.exchange = deployment, exchange or Exchange(deployment)
        self._gpu, self._kinds = deployment.gpu, Counter(deployment.model.kinds)

    def parts(self, tokens: float, sequences: float) -> Time:
        """Return the parts of a step without attention, of so many tokens of a replica.

        sequences: requests that get a token in it.
        """
        deployment = self.deployment
        micro, rows = tokens / deployment.pp, sequences / deployment.pp
        time = self._layers(micro)
        if deployment.overlap and self._layers_overlapped(micro).total_s < time.total_s:
            time = self._layers_overlapped(micro)
        self._head(time, rows / deployment.dp)
        if deployment.pp > 1:
            time.add("send", deployment.pp * self.exchange.send_s(micro / deployment.dp))
        self._host(time, tokens, sequences)
        return time

    def _layers(self, micro: float) -> Time:
        time = Time()
        for kind, count in self._kinds.items():
            time.add_all(self._layer(kind, micro), count)
        return time

    def _layers_overlapped(self, micro: float) -> Time:
        """Return the time of two halves of a batch that take turns to compute and to communicate."""
        half, sms = self._layers(micro / 2), self._gpu.entry.sms
        exchanged = {part: half.get(part, 0.0) for part in ("dispatch", "combine")}
        exchange_s = sum(exchanged.values())
        compute_s = half.total_s - exchange_s
        slowed = min(exchange_s, compute_s) / compute_s * (sms / (sms - _SMS_OF_EXCHANGE) - 1)
        time = Time()
        for part, seconds in half.items():
            if part in exchanged:
                hidden = min(1.0, compute_s * (1 + slowed) / exchange_s) if exchange_s else 0.0
                time.add(part, 2 * seconds * (1 - hidden))
            else:
                time.add(part, 2 * seconds * (1 + slowed))
        return time

    def _layer(self, kind: Kind, micro: float) -> Time:
        deployment, model = self.deployment, self.deployment.model
        tokens, time = micro / deployment.dp, Time()
        for block in kind:
            self._pass(time, tokens * model.hidden * (3 * BF16_BYTES + self._operand_bytes))
            if block == "attention":
                self._products(time, tokens, model.attention_matrices(deployment.tp))
                time.add("launch", 1e-6 * deployment.engine.attention_us)
            elif block == "mamba":
                self._products(time, tokens, model.mamba_matrices(deployment.tp))
                inner = model.ssm_heads * model.ssm_head_dim / deployment.tp
                self._pass(time, tokens * 4 * inner * BF16_BYTES)
            elif block == "mlp":
                self._feed_forward(time, tokens, model.dense_matrices(deployment.tp))
            else:
                self._experts(time, micro)
            if deployment.tp > 1 and not (block == "experts" and deployment.dp > 1):
                time.add("all_reduce", self.exchange.all_reduce_s(tokens * model.hidden * BF16_BYTES))
        return time

    def _feed_forward(self, time: Time, tokens: float, shapes: Shapes) -> None:
        self._products(time, tokens, shapes)
        self._pass(time, tokens * (shapes["up"][1] * BF16_BYTES + shapes["down"][0] * self._operand_bytes))

    def _experts(self, time: Time, micro: float) -> None:
        """Add the router, dispatch and combine, and the products of the experts that the tokens touch."""
        deployment, model = self.deployment, self.deployment.model
        tokens = micro / deployment.dp
        router_s = self._gpu.matmul_s(_rows(tokens), model.experts, model.hidden, "bf16")
        time.add("products" if tokens > model.experts else "weights", router_s)
        self._pass(time, tokens * model.experts * _FP32_BYTES)
        if model.shared_experts:
            self._feed_forward(time, tokens, model.shared_matrices(deployment.tp))
        if deployment.dp > 1:
            dispatch_s, combine_s = self.exchange.experts_s(tokens / deployment.tp)
            time.add("dispatch", dispatch_s)
            time.add("combine", combine_s)
        touched = self.touched_experts(micro)
        imbalance = deployment.imbalance if deployment.ep > 1 else 1.0
        rows = imbalance * micro * model.topk / deployment.ep
        moved = rows * model.hidden * (OPERAND_BYTES[deployment.precision] + BF16_BYTES)
        self._pass(time, 2 * moved)  # to the order of the experts, and back
        shapes = model.expert_matrices(deployment.expert_tp)
        for inputs, outputs in shapes.values():
            product_s = self._gpu.matmul_s(
                _rows(rows / touched),
                outputs,
                inputs,
                deployment.precision,
                _rows(touched),
                weight_bytes=WEIGHT_BYTES[deployment.weights],
                exponent=deployment.engine.exponent,
                rate=self._expert_rate(min(inputs, outputs)),
            )
            time.add("experts", product_s)
        operand_bytes = OPERAND_BYTES[deployment.precision]
        self._pass(time, rows * (shapes["up"][1] * BF16_BYTES + shapes["down"][0] * operand_bytes))

    def touched_experts(self, micro: float) -> float:
        """Return the expected experts of one GPU that at least one of so many tokens is routed to."""
        model = self.deployment.model
        share: float = 1 - (1 - model.topk / model.experts) ** max(micro, 1.0)
        return max(1.0, model.experts / self.deployment.ep * share)

    def _products(self, time: Time, tokens: float, shapes: Shapes) -> None:
        deployment = self.deployment
        for inputs, outputs in shapes.values():
            self._product(time, tokens, outputs, inputs, self._precision, WEIGHT_BYTES[deployment.dense_format])

    def _product(
        self, time: Time, tokens: float, outputs: int, inputs: int, precision: str, weight_bytes: float
    ) -> None:
        exponent = self.deployment.engine.exponent
        seconds = self._gpu.matmul_s(
            _rows(tokens), outputs, inputs, precision, weight_bytes=weight_bytes, exponent=exponent
        )
        read_s = weight_bytes * outputs * inputs / self._gpu.memory_byte_s
        time.add("weights" if seconds < 2 * read_s else "products", seconds)

    def _pass(self, time: Time, moved_bytes: float) -> None:
        time.add("memory", self._gpu.pass_s(moved_bytes))

    def _head(self, time: Time, rows: float) -> None:
        """Add the output embedding and the choice of a token, for each request that gets one."""
        deployment, model = self.deployment, self.deployment.model
        words = model.vocab // deployment.tp
        self._product(time, rows, words, model.hidden, "bf16", BF16_BYTES)
        self._pass(time, rows * words * _FP32_BYTES * _LOGIT_PASSES)
        if deployment.tp > 1:
            time.add("all_reduce", self.exchange.gather_s(rows * model.vocab * BF16_BYTES))
        # States of linear attention are read and written once for each request.
        time.add("kv", deployment.pp * self._gpu.pass_s(2 * rows * deployment.state_bytes_of_gpu))

    def _host(self, time: Time, tokens: float, sequences: float) -> None:
        """Add the host's work; without graphs its launches, as far as they take longer than the kernels."""
        engine, deployment = self.deployment.engine, self.deployment
        time.add("launch", 1e-6 * (engine.step_us + engine.sequence_us * sequences / deployment.dp))
        if not deployment.graphs:
            launched_s = 1e-6 * engine.eager_us * engine.kernels * deployment.model.layers
            time.add("launch", max(0.0, launched_s - time.total_s))

    def _expert_rate(self, width: int) -> float:
        """Return the rate of multiplying with experts of a width, relative to that of wide matrices."""
        gpu, precision = self._gpu, self.deployment.precision
        share = gpu.entry.sustained * gpu.software.product_share(gpu.entry.sm, precision)
        return width / (width + self.deployment.engine.grouped * share * gpu.peak_flop_s(precision) / 1e15)

    @cached_property
    def _precision(self) -> str:
        return self.deployment.precision_of(self.deployment.dense_format)

    @property
    def _operand_bytes(self) -> float:
        return OPERAND_BYTES[self._precision]

    # Attention.

    @cached_property
    def attention_s_per_pair(self) -> float:
        """Return the time of a replica for a pair of a prefilled token and a token before it, in all layers."""
        deployment, model = self.deployment, self.deployment.model
        share = find_kernel(self._gpu.software.attention).share(self._gpu.entry.sm, backward=False)
        flop = 2 * model.heads * (model.qk_dim + model.v_dim) * deployment.attention_layers
        return flop / (share * self._gpu.peak_flop_s("bf16")) / deployment.replica_gpus

    @cached_property
    def kv_s_per_token(self) -> float:
        """Return the time of a replica for a cached token of a decoding request, in all layers.

        Latent attention multiplies with the cache itself, so that tensor cores may take longer than the memory.
        """
        deployment, model = self.deployment, self.deployment.model
        read_s = deployment.kv_bytes_per_rank_token / (deployment.engine.kv_share * self._gpu.memory_byte_s)
        read_s /= deployment.dp
        if not model.kv_lora:
            if deployment.engine.shares_kv:
                return read_s
            return read_s * (model.heads // deployment.tp // max(model.kv_heads // deployment.tp, 1))
        share = find_kernel(self._gpu.software.attention).share(self._gpu.entry.sm, backward=False)
        queries = model.heads / deployment.tp * (1 + deployment.drafts)
        flop = 2 * queries * (2 * model.kv_lora + model.rope_dim) * deployment.attention_layers / deployment.pp
        return max(read_s, flop / (share * self._gpu.peak_flop_s("bf16")) / deployment.dp)


def _rows(count: float) -> int:
    return max(1, round(count))
