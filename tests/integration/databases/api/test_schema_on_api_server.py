"""The definitions on the real API server: each rule takes and refuses what it should."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from apiserver_cases.api import Api, Json
from apiserver_cases.installation import install, make_namespace
from database_kinds import CREATED, PERMITTED, UPDATED, Case, Wire
from steersman.client import connect
from steersman.testing.envtest import Envtest

BASES = Path(__file__).parents[4] / "operators/databases/config/crd/bases"
KINDS = {"postgresqlclusters": "PostgreSQLCluster", "databases": "Database", "databaseusers": "DatabaseUser"}


@asynccontextmanager
async def _namespace(envtest: Envtest, name: str) -> AsyncGenerator[Api]:
    async with connect(envtest.config, retry=None) as transport:
        await install(transport, [yaml.safe_load(path.read_text()) for path in sorted(BASES.glob("*.yaml"))])
        yield await make_namespace(transport, name)


def _object(case: Case, name: str, spec: Wire) -> Json:
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


async def test_each_rule_takes_and_refuses_what_it_should(envtest: Envtest) -> None:
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
async def test_what_may_change_and_what_not(cases: dict[str, Case], envtest: Envtest) -> None:
    space = "refused-changes" if cases is UPDATED else "permitted-changes"
    async with _namespace(envtest, space) as api:
        for name, case in cases.items():
            path = f"/apis/databases.steersman.dev/v1alpha1/namespaces/{space}/{case.kind}"
            (await api.call("POST", path, _object(case, name, case.spec))).ok()
            changed = await api.call(
                "PATCH", f"{path}/{name}", {"spec": case.change}, content_type="application/merge-patch+json"
            )
            assert changed.code == (422 if case.message else 200), (name, changed.body)
            assert case.message in changed.body.get("message", ""), name
