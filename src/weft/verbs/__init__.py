"""HOST: an adapter in software, in the words of pyverbs.

Every module has the name that it has in pyverbs and the same classes, so a program is written as for pyverbs:

    from weft.verbs.device import Context
    from weft.verbs.pd import PD

or stays as it is: `weft.verbs.pyverbs.install()` lets `import pyverbs.qp` find `weft.verbs.qp`.

The signatures, the texts of exceptions and the error numbers are those of pyverbs, because programs test for them.
"""
