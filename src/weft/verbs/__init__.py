"""HOST: an adapter in software, with the interfaces of pyverbs and libibverbs.

A sub-package imports only from those below its own; `tests/test_structure.py` reads this list and enforces it.

launch        run programs for pyverbs and libibverbs with weft's
front/        the module that replaces pyverbs in such a program
perftest/     ib_write_bw and the other tests of perftest, ibv_devinfo, ibv_rc_pingpong
c/            libibverbs.so.1 for programs in C: its sources, and the Python operations that it calls
pyverbs/      the API: modules, classes, signatures, texts and error numbers of pyverbs, because programs test for them
cm/           communication management: connection of queue pairs, below CMID
hardware      the devices of this process
carriers/     transport of packets between adapters: loopback, processes/, roce/, lab/; and their devices
attributes/   structures of verbs.h for devices, ports and addresses, and their text
hca/          the adapter: queue pairs, requester, responder, completions, regions, shared-memory path
shm/          shared memory of processes: layout, queues, locks
gpudirect/    memory of GPUs
enums/        the enumerations of verbs.h and rdma_cma.h
errors        the exceptions of pyverbs

A program is written as for pyverbs:

    from weft.verbs.pyverbs.device import Context
    from weft.verbs.pyverbs.pd import PD

or stays as it is: `weft.verbs.pyverbs.install()` lets `import pyverbs.qp` find `weft.verbs.pyverbs.qp`.
"""

__all__ = ["enums", "gpudirect", "pyverbs"]
