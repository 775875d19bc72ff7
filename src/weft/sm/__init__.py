"""The subnet manager: brings a subnet up and keeps it so, by MADs alone.

A room imports only from rooms below its own; `tests/test_house.py` reads this list and enforces it.

control        a client of its socket: what it sees, what it was told, and telling it
rehearsal      kernels are loaded before somebody waits for them
signals        SIGHUP, SIGTERM and SIGINT of its process
run            at work: sweeps when they are due, and answers everybody in between
orders         its end of that socket
inventory      what it sees, as columns
reallocation   partitions and lanes changed between two sweeps
status         what it says of itself in its state file
drift          ports that something else than this manager has changed
sweep          from whatever is there to a subnet that works: the table of contents
questions      requests that were sent, and the handlers of their answers
sminfo/        several managers: election, and what a standby must know
sa/            the subnet administrator: path records and all the others
configuration  the files that opensm.conf names
state          what is kept from one sweep to the next
allocation     what it was told, and what its files say
opafm/         opafm.xml: virtual fabrics as partitions and shares of bandwidth
mcast/         groups and their trees
qos/           SL to VL tables, VL arbitration, qos-policy.conf, congestion control
port_info      what every port is set to
ucast/         LIDs, forwarding tables, adaptive routing, and the order in which they are written
inform/        traps in, reports to who subscribed out
services       what programs registered under a name
protection     the M_Key of all ports, and keys derived from it
pkey/          partitions.conf, partitions, P_Key tables
discovery/     what there is, what changed
conf/          opensm.conf
sender         MADs in bulk, while others are answered
attachment     the port that it speaks through
writing        files that it keeps beside its work
events         its log
"""
