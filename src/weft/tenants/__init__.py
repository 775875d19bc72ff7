"""Tenants: isolated partitions of a fabric, declared in a file, compared with the fabric, applied, and proved.

Modules, upper ones import from lower ones; `tests/test_structure.py` enforces this list.

simulate       latency under load with and without a QoS policy
apply          read, plan, write, read back
reconcile      the difference between two allocations, printed as Terraform does
compile        an intent for a given fabric: P_Keys, members and lanes
members        hosts, ports and GUIDs of an intent as port GUIDs
quality        traffic classes: service levels, virtual lanes, arbitration weights
recall         names of ports that are down
intent         tenants, services and classes from a TOML file
violations     packets with wrong keys: traps and counters
isolation      a proof from the tables: which ports reach each other, against the partitions
pair_kernels   kernels that walk all pairs of all partitions
reading        the tables of a subnet, over any carrier
drivers/       read and write partitions: weft's subnet manager, OpenSM, UFM
guids          GUIDs from DHCP client-ids and MAC addresses
partitions     partitions with members, and the QoS configuration
"""

__all__ = ["apply", "compile", "drivers", "intent", "isolation", "partitions", "reconcile"]
