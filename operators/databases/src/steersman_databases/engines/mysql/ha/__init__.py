"""Group Replication as the operator uses it."""
