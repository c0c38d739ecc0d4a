"""The Common Expression Language (CEL) with the library of Kubernetes.

``engine`` compiles and evaluates expressions. The package ``cel-expr-python`` (cel-cpp) parses and evaluates them.
``checker`` infers and checks types as cel-go does, with the functions in ``declarations``. ``rewrite`` replaces
functions and macros that cel-cpp lacks by calls of ``functions``.

``cost`` estimates the cost of an expression with the limits of the API server.

``validation`` evaluates the rules of a schema (``x-kubernetes-validations``) on values. ``types`` and ``conversion``
map schemas and values to CEL.
"""
