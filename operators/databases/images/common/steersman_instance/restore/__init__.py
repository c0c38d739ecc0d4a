"""Restore of tables or of one database next to the present ones.

The cluster is recovered into a temporary volume. From there the rows are copied into the serving cluster.
"""
