"""The subnet manager: brings a subnet up and keeps it so, by MADs alone.

Each of these knows only those below it.

run, status      at work: sweeps when they are due, and answers everybody in between; what it says of itself
sweep            from whatever is there to a subnet that works: the table of contents
configuration    the files that opensm.conf names
sminfo/          several managers: election, and what a standby must know
sa/              the subnet administrator: path records and all the others
state            what is kept from one sweep to the next
opafm/           virtual fabrics of Omni-Path's fabric manager
mcast/           groups and their trees
qos/             SL to VL tables, VL arbitration, qos-policy.conf, congestion control
port_info        what every port is set to
ucast/           LIDs, forwarding tables, adaptive routing, and the order in which they are written
inform/          traps, and who subscribed to hear of them; `services` that programs registered
pkey/            partitions.conf, partitions, P_Key tables
discovery/       what there is, what changed
conf/            opensm.conf
"""
