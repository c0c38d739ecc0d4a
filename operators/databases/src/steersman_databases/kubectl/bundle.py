"""``report``: all that tells what is wrong with a cluster, in one archive that may be shown to others.

Of Secrets it has names and keys, never what they hold, and nothing has the passwords that stand in rules of pgHba.
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
from typing import Any, cast

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
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL
from steersman_databases.engines.postgresql.hba import without_secrets
from steersman_databases.kubectl import logs
from steersman_databases.kubectl.found import find_cluster
from steersman_databases.kubectl.place import Refused, usage
from steersman_databases.resources import MANAGED_BY

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
_DECLARED: Sequence[type[Object]] = (Database, DatabaseUser)
_TAIL = 5000
_Line = Callable[[str], None]
_Failed = Callable[[str, SteersmanError], None]


class Bundle:
    """Files in the making, and why something could not be had, by the file that it would be, or its part of one."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def write(self, path: Path) -> None:
        """Writes the archive, readable by its owner only.

        In the place of a file, or of a link, and not into it: whoever may read that would read this, too.

        Raises:
            ConfigurationError: it cannot be written there.
        """
        if self.missing:
            self.files["missing.yaml"] = yaml.safe_dump(self.missing)
        try:
            if path.exists() and not path.is_file():
                raise usage(f"{path} is no file")
            path.unlink(missing_ok=True)
            with open(path, "xb", opener=_own) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                self._add_to(archive, path.name.removesuffix(".tar.gz"))
        except OSError as error:
            raise usage(f"cannot write the report: {error}") from None

    def _add_to(self, archive: tarfile.TarFile, folder: str) -> None:
        for name, text in sorted(self.files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            content = text.encode()
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))


def _own(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


async def collect(client: Client, key: ObjectKey) -> Bundle:
    """Everything about a cluster that its user may read. Raises NotFound if there is no such cluster."""
    bundle = Bundle()
    cluster = await find_cluster(client, key)
    bundle.files["cluster.yaml"] = _yaml([cluster])
    # A Helm release of the same name labels its objects as an instance of that name, too.
    selector = f"app.kubernetes.io/instance={key.name},app.kubernetes.io/managed-by={MANAGED_BY}"
    for kind in _LABELLED:
        await _objects(client, bundle, kind, key.namespace, selector)
    for kind in _DECLARED:
        await _objects(client, bundle, kind, key.namespace)
    await _events(client, bundle, key)
    await _secrets(client, bundle, key.namespace, selector)
    for name, previous in (("instances", False), ("previous", True)):
        wanted = logs.Wanted(previous=previous, tail_lines=_TAIL)
        await _logs(bundle, f"logs/{name}.txt", partial(logs.tell, client, key, wanted))
    others = partial(_tell_others, client, key.namespace, f"{selector},!{MEMBER_OF_LABEL}")
    await _logs(bundle, "logs/others.txt", others)
    return bundle


async def _objects(client: Client, bundle: Bundle, kind: type[Object], namespace: str, selector: str = "") -> None:
    name = f"{kind.api_resource.plural}.yaml"
    try:
        found = await client.list(kind, namespace=namespace, label_selector=selector)
    except ApiError as error:
        bundle.missing[name] = str(error)
        return
    if found.items:
        bundle.files[name] = _yaml(found.items)


async def _events(client: Client, bundle: Bundle, key: ObjectKey) -> None:
    """Events are about objects by name; those of a cluster begin with its own, or with the name of a volume."""
    try:
        found = await client.list(Event, namespace=key.namespace)
    except ApiError as error:
        bundle.missing["events.yaml"] = str(error)
        return
    mine = [e for e in found.items if _concerns(key.name, e.regarding.name or "")]
    if mine:
        bundle.files["events.yaml"] = _yaml(mine)


def _concerns(cluster: str, name: str) -> bool:
    own = name.removeprefix("data-").removeprefix("wal-")
    return own == cluster or own.startswith(f"{cluster}-")


async def _secrets(client: Client, bundle: Bundle, namespace: str, selector: str) -> None:
    try:
        found = await client.list(Secret, namespace=namespace, label_selector=selector)
    except ApiError as error:
        bundle.missing["secrets.yaml"] = str(error)
        return
    keys = {secret.metadata.name: sorted(secret.data) for secret in found.items}
    bundle.files["secrets.yaml"] = yaml.safe_dump(keys)


async def _logs(bundle: Bundle, name: str, tell: Callable[[_Line, _Failed], Awaitable[None]]) -> None:
    lines: list[str] = []

    def failed(pod: str, error: SteersmanError) -> None:
        bundle.missing[f"{pod} in {name}"] = str(error)

    try:
        await tell(lines.append, failed)
    except (ApiError, ConnectionFailed, Refused) as error:
        bundle.missing[name] = str(error)
    if lines:
        bundle.files[name] = "".join(f"{without_secrets(line)}\n" for line in lines)


async def _tell_others(client: Client, namespace: str, selector: str, line: _Line, failed: _Failed) -> None:
    """Of its poolers and Jobs."""
    for pod in (await client.list(Pod, namespace=namespace, label_selector=selector)).items:
        await logs.read(client, pod, logs.Wanted(tail_lines=_TAIL, container=""), line, failed)


def _yaml(objects: Sequence[Object]) -> str:
    def plain(obj: Object) -> dict[str, Any]:
        content: dict[str, Any] = _shown(to_builtins(obj))
        content.get("metadata", {}).pop("managedFields", None)
        names = type(obj).api_resource
        return {"apiVersion": names.api_version, "kind": names.kind, **content}

    return yaml.safe_dump_all([plain(each) for each in objects], sort_keys=False)


def _shown(content: Any) -> Any:
    """It with nothing secret in its words, those of JSON in them included: Patroni and kubectl keep some."""
    if isinstance(content, dict):
        return {key: _shown(value) for key, value in cast(dict[str, Any], content).items()}
    if isinstance(content, list | tuple):
        return [_shown(each) for each in cast(Sequence[Any], content)]
    if not isinstance(content, str) or (masked := without_secrets(content)) == content:
        return content
    try:
        return json.dumps(_shown(json.loads(content)))
    except ValueError:
        return masked
