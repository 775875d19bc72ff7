"""Tenants: isolated slices of a fabric, declared, compared with what is there, applied, and proved.

A room imports only from rooms below its own; `tests/test_house.py` reads this list and enforces it.

drivers/       how slices get into a fabric: weft's subnet manager, OpenSM, UFM
slices         partitions with their members, and the lanes of their traffic
"""
