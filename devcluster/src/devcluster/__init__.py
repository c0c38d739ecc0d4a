"""A real two-node Kubernetes on one Linux machine."""
