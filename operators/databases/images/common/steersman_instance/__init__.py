"""Programs of instance pods: archiving, backups, recovery, metrics, the agent."""
