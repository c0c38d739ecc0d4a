"""The Python twins of the types in ``go/v1alpha1``."""

from __future__ import annotations

from steersman.meta import Resource, Spec, Status, resource


class VersionedSpec(Spec):
    """VersionedSpec is an earlier version."""

    host: str
    port: int


class VersionedStatus(Status):
    """VersionedStatus is empty."""

    count: int | None = None


@resource(group="twins.example.com", version="v1alpha1", storage=False, served=False, deprecated=True)
class Versioned(Resource[VersionedSpec, VersionedStatus]):
    """Versioned has three versions."""
