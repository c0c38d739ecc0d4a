"""Compare Steersman with other frameworks on a real API server.

``python -m benchmarks`` runs all scenarios, prints two tables and writes ``results/latest.json`` (a list of objects
with ``scenario``, ``peer``, ``metric``, ``value`` and ``unit``) and ``docs/assets/benchmarks.svg``.
"""
