"""Drivers that read and write partitions: weft's subnet manager, OpenSM, UFM."""
