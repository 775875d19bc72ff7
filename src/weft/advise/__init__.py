"""Answer whether a cluster needs InfiniBand, from simulated runs of its workload on each fabric.

    from weft.advise.advice import advise
    from weft.advise.case import Case

    advice = advise(Case(workload="training", servers=128))
    print(advice.answer, advice.rows, advice.flips)

case          the question: servers, workload, budget, team
workloads     the time of a unit of work on each fabric: simulated over its routes, or in closed form
rows          one row for each fabric: time, waiting, price, cost of a unit of work
rule          rows -> an answer
sensitivity   the same rule at other points: where the answer changes
formatting    the answer in sentences
"""

__all__ = ["advice", "case"]
