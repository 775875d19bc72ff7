"""Work of one GPU for one micro-batch in one layer: kernels, and collectives that it waits for.

                 norm  gather  qkv  attention  proj  scatter  add  norm  gather  up  act  down  scatter  add
    compute      ####          ###  #########  ####           ###  ####          ##  ###  ####           ###
    tp                 ======                        =======             ======                =======

With sequence parallel (Korthikanti et al.) the tensor group gathers before the first product of a block and scatters
sums after the last; without, it adds both ways with an all-reduce. Backward mirrors it, each product becomes two, and
the gathered input is gathered once more for the gradient of the weight. Where a framework overlaps a gather or a
scatter with the product beside it (`tp_comm_overlap`, Transformer Engine's userbuffers), the product is cut into as
many pieces as the group has ranks, and all but one piece hides communication.
"""

from __future__ import annotations

from functools import cached_property

from weft.collectives.kinds import Collective
from weft.training.communication import Communication
from weft.training.gpu import BF16_BYTES, Gpu
from weft.training.memory import layer_activations
from weft.training.parallel import NARROW, Layout
from weft.training.shares import has_adapter
from weft.training.transformer import Kind, Shapes, Transformer

FP32_BYTES = 4
SCAN_TOKENS = 2048
# Bytes of each element, forward and backward, that would take as long as the kernels around experts with biases: they
# took 2.08 and 2.66 ms (bias) and 1.41 and 2.87 ms (clamp) on an H200 with 65,536 rows of 2,880 and of 5,760 elements.
_BIAS_BYTES, _CLAMP_BYTES = (39, 50), (13, 27)
_FP8_SHARE = (1 + 4 / 128) / BF16_BYTES  # bytes of a token in FP8, with a scale of 4 bytes for 128 elements
_ACCUMULATE_BYTES = 2 * FP32_BYTES  # a gradient is read and written to add up micro-batches


class Time(dict[str, float]):
    """A dictionary from part to seconds; communication counts only as far as compute does not hide it."""

    @property
    def total_s(self) -> float:
        return sum(self.values())

    def add(self, part: str, seconds: float) -> None:
        self[part] = self.get(part, 0.0) + seconds

    def add_all(self, other: Time, times: float = 1) -> None:
        for part, seconds in other.items():
            self.add(part, times * seconds)


class Layers:
    """A model of the times of layers, embedding and output on one GPU of a layout."""

    def __init__(self, transformer: Transformer, layout: Layout, gpu: Gpu, over: Communication) -> None:
        self.transformer, self.layout, self.gpu, self.over = transformer, layout, gpu, over
        self._activation_bytes = layout.tokens * transformer.hidden * BF16_BYTES
        self._cut = layout.tp if layout.cuts_sequence else 1
        self._passes: dict[tuple[Kind, bool, bool], tuple[Time, Time]] = {}
        passes = gpu.software.passes
        self._unfused = passes.gated if transformer.gated else passes.plain

    # -- a layer ------------------------------------------------------------------------------------------------------

    def forward(self, kind: Kind) -> Time:
        time = Time()
        self._blocks(time, kind, backward=False)
        return self._launched(self._behind_another(time), kind, 1 / 3)

    def backward(self, kind: Kind, *, recomputed: bool = False) -> Time:
        """Return the time of a backward pass, with recomputation: of the whole layer, or of modules of the layout."""
        time = self.forward(kind) if recomputed else Time()
        self._blocks(time, kind, backward=True)
        self._recompute(time, kind)
        return self._launched(self._behind_another(time), kind, 2 / 3)

    def passes(self, kind: Kind, recomputed: bool, offloaded: bool) -> tuple[Time, Time]:
        """Return forward and backward of a layer."""
        key = kind, recomputed, offloaded
        if key not in self._passes:
            times = self.forward(kind), self.backward(kind, recomputed=recomputed)
            for time in times if offloaded else ():
                self._wait_for_copies(time, kind)
            self._passes[key] = times
        return self._passes[key]

    def _wait_for_copies(self, time: Time, kind: Kind) -> None:
        """Add the time that a pass waits for the activations of its layer, which go to the host or come back."""
        moved = layer_activations(self.layout, self.transformer, kind)
        time.add("offload", max(0.0, self.gpu.host_copy_s(moved) - time.total_s))

    def _blocks(self, time: Time, kind: Kind, *, backward: bool) -> None:
        for block in kind:
            self._norm_and_residual(time, backward)
            if block == "attention":
                self._attention_block(time, backward=backward)
            elif block == "mlp":
                self._gated(time, self.transformer.dense_matrices(self.layout.tp), backward)
            elif block == "experts":
                self._experts(time, backward)
            else:
                self._mamba(time, backward)

    def _recompute(self, time: Time, kind: Kind) -> None:
        """Add the forward passes of modules that are recomputed; whole layers are in `backward`."""
        again, transformer = self.layout.recomputed, self.transformer
        if "core_attn" in again and "attention" in kind:
            self._attention(time, backward=False)
        if "mla_up_proj" in again and "attention" in kind:
            matrices = transformer.attention_matrices(self.layout.tp)
            self._linear(time, {name: matrices[name] for name in matrices if name.endswith("_up")}, False)
        if "layernorm" in again:
            self._pass(time, len(kind) * 2 * transformer.hidden / self._cut, backward=False)
        if "mlp" in again and "mlp" in kind:
            self._gated(time, transformer.dense_matrices(self.layout.tp), backward=False)
        if "moe" in again and "experts" in kind:
            self._experts(time, backward=False)
        elif "moe_act" in again and "experts" in kind:
            width = (3 if transformer.gated else 2) * transformer.expert_ffn / self.layout.expert_tp
            self._pass(time, width * transformer.topk * self.layout.expert_tp / self._cut, backward=False)

    def _launched(self, time: Time, kind: Kind, share: float) -> Time:
        """Add the time in which the GPU waits for the host: always some, or for kernels of a layer with experts."""
        layout, host = self.layout, self.gpu.software.host
        if host.sync_ms:
            time.add("host", 1e-3 * share * host.sync_ms)
        if "experts" not in kind:
            return time
        absent = {} if "attention" in kind else {"attn"}
        spared = sum(share for scope, share in host.graphs.items() if scope in {*layout.graphs, *absent})
        taken_ms = host.layer_ms + host.expert_ms * (self.transformer.experts // layout.ep)
        taken_ms *= max(0.0, 1 - spared)
        host_s = 1e-3 * share * taken_ms * (host.overlapped if layout.overlap_moe else 1)
        time.add("memory", host.small * 1e-3 * share * taken_ms)
        if host_s > time.total_s:
            time.add("host", host_s - time.total_s)
        return time

    def _behind_another(self, time: Time) -> Time:
        """Hide the exchange of experts behind the compute of another micro-batch."""
        if self.layout.overlap_moe and "ep" in time:
            time["ep"] = max(0.0, 2 * time["ep"] - time.total_s)
        return time

    def _attention_block(self, time: Time, *, backward: bool) -> None:
        matrices = self.transformer.attention_matrices(self.layout.tp)
        *first, last = matrices
        self._linear(time, {name: matrices[name] for name in first}, backward, gathers=True)
        self._pass(time, matrices["proj"][0] * 2, backward)  # positions, or a transpose
        self._attention(time, backward=backward)
        self._linear(time, {last: matrices[last]}, backward, gathers=False)

    def _gated(self, time: Time, matrices: Shapes, backward: bool) -> None:
        self._linear(time, {"up": matrices["up"]}, backward, gathers=True)
        self._pass(time, matrices["up"][1] + matrices["down"][0], backward)
        self._linear(time, {"down": matrices["down"]}, backward, gathers=False)

    def _norm_and_residual(self, time: Time, backward: bool) -> None:
        """Add a norm, which reads and writes, and an addition with dropout or bias, which reads two and writes one."""
        self._pass(time, 5 * self.transformer.hidden / self._cut, backward)

    def _pass(self, time: Time, elements_per_token: float, backward: bool) -> None:
        """Add a pass over activations. Backward reads the inputs of forward, and the gradient."""
        moved = self.layout.tokens * elements_per_token * BF16_BYTES * (1.5 if backward else 1)
        time.add("memory", self.gpu.pass_s(moved * self._unfused))

    def _linear(self, time: Time, matrices: Shapes, backward: bool, *, gathers: bool | None = None) -> None:
        """Add matrix products, and the tensor-parallel collective before the first or after the last of them."""
        products_s = 0.0
        for name, (inputs, outputs) in matrices.items():
            products_s += self._product_s(self.layout.tokens, inputs, outputs, backward)
            if has_adapter(self.layout, name):
                self._adapter(time, self.layout.tokens, inputs, outputs, backward)
        time.add("products", products_s)
        if gathers is not None:
            self._tensor_collective(time, products_s, gathers=gathers, backward=backward)

    def _adapter(self, time: Time, rows: int, inputs: int, outputs: int, backward: bool) -> None:
        """Add the two thin products of a LoRA adapter, in 16 bits, and the passes of dropout, scale and sum."""
        rank, gpu = self.layout.lora, self.gpu
        thin_s = gpu.matmul_s(rows, rank, inputs, "bf16") + gpu.matmul_s(rows, outputs, rank, "bf16")
        if backward:
            thin_s += gpu.matmul_s(rows, inputs, rank, "bf16") + gpu.matmul_s(rows, rank, outputs, "bf16")
        time.add("products", thin_s)
        self._pass(time, (2 * inputs + 3 * outputs) * rows / self.layout.tokens, backward)

    def _product_s(self, rows: int, inputs: int, outputs: int, backward: bool, count: int = 1) -> float:
        gpu, precision = self.gpu, self.layout.precision
        grouped = count > 1
        casts_s = gpu.fp8_cast_s(count * rows * (outputs if backward else inputs)) if precision in NARROW else 0.0
        if not backward:
            return casts_s + gpu.matmul_s(rows, outputs, inputs, precision, count, grouped=grouped)
        into_input_s = gpu.matmul_s(rows, inputs, outputs, precision, count, grouped=grouped)
        if self.layout.lora:  # frozen
            return casts_s + into_input_s
        into_gradient_s = gpu.matmul_s(
            outputs, inputs, rows, precision, count, result_bytes=_ACCUMULATE_BYTES, grouped=grouped
        )
        return casts_s + into_input_s + into_gradient_s

    def _tensor_collective(self, time: Time, products_s: float, *, gathers: bool, backward: bool) -> None:
        layout, size = self.layout, self._activation_bytes
        if layout.tp == 1:
            return
        if not layout.cuts_sequence:
            if gathers == backward:  # forward adds after the last product, backward before the first
                time.add("tp", self.over.time_s("tp", Collective.ALL_REDUCE, size))
            return
        hidden_s = products_s * (layout.tp - 1) / layout.tp if layout.tp_comm_overlap else 0.0
        kind = Collective.ALL_GATHER if gathers != backward else Collective.REDUCE_SCATTER
        seconds = self.over.time_s("tp", kind, size)
        rest = seconds / layout.tp if layout.tp_comm_overlap else 0.0  # the last piece has no product beside it
        time.add("tp", max(seconds - hidden_s, rest))
        if backward and gathers:  # the input once more, beside the gradient of that input
            again_s = self.over.time_s("tp", Collective.ALL_GATHER, size)
            time.add("tp", max(0.0, again_s - products_s / 2))

    # -- attention ----------------------------------------------------------------------------------------------------

    def _attention(self, time: Time, *, backward: bool) -> None:
        """Add attention. With context parallel, keys and values go round a ring while others are computed."""
        layout, transformer = self.layout, self.transformer
        kv_heads, tokens = max(1, transformer.kv_heads // layout.tp), layout.seq // layout.cp
        whole = self._attention_s(tokens, tokens, causal=True, backward=backward)
        if transformer.window and transformer.window < layout.seq:
            whole += (1 - transformer.full_share) * (self._windowed_s(tokens, backward) - whole)
        time.add("attention", whole)
        if layout.cp == 1:
            return
        half = self._attention_s(tokens, tokens // 2, causal=False, backward=backward)
        if transformer.window and transformer.window < tokens:
            half *= transformer.full_share
        moved = layout.micro_batch * tokens * kv_heads * (transformer.qk_dim + transformer.v_dim) * BF16_BYTES
        round_s = self.over.time_s("cp", Collective.SEND_RECV, moved * (2 if backward else 1))
        time.add("attention", (layout.cp - 1) * half)
        time.add("cp", (layout.cp - 1) * max(0.0, round_s - half))

    def _attention_s(self, queries: int, keys: int, *, causal: bool, backward: bool, window: int = 0) -> float:
        transformer, layout = self.transformer, self.layout
        return self.gpu.attention_s(
            batch=layout.micro_batch,
            heads=transformer.heads // layout.tp,
            kv_heads=max(1, transformer.kv_heads // layout.tp),
            queries=queries,
            keys=keys,
            head_dim=(transformer.qk_dim + transformer.v_dim) // 2,
            causal=causal,
            backward=backward,
            fused=layout.fused_attention,
            window=window,
            kernel=layout.attention,
        )

    def _windowed_s(self, tokens: int, backward: bool) -> float:
        """Return the time of attention that sees a window: one that slides, or chunks of the sequence one by one."""
        window = self.transformer.window
        if not self.transformer.chunked or tokens <= window:
            return self._attention_s(tokens, tokens, causal=True, backward=backward, window=window)
        return tokens / window * self._attention_s(window, window, causal=True, backward=backward)

    # -- Mamba-2 ------------------------------------------------------------------------------------------------------

    def _mamba(self, time: Time, backward: bool) -> None:
        """Add a Mamba-2 block: a convolution, the scan, a gate with a norm.

        The scan takes as long as causal FlashAttention-2 of the same width over 2,048 tokens, for any length and size
        of the state (Dao and Gu, Transformers are SSMs, 2024, figure 10: they cross there).
        """
        transformer, layout = self.transformer, self.layout
        matrices = transformer.mamba_matrices(layout.tp)
        inner, outputs = matrices["out"][0], matrices["in"][1]
        self._linear(time, {"in": matrices["in"]}, backward, gathers=True)
        self._pass(time, 2 * (outputs - inner), backward)
        scan_s = self.gpu.attention_s(
            batch=1,
            heads=transformer.ssm_heads // layout.tp,
            kv_heads=max(1, transformer.ssm_groups // layout.tp),
            queries=SCAN_TOKENS,
            keys=SCAN_TOKENS,
            head_dim=transformer.ssm_head_dim,
            causal=True,
            backward=backward,
            fused=True,
            kernel="fa2",
        )
        time.add("attention", scan_s * layout.tokens / SCAN_TOKENS)
        self._pass(time, 3 * inner, backward)
        self._linear(time, {"out": matrices["out"]}, backward, gathers=False)

    # -- experts ------------------------------------------------------------------------------------------------------

    def _experts(self, time: Time, backward: bool) -> None:
        """Add the experts: tokens go to the GPUs of their experts and come back. The busiest GPU counts."""
        layout, transformer = self.layout, self.transformer
        own = layout.tokens / self._cut  # tokens that this GPU sends
        routed = own * transformer.topk * layout.imbalance
        sent_bytes = routed * transformer.hidden * BF16_BYTES
        kind, exchanged_bytes = self._exchange(sent_bytes)
        time.add("products", self._product_s(round(own), transformer.hidden, transformer.experts, backward))
        # Sorted by expert; for an all-to-all before by GPU; copied for FP8, which multiplies whole groups of rows.
        sorts = 1 + (layout.dispatcher != "deepep" and 1 < layout.ep < transformer.experts)
        sorts += layout.precision in NARROW
        # To the experts and back (backward: gradients to them and back): sorted, sent, gathered in their tensor group.
        for share in (_FP8_SHARE if layout.fp8_dispatch else 1.0, 1.0):
            self._pass(time, sorts * 2 * transformer.hidden * transformer.topk / self._cut, backward)
            time.add("ep", self.over.time_s("ep", kind, share * exchanged_bytes))
        if layout.expert_tp > 1:
            gathered = sent_bytes * layout.expert_tp
            for kind in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER):
                time.add("ep", self.over.time_s("etp", kind, gathered))
        local = transformer.experts // layout.ep
        rows = max(1, round(routed * layout.expert_tp / local))
        matrices = transformer.expert_matrices(layout.expert_tp)
        for name, (inputs, outputs) in matrices.items():
            time.add("products", self._product_s(rows, inputs, outputs, backward, local))
            if has_adapter(layout, name):
                self._adapter(time, rows * local, inputs, outputs, backward)
        width = matrices["up"][1] + matrices["down"][0]
        self._pass(time, width * routed * layout.expert_tp / layout.tokens, backward)
        if transformer.expert_bias:
            self._biases(time, routed, matrices["up"][1], backward)
        if transformer.shared_experts:
            self._gated(time, transformer.shared_matrices(layout.tp), backward)

    def _biases(self, time: Time, rows: float, width: int, backward: bool) -> None:
        """Add the kernels around experts with biases, which Megatron Core 0.16 does not fuse.

        The bias of the second product, weighted in fp32, is added in fp32 and the sum is cast; the two halves of the
        activation function's input are clamped and joined again. Backward does each in reverse, and sums gradients of
        biases and weights.
        """
        again = "moe_act" in self.layout.recomputed
        bias, clamp = _BIAS_BYTES[backward], _CLAMP_BYTES[backward] + _CLAMP_BYTES[0] * (again and backward)
        time.add("memory", self.gpu.pass_s(rows * (bias * self.transformer.hidden + clamp * width)))

    def _exchange(self, sent_bytes: float) -> tuple[Collective, float]:
        """Return the collective that brings tokens to their experts, and its bytes.

        DeepEP and HybridEP send a token once to each server, or GPU of one server, that has experts of it; an
        all-to-all once to each expert; an all-gather brings all tokens to all GPUs of the group.
        """
        topk, places = self.transformer.topk, self.over.places("ep")
        if self.layout.dispatcher == "allgather":
            return Collective.ALL_GATHER, sent_bytes / topk * self.layout.ep
        if self.layout.dispatcher == "alltoall":
            return Collective.ALL_TO_ALL, sent_bytes
        return Collective.ALL_TO_ALL, sent_bytes / topk * places * (1 - (1 - 1 / places) ** topk)

    # -- ends ---------------------------------------------------------------------------------------------------------

    @cached_property
    def embedding(self) -> tuple[Time, Time]:
        """Return forward and backward of the input: a look-up, then the sum over the tensor group."""
        times = []
        for backward in (False, True):
            time = Time()
            self._pass(time, 2 * self.transformer.hidden, backward)
            if self.layout.cuts_sequence:
                kind = Collective.ALL_GATHER if backward else Collective.REDUCE_SCATTER
                time.add("tp", self.over.time_s("tp", kind, self._activation_bytes))
            elif not backward:
                time.add("tp", self.over.time_s("tp", Collective.ALL_REDUCE, self._activation_bytes))
            times.append(time)
        return times[0], times[1]

    @cached_property
    def mtp(self) -> tuple[Time, Time]:
        """Return forward and backward of a module of multi-token prediction, without its output.

        A product joins the result of the last layer with the embedding of the next token, and a layer follows.
        """
        hidden = self.transformer.hidden
        times = []
        for backward, layer in zip((False, True), self.passes(self.transformer.kinds[-1], False, False), strict=True):
            time = Time(layer)
            self._pass(time, 2 * 2 * hidden, backward)
            self._linear(time, {"mtp": (2 * hidden, hidden // self.layout.tp)}, backward, gathers=True)
            times.append(time)
        return times[0], times[1]

    @cached_property
    def head(self) -> tuple[Time, Time]:
        """Return forward and backward of the output: norm, product with the vocabulary, softmax in fp32."""
        words = self.transformer.vocab / self.layout.tp
        times = []
        for backward in (False, True):
            time = Time()
            self._pass(time, 2 * self.transformer.hidden / self._cut, backward)
            # Never in fp8: recipes keep embeddings and the output in 16 bits.
            rows, inputs, outputs = self.layout.tokens, self.transformer.hidden, round(words)
            product_s = self.gpu.matmul_s(rows, outputs, inputs, "bf16")
            if backward and not self.layout.lora:
                product_s += self.gpu.matmul_s(outputs, inputs, rows, "bf16", result_bytes=_ACCUMULATE_BYTES)
            time.add("products", product_s)
            # In 16 bits from the product, in fp32 to the largest, to the sum, and to the gradient.
            passes = (BF16_BYTES + 2 * FP32_BYTES) if backward else (BF16_BYTES + 4 * FP32_BYTES)
            time.add("memory", self.gpu.pass_s(self.layout.tokens * words * passes))
            self._tensor_collective(time, product_s, gathers=True, backward=backward)
            times.append(time)
        return times[0], times[1]
