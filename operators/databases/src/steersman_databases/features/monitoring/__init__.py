"""PodMonitor of a cluster, and metrics of the operator about clusters."""
