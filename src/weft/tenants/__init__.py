"""Tenants: isolated partitions of a fabric, declared, compared with what is there, applied, and proved.

A room imports only from rooms below its own; `tests/test_house.py` reads this list and enforces it.

simulate       what a policy is worth: latency under load, before it and after
apply          read, plan, write, read back
reconcile      what has to change, as Terraform shows it
compile        what is wanted of this fabric: P_Keys, members and lanes; or why it cannot be had
members        ports by what people call them
quality        classes of traffic on lanes, and how much of a link each of them gets
recall         ports that were there before: who is down keeps its name
intent         what is wanted: tenants, services, classes; a TOML file
violations     who tried to get across: by traps and counters
isolation      a proof from the tables: who can reach whom, beside what partitions promise
pair_kernels   all pairs of all partitions, walked
reading        the tables of a subnet, over any carrier
drivers/       how partitions get into a fabric: weft's subnet manager, OpenSM, UFM
guids          whose port it is: client-ids and MAC addresses
partitions         partitions with their members, and the lanes of their traffic
"""
