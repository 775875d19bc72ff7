"""A model on GPUs: its layout, the formats of its numbers, and the memory that is left for the KV cache.

    deployment = find_deployment("llama3-70b", server="dgx-h100", tp=2, weights="fp8")
    deployment.kv_room_tokens                          # tokens that the KV cache of a replica holds

A replica has dp attention ranks, each cut over tp GPUs and pp stages. With dp > 1 the ranks share the experts, and
tokens travel to them (dispatch) and back (combine); with dp = 1 all GPUs of a replica have all tokens, and sums go
through an all-reduce. Experts are spread over ep GPUs, each cut over tp * dp / ep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, find_named
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.inference.engine import DEFAULT, Engine, find_engine
from weft.training.gpu import OPERAND_BYTES, Gpu
from weft.training.hugging_face import read_weights
from weft.training.memory import GB
from weft.training.parallel import Layout
from weft.training.site import Site, find_site
from weft.training.transformer import Transformer, find, is_path

WEIGHT_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125}  # with the scales of blocks
KV_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
IMBALANCE = 1.11  # TensorRT-LLM with its load balancer, 32 GPUs (tech blog 4): the busiest GPU above the mean
ACCEPTANCE = 0.85  # of a draft token: DeepSeek-V3's second token, 85 to 90 % (technical report, section 5.4.3)
_NARROW = ("fp8", "nvfp4")
_STATE_BYTES = 4  # an element of a state-space state


@dataclass(frozen=True, kw_only=True)
class _Replicas(Layout):
    """The groups of replicas that are one after the other, each with all of its stages.

    In training the GPUs of a stage are one after the other, with all copies.
    """

    replicas: int

    def ranks(self, kind: str) -> NDArray[np.int64]:
        if self.replicas == 1:
            return super().ranks(kind)
        gpus = self.gpus // self.replicas
        of_one = replace(self, replicas=1, gpus=gpus, global_batch=self.global_batch // self.replicas).ranks(kind)
        first = gpus * np.arange(self.replicas)
        return (first[:, np.newaxis, np.newaxis] + of_one).reshape(-1, of_one.shape[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Deployment:
    """A served model."""

    model: Transformer
    site: Site
    tp: int = 1
    pp: int = 1
    dp: int = 1  # attention ranks of a replica
    ep: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    dense_weights: str = ""  # of all but routed experts; "": bf16 beside experts in 4 bits, else as `weights`
    activations: str = ""  # "": as the weights if tensor cores multiply their format, else bf16
    engine: Engine
    graphs: bool = True
    overlap: bool = False  # two halves of a batch: one computes while the other communicates
    imbalance: float = IMBALANCE
    drafts: int = 0  # draft tokens of each request in a step
    acceptance: float = ACCEPTANCE
    max_batch: int = 0  # requests in a step of a replica at most; 0: as the engine
    max_tokens: int = 0  # tokens in a step of a replica at most; 0: as the engine

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ep"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} must be at least 1, got {getattr(self, name)}")
        find_named("--weights format", self.weights, WEIGHT_BYTES)
        find_named("--kv format", self.kv, KV_BYTES)
        if self.dense_weights:
            find_named("--dense-weights format", self.dense_weights, WEIGHT_BYTES)
            if not self.model.experts:
                raise ConfigError(f"--dense-weights changes nothing: {self.model.name} has no experts. Use --weights")
        if self.activations:
            self.gpu.peak_flop_s(self.activations)
        self._check_layout()
        for name, value, least in (
            ("--imbalance", self.imbalance, 1),
            ("--drafts", self.drafts, 0),
            ("--max-batch", self.max_batch, 0),
            ("--max-tokens", self.max_tokens, 0),
        ):
            if not least <= value < inf:
                raise ConfigError(f"{name} must be at least {least}, got {value:g}")
        if not 0 <= self.acceptance <= 1:
            raise ConfigError(f"--acceptance must be in [0, 1], got {self.acceptance:g}")
        if self.kv_bytes_of_gpu < self.kv_bytes_per_rank_token:
            raise ConfigError(self._too_large())

    def _check_layout(self) -> None:
        if self.site.gpus % self.replica_gpus:
            raise ConfigError(
                f"--tp × --pp × --dp = {self.tp}*{self.pp}*{self.dp} = {self.replica_gpus} must divide the "
                f"{self.site.gpus} GPUs"
            )
        if self.model.heads % self.tp:
            raise ConfigError(f"--tp {self.tp} does not divide the {self.model.heads} heads of {self.model.name}")
        if self.pp > self.model.layers:
            raise ConfigError(f"--pp {self.pp} is more than the {self.model.layers} layers of {self.model.name}")
        if not self.model.experts and (self.dp > 1 or self.ep > 1):
            raise ConfigError(f"--dp and --ep share experts, and {self.model.name} has none: give more --gpus")
        if (self.tp * self.dp) % self.ep:
            raise ConfigError(f"--ep {self.ep} must divide --tp × --dp = {self.tp * self.dp}")
        if self.model.experts and self.ep > self.model.experts:
            raise ConfigError(f"--ep {self.ep} is more than the {self.model.experts} experts of {self.model.name}")
        if self.overlap and self.dp == 1:
            raise ConfigError("--overlap hides dispatch and combine, which need --dp above 1: leave it out")

    def _too_large(self) -> str:
        need, has = self.weight_bytes + self.activation_bytes, self.gpu.entry.memory_gbyte
        return (
            f"{self.model.name} in {self.weights} does not fit: weights and activations take {need / GB:.1f} GB of "
            f"{has:g} GB on each GPU and leave no KV cache. Use a larger --tp, --pp or --ep, or smaller --weights"
        )

    @property
    def replica_gpus(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def replicas(self) -> int:
        return self.site.gpus // self.replica_gpus

    @cached_property
    def gpu(self) -> Gpu:
        return self.site.gpu.with_graphs() if self.graphs else self.site.gpu

    @property
    def dense_format(self) -> str:
        """Return the format of all matrices but those of routed experts.

        Checkpoints with experts in 4 bits (gpt-oss, DeepSeek and Kimi in NVFP4) keep the rest in 16.
        """
        if self.dense_weights:
            return self.dense_weights
        return "bf16" if self.model.experts and WEIGHT_BYTES[self.weights] < 1 else self.weights

    def precision_of(self, weights: str) -> str:
        """Return the format in which tensor cores multiply with weights of a format: the same if they can."""
        if self.activations:
            return self.activations
        peaks = self.gpu.entry.peak_tflop_s
        if weights == "mxfp4" and "nvfp4" in peaks:
            return "mxfp8"
        return weights if weights in peaks and weights in OPERAND_BYTES else "bf16"

    @property
    def precision(self) -> str:
        """Return the format in which tensor cores multiply, of experts if there are any."""
        return self.precision_of(self.weights)

    @property
    def batch_limit(self) -> int:
        """Return the requests of a replica in a step at most."""
        return self.max_batch or self.engine.max_batch * self.dp

    @property
    def token_limit(self) -> int:
        """Return the tokens of a replica in a step at most."""
        return self.max_tokens or self.engine.max_tokens * self.dp

    @property
    def tokens_per_decode(self) -> float:
        """Return the tokens that a request gets in a step: drafts count up to the first that is rejected."""
        return sum(self.acceptance**index for index in range(self.drafts + 1))

    @property
    def expert_tp(self) -> int:
        """Return the GPUs over which one expert is cut."""
        return self.tp * self.dp // self.ep

    @property
    def layout(self) -> Layout:
        """Return the groups of GPUs that communicate, of all replicas at once."""
        copies = self.site.gpus // (self.tp * self.pp)
        return _Replicas(
            replicas=self.replicas,
            gpus=self.site.gpus,
            tp=self.tp,
            pp=self.pp,
            ep=self.ep,
            etp=self.expert_tp,
            global_batch=copies,
            seq=self.tp,
            sequence_parallel=False,
        )

    # Memory.

    @cached_property
    def weight_bytes(self) -> float:
        """Return the bytes of the weights on one GPU: embedding, output and routers stay in 16 bits."""
        model, dense_bytes = self.model, WEIGHT_BYTES[self.dense_format]
        ends = (model.embedding_parameters + model.head_parameters) / self.tp * 2
        if self.pp > 1:
            ends /= 2
        held = 0.0
        for kind in model.kinds:
            held += dense_bytes * model.kind_parameters(kind, 0, self.tp)
            if "experts" in kind:
                experts = model.experts / self.ep / self.expert_tp * model.expert_parameters
                held += WEIGHT_BYTES[self.weights] * experts
        return ends + held / self.pp

    @cached_property
    def activation_bytes(self) -> float:
        """Return the bytes of activations of the largest step on one GPU, with logits."""
        model = self.model
        tokens, rows = self.token_limit / self.dp, self.batch_limit / self.dp
        inner = (2 if model.gated else 1) * max(model.ffn, model.topk * model.expert_ffn) / self.tp
        return 2 * tokens * (4 * model.hidden + 1.5 * inner) + 4 * rows * model.vocab / self.tp

    @cached_property
    def kv_bytes_of_gpu(self) -> float:
        """Return the memory of one GPU for the KV cache."""
        engine, total = self.engine, self.gpu.entry.memory_gbyte * GB
        used = self.weight_bytes + self.activation_bytes + engine.reserve_gbyte * GB
        return engine.memory * (total - used) if engine.free_only else engine.memory * total - used

    @cached_property
    def attention_layers(self) -> int:
        return sum("attention" in kind for kind in self.model.kinds)

    @property
    def kv_bytes_per_rank_token(self) -> float:
        """Return the bytes of a cached token on one GPU. A latent cache is not cut over tensor ranks."""
        model = self.model
        if model.kv_lora:
            width = model.kv_lora + model.rope_dim
        else:
            width = 2 * max(model.kv_heads // self.tp, 1) * model.head_dim
        return KV_BYTES[self.kv] * width * self.attention_layers / self.pp

    def cached_share(self, context: float) -> float:
        """Return the cached tokens of a sequence, in the mean of the layers, over its tokens: windows keep fewer."""
        model = self.model
        if not model.window or context <= model.window:
            return 1.0
        return model.full_share + (1 - model.full_share) * model.window / context

    @cached_property
    def state_bytes_of_gpu(self) -> float:
        """Return the bytes of the state-space states of a request on one GPU."""
        model = self.model
        layers = sum("mamba" in kind for kind in model.kinds)
        return _STATE_BYTES * layers * model.ssm_heads * model.ssm_head_dim * model.ssm_state / self.tp / self.pp

    @property
    def kv_bytes_per_token(self) -> float:
        """Return the bytes of a cached token over all GPUs that hold it."""
        return self.kv_bytes_per_rank_token * self.tp * self.pp

    @property
    def kv_room_tokens(self) -> int:
        """Return the tokens that the KV cache of a replica holds, if no window drops some."""
        return int(self.dp * self.kv_bytes_of_gpu / self.kv_bytes_per_rank_token)


def find_deployment(
    model: str | Transformer,
    fabric: str | Fabric | None = None,
    *,
    gpus: int | None = None,
    servers: str = "",
    server: str | None = None,
    network: str | None = None,
    paths: str | None = None,
    seed: int = 1,
    framework: str = DEFAULT,
    **fields: Any,
) -> Deployment:
    """Return a model on a fabric, as `find_site` finds it; `fields` are those of a Deployment.

    gpus: all of a fabric that is given as a spec; else those of one replica. More hold several replicas. The weights of
    a config.json have by default the format of its `quantization_config`.
    """
    transformer = find(model) if isinstance(model, str) else model
    if isinstance(model, str) and is_path(model) and "weights" not in fields:
        fields["weights"] = read_weights(Path(model)) or "bf16"
    for name in ("tp", "pp", "dp", "ep"):
        if fields.get(name, 1) < 1:
            raise ConfigError(f"--{name} must be at least 1, got {fields[name]}")
    is_catalog = fabric is None or (
        isinstance(fabric, str) and fabric in {each.name for each in catalog.interconnects()}
    )
    if gpus is None and not servers and is_catalog:
        gpus = fields.get("tp", 1) * fields.get("pp", 1) * fields.get("dp", 1)
    site = find_site(fabric, gpus=gpus, servers=servers, server=server, seed=seed, network=network, paths=paths)
    for flag in (f"--{name}" for name, value in (("network", network), ("paths", paths)) if value is not None):
        check_effect(flag, site, fields)
    engine = find_engine(framework)
    has_narrow_kv = engine.narrow_kv and fields.get("weights") in _NARROW
    formats = {"kv": "fp8" if has_narrow_kv else "bf16"}
    return Deployment(model=transformer, site=site, engine=engine, **formats | fields)


def check_effect(flag: str, site: Site, fields: Mapping[str, Any]) -> None:
    """Refuse an option of the network if no replica lies on several servers."""
    gpus = fields.get("tp", 1) * fields.get("pp", 1) * fields.get("dp", 1)
    if gpus <= site.template.gpus:
        raise ConfigError(f"{flag} changes nothing here: a replica of {gpus} GPUs sends nothing over the network")
