"""Desired state, inspection and plan of a server's contents."""
