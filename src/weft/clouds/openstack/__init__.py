"""Neutron's ports in partitions: an ML2 mechanism driver, `weft`, for bare metal and virtual machines."""

__all__: list[str] = []
