"""What the images of servers have in common: the pod and its volumes, and the API server as a pod asks it."""
