"""RoCE v2 over a UDP socket in bulk: a run of packets out by few calls of the system, many packets in by one."""
