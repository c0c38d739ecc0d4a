"""`kubectl steersman`: operations on clusters, one command each.

It uses the Kubernetes API only.
"""
