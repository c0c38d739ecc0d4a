"""What somebody changed in an object of ours: what an apply leaves alone, and whether it changed anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steersman.api.core_v1 import Service
from steersman.client import MergePatch
from steersman.meta import ApplyConfiguration, Object, to_builtins

_FIELDS = ("selector", "externalIPs", "publishNotReadyAddresses", "sessionAffinity")
"""Of a Service, what leads clients elsewhere. Other fields are filled by Kubernetes."""
_UNSAID: Sequence[Any] = ("None", None, False, {}, [])


def repair_of(service: Service, config: ApplyConfiguration[Any]) -> MergePatch | None:
    """What puts back what an apply of ``config`` would not; None where there is nothing of the kind.

    Ports are merged by number: one that was changed by hand would stay beside ours, under the same name. Fields and
    keys that we never said would stay, too.
    """
    present, wanted = to_builtins(service)["spec"], to_builtins(config)["spec"]
    repair: dict[str, Any] = {}
    if {port["port"] for port in present.get("ports", ())} != {port["port"] for port in wanted["ports"]}:
        repair["ports"] = wanted["ports"]
    for field in _FIELDS:
        if field not in wanted and present.get(field) not in _UNSAID:
            repair[field] = None
    if foreign := present.get("selector", {}).keys() - wanted.get("selector", {}).keys():
        repair["selector"] = dict.fromkeys(foreign)
    if not repair:
        return None
    return MergePatch({"metadata": {"resourceVersion": service.metadata.resource_version}, "spec": repair})


def content_of(obj: Object) -> Any:
    """What people mean by a change of it: without status, versions and managers."""
    content = to_builtins(obj)
    metadata = content.pop("metadata", {})
    content.pop("status", None)
    return content, metadata.get("labels"), metadata.get("annotations"), metadata.get("ownerReferences")
