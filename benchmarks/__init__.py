"""Steersman beside its peers, on a real API server, in one run: see ``README.md``.

``python -m benchmarks`` runs all scenarios, prints two tables and writes ``results/latest.json`` (a list of objects
with ``scenario``, ``peer``, ``metric``, ``value`` and ``unit``) and ``docs/assets/benchmarks.svg``.
"""
