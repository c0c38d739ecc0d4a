"""Converts objects between the versions of a kind.

Fields of the hub that a spoke version does not have are kept in an annotation, as by Cluster API's
``conversion.MarshalData``. Source: "Versions in CustomResourceDefinitions", "Webhook conversion"; ConversionReview of
``apiextensions.k8s.io/v1``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from steersman.errors import ConfigurationError
from steersman.meta import FrozenStruct, Object, decode, decode_builtins, encode
from steersman.observability.logging import get_logger
from steersman.webhook import metrics
from steersman.webhook.admission import ReviewResponse
from steersman.webhook.bounds import bound_violations
from steersman.webhook.field_copying import ConversionFailed, to_explicit_builtins
from steersman.webhook.merge import merge_changes
from steersman.webhook.unknown_fields import find_unknown_field

HubT = TypeVar("HubT", bound=Object)
SpokeT = TypeVar("SpokeT", bound=Object)
_Json = dict[str, Any]

HUB_ANNOTATION = "steersman.dev/hub"
"""Annotation with the fields of the hub that a spoke version lacks."""

CONVERT_PATH = "/convert"
_MAX_ANNOTATION_BYTES = 200_000

_TYPE_META = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}

log = get_logger("webhook")


class Spoke(Generic[SpokeT, HubT]):
    """Conversion of one version to and from the hub.

    Args:
        kind: type of the version.
        to_hub: converts to the hub. The hub must have a field for every field of the spoke.
        from_hub: converts from the hub. It may drop fields, since an annotation keeps them.
    """

    def __init__(
        self, kind: type[SpokeT], *, to_hub: Callable[[SpokeT], HubT], from_hub: Callable[[HubT], SpokeT]
    ) -> None:
        self.kind = kind
        self.to_hub = to_hub
        self.from_hub = from_hub


class Conversion(Generic[HubT]):
    """Conversion between the versions of a kind: a hub and its spokes.

    Example:
        ``SHOPS = Conversion(v2.Shop, Spoke(v1.Shop, to_hub=to_v2, from_hub=to_v1))``

    Raises:
        ConfigurationError: the types are not different versions of one kind.
    """

    def __init__(self, hub: type[HubT], *spokes: Spoke[Any, HubT]) -> None:
        self.hub = hub
        self.spokes: Mapping[str, Spoke[Any, HubT]] = {s.kind.api_resource.api_version: s for s in spokes}
        hub_resource = hub.api_resource
        for spoke in spokes:
            spoke_resource = spoke.kind.api_resource
            if (spoke_resource.group, spoke_resource.kind) != (
                hub_resource.group,
                hub_resource.kind,
            ) or spoke_resource.version == hub_resource.version:
                raise ConfigurationError(
                    f"{spoke_resource.api_version} {spoke_resource.kind} is not another version of {hub_resource}"
                )
        if len(self.spokes) != len(spokes):
            raise ConfigurationError(f"{hub_resource.kind} has two spokes of one version: remove one")

    @property
    def crd_name(self) -> str:
        """The name of the CustomResourceDefinition."""
        return f"{self.hub.api_resource.plural}.{self.hub.api_resource.group}"

    def convert(self, document: _Json, api_version: str) -> _Json:
        """Convert an object in wire form to ``api_version``.

        Raises:
            ConversionFailed: a version is unknown, or the object does not match its type.
        """
        source_version: str = document.get("apiVersion", "")
        if source_version == api_version:
            return document
        known_versions = {self.hub.api_resource.api_version, *self.spokes}
        if unknown := {source_version, api_version} - known_versions:
            raise ConversionFailed(f"unknown version {', '.join(unknown)}")
        hub = document if source_version not in self.spokes else self._to_hub(self.spokes[source_version], document)
        return hub if api_version not in self.spokes else self._from_hub(self.spokes[api_version], hub)

    def _to_hub(self, spoke: Spoke[Any, HubT], document: _Json) -> _Json:
        metadata, stored_hub = _pop_hub_annotation(document["metadata"])
        hub = spoke.to_hub(_decode_typed({**document, "metadata": metadata}, spoke.kind))
        content = _content(hub)
        if stored_hub is not None:
            content = self._merge_into_stored_hub(spoke, hub, {**stored_hub, "metadata": metadata})
        return {**_type_and_metadata(self.hub, metadata), **content}

    def _merge_into_stored_hub(self, spoke: Spoke[Any, HubT], hub: HubT, stored_document: _Json) -> _Json:
        """Merge changes of the spoke version into the stored hub."""
        stored_hub = _decode_typed(stored_document, self.hub)
        roundtripped = spoke.to_hub(spoke.from_hub(stored_hub))
        document: _Json = merge_changes(stored_document, _without_metadata(roundtripped), _without_metadata(hub))
        # Users can write annotations, and the API server does not validate converted objects.
        if found := list(bound_violations(_decode_typed(document, self.hub), self.hub)):
            raise ConversionFailed(f"annotation {HUB_ANNOTATION} makes the object invalid: {'; '.join(found)}")
        return _document_content(document)

    def _from_hub(self, spoke: Spoke[Any, HubT], document: _Json) -> _Json:
        metadata, _ = _pop_hub_annotation(document["metadata"])
        hub = _decode_typed({**document, "metadata": metadata}, self.hub)
        converted = spoke.from_hub(hub)
        if not _equal_content(spoke.to_hub(converted), hub):
            metadata = _set_hub_annotation(metadata, _document_content(document))
        return {**_type_and_metadata(spoke.kind, metadata), **_content(converted)}


class _ConversionRequest(FrozenStruct):
    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: list[dict[str, Any]] = []  # noqa: RUF012


class _ConversionReview(FrozenStruct):
    api_version: str
    kind: str
    request: _ConversionRequest


class ConversionHandler:
    """Handles ConversionReviews for all conversions of a manager."""

    def __init__(self) -> None:
        self._conversions: dict[tuple[str, str], Conversion[Any]] = {}

    @property
    def conversions(self) -> tuple[Conversion[Any], ...]:
        """All added conversions."""
        return tuple(self._conversions.values())

    def add(self, conversion: Conversion[Any]) -> None:
        """Add a conversion. Raises ConfigurationError if the kind has one."""
        resource = conversion.hub.api_resource
        if (resource.group, resource.kind) in self._conversions:
            raise ConfigurationError(f"kind {resource.kind} has two conversions: use one with all spokes")
        self._conversions[resource.group, resource.kind] = conversion

    async def handle(self, body: bytes, seconds: float) -> ReviewResponse:
        """Respond to a review. ``seconds`` is ignored, since conversions do not wait."""
        try:
            review = decode(body, _ConversionReview)
        except msgspec.DecodeError as error:
            return ReviewResponse(400, f"request body is not a ConversionReview: {error}\n".encode())
        if (review.api_version, review.kind) != (_TYPE_META["apiVersion"], _TYPE_META["kind"]):
            return ReviewResponse(400, f"unsupported review {review.api_version} {review.kind}\n".encode())
        converted: list[_Json] = []
        failures: list[str] = []
        for document in review.request.objects:
            try:
                converted.append(self._convert(document, review.request.desired_api_version))
            except ConversionFailed as failure:
                failures.append(f"{_describe_document(document)}: {failure}")
        result = {"status": "Success"}
        if failures:
            # The API server accepts no partial result.
            result, converted = {"status": "Failure", "message": "; ".join(failures)}, []
        response = {"uid": review.request.uid, "result": result, "convertedObjects": converted}
        return ReviewResponse(200, encode({**_TYPE_META, "response": response}))

    def _convert(self, document: _Json, api_version: str) -> _Json:
        group = str(document.get("apiVersion", "")).rpartition("/")[0]
        conversion = self._conversions.get((group, document.get("kind", "")))
        if conversion is None:
            raise ConversionFailed("unknown kind")
        try:
            return conversion.convert(document, api_version)
        except ConversionFailed:
            raise
        except Exception as error:
            metrics.conversion_panics.inc()
            log.error("conversion failed", object=_describe_document(document), to=api_version, exc_info=error)
            raise ConversionFailed("conversion failed; see the logs of the operator") from error


def _decode_typed(document: _Json, kind: type[Any]) -> Any:
    """Decode an object. Raises ConversionFailed if a field would be lost."""
    # A conversion does not change managedFields.
    metadata = {k: v for k, v in document["metadata"].items() if k != "managedFields"}
    try:
        obj = decode_builtins({**document, "metadata": metadata}, kind)
    except msgspec.ValidationError as error:
        raise ConversionFailed(
            f"object does not match {kind.__name__} {kind.api_resource.version}: {error}"
        ) from error
    if unknown := find_unknown_field(_document_content(document), kind):
        raise ConversionFailed(
            f"field {unknown} is unknown in {kind.__name__} {kind.api_resource.version} and would be lost"
        )
    return obj


def _without_metadata(obj: Any) -> Any:
    return replace(obj, metadata=type(obj.metadata)())


def _equal_content(one: Object, other: Object) -> bool:
    return _content(one) == _content(other)


def _content(obj: Object) -> _Json:
    """``obj`` without metadata, in wire form."""
    return _document_content(to_explicit_builtins(obj))


def _document_content(document: _Json) -> _Json:
    # An absent status and an empty one are the same object.
    return {
        k: v for k, v in document.items() if k not in ("apiVersion", "kind", "metadata") and (k, v) != ("status", {})
    }


def _type_and_metadata(kind: type[Object], metadata: _Json) -> _Json:
    return {"apiVersion": kind.api_resource.api_version, "kind": kind.api_resource.kind, "metadata": metadata}


def _pop_hub_annotation(metadata: _Json) -> tuple[_Json, _Json | None]:
    """``metadata`` without the hub annotation, and the value of the annotation."""
    annotations = cast("dict[str, str]", metadata.get("annotations") or {})
    if HUB_ANNOTATION not in annotations:
        return metadata, None
    other_annotations = {k: v for k, v in annotations.items() if k != HUB_ANNOTATION}
    stripped = {k: v for k, v in metadata.items() if k != "annotations"}
    try:
        stored_hub = msgspec.json.decode(annotations[HUB_ANNOTATION], type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ConversionFailed(f"annotation {HUB_ANNOTATION} is not valid JSON") from error
    return (stripped | {"annotations": other_annotations} if other_annotations else stripped), stored_hub


def _set_hub_annotation(metadata: _Json, content: _Json) -> _Json:
    text = msgspec.json.encode(content, order="sorted").decode()
    if len(text) > _MAX_ANNOTATION_BYTES:
        raise ConversionFailed(
            f"annotation {HUB_ANNOTATION} would have {len(text)} bytes, at most {_MAX_ANNOTATION_BYTES} are allowed"
        )
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), HUB_ANNOTATION: text}}


def _describe_document(document: _Json) -> str:
    metadata: _Json = document.get("metadata") or {}
    object_name = "/".join(p for p in (metadata.get("namespace"), metadata.get("name")) if p)
    return f"{document.get('kind', '')} {object_name}"
