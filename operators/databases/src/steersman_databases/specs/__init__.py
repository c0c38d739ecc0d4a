"""Builders of Kubernetes objects that several features share."""
