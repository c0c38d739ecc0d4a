"""Kubernetes objects of each LeaderService, which publish the leader."""

from leader_operator.resources.endpoints import endpoint_slice
from leader_operator.resources.publication import config_map, leader_document, role_label
from leader_operator.resources.services import ServiceName, headless_service, leader_service

__all__ = [
    "ServiceName",
    "config_map",
    "endpoint_slice",
    "headless_service",
    "leader_document",
    "leader_service",
    "role_label",
]
