"""Write Kubernetes operators in typed, async Python."""
