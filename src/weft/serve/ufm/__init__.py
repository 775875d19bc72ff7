"""UFM's REST on the same ledger: what clients of NVIDIA's UFM call, in its words and with its status codes.

routes         resources/..., app/..., actions, cloudx, telemetry, monitoring/..., reports/...: the calls
partitions     pkeys: what a call asks for, and what is answered
cloudx         networks and ports of Neutron
health         ports that are marked, and switched off
queries        filters of what is there
watch          the subnet as it is now
jobs           jobs and events
counters       UFM's names for the counters of a port
telemetry      counters as CSV, for Prometheus, the busiest ports, history
instances      dynamic telemetry instances
reports        the health of the fabric, and of the service
versions       numbers that change with a collection
shapes         systems, ports and links in UFM's words
"""
