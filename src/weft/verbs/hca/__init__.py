"""Implement the adapter: queue pairs, memory regions and completions, below the interface of pyverbs.

segment       what travels: consecutive packets of one message, or one of control
regions       memory regions and windows: which key opens which addresses for what
opcodes       what becomes of the requests of verbs
work          what was posted, and what came of it
completion    completion queues
receiving     receive queues, shared or not
carrier       what an adapter asks of what joins it to others
parts         what queue pairs, their sides and their adapter are to each other
queue_pair    one queue pair: its state, and what each state allows
requester     the sending side of a connection; `responder` the other; `datagram` both of what has no connection
shm_path      to a queue pair of the same machine, where the poster does the work: `execute`, `elements`, `copying`
end_to_end    reliable datagrams: EE contexts, and how queue pairs share them
adapter       all queue pairs of a port, and what moves them
"""

__all__: list[str] = []
