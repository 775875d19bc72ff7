"""IP on hosts of a lab: `weft exec --ip h1 COMMAND` runs a program in a network namespace with the host's interfaces.

interfaces    the namespace: a TUN device for each port, addresses and routes of the kernel
infiniband    IPoIB: ARP in the partition's broadcast group, datagrams between queue pairs
ethernet      IPv4 in Ethernet frames
program       addresses of a lab's ports; the threads between TUN devices and ports

The kernel of the machine does the rest: ICMP, UDP, TCP, and the forwarding of a host with ports of both kinds.
"""

__all__: list[str] = []
