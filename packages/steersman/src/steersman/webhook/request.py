"""What a webhook is asked about. Source: ``admission.k8s.io/v1``, ``AdmissionRequest``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from steersman.meta import FrozenDict, FrozenStruct, Object

if TYPE_CHECKING:
    from steersman.client import Client

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class UserInfo(FrozenStruct):
    """Who asks, as the API server has authenticated them."""

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
        """Whether the API server would let this user do ``verb`` to ``kind``.

        A webhook acts with the operator's rights; what a user gets by it, they should be allowed themselves.

        Args:
            client: the operator's; declare it by ``.rbac(SubjectAccessReview, "create")``.
            verb: ``get``, ``list``, ``create``, …
            namespace: empty for all of them, or for a cluster-scoped kind.
            name: empty for all.
            subresource: such as ``status``.

        Raises:
            ApiError: the question itself is refused.
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
    """A kind by its names."""

    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(FrozenStruct):
    """A resource by its names."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(FrozenStruct):
    """What is about to be done.

    Attributes:
        operation: CREATE, UPDATE, DELETE or CONNECT.
        name: of the object; empty where the API server will generate it.
        namespace: empty for a cluster-scoped object.
        user: who asks.
        dry_run: whether nothing will be stored; a handler with side effects must then have none.
        sub_resource: such as ``status``; empty for the object itself.
        kind: of the object, as the handler gets it.
        resource: its resource.
        request_kind: as the user sent it, which may be another version.
        options: CreateOptions, UpdateOptions or DeleteOptions, in wire form.
        uid: of this one question.
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
