"""Logs, metrics, event loop health and the sources of time.

``logging`` configures structured logs. ``metrics`` has the Prometheus registry, with controller-runtime's metric
names. ``heartbeat`` measures the lag of the event loop and reports when it is blocked. ``gc_tuning`` keeps pauses of
the garbage collector short. ``runtime`` supplies the clock, randomness and background tasks; tests replace them by
virtual time.
"""
