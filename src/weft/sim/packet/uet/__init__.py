"""Ultra Ethernet Transport: the rules of its packet delivery contexts, by the consortium's reference simulator.

    sender    window or credits -> entropy of the packet -> switches hash it -> queue: mark, trim
    receiver  bitmap of packets -> ACK every few packets, NACK for a trimmed one, credits
    sender    free the window, choose other entropies, send lost packets again

A queue pair is a packet delivery context (PDC) in the mode RUD: reliable, in any order. The rules and constants are
those of htsim's `uec.cpp` (github.com/ultraethernet/uet-htsim, 40ccb052, 2025), in other words and for any rate.
"""

__all__: list[str] = []
