"""AdmissionRequest, as webhook handlers receive it.

Source: ``admission.k8s.io/v1``, ``AdmissionRequest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from steersman.meta import FrozenDict, FrozenStruct, Object

if TYPE_CHECKING:
    from steersman.client import Client

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class UserInfo(FrozenStruct):
    """The authenticated user of a request."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: FrozenDict[str, tuple[str, ...]] = FrozenDict()

    async def is_allowed(
        self,
        client: Client,
        verb: str,
        kind: type[Object],
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> bool:
        """Return True if RBAC allows this user ``verb`` on ``kind``.

        A webhook acts with the permissions of the operator. Use this check before it does something for the user.

        Args:
            client: client of the operator. Declare ``.needs(SubjectAccessReview, "create")``.
            verb: ``get``, ``list``, ``create``, …
            namespace: empty for all namespaces, or for a cluster-scoped kind.
            name: empty for all objects.
            subresource: subresource such as ``status``.

        Raises:
            ApiError: the SubjectAccessReview failed.
        """
        from steersman.api.authorization_v1 import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec

        resource = kind.api_resource
        attributes = ResourceAttributes(
            group=resource.group,
            version=resource.version,
            resource=resource.plural,
            subresource=subresource,
            verb=verb,
            namespace=namespace,
            name=name,
        )
        spec = SubjectAccessReviewSpec(
            user=self.username,
            uid=self.uid,
            groups=self.groups,
            extra=self.extra,
            resource_attributes=attributes,
        )
        review = await client.create(SubjectAccessReview(spec=spec))
        return review.status.allowed


class GroupVersionKind(FrozenStruct):
    """Group, version and kind."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(FrozenStruct):
    """Group, version and resource."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(FrozenStruct):
    """The write that the webhook reviews.

    Attributes:
        operation: CREATE, UPDATE, DELETE or CONNECT.
        name: name of the object; empty if the API server generates it.
        namespace: namespace of the object; empty for a cluster-scoped object.
        user: user of the request.
        dry_run: True if nothing will be stored. Handlers must then have no side effects.
        sub_resource: subresource such as ``status``; empty for the object itself.
        kind: kind of the object that the handler receives.
        resource: resource of the object that the handler receives.
        request_kind: kind in the version that the user sent.
        options: CreateOptions, UpdateOptions or DeleteOptions in wire form.
        uid: identifies the review.
    """

    operation: Operation
    uid: str = ""
    name: str = ""
    namespace: str = ""
    user: UserInfo = msgspec.field(default=UserInfo(), name="userInfo")
    dry_run: bool = False
    sub_resource: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    request_kind: GroupVersionKind = GroupVersionKind()
    options: msgspec.Raw = msgspec.Raw()
