"""A served model: the time of an engine step, and latencies of requests.

deployment   a model on GPUs: layout, number formats, memory for the KV cache
engine       the software: vLLM, SGLang, TensorRT-LLM
step         the time of a step by its kernels and collectives
load         throughput and latency in closed form
prediction   runs on one fabric or several; the Pareto curve
table        step times by number of tokens; `tabulate` fills it
serving      requests one by one: load, replicas, hand-offs, latencies

Predict a closed loop of 64 users:

    from weft.inference.deployment import find_deployment
    from weft.inference.load import Load
    from weft.inference.prediction import infer

    run = infer(find_deployment("llama3-70b", server="dgx-h100", tp=8), Load(input=1024, output=128, concurrency=64))
    print(run.tokens_per_s_per_gpu, run.served.ttft_s, run.served.tpot_s, run.bottleneck)
"""

__all__ = ["deployment", "engine", "load", "prediction", "serving", "step", "table", "tabulate"]
