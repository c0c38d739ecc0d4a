"""Fixtures of the cluster."""

from __future__ import annotations

from framework_support.cluster_fixtures import bare_cluster, cluster, namespace, only_loopback

__all__ = ["bare_cluster", "cluster", "namespace", "only_loopback"]
