"""Requests served in time: load, batches, KV room, hand-offs between replicas, and latencies."""

__all__ = ["load"]
