"""The subnet manager: brings a subnet up and keeps it so, by MADs alone.

run           at work: sweeps when they are due, and answers everybody in between
sweep         from whatever is there to a subnet that works: the table of contents
state         what is kept from one sweep to the next
conf/         opensm.conf, opafm.xml
discovery/    what there is, what changed, traps
port_info     what every port is set to
ucast/        LIDs, forwarding tables, adaptive routing, and the order in which they are written
mcast/        groups and their trees
pkey/         partitions.conf, partitions, P_Key tables
qos/          SL to VL tables, VL arbitration, qos-policy.conf, congestion control
sminfo/       several managers: election, and what a standby must know
sa/           the subnet administrator: path records and all the others
"""
