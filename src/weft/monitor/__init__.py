"""Fabric monitoring: port counters, a diagnosis of bad links, and metrics for Prometheus.

    poll        a Reading: every counter of every port at one moment, by MADs, over any carrier
    change      the difference between two readings, and which differences are unknown
    health      rates of each port: bit errors, flaps, waits
    diagnose    suspect links with evidence in sentences; built from signs, chance and causes

It uses only MADs through a carrier, never the lab itself.
"""

__all__ = ["change", "columns", "diagnose", "history", "poll", "suspects", "watch"]
