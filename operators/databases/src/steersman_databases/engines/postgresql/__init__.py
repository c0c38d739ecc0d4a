"""The PostgreSQL engine.

`sql.engine` is its entry point. `planning` plans the statements, and `sql` inspects servers, holds the
connections and runs the statements. `config` holds parameters and access rules, `ha` the interface to Patroni.
"""
