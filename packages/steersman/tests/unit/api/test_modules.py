"""Generated modules are complete, decodable and imported only on demand."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pkgutil import iter_modules

import msgspec
import pytest

import steersman.api
import steersman.api.apply
from steersman.meta import ApplyConfiguration, FrozenStruct, Object, decode, encode

GROUP_VERSIONS = (
    "admissionregistration_v1",
    "apiextensions_v1",
    "apps_v1",
    "authentication_v1",
    "authorization_v1",
    "autoscaling_v1",
    "autoscaling_v2",
    "batch_v1",
    "certificates_v1",
    "coordination_v1",
    "core_v1",
    "discovery_v1",
    "events_v1",
    "meta_v1",
    "networking_v1",
    "policy_v1",
    "rbac_v1",
    "scheduling_v1",
    "storage_v1",
)

APPLY_MODULES = {
    "autoscaling_v1" if name == "autoscaling_v1" else name.rpartition("_")[0]: name
    for name in GROUP_VERSIONS
    if name not in ("authentication_v1", "authorization_v1")  # only created, never applied
}


def classes(module: str) -> Iterator[type[FrozenStruct]]:
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, type) and value.__module__ == module:
            assert issubclass(value, FrozenStruct)
            yield value


def imported_group_versions(module: str) -> set[str]:
    """Return the group-versions that an import of ``module`` loads."""
    code = f"import sys, {module}; print(*(m for m in sys.modules if m.startswith('steersman.api.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.removeprefix("steersman.api.") for name in done.stdout.split()}


def test_every_group_version_is_there() -> None:
    found = [m.name for m in iter_modules(steersman.api.__path__) if not m.ispkg]
    assert found == sorted(GROUP_VERSIONS)
    assert [m.name for m in iter_modules(steersman.api.apply.__path__)] == sorted(APPLY_MODULES)


@pytest.mark.parametrize("module", GROUP_VERSIONS)
def test_read_types_decode_empty_document(module: str) -> None:
    """Missing fields, even required ones, must not prevent decoding."""
    for cls in classes(f"steersman.api.{module}"):
        assert decode(b"{}", cls) == cls()
        assert encode(cls()) == b"{}"


@pytest.mark.parametrize("module", sorted(APPLY_MODULES))
def test_apply_types_have_their_read_type(module: str) -> None:
    kinds = {c.__name__: c for c in classes(f"steersman.api.{APPLY_MODULES[module]}") if issubclass(c, Object)}
    for cls in classes(f"steersman.api.apply.{module}"):
        # The call builds the decoder, which resolves every annotation.
        with pytest.raises(msgspec.ValidationError):
            decode(b"1", cls)
        if issubclass(cls, ApplyConfiguration):
            assert cls.read_type is kinds[cls.__name__]


@pytest.mark.parametrize(
    ("module", "kind", "path"),
    [
        ("core_v1", "Pod", "/api/v1/pods"),
        ("core_v1", "Endpoints", "/api/v1/endpoints"),
        ("apps_v1", "StatefulSet", "/apis/apps/v1/statefulsets"),
        ("networking_v1", "NetworkPolicy", "/apis/networking.k8s.io/v1/networkpolicies"),
        ("rbac_v1", "ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        ("storage_v1", "StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
        ("authorization_v1", "SubjectAccessReview", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ],
)
def test_kinds_have_their_api_path(module: str, kind: str, path: str) -> None:
    cls: type[Object] = getattr(importlib.import_module(f"steersman.api.{module}"), kind)
    assert cls.api_resource.path() == path


def test_scopes() -> None:
    core = importlib.import_module("steersman.api.core_v1")
    assert {
        c.__name__ for c in classes(core.__name__) if issubclass(c, Object) and not c.api_resource.namespaced
    } == {
        "ComponentStatus",
        "Namespace",
        "Node",
        "PersistentVolume",
    }


@pytest.mark.parametrize(
    ("module", "brought"),
    [
        ("steersman.meta", set[str]()),
        ("steersman.api", set[str]()),
        ("steersman.api.coordination_v1", {"coordination_v1"}),
        ("steersman.api.rbac_v1", {"rbac_v1", "meta_v1"}),
        ("steersman.api.apps_v1", {"apps_v1", "core_v1", "meta_v1"}),
        (
            "steersman.api.apply.coordination",
            {"apply", "apply.coordination", "coordination_v1"},
        ),
    ],
)
def test_imports_no_more_than_needed(module: str, brought: set[str]) -> None:
    assert imported_group_versions(module) == brought
