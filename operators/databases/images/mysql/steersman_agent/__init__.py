"""Agent of a MySQL group member: process 1 of the pod."""
