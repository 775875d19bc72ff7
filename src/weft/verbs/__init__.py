"""HOST: an adapter in software, in the words of pyverbs and with the face of libibverbs.

A room imports only from rooms below its own; `tests/test_house.py` reads this list and enforces it.

launch        programs that were written for pyverbs, run with weft's
front/        what such a program finds in place of pyverbs
perftest/     ib_write_bw and the like, ibv_devinfo, ibv_rc_pingpong
c/            libibverbs.so.1 for programs in C: what it asks of Python, and its sources
pyverbs/      the API: modules, classes, signatures, texts and error numbers of pyverbs, because programs test for them
cm/           communication management: what connects queue pairs, below CMID
hardware      which adapter stands behind a device
carriers/     what joins adapters: loopback, processes/, roce/, lab/; and the devices that have them
attributes/   structures of verbs.h as values: of devices, ports and addresses, and their text
hca/          what an adapter does: queue pairs, requester, responder, completions, regions, shared-memory path
shm/          memory that processes share: layout, queues, locks
gpudirect/    memory of GPUs
enums/        every number of verbs.h and rdma_cma.h, by its name
errors        the exceptions of pyverbs

A program is written as for pyverbs:

    from weft.verbs.pyverbs.device import Context
    from weft.verbs.pyverbs.pd import PD

or stays as it is: `weft.verbs.pyverbs.install()` lets `import pyverbs.qp` find `weft.verbs.pyverbs.qp`.
"""
