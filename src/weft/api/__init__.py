"""The functions of `import weft`, which the commands call too.

fabrics        load, draw, export
routes         route, check, rate, path
predictions    simulate, time, train, infer
purchases      compare, plan, bill
operations     diagnose
traffic        traffic by name, for `simulate` and `weft sim`
arguments      fabrics, sizes and numbers as users write them
"""

__all__ = ["fabrics", "operations", "predictions", "purchases", "routes"]
