"""Prometheus exporter of an instance.

Background collectors provide values in memory, served over TLS.
"""
