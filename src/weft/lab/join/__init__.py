"""Hosts of a lab that are other machines: `weft join ADDRESS --token ... --as h3 -- CMD`.

    handshake    authentication: both ends prove that they know the token
    frames       the signed frames of a connection
    session      streams of many programs over one connection, which may break and be established again
    server       the lab's end: hosts join, lose their connection, come back and leave
    client       the joining machine's end: the sockets that programs find there, and the program itself

A program on a joined host finds the same sockets as one of `weft exec`: it does not depend on where the lab runs.
"""

__all__: list[str] = []
