"""The subnet manager: brings a subnet up and keeps it up, by MADs alone.

A module imports only from modules below its own; `tests/test_structure.py` reads this list and enforces it.

control          client of the manager's socket: state queries and changes of the allocation
process          the manager's process: kernels loaded before a sweep needs them, and signals
run              the manager's loop: sweeps when they are due, and answers requests in between
control_server   the manager's end of that socket, with changes of partitions and lanes between two sweeps
inventory        the subnet as columns, for clients of the socket
status           the state file, and other files that are written beside the sweeps
drift            ports that something other than this manager has changed
sweep            one sweep, step by step: the table of contents
sminfo/          several managers: election, and the copy that a standby keeps
sa/              the subnet administrator: path records and all the others
configuration    the files that opensm.conf names
state            data that is kept from one sweep to the next, and services that programs registered
allocation       partitions and lanes: those of the files, and those set at run time
opafm/           opafm.xml: virtual fabrics as partitions and shares of bandwidth
mcast/           multicast groups and their trees
qos/             SL to VL tables, VL arbitration, qos-policy.conf, congestion control
alias_gids       GUIDs of ports that are their LIDs, for routers
flids            floating LIDs: of leaf switches here, and routes to those of other subnets
port_info        the settings and states of all ports
ucast/           LIDs, forwarding tables, adaptive routing, and the order in which they are written
inform/          traps from ports, and reports to subscribers
protection       the M_Key of all ports, and keys derived from it
pkey/            partitions.conf, partitions, P_Key tables
discovery/       the subnet as it is, and its changes
conf/            opensm.conf
sender           the port that the manager uses, and MADs in bulk, with other requests answered meanwhile
events           the log
"""

__all__ = ["control", "run"]
