"""Drivers that read and write partitions: weft's subnet manager, OpenSM, UFM."""

__all__ = ["driver", "opensm", "subnet_manager", "ufm", "ufm_rest"]
