"""Measurements on a real API server, each with its scenario told in its module.

``python -m benchmarks`` runs them all, prints a table and writes ``results/latest.json``: a list of objects with
``scenario``, ``peer``, ``metric``, ``value`` and ``unit``. The only peer so far is Steersman itself, on asyncio's own
event loop and on uvloop; other frameworks are not measured here yet.
"""
