"""The definitions on the real API server: each rule takes and refuses what it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from apiserver_cases.api import Api, Json
from apiserver_cases.installation import install_crds, make_namespace
from database_support.fields.schema_cases import CREATED, PERMITTED, UPDATED, SchemaCase, Wire
from database_support.unit.older_crds import without_patterns
from steersman.client import connect
from steersman_testing.envtest import Envtest

BASES = Path(__file__).parents[5] / "operators/databases/config/crd/bases"
KINDS = {
    "postgresqlclusters": "PostgreSQLCluster",
    "mysqlclusters": "MySQLCluster",
    "databases": "Database",
    "databaseusers": "DatabaseUser",
    "backupstores": "BackupStore",
    "backups": "Backup",
    "restores": "Restore",
}


@asynccontextmanager
async def _namespace(envtest: Envtest, name: str) -> AsyncGenerator[Api]:
    async with connect(envtest.config, retry=None) as transport:
        await install_crds(transport, [yaml.safe_load(path.read_text()) for path in sorted(BASES.glob("*.yaml"))])
        yield await make_namespace(transport, name)


def _object(case: SchemaCase, name: str, spec: Wire) -> Json:
    return {
        "apiVersion": "databases.steersman.dev/v1alpha1",
        "kind": KINDS[case.kind],
        "metadata": {"name": name},
        "spec": spec,
    }


def _merged(value: Wire, change: Mapping[str, Any]) -> Wire:
    """RFC 7396."""
    merged = dict(value)
    for key, new in change.items():
        if new is None:
            merged.pop(key, None)
        elif isinstance(new, dict):
            merged[key] = _merged(merged.get(key, {}), cast(Wire, new))
        else:
            merged[key] = new
    return merged


async def test_rule_accepts_and_rejects_its_cases(envtest: Envtest) -> None:
    async with _namespace(envtest, "rules") as api:
        for name, case in CREATED.items():
            path = f"/apis/databases.steersman.dev/v1alpha1/namespaces/rules/{case.kind}"
            query = {"dryRun": "All", "fieldValidation": "Strict"}
            taken = await api.call("POST", path, _object(case, name, case.spec), query=query)
            assert taken.code == 201, (name, taken.body)
            refused = await api.call("POST", path, _object(case, name, _merged(case.spec, case.change)), query=query)
            assert refused.code == 422, (name, refused.body)
            assert case.message in refused.body["message"], name


@pytest.mark.parametrize("cases", [UPDATED, PERMITTED], ids=["refused", "permitted"])
async def test_immutable_fields_reject_update(cases: dict[str, SchemaCase], envtest: Envtest) -> None:
    space = "refused-changes" if cases is UPDATED else "permitted-changes"
    async with _namespace(envtest, space) as api:
        for name, case in cases.items():
            path = f"/apis/databases.steersman.dev/v1alpha1/namespaces/{space}/{case.kind}"
            (await api.call("POST", path, _object(case, name, case.spec))).expect_success()
            changed = await api.call(
                "PATCH", f"{path}/{name}", {"spec": case.change}, content_type="application/merge-patch+json"
            )
            assert changed.code == (422 if case.message else 200), (name, changed.body)
            assert case.message in changed.body.get("message", ""), name


async def test_objects_older_than_patterns_are_reported_and_deleted(
    envtest: Envtest,
) -> None:
    group = "earlier.steersman.dev"
    manifest = yaml.safe_load((BASES / "databases.steersman.dev_databaseusers.yaml").read_text())
    manifest["metadata"]["name"] = f"databaseusers.{group}"
    manifest["spec"]["group"] = group
    definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/databaseusers.{group}"
    merge = "application/merge-patch+json"
    async with connect(envtest.config, retry=None) as transport:
        await install_crds(transport, [without_patterns(manifest)])
        api = await make_namespace(transport, "earlier")
        path = f"/apis/{group}/v1alpha1/namespaces/earlier/databaseusers"
        user: Json = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "DatabaseUser",
            "metadata": {"name": "clerk", "finalizers": [f"{group}/user"]},
            "spec": {"user": "clerk\0", "clusterRef": {"name": "platform/main"}},
        }
        (await api.call("POST", path, user)).expect_success()
        (await api.call("PATCH", definition, {"spec": manifest["spec"]}, content_type=merge)).expect_success()
        other = {**user, "metadata": {"name": "other"}}
        async with asyncio.timeout(30):
            while (await api.call("POST", path, other, query={"dryRun": "All"})).code != 422:
                await asyncio.sleep(0.1)
        told = {"status": {"observedGeneration": 1, "server": "nowhere"}}
        (await api.call("PATCH", f"{path}/clerk/status", told, content_type=merge)).expect_success()
        mended = {"spec": {"deletionPolicy": "Retain"}}
        (await api.call("PATCH", f"{path}/clerk", mended, content_type=merge)).expect_success()
        (await api.call("DELETE", f"{path}/clerk")).expect_success()
        (
            await api.call("PATCH", f"{path}/clerk", {"metadata": {"finalizers": None}}, content_type=merge)
        ).expect_success()
        assert (await api.call("GET", f"{path}/clerk")).code == 404
