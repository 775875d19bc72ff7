"""Dispatch and combine of mixture-of-experts layers by fused kernels: DeepEP, MORI, TensorRT-LLM.

bench        a layer on a fabric, for several numbers of tokens
band         bands around times
calibration  published times beside the model
estimate     the times of dispatch and combine
kernels      kernels and their constants
routing      the copies of a token that a layer needs

Predict both calls of a layer on 32 GPUs:

    from weft.collectives.experts.estimate import estimate_experts
    from weft.collectives.experts.routing import Layer
    from weft.collectives.nccl.cluster import from_server

    times = estimate_experts(from_server("dgx-h100", nodes=4), Layer(tokens=4096), kernel="deepep")
    print(times.dispatch.time_us, times.combine.time_us, times.dispatch.bound)

`estimate_experts` takes the networks that `weft.collectives.nccl.measure` gives for a fabric; without them it assumes
an ideal InfiniBand network. `weft.collectives.experts.bench.run` does both for the ranks of a job.
"""

__all__ = ["band", "bench", "calibration", "estimate", "kernels", "routing"]
