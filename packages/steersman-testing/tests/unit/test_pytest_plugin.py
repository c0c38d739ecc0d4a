"""The installed plugin in a project without other configuration."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from steersman_manifests.crd import definition

pytest_plugins = ["pytester"]

PACKAGE = Path(__file__).parents[2]
PLUGIN = "steersman_testing.pytest_plugin"

KIND = '''
    from steersman.meta import Resource, Spec, Status, resource

    class GreetingSpec(Spec):
        recipient: str

    @resource(group="example.com", version="v1")
    class Greeting(Resource[GreetingSpec, Status]):
        """A greeting."""
'''
IN_MEMORY = """
    from greetings import Greeting, GreetingSpec
    from steersman.client import Client
    from steersman.meta import ObjectKey, ObjectMeta
    from steersman_testing import virtual_time

    WORLD = ObjectKey("default", "world")

    @virtual_time
    async def test_a_greeting_is_stored(apiserver):
        client, metadata = Client(apiserver), ObjectMeta(name=WORLD.name, namespace=WORLD.namespace)
        await client.create(Greeting(metadata=metadata, spec=GreetingSpec(recipient="world")))
        assert (await client.get(Greeting, WORLD)).metadata.creation_timestamp == apiserver.runtime.clock.now()

    @virtual_time
    async def test_the_next_test_has_another_server(apiserver):
        assert apiserver.read(Greeting, WORLD) is None
"""
MUTATING = """
    import pytest
    from steersman.api.core_v1 import ConfigMap
    from steersman.cache import Cache
    from steersman.client import Client
    from steersman.meta import ObjectKey
    from steersman_testing import virtual_time

    @pytest.fixture
    def cache(apiserver):
        metadata = {"name": "a", "namespace": "default"}
        apiserver.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
        made = Cache(Client(apiserver), runtime=apiserver.runtime)
        made.informer(ConfigMap)
        return made

    @virtual_time
    async def test_changes(cache):
        cache.start()
        await cache.wait_for_sync()
        dict.__setitem__(cache.informer(ConfigMap).store.get(ObjectKey("default", "a")).data, "a", "c")
        await cache.stop()

    def test_leaves_alone():
        pass
"""


def entry_points() -> dict[str, str]:
    """Return the entry points of the package by plugin name."""
    return tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]


@pytest.fixture
def clean(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Create a project without the plugins of this repository's tests.

    Entry points come from pyproject.toml, independent of the installed version.
    """
    for variable in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        monkeypatch.delenv(variable, raising=False)
    information = pytester.mkdir("installed") / "steersman-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: steersman\nVersion: 0\n")
    points = "".join(f"{name} = {value}\n" for name, value in entry_points().items())
    (information / "entry_points.txt").write_text(f"[pytest11]\n{points}")
    monkeypatch.setenv("PYTHONPATH", str(information.parent), prepend=os.pathsep)
    pytester.syspathinsert(information.parent)
    pytester.makepyfile(greetings=KIND)
    return pytester


def run(directory: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest in this process, ten times faster than a subprocess."""
    return directory.runpytest_inprocess(*options(*arguments))


def options(*arguments: str) -> list[str]:
    without = [f"-pno:{name}" for name in ("asyncio", "timeout", "hypothesispytest", "cacheprovider", "xdist")]
    return ["--strict-markers", "--strict-config", *without, *arguments]


def configure(directory: pytest.Pytester, *lines: str) -> None:
    directory.makepyprojecttoml("\n".join(["[tool.pytest.ini_options]", 'pythonpath = ["."]', *lines]))


@pytest.mark.parametrize("loaded", [[], ["-p", PLUGIN]])
@pytest.mark.parametrize("conftest", ["", f"pytest_plugins = ['{PLUGIN}']"])
def test_plugin_loaded_twice_registers_once(clean: pytest.Pytester, loaded: list[str], conftest: str) -> None:
    assert entry_points() == {PLUGIN: PLUGIN}, "pytest refuses a module that is asked for under two names"
    clean.makeconftest(conftest)
    clean.makepyfile("def test_it(apiserver): assert apiserver.requests == []")
    run(clean, *loaded).assert_outcomes(passed=1)


def test_plugin_without_autoload_needs_option(clean: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    clean.makepyfile("def test_it(apiserver): assert apiserver.requests == []")
    run(clean).assert_outcomes(errors=1)
    run(clean, "-p", PLUGIN).assert_outcomes(passed=1)


@pytest.mark.requirement("design/unit-tests")
@pytest.mark.parametrize("source", ["greetings", "greetings:Greeting", "crds", "crds/greetings.json"])
def test_an_api_server_in_memory(clean: pytest.Pytester, source: str) -> None:
    configure(clean, f'steersman_crds = ["{source}"]')
    names: dict[str, Any] = {}
    exec(dedent(KIND), names)
    (clean.path / "crds").mkdir()
    (clean.path / "crds" / "greetings.json").write_text(json.dumps(definition(names["Greeting"])))
    clean.makepyfile(IN_MEMORY)
    run(clean).assert_outcomes(passed=2)


def test_the_name_of_a_package_is_that_of_a_module(clean: pytest.Pytester) -> None:
    configure(clean, 'steersman_crds = ["shop"]')
    package = clean.mkpydir("shop")
    (package / "__init__.py").write_text("from greetings import Greeting")
    (package / "values.yaml").write_text("a: b")
    clean.makepyfile(IN_MEMORY)
    run(clean).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nowhere/crds", "*nowhere/crds does not exist (looked for in *"),
        ("nowhere/crds.yaml", "*nowhere/crds.yaml does not exist (looked for in *"),
        ("other.yaml", "*other.yaml has no CustomResourceDefinition"),
        ("gretings", "the module gretings does not exist"),
        ("greetings:Gretting", "greetings declares no kind Gretting (it declares: Greeting)"),
    ],
)
def test_plugin_invalid_option_is_reported(clean: pytest.Pytester, source: str, said: str) -> None:
    configure(clean, f'steersman_crds = ["{source}"]')
    (clean.path / "other.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    clean.makepyfile("def test_it(apiserver): pass")
    result = run(clean)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])
    result.stdout.no_fnmatch_line("During handling of*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_plugin_missing_binaries_are_reported_in_one_line(
    clean: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean.makepyfile("def test_one(envtest): pass\ndef test_two(envtest_namespace): pass")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(clean.path))
    result = run(clean)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["KUBEBUILDER_ASSETS: * has no etcd: point KUBEBUILDER_ASSETS at a complete set"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*find_binaries*")


def test_plugin_marks_envtest_tests(clean: pytest.Pytester) -> None:
    clean.makepyfile("def test_one(envtest): pass\ndef test_two(envtest_namespace): pass\ndef test_three(): pass")
    run(clean, "-m", "not envtest").assert_outcomes(passed=1, deselected=2)


def test_plugin_detects_mutated_cache_objects(clean: pytest.Pytester) -> None:
    clean.makepyfile(MUTATING)
    run(clean).assert_outcomes(passed=2)
    configure(clean, "steersman_detect_mutations = true")
    result = run(clean)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *CacheMutated: ConfigMap default/a of the cache was mutated: *"])


def test_plugin_works_with_pytest_asyncio(clean: pytest.Pytester) -> None:
    configure(clean, 'asyncio_mode = "auto"', 'steersman_crds = ["greetings"]')
    real_time = "\n    async def test_real_time(apiserver):\n        assert apiserver.requests == []\n"
    clean.makepyfile(IN_MEMORY + real_time)
    clean.runpytest_subprocess().assert_outcomes(passed=3)


def test_plugin_unused_imports_no_framework(clean: pytest.Pytester) -> None:
    clean.makepyfile(
        """
        import sys

        def test_nothing_was_imported():
            ours = {name for name in sys.modules if name.startswith("steersman")}
            plugin = {"steersman_testing.pytest_plugin", "steersman_testing.sweep_settings"}
            assert ours == {"steersman_testing", *plugin}
            assert not {"msgspec", "structlog", "yaml", "ssl", "cryptography"} & set(sys.modules)
        """
    )
    # The plugin of anyio, a dependency of the command, imports some of these modules.
    clean.runpytest_subprocess(*options("-pno:anyio")).assert_outcomes(passed=1)


def test_plugin_can_be_disabled(clean: pytest.Pytester) -> None:
    clean.makepyfile("def test_it(apiserver): pass")
    result = run(clean, f"-pno:{PLUGIN}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'apiserver' not found"])


def test_plugin_records_operator_requests(clean: pytest.Pytester) -> None:
    configure(clean, 'steersman_crds = ["greetings"]', 'steersman_rbac_user = "system:serviceaccount:a:operator"')
    clean.makepyfile("""
        import pytest
        from greetings import Greeting
        from steersman.client import Client
        from steersman.errors import Forbidden
        from steersman.meta import ObjectKey
        from steersman_testing import virtual_time

        @virtual_time
        async def test_it(apiserver):
            await Client(apiserver).list(Greeting)
            with pytest.raises(Forbidden):
                await Client(apiserver.as_user("system:serviceaccount:a:operator")).get(Greeting, ObjectKey("b", "c"))
    """)
    run(clean, "--steersman-rbac", "kept/rbac.json").assert_outcomes(passed=1)
    assert json.loads((clean.path / "kept" / "rbac.json").read_text()) == [
        {"group": "example.com", "resource": "greetings", "verb": "get", "name": "c"}
    ]


def test_plugin_recording_requires_user_option(clean: pytest.Pytester) -> None:
    clean.makepyfile("def test_it(): pass")
    result = run(clean, "--steersman-rbac", "rbac.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*steersman_rbac_user*"])
