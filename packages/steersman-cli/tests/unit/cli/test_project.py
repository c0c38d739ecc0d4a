"""``steersman init`` and ``create``: generated files and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from framework_support.projects import CREATE, EXAMPLES, INIT, KIND, create_project, steersman, write_project

WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")
DATABASES = Path(__file__).parents[5] / "operators/databases"
OTHER = ("--group", "g", "--version", "v1", "--kind", "Other")
LONG = ("--group", "mygroup", "--version", "v1", "--kind", "LongNamedKindOfRegionalPolicy")


def read_file(root: Path, name: str) -> str:
    return (root / name).read_text()


@pytest.mark.requirement("design/generated-code", "user/init")
def test_init_and_create_write_project_files(pristine: Path) -> None:
    project_file = yaml.safe_load(read_file(pristine, "PROJECT"))
    assert (project_file["domain"], project_file["repo"]) == ("handsomeguy.cn", "handsomeguy.cn/databaseuser")
    (entry,) = project_file["resources"]
    assert entry["api"] == {"crdVersion": "v1", "namespaced": True}
    crd = yaml.safe_load(read_file(pristine, "config/crd/bases/mygroup.handsomeguy.cn_databaseusers.yaml"))
    assert crd["metadata"]["name"] == "databaseusers.mygroup.handsomeguy.cn"
    sample = yaml.safe_load(read_file(pristine, "config/samples/mygroup_v1alpha1_databaseuser.yaml"))
    assert sample["apiVersion"] == "mygroup.handsomeguy.cn/v1alpha1"


def test_operator_pods_tolerate_lost_node_briefly(pristine: Path) -> None:
    """Eviction starts after 30 seconds instead of the default of five minutes."""
    for root in (pristine, DATABASES, *EXAMPLES):
        pod = yaml.safe_load(read_file(root, "config/manager/deployment.yaml"))["spec"]["template"]["spec"]
        assert pod["tolerations"] == [
            {
                "key": f"node.kubernetes.io/{what}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 30,
            }
            for what in ("not-ready", "unreachable")
        ], root


@pytest.mark.requirement("overview/limits")
def test_operator_limits_are_those_of_the_article(pristine: Path) -> None:
    pod = yaml.safe_load(read_file(pristine, "config/manager/deployment.yaml"))["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "100m", "memory": "128Mi"}


def test_create_api_accepts_domain_as_group(project: Path) -> None:
    create_project(project, ("create", "api", "--group=", "--version=v1", "--kind=MyApp"), ("manifests", "--check"))
    sample = yaml.safe_load(read_file(project, "config/samples/v1_myapp.yaml"))
    assert sample["apiVersion"] == "handsomeguy.cn/v1"
    assert "v1_myapp.yaml" in yaml.safe_load(read_file(project, "config/samples/kustomization.yaml"))["resources"]


def test_create_api_does_not_overwrite_files(project: Path) -> None:
    controller = project / "src/databaseuser/controllers/databaseuser.py"
    controller.write_text("mine = 1\n")
    result = steersman(project, *CREATE)
    assert result.returncode == 2
    assert "src/databaseuser/controllers/databaseuser.py" in result.stderr
    assert controller.read_text() == "mine = 1\n"
    create_project(project, (*CREATE, "--force"))
    assert "DatabaseUserReconciler" in controller.read_text()
    # Scaffold comments are filled only once.
    assert read_file(project, "src/databaseuser/main.py").count("setup_with_manager") == 1


@pytest.mark.parametrize("kind", ["DatabaseUser", "Databaseuser"])
def test_create_api_file_names_of_another_kind_are_rejected(project: Path, kind: str) -> None:
    types = project / "src/databaseuser/api/v1alpha1/databaseuser.py"
    before = types.read_text()
    result = steersman(project, *CREATE[:2], "--group=other", "--version=v1alpha1", f"--kind={kind}", "--force")
    assert result.returncode == 2
    assert "the project has DatabaseUser of group mygroup, whose files have the same names" in result.stderr
    assert types.read_text() == before


def test_init_dry_run_writes_no_files(tmp_path: Path) -> None:
    result = steersman(tmp_path, *INIT, "--dry-run")
    assert result.returncode == 0
    assert "would write src/databaseuser/main.py" in result.stdout
    assert not list(tmp_path.iterdir())


def test_create_api_missing_scaffold_marker_is_reported(project: Path) -> None:
    main = project / "src/databaseuser/main.py"
    main.write_text(main.read_text().replace("    # +steersman:scaffold:setup\n", ""))
    result = steersman(project, *WEBHOOK)
    assert result.returncode == 0
    assert "has no comment `# +steersman:scaffold:setup`" in result.stderr
    assert "setup_databaseuser_webhook_with_manager(manager)" in result.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("create", "api", "--group", "g", "--version", "v1"), "--kind is required"),
        (("create", "api", "--group", "g", "--version", "v1", "--kind", "small"), "--kind 'small'"),
        *(
            (("create", "api", "--group", "g", "--version", "v1", "--kind", kind), f"--kind '{kind}'")
            for kind in ("None", "True", "Condition", "Reconciler", "Client", "Deployment", "ROLE")
        ),
        (("create", "api", "--group", "g", "--version", "1", "--kind", "Big"), "--version '1'"),
        (("create", "api", "--group", "G", "--version", "v1", "--kind", "Big"), "--group 'G'"),
        (("create", "api", *KIND, "--resource=false", "--controller=false"), "nothing to write"),
        (("create", "api", *KIND, "--plural", "My Carts"), "--plural 'My Carts'"),
        (("create", "api", *KIND, "--crd-version", "v2"), "v2 is none of v1, v1beta1"),
        (
            ("create", "api", "--group", "g", "--version", "v1", "--kind", "No", "--resource=false"),
            "has no No of g/v1",
        ),
        (("create", "api", *OTHER, "--no-storage"), "must be the storage version"),
        (("create", "webhook", *KIND), "the webhook has no function"),
        (("create", "webhook", *KIND, "--conversion"), "--conversion requires --spoke"),
        (("create", "webhook", *KIND, "--defaulting", "--spoke", "v1"), "--conversion requires --spoke"),
        (("create", "webhook", *KIND, "--conversion", "--spoke", "v1alpha1"), "this version is the hub"),
        (("create", "webhook", *KIND, "--conversion", "--spoke", "v9"), "has no DatabaseUser of mygroup/v9"),
        (INIT, "is already a project"),
    ],
)
def test_project_command_invalid_arguments_exit_2(pristine: Path, command: tuple[str, ...], message: str) -> None:
    result = steersman(pristine, *command)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("json", "the standard library has a module of that name"),
        ("yaml", "a module of that name is installed"),
        ("class", "a Python keyword"),
        ("steersman", "a module of that name is installed"),
    ],
)
def test_init_rejects_conflicting_package_name(tmp_path: Path, name: str, reason: str) -> None:
    result = steersman(tmp_path, "init", "--domain", "example.com", "--repo", f"example.com/{name}")
    assert result.returncode == 2
    assert reason in result.stderr
    assert "--project-name" in result.stderr


def test_commands_outside_of_project_fail(tmp_path: Path) -> None:
    for command in (CREATE, ("manifests",), ("install",), ("run",)):
        result = steersman(tmp_path, *command)
        assert result.returncode == 2
        assert "no PROJECT file in this directory" in result.stderr


SECOND = (*CREATE, "--version", "v1beta1")
CRD = "config/crd/bases/mygroup.handsomeguy.cn_databaseusers.yaml"


def storage_versions(root: Path) -> dict[str, bool]:
    """Return the ``storage`` flag of each version of the definition."""
    return {v["name"]: v["storage"] for v in yaml.safe_load(read_file(root, CRD))["spec"]["versions"]}


def test_create_second_version_with_conversion(project: Path) -> None:
    convert = ("create", "webhook", *KIND, "--conversion", "--spoke")
    create_project(write_project(project, WEBHOOK, SECOND, (*convert, "v1beta1")), ("manifests",))
    assert storage_versions(project) == {"v1alpha1": True, "v1beta1": False}
    first, second = yaml.safe_load(read_file(project, "PROJECT"))["resources"]
    expected = {"conversion": True, "defaulting": True, "validation": True, "spoke": ["v1beta1"]}
    assert first["webhooks"] == {**expected, "webhookVersion": "v1"}
    # The controller and the roles of the kind already exist.
    assert "controller" not in second
    conversion = yaml.safe_load(read_file(project, CRD))["spec"]["conversion"]
    assert conversion["webhook"]["clientConfig"]["service"]["path"] == "/convert"
    # A further spoke is added to the existing hub.
    third = (*CREATE, "--version", "v1", "--storage")
    create_project(write_project(project, third, (*convert, "v1")), ("manifests",))
    assert storage_versions(project) == {"v1": True, "v1alpha1": False, "v1beta1": False}
    hub = read_file(project, "src/databaseuser/webhooks/databaseuser_conversion.py")
    assert "    V1BETA1,\n    V1,\n" in hub
    assert read_file(project, "src/databaseuser/main.py").count("manager.conversion(DATABASEUSERS)") == 1


def test_create_api_storage_conflict_is_reported(project: Path) -> None:
    types = project / "src/databaseuser/api/v1alpha1/databaseuser.py"
    types.write_text(types.read_text().replace('version="v1alpha1"', 'version="v1" "alpha1"'))
    result = steersman(project, *SECOND, "--storage")
    assert "set storage=False in @resource(…) in src/databaseuser/api/v1alpha1/databaseuser.py" in result.stderr
