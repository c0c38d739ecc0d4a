"""What is wrong with a project on a cluster: each check tells what it found, and what to do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from steersman.api.admissionregistration_v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import Deployment
from steersman.api.authorization_v1 import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from steersman.api.core_v1 import Pod, Secret
from steersman.client import Client
from steersman.controller import Permission
from steersman.errors import ApiError, NotFound
from steersman.meta import ObjectKey, ObjectMeta, Unstructured, unstructured
from steersman_cli.project import Project

if TYPE_CHECKING:
    from steersman.manager import Manager
    from steersman.webhook import WebhookServing

Manifest = dict[str, Any]
_SOON = timedelta(days=7)
_ANEW = "delete the Secret: the running operator makes a new one"
_DEFINITION = unstructured(CustomResourceDefinition.api_resource)


class Finding(msgspec.Struct, frozen=True):
    """What one check found.

    Attributes:
        subject: what was looked at.
        status: ``ok``, ``wrong``, or ``unknown`` where it could not be looked at.
        message: what is the case.
        fix: what to do, where something is.
    """

    subject: str
    status: Literal["ok", "wrong", "unknown"]
    message: str
    fix: str = ""


class Diagnosis:
    """The checks of one project on one cluster.

    Args:
        client: of who asks; what it may not read is ``unknown``.
        manager: that was set up by the project's code.
        serving: where the project's webhooks are served.
    """

    def __init__(self, client: Client, project: Project, manager: Manager, serving: WebhookServing | None) -> None:
        self._client = client
        self._project = project
        self._manager = manager
        self._serving = serving

    async def findings(self) -> AsyncGenerator[Finding]:
        """All checks, in the order in which to mend things. Raises ConnectionFailed: there is no cluster."""
        version: dict[str, Any] = msgspec.json.decode(await self._client.raw("/version"))
        yield Finding("cluster", "ok", f"Kubernetes {version.get('gitVersion', '?')} answers")
        checks = {"definitions": self._definitions(), "deployment": self._deployment(), "rights": self._rights()}
        if self._serving is not None and self._manager.webhooks:
            checks["webhooks"] = self._configurations(self._serving)
            checks["certificate"] = self._certificate(self._serving)
        for subject, check in checks.items():
            try:
                async for finding in check:
                    yield finding
            except ApiError as error:
                yield Finding(subject, "unknown", str(error), "look as somebody who may read it")

    async def _definitions(self) -> AsyncGenerator[Finding]:
        for manifest in self._project.definitions():
            yield await self._definition(manifest)

    async def _definition(self, manifest: Manifest) -> Finding:
        name = manifest["metadata"]["name"]
        subject = f"definition {name}"
        try:
            found = (await self._client.get(_DEFINITION, ObjectKey("", name))).to_dict()
        except NotFound:
            return Finding(subject, "wrong", "it is not installed", "make install")
        conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", [])}
        if conditions.get("Established", {}).get("status") != "True":
            names = conditions.get("NamesAccepted", {})
            return Finding(
                subject, "wrong", f"it is not served: {names.get('message', 'it is new')}", "rename the kind"
            )
        # The server fills in defaults, so it is asked what would become of ours.
        wanted = await self._client.apply(_DEFINITION.of(manifest), dry_run=True)
        if _compared(wanted) != _compared(_DEFINITION.of(found)):
            return Finding(subject, "wrong", "the cluster has another one than config/crd/bases", "make install")
        return Finding(subject, "ok", "it is installed, and served")

    async def _deployment(self) -> AsyncGenerator[Finding]:
        key = ObjectKey(self._project.namespace, self._project.name)
        subject = f"deployment {key}"
        try:
            found = await self._client.get(Deployment, key)
        except NotFound:
            yield Finding(subject, "wrong", "it is not deployed", "make deploy IMG=…, or make run on your machine")
            return
        if found.status.available_replicas:
            yield Finding(subject, "ok", f"{found.status.available_replicas} available")
            return
        selector = f"app.kubernetes.io/name={self._project.name}"
        pods = (await self._client.list(Pod, namespace=key.namespace, label_selector=selector)).items
        reasons = sorted({reason for pod in pods for reason in _troubles(pod)})
        told = "; ".join(reasons) or ("it has no pods" if not pods else "its pods are not ready")
        yield Finding(
            subject, "wrong", f"none is available: {told}", f"kubectl -n {key.namespace} describe pods -l {selector}"
        )

    async def _rights(self) -> AsyncGenerator[Finding]:
        user = f"system:serviceaccount:{self._project.namespace}:{self._project.name}"
        missing = [told async for told in self._missing(user)]
        if missing:
            told = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            yield Finding("rights", "wrong", f"{user} may not {told}", "make manifests, then make deploy IMG=…")
        else:
            yield Finding("rights", "ok", "the service account may do all that the code declares")

    async def _missing(self, user: str) -> AsyncGenerator[str]:
        for permission in dict.fromkeys(self._manager.permissions):
            for asked in _asked(permission):
                spec = SubjectAccessReviewSpec(user=user, resource_attributes=asked)
                review = SubjectAccessReview(metadata=ObjectMeta(), spec=spec)
                if not (await self._client.create(review)).status.allowed:
                    part = f"/{asked.subresource}" if asked.subresource else ""
                    yield f"{asked.verb} {asked.resource}{part}"

    async def _configurations(self, serving: WebhookServing) -> AsyncGenerator[Finding]:
        kinds = {k.api_resource.kind: k for k in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)}
        for wanted in self._manager.webhooks.configurations(serving):
            name = wanted["metadata"]["name"]
            subject = f"{wanted['kind']} {name}"
            try:
                found = await self._client.get(kinds[wanted["kind"]], ObjectKey("", name))
            except NotFound:
                yield Finding(subject, "wrong", "it is not installed", "make deploy IMG=…")
                continue
            webhooks = {w.name: w for w in found.webhooks}
            absent = [w["name"] for w in wanted["webhooks"] if w["name"] not in webhooks]
            bare = [n for n, w in webhooks.items() if not w.client_config.ca_bundle]
            if absent:
                yield Finding(
                    subject, "wrong", f"it has no {', '.join(absent)}", "make manifests, then make deploy IMG=…"
                )
            elif bare:
                told = f"{', '.join(bare)} trust no authority, so every call fails"
                yield Finding(subject, "wrong", told, "the running operator writes it: look into its log")
            else:
                yield Finding(subject, "ok", "it is installed, and trusts an authority")

    async def _certificate(self, serving: WebhookServing) -> AsyncGenerator[Finding]:
        from steersman.webhook.certificates import names_in, times

        if serving.cert_path:
            yield Finding("certificate", "unknown", f"something else keeps it, in {serving.cert_path}")
            return
        key = ObjectKey(serving.namespace, serving.secret_name)
        subject = f"certificate in the Secret {key}"
        try:
            data = (await self._client.get(Secret, key)).data or {}
            certificate = bytes(data["tls.crt"]).decode()
            ends = times(certificate)[1]
            # The first is what the API server asks for; cert-manager need not be told of the others.
            absent = {serving.names[0]} - names_in(certificate)
        except (NotFound, KeyError):
            yield Finding(subject, "wrong", "there is none", "the running operator makes it: look into its log")
            return
        except (ValueError, ImportError) as error:
            yield Finding(subject, "unknown", f"it cannot be read: {error}", _ANEW)
            return
        if absent:
            yield Finding(
                subject, "wrong", f"it is not for {', '.join(sorted(absent))}", "delete the Secret: a new one is made"
            )
        elif ends - datetime.now(UTC) < _SOON:
            yield Finding(
                subject, "wrong", f"it ends at {ends:%Y-%m-%d %H:%M}", "delete the Secret: a new one is made"
            )
        else:
            yield Finding(subject, "ok", f"it is valid until {ends:%Y-%m-%d}")


def _compared(definition: Unstructured) -> Manifest:
    """What counts of a definition; authorities are written into the rest."""
    spec: Manifest = dict(definition.to_dict()["spec"])
    spec.pop("conversion", None)
    return spec


def _troubles(pod: Pod) -> Iterator[str]:
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    for status in statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            yield f"{waiting.reason} {waiting.message or ''}".strip()
    for condition in pod.status.conditions or ():
        if (condition.type, condition.status) == ("PodScheduled", "False"):
            yield condition.message or "it cannot be scheduled"


def _asked(permission: Permission) -> Iterable[ResourceAttributes]:
    resource = permission.resource
    for verb in permission.verbs:
        for name in permission.names or ("",):
            yield ResourceAttributes(
                group=resource.group,
                version=resource.version,
                resource=resource.plural,
                subresource=permission.subresource or None,
                verb=verb,
                name=name or None,
            )
