"""Requests served in time: load, batches, KV room, hand-offs between replicas, and latencies.

load           when requests arrive, and their lengths; `traces` reads files
service        replicas, limits of their engine, routes between them
placement      replicas of a deployment on the servers of a fabric
run            serve a load
figures        latencies, throughput, goodput, where the time goes
fleet          a model to serve on a fabric that is large enough; searches over layouts
search         the smallest service for an objective, the highest rate
resharding     the parts of a KV cache between replicas of different layouts
beside         jobs of other tenants on the fabric; `slowed`: steps beside them
disturbances   faults in the middle of a run
"""

__all__ = ["disturbances", "figures", "fleet", "load", "output", "placement", "run", "search", "service", "traces"]
