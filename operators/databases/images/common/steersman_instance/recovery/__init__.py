"""Recovery of PostgreSQL from its archive: plan and program.

The plan needs no server.
"""
