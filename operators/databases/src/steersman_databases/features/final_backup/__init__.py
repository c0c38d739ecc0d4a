"""Final backup of a cluster that is being deleted."""
