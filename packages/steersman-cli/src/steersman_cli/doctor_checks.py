"""Checks of a project on a cluster. Each result has the problem and a fix."""

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
from steersman_cli.apply import is_foreign
from steersman_cli.project import Project

if TYPE_CHECKING:
    from steersman.manager import Manager
    from steersman.webhook import WebhookServerOptions

Manifest = dict[str, Any]
_EXPIRY_WARNING = timedelta(days=7)
_RECREATE_CERTIFICATE_FIX = "delete the Secret: the operator creates a new one"
_CRD = unstructured(CustomResourceDefinition.api_resource)


class CheckResult(msgspec.Struct, frozen=True):
    """Result of one check.

    Attributes:
        subject: the checked object.
        status: ``ok``, ``wrong``, ``unknown`` if the object cannot be read, or ``absent`` if it is not needed.
        message: the state or the problem.
        fix: the command or action that fixes the problem.
    """

    subject: str
    status: Literal["ok", "wrong", "unknown", "absent"]
    message: str
    fix: str = ""


class ProjectChecks:
    """The checks of one project on one cluster.

    Args:
        client: client of the user; unreadable objects have the status ``unknown``.
        manager: manager after the setup of the project.
        serving: the webhook server options of the project.
    """

    def __init__(
        self, client: Client, project: Project, manager: Manager, serving: WebhookServerOptions | None
    ) -> None:
        self._client = client
        self._project = project
        self._manager = manager
        self._serving = serving
        self._is_deployed = True

    async def run(self) -> AsyncGenerator[CheckResult]:
        """Yield the results, in the order in which problems should be fixed.

        Raises:
            ConnectionFailed: the cluster is unreachable.
        """
        version: dict[str, Any] = msgspec.json.decode(await self._client.raw("/version"))
        yield CheckResult("cluster", "ok", f"Kubernetes {version.get('gitVersion', '?')} responds")
        checks = {
            "definitions": self._check_crds(),
            "deployment": self._check_deployment(),
            "rights": self._check_permissions(),
        }
        if self._serving is not None and self._manager.webhooks:
            checks["webhooks"] = self._check_webhook_configurations(self._serving)
            checks["certificate"] = self._check_certificate(self._serving)
        for subject, check in checks.items():
            try:
                async for finding in check:
                    yield finding
            except ApiError as error:
                yield CheckResult(subject, "unknown", str(error), "use a user with permission to read it")

    async def _check_crds(self) -> AsyncGenerator[CheckResult]:
        for manifest in self._project.crd_manifests():
            yield await self._check_crd(manifest)

    async def _check_crd(self, manifest: Manifest) -> CheckResult:
        name = manifest["metadata"]["name"]
        subject = f"definition {name}"
        try:
            found = (await self._client.get(_CRD, ObjectKey("", name))).to_dict()
        except NotFound:
            return CheckResult(subject, "wrong", "not installed", "make install")
        conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", [])}
        if conditions.get("Established", {}).get("status") != "True":
            names = conditions.get("NamesAccepted", {})
            return CheckResult(
                subject, "wrong", f"not served: {names.get('message', 'not established yet')}", "rename the kind"
            )
        if is_foreign(manifest, found["metadata"].get("labels") or {}):
            return CheckResult(subject, "ok", "served; another owner maintains it, and `steersman install` keeps it")
        # A dry run shows the manifest with the defaults of the server. `steersman dev` redirects the conversion.
        declared = {**manifest, "spec": {**manifest["spec"], "conversion": found["spec"]["conversion"]}}
        expected = await self._client.apply(_CRD.of(declared), dry_run=True)
        is_converted_alike = _conversion_strategy(manifest) == _conversion_strategy(found)
        if not is_converted_alike or _comparable_spec(expected) != _comparable_spec(_CRD.of(found)):
            return CheckResult(subject, "wrong", "the cluster's CRD differs from config/crd/bases", "make install")
        return CheckResult(subject, "ok", "installed and served")

    async def _check_deployment(self) -> AsyncGenerator[CheckResult]:
        key = ObjectKey(self._project.namespace, self._project.name)
        subject = f"deployment {key}"
        try:
            found = await self._client.get(Deployment, key)
        except NotFound:
            self._is_deployed = False
            yield CheckResult(
                subject, "absent", "not deployed, as with `steersman run` and `steersman dev`", "make deploy IMG=…"
            )
            return
        if found.status.available_replicas:
            yield CheckResult(subject, "ok", f"{found.status.available_replicas} available")
            return
        selector = f"app.kubernetes.io/name={self._project.name}"
        pods = (await self._client.list(Pod, namespace=key.namespace, label_selector=selector)).items
        reasons = sorted({reason for pod in pods for reason in _pod_problems(pod)})
        summary = "; ".join(reasons) or ("no pods" if not pods else "pods are not ready")
        yield CheckResult(
            subject,
            "wrong",
            f"no replica is available: {summary}",
            f"kubectl -n {key.namespace} describe pods -l {selector}",
        )

    async def _check_permissions(self) -> AsyncGenerator[CheckResult]:
        if not self._is_deployed:
            # An operator outside of the cluster has the permissions of its user.
            return
        user = f"system:serviceaccount:{self._project.namespace}:{self._project.name}"
        missing = [denied async for denied in self._missing_permissions(user)]
        if missing:
            summary = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            yield CheckResult(
                "rights", "wrong", f"{user} lacks permission to {summary}", "make manifests, then make deploy IMG=…"
            )
        else:
            yield CheckResult("rights", "ok", "the service account has all permissions that the code declares")

    async def _missing_permissions(self, user: str) -> AsyncGenerator[str]:
        for permission in dict.fromkeys(self._manager.permissions):
            for attributes in _resource_attributes(permission):
                spec = SubjectAccessReviewSpec(user=user, resource_attributes=attributes)
                review = SubjectAccessReview(metadata=ObjectMeta(), spec=spec)
                if not (await self._client.create(review)).status.allowed:
                    suffix = f"/{attributes.subresource}" if attributes.subresource else ""
                    yield f"{attributes.verb} {attributes.resource}{suffix}"

    async def _check_webhook_configurations(self, serving: WebhookServerOptions) -> AsyncGenerator[CheckResult]:
        kinds = {k.api_resource.kind: k for k in (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)}
        for expected in self._manager.webhooks.configurations(serving):
            name = expected["metadata"]["name"]
            subject = f"{expected['kind']} {name}"
            try:
                found = await self._client.get(kinds[expected["kind"]], ObjectKey("", name))
            except NotFound:
                if self._is_deployed:
                    yield CheckResult(subject, "wrong", "not installed", "make deploy IMG=…")
                continue
            webhooks = {w.name: w for w in found.webhooks}
            absent = [w["name"] for w in expected["webhooks"] if w["name"] not in webhooks]
            without_ca_bundle = [n for n, w in webhooks.items() if not w.client_config.ca_bundle]
            if absent:
                yield CheckResult(
                    subject,
                    "wrong",
                    f"webhooks missing: {', '.join(absent)}",
                    "make manifests, then make deploy IMG=…",
                )
            elif without_ca_bundle:
                problem = f"{', '.join(without_ca_bundle)} have no CA bundle, so every call fails"
                yield CheckResult(subject, "wrong", problem, "the running operator writes it: check its logs")
            else:
                yield CheckResult(subject, "ok", "installed with a CA bundle")

    async def _check_certificate(self, serving: WebhookServerOptions) -> AsyncGenerator[CheckResult]:
        from steersman.webhook.certificates import subject_alternative_names, validity

        if not self._is_deployed:
            return
        if serving.cert_path:
            yield CheckResult("certificate", "unknown", f"managed externally, in {serving.cert_path}")
            return
        key = ObjectKey(serving.namespace, serving.secret_name)
        subject = f"certificate in the Secret {key}"
        try:
            data = (await self._client.get(Secret, key)).data or {}
            certificate = bytes(data["tls.crt"]).decode()
            not_after = validity(certificate)[1]
            # The API server uses the first name. A Certificate of cert-manager may omit the others.
            absent = {serving.server_names[0]} - subject_alternative_names(certificate)
        except (NotFound, KeyError):
            yield CheckResult(subject, "wrong", "not found", "the running operator creates it: check its logs")
            return
        except (ValueError, ImportError) as error:
            yield CheckResult(subject, "unknown", f"unreadable: {error}", _RECREATE_CERTIFICATE_FIX)
            return
        if absent:
            yield CheckResult(
                subject,
                "wrong",
                f"not valid for {', '.join(sorted(absent))}",
                "delete the Secret: the operator creates a new one",
            )
        elif not_after - datetime.now(UTC) < _EXPIRY_WARNING:
            yield CheckResult(
                subject,
                "wrong",
                f"expires at {not_after:%Y-%m-%d %H:%M}",
                "delete the Secret: the operator creates a new one",
            )
        else:
            yield CheckResult(subject, "ok", f"valid until {not_after:%Y-%m-%d}")


def _conversion_strategy(definition: Manifest) -> str:
    return definition["spec"].get("conversion", {}).get("strategy", "None")


def _comparable_spec(definition: Unstructured) -> Manifest:
    """Return the spec without ``conversion``, which has the CA bundle."""
    spec: Manifest = dict(definition.to_dict()["spec"])
    spec.pop("conversion", None)
    return spec


def _pod_problems(pod: Pod) -> Iterator[str]:
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    for status in statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason:
            yield f"{waiting.reason} {waiting.message or ''}".strip()
    for condition in pod.status.conditions or ():
        if (condition.type, condition.status) == ("PodScheduled", "False"):
            yield condition.message or "the pod cannot be scheduled"


def _resource_attributes(permission: Permission) -> Iterable[ResourceAttributes]:
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
