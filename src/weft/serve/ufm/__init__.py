"""UFM's REST interface on the same ledger, with UFM's field names and status codes.

routes         resources/..., app/..., actions, cloudx, telemetry, monitoring/..., reports/...: the calls
partitions     pkeys: request bodies, edits and answers
cloudx         networks and ports of Neutron
health         ports that are marked as unhealthy or isolated
queries        filters of collections
watch          the current subnet
jobs           jobs and events
counters       UFM's names for the counters of a port
telemetry      counters as CSV, for Prometheus, the busiest ports, history; dynamic instances
reports        the health of the fabric, and of the service
shapes         systems, ports and links as UFM describes them
"""

__all__: list[str] = []
