"""Hosts of a lab that are other machines: `weft join ADDRESS --token ... --as h3 -- CMD`.

    greeting     who may join, as whom: both ends prove that they know the token
    frames       what goes over the connection, each piece signed
    session      streams of many programs over one connection, which may be cut and made again
    gate         the lab's end: hosts come, are cut off, come back and leave
    guest        the joining machine's end: the doors that programs find there, and the program itself

A program on a joined host finds the same sockets as one of `weft exec`: nothing in it knows how far away the lab is.
"""
