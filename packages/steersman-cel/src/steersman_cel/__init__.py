"""CEL as Kubernetes has it: cel-cpp parses and evaluates, what it lacks is here.

``syntax`` reads and writes the engine's syntax trees, ``checker`` finds the types of expressions as cel-go does, by
the functions in ``declarations``; ``rewriting`` puts in terms of the engine what it does not have, with the functions
in ``functions`` and ``addresses``; ``engine`` joins them. ``cost`` estimates what expressions cost, ``evaluation``
evaluates the rules of a schema on values.
"""
