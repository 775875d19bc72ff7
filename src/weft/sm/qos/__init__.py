"""Service levels and virtual lanes: SL to VL tables, arbitration, qos-policy.conf, congestion control."""

__all__: list[str] = []
