"""The MySQL engine.

`sql.engine` is its entry point. `planning` plans the statements, and `sql` inspects servers, holds the
connections, the ownership table and the statements. `config` holds system variables, `ha` the interface to
Group Replication.
"""
