"""The command `report`: an archive to diagnose a cluster.

It may be shared: it contains names and keys of Secrets, but no values, and no passwords of pgHba rules.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.events_v1 import Event
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.api.rbac_v1 import Role, RoleBinding
from steersman.client import Client
from steersman.errors import ApiError, ConnectionFailed, SteersmanError
from steersman.meta import Object, ObjectKey, to_builtins
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_databases.engines.postgresql.config.hba import redact
from steersman_databases.kubectl import logs
from steersman_databases.kubectl.command import OperationRejected, usage_error
from steersman_databases.kubectl.lookup import find_cluster

T = TypeVar("T", bound=Object)

_LABELLED: Sequence[type[Object]] = (
    StatefulSet,
    Deployment,
    Job,
    Pod,
    PersistentVolumeClaim,
    Service,
    EndpointSlice,
    ConfigMap,
    PodDisruptionBudget,
    NetworkPolicy,
    ServiceAccount,
    Role,
    RoleBinding,
)
_DECLARED_KINDS: Sequence[type[Object]] = (Database, DatabaseUser)
_TAIL_LINES = 5000
_PrintLine = Callable[[str], None]
_ReportFailure = Callable[[str, SteersmanError], None]


class SupportBundle:
    """Files of the archive, and errors by the missing file.

    An error may concern only a part of a file.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def write(self, path: Path) -> None:
        """Write the archive, readable by its owner only.

        It replaces an existing file or link and does not write into it, because others may be able to read that
        file.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        if self.missing:
            self.files["missing.yaml"] = yaml.safe_dump(self.missing)
        try:
            if path.exists() and not path.is_file():
                raise usage_error(f"{path} is not a file")
            path.unlink(missing_ok=True)
            with open(path, "xb", opener=_open_private) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                self._add_to(archive, path.name.removesuffix(".tar.gz"))
        except OSError as error:
            raise usage_error(f"cannot write the report: {error}") from None

    def _add_to(self, archive: tarfile.TarFile, folder: str) -> None:
        for name, text in sorted(self.files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            content = text.encode()
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


async def collect(client: Client, key: ObjectKey) -> SupportBundle:
    """Collect all readable information about a cluster. Raises NotFound."""
    bundle = SupportBundle()
    cluster = await find_cluster(client, key)
    bundle.files["cluster.yaml"] = _yaml([cluster])
    # A Helm release of the same name labels its objects as an instance of that name, too.
    selector = f"app.kubernetes.io/instance={key.name},app.kubernetes.io/managed-by={MANAGED_BY}"
    # Objects that outlive the cluster have another label.
    selectors = (selector, f"{CLUSTER_LABEL}={key.name},app.kubernetes.io/managed-by={MANAGED_BY}")
    for kind in _LABELLED:
        await _objects(client, bundle, kind, key.namespace, selectors)
    for kind in _DECLARED_KINDS:
        await _objects(client, bundle, kind, key.namespace)
    await _events(client, bundle, key)
    await _secrets(client, bundle, key.namespace, selectors)
    for name, previous in (("instances", False), ("previous", True)):
        desired = logs.LogOptions(previous=previous, tail_lines=_TAIL_LINES)
        await _logs(bundle, f"logs/{name}.txt", partial(logs.print_logs, client, key, desired))
    others = partial(_read_other_logs, client, key.namespace, f"{selector},!{CLUSTER_LABEL}")
    await _logs(bundle, "logs/others.txt", others)
    return bundle


async def _objects(
    client: Client, bundle: SupportBundle, kind: type[Object], namespace: str, selectors: Sequence[str] = ("",)
) -> None:
    name = f"{kind.api_resource.plural}.yaml"
    try:
        found = await _selected(client, kind, namespace, selectors)
    except ApiError as error:
        bundle.missing[name] = str(error)
        return
    if found:
        bundle.files[name] = _yaml(found)


async def _selected(client: Client, kind: type[T], namespace: str, selectors: Sequence[str]) -> Sequence[T]:
    """Return the objects that one of the selectors selects, by name. Raises ApiError."""
    lists = [await client.list(kind, namespace=namespace, label_selector=selector) for selector in selectors]
    found = {obj.metadata.name: obj for each in lists for obj in each.items}
    return [found[name] for name in sorted(found)]


async def _events(client: Client, bundle: SupportBundle, key: ObjectKey) -> None:
    """Add the cluster's Events.

    Events refer to objects by name. Those of a cluster begin with its name, or with the name of a volume.
    """
    try:
        found = await client.list(Event, namespace=key.namespace)
    except ApiError as error:
        bundle.missing["events.yaml"] = str(error)
        return
    own = [e for e in found.items if _is_about(key.name, e.regarding.name or "")]
    if own:
        bundle.files["events.yaml"] = _yaml(own)


def _is_about(cluster: str, name: str) -> bool:
    own = name.removeprefix("data-").removeprefix("wal-")
    return own == cluster or own.startswith(f"{cluster}-")


async def _secrets(client: Client, bundle: SupportBundle, namespace: str, selectors: Sequence[str]) -> None:
    try:
        found = await _selected(client, Secret, namespace, selectors)
    except ApiError as error:
        bundle.missing["secrets.yaml"] = str(error)
        return
    keys = {secret.metadata.name: sorted(secret.data) for secret in found}
    bundle.files["secrets.yaml"] = yaml.safe_dump(keys)


async def _logs(
    bundle: SupportBundle, name: str, read_logs: Callable[[_PrintLine, _ReportFailure], Awaitable[None]]
) -> None:
    lines: list[str] = []

    def report_failure(pod: str, error: SteersmanError) -> None:
        bundle.missing[f"{pod} in {name}"] = str(error)

    try:
        await read_logs(lines.append, report_failure)
    except (ApiError, ConnectionFailed, OperationRejected) as error:
        bundle.missing[name] = str(error)
    if lines:
        bundle.files[name] = "".join(f"{redact(line)}\n" for line in lines)


async def _read_other_logs(
    client: Client, namespace: str, selector: str, line: _PrintLine, report_failure: _ReportFailure
) -> None:
    """Read the logs of poolers and Jobs."""
    for pod in (await client.list(Pod, namespace=namespace, label_selector=selector)).items:
        await logs.read_pod_log(
            client, pod, logs.LogOptions(tail_lines=_TAIL_LINES, container=""), line, report_failure
        )


def _yaml(objects: Sequence[Object]) -> str:
    def plain(obj: Object) -> dict[str, Any]:
        content: dict[str, Any] = _redacted(to_builtins(obj))
        content.get("metadata", {}).pop("managedFields", None)
        names = type(obj).api_resource
        return {"apiVersion": names.api_version, "kind": names.kind, **content}

    return yaml.safe_dump_all([plain(each) for each in objects], sort_keys=False)


def _redacted(content: Any) -> Any:
    """Return the content without secrets, also inside of JSON texts.

    Patroni and kubectl store some.
    """
    if isinstance(content, dict):
        return {key: _redacted(value) for key, value in cast(dict[str, Any], content).items()}
    if isinstance(content, list | tuple):
        return [_redacted(each) for each in cast(Sequence[Any], content)]
    if not isinstance(content, str) or (masked := redact(content)) == content:
        return content
    try:
        return json.dumps(_redacted(json.loads(content)))
    except ValueError:
        return masked
