"""Do I need InfiniBand? The answer for one cluster and its work, with the runs that it rests on.

    from weft.advise.advice import advise
    from weft.advise.case import Case

    found = advise(Case(workload="training", servers=128))
    print(found.answer, found.rows, found.flips)

case     what is asked: servers, what they do, what the buyer has to say
works    how long a unit of that work takes on each fabric: by an engine over its routes, or in closed form
rows     fabric by fabric: time, waiting, price, cost of a unit of work
rule     rows -> an answer
flips    the same rule at other points: where the answer changes
"""
