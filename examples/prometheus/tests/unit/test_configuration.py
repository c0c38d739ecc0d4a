"""The configuration as a function of monitors and rules."""

from __future__ import annotations

import re
import sys
import time
from base64 import b64encode
from random import Random
from typing import Any

import pytest
import yaml
from steersman.api.meta_v1 import LabelSelector
from steersman.meta import decode_builtins

from configuration_cases import BASIC_AUTH, CASES, CREDENTIALS
from monitoring_objects import pod_monitor, prometheus, rule, service_monitor
from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration import Inputs, Monitor, build, ignored_fields, select


def jobs(case: str) -> list[dict[str, Any]]:
    """Return the jobs of a case, by position."""
    return yaml.safe_load(build(CASES[case]).text).get("scrape_configs", [])


def rules_of(job: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Return the relabeling rules with the given fields."""
    return [each for each in job["relabel_configs"] if fields.items() <= each.items()]


def problem_of(*endpoints: dict[str, Any], **spec: Any) -> str:
    """Return the problem of a ServiceMonitor."""
    monitor = service_monitor("s", *endpoints, **spec)
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[monitor], contents=CREDENTIALS))
    return str(declared.problems.get((type(monitor), monitor.key), ""))


@pytest.mark.parametrize("case", CASES)
def test_case_has_no_problem(case: str) -> None:
    assert build(CASES[case]).problems == {}


@pytest.mark.parametrize("interval", ["", "0", "0s", "0h0m"])
def test_zero_interval_of_prometheus_is_the_default(interval: str) -> None:
    spec = prometheus(scrapeInterval=interval, evaluationInterval=interval)
    declared = build(Inputs(prometheus=spec, service_monitors=[service_monitor("s")], contents={}))
    assert declared.problems == {}
    settings = yaml.safe_load(declared.text)["global"]
    assert (settings["scrape_interval"], settings["evaluation_interval"]) == ("30s", "30s")


def test_job_names_identify_monitor_and_endpoint() -> None:
    names = [job["job_name"] for job in jobs("ports")]
    assert names[:2] == ["serviceMonitor/default/s/0", "serviceMonitor/default/s/1"]
    assert names[4:6] == ["podMonitor/default/p/0", "podMonitor/default/p/1"]


@pytest.mark.parametrize(
    ("number", "source", "value", "endpoint"),
    [
        (0, "__meta_kubernetes_endpointslice_port_name", "web", ["web"]),
        (1, "__meta_kubernetes_pod_container_port_number", "8080", ["8080"]),
        (2, "__meta_kubernetes_pod_container_port_name", "http", ["http"]),
        (4, "__meta_kubernetes_pod_container_port_name", "web", ["web"]),
        (5, "__meta_kubernetes_pod_container_port_number", "8080", []),
        (6, "__meta_kubernetes_pod_container_port_number", "8081", ["8081"]),
    ],
)
def test_port_selects_targets_and_names_endpoint(number: int, source: str, value: str, endpoint: list[str]) -> None:
    job = jobs("ports")[number]
    assert rules_of(job, action="keep", source_labels=[source], regex=value)
    assert [each["replacement"] for each in rules_of(job, target_label="endpoint")] == endpoint


def test_endpoint_without_port_keeps_all_ports() -> None:
    for number in (3, 7):
        job = jobs("ports")[number]
        assert not rules_of(job, target_label="endpoint")
        assert not [each for each in rules_of(job, action="keep") if "port" in each["source_labels"][0]]


def test_service_targets_have_labels_of_users() -> None:
    job = jobs("ports")[0]
    targets = [each["target_label"] for each in job["relabel_configs"] if "target_label" in each]
    assert {"namespace", "service", "pod", "container", "endpoint", "job", "node"} <= set(targets)


def test_job_of_pod_monitor_is_its_key() -> None:
    assert rules_of(jobs("ports")[4], target_label="job", replacement="default/p")


def test_job_label_precedes_default_job() -> None:
    service, pod = jobs("labels")
    assert rules_of(service, target_label="job")[-1] == {
        "source_labels": ["__meta_kubernetes_service_label_app_kubernetes_io_name"],
        "regex": "(.+)",
        "target_label": "job",
    }
    assert rules_of(pod, target_label="job")[-1]["source_labels"] == ["__meta_kubernetes_pod_label_app"]
    assert rules_of(pod, target_label="pod_template_hash")


def test_namespace_selector_limits_discovery() -> None:
    own = jobs("ports")[0]["kubernetes_sd_configs"]
    service, pod = (job["kubernetes_sd_configs"] for job in jobs("selectors"))
    assert own == [{"role": "endpointslice", "namespaces": {"names": ["default"]}}]
    assert service == [{"role": "endpointslice"}]
    assert pod == [{"role": "pod", "namespaces": {"names": ["shop", "bank"]}}]


def test_selector_operators_become_keep_and_drop() -> None:
    job = jobs("selectors")[0]
    found = [(each["action"], each["regex"]) for each in job["relabel_configs"] if "action" in each]
    assert found[:6] == [
        ("keep", "(orders);true"),
        ("keep", r"(1\.2);true"),
        ("keep", "(web|api);true"),
        ("drop", "(test);true"),
        ("keep", "true"),
        ("drop", "true"),
    ]


def test_scrape_options_are_rendered() -> None:
    (job,) = jobs("scrape-options")
    expected = {
        "honor_labels": True,
        "honor_timestamps": False,
        "scrape_interval": "1m30s",
        "scrape_timeout": "1m",
        "metrics_path": "/probe",
        "scheme": "https",
        "params": {"module": ["http", "icmp"]},
    }
    assert {name: job[name] for name in expected} == expected
    assert not rules_of(job, regex="(Failed|Succeeded)")


def test_user_relabelings_come_last_in_order() -> None:
    (job,) = jobs("relabelings")
    own = job["relabel_configs"][-7:]
    assert [each["action"] for each in own][:3] == ["replace", "replace", "labelmap"]
    assert own[1]["replacement"] == ""


def test_credentials_are_files_and_not_text() -> None:
    declared = build(CASES["credentials"])
    basic, token, _ = jobs("credentials")
    assert basic["basic_auth"]["username"] == "scraper"
    password_file = basic["basic_auth"]["password_file"].removeprefix("../declared/")
    assert declared.credentials[password_file] == b"not-in-the-text"
    assert token["authorization"]["credentials_file"].startswith("../declared/credential-")
    assert "not-in-the-text" not in declared.text


def test_external_labels_name_server_and_keep_dollar() -> None:
    settings = yaml.safe_load(build(CASES["external-labels"]).text)["global"]
    assert settings["external_labels"] == {
        "cluster": "eu",
        "cost": "5$$",
        "prometheus": "default/prometheus",
        "prometheus_replica": "${POD_NAME}",
    }


@pytest.mark.parametrize(
    ("endpoint", "field"),
    [
        ({"interval": "5 minutes"}, "spec.endpoints[0].interval"),
        ({"interval": "0"}, "spec.endpoints[0].interval"),
        ({"interval": "300y"}, "spec.endpoints[0].interval"),
        ({"interval": f"{'9' * 5000}s"}, "spec.endpoints[0].interval"),
        ({"interval": "292y24w3d24h"}, "spec.endpoints[0].interval"),
        ({"interval": "5s", "scrapeTimeout": "9s"}, "spec.endpoints[0].scrapeTimeout"),
        ({"scrapeTimeout": "31s"}, "spec.endpoints[0].scrapeTimeout"),
        ({"relabelings": [{"action": "delete"}]}, "spec.endpoints[0].relabelings[0].action"),
        ({"relabelings": [{"action": "keep", "regex": "("}]}, "spec.endpoints[0].relabelings[0].regex"),
        ({"relabelings": [{"action": "keep", "regex": "(?=x)"}]}, "spec.endpoints[0].relabelings[0].regex"),
        ({"relabelings": [{"sourceLabels": ["a-b"]}]}, "spec.endpoints[0].relabelings[0].sourceLabels[0]"),
        ({"relabelings": [{"action": "replace"}]}, "spec.endpoints[0].relabelings[0].targetLabel"),
        ({"relabelings": [{"targetLabel": "a-b"}]}, "spec.endpoints[0].relabelings[0].targetLabel"),
        (
            {"relabelings": [{"action": "hashmod", "targetLabel": "a"}]},
            "spec.endpoints[0].relabelings[0].modulus",
        ),
        (
            {"relabelings": [{"action": "labelmap", "replacement": "a-b"}]},
            "spec.endpoints[0].relabelings[0].replacement",
        ),
        (
            {"metricRelabelings": [{"action": "labeldrop", "regex": "a", "targetLabel": "b"}]},
            "spec.endpoints[0].metricRelabelings[0].targetLabel",
        ),
        ({"basicAuth": {"username": {"name": "login", "key": "user"}}}, "spec.endpoints[0].basicAuth"),
        (
            {"authorization": {"credentials": {"name": "absent", "key": "token"}}},
            "spec.endpoints[0].authorization.credentials",
        ),
        (
            {"authorization": {"credentials": {"name": "token", "key": "absent"}}},
            "spec.endpoints[0].authorization.credentials",
        ),
        (
            {"authorization": {"type": "BAS\u0130C", "credentials": {"name": "token", "key": "token"}}},
            "spec.endpoints[0].authorization.type",
        ),
        (
            {"authorization": {"type": "Basic", "credentials": {"name": "token", "key": "token"}}},
            "spec.endpoints[0].authorization.type",
        ),
        (
            {"basicAuth": BASIC_AUTH, "authorization": {"credentials": {"name": "token", "key": "token"}}},
            "spec.endpoints[0]",
        ),
        ({"tlsConfig": {"keySecret": {"name": "token", "key": "token"}}}, "spec.endpoints[0].tlsConfig"),
    ],
)
def test_invalid_endpoint_names_field(endpoint: dict[str, Any], field: str) -> None:
    assert problem_of(endpoint).startswith(f"{field} ")


@pytest.mark.parametrize(
    "regex",
    [
        *(r"\x{110000}", "(" * 600 + ")" * 600, "(?i)" * 600, f"a{{{'9' * 1500}}}", "(a{1000}){1000}"),
        *(r"[a-\pL]", "(?P<é>x)", r"\Q", "a)(b", r"[\\--~]", r"[\]--a]", r"[\w\.--]"),
    ],
)
def test_regex_that_prometheus_rejects_names_field(regex: str) -> None:
    problem = problem_of({"relabelings": [{"action": "keep", "regex": regex}]})
    assert problem.startswith("spec.endpoints[0].relabelings[0].regex is invalid: ")


def test_large_classes_are_checked_fast() -> None:
    regex = "(?i)" + "[\u0100-\uffff]" * 800
    rules = [{"action": "drop", "sourceLabels": ["a"], "regex": f"{number}{regex}"} for number in range(10)]
    began = time.process_time()
    assert problem_of({"port": "web", "relabelings": rules}) == ""
    assert time.process_time() - began < 5


def noise(size: int) -> str:
    """Return text that hardly compresses."""
    return b64encode(Random(1).randbytes(size)).decode()


def test_large_rule_is_left_out() -> None:
    large, long = rule("large", f'up{{a="{noise(200_000)}"}}'), rule("long", f'up{{a="{"x" * 1_000_000}"}}')
    declared = build(Inputs(prometheus=prometheus(), rules=[large, rule("small"), long], contents={}))
    assert {key.name for key in declared.rule_sources.values()} == {"small", "long"}
    assert declared.rules.keys() == declared.rule_sources.keys()
    problem = str(declared.problems[type(large), large.key])
    assert problem.startswith("spec.groups have 20")
    assert problem.endswith("bytes after compression, and 131072 are allowed. Split the PrometheusRule.")


@pytest.mark.parametrize(
    ("monitor", "field"),
    [
        (service_monitor("s", targetLabels=["a" * 600_000]), "endpoints"),
        # Each job has the whole selector.
        (
            pod_monitor("s", *[{"port": "web"}] * 20_000, selector={"matchLabels": {"a": noise(40_000)}}),
            "podMetricsEndpoints",
        ),
    ],
    ids=["one job", "many jobs"],
)
def test_monitor_with_too_many_jobs_is_left_out(monitor: Monitor, field: str) -> None:
    monitors = [monitor, service_monitor("other")]
    declared = build(
        Inputs(
            prometheus=prometheus(),
            service_monitors=[each for each in monitors if isinstance(each, ServiceMonitor)],
            pod_monitors=[each for each in monitors if isinstance(each, PodMonitor)],
            contents={},
        )
    )
    expected = f"spec.{field} result in over 524288 characters of configuration. Split the monitor."
    assert {str(problem) for problem in declared.problems.values()} == {expected}
    assert [job["job_name"] for job in yaml.safe_load(declared.text)["scrape_configs"]] == [
        "serviceMonitor/default/other/0"
    ]


def test_monitors_above_the_share_of_a_namespace_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[Inputs.__module__]
    monkeypatch.setattr(module, "_MAX_NAMESPACE_LENGTH", 3000)
    monitors = [service_monitor(f"m{number}") for number in range(20)]
    other = service_monitor("other", namespace="second")
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[*monitors, other], contents={}))
    assert 0 < len(declared.problems) < 20
    assert (ServiceMonitor, other.key) not in declared.problems
    assert all("in this namespace" in str(problem) for problem in declared.problems.values())


def test_target_label_with_many_references_is_checked() -> None:
    """A pattern with two ways to read each reference would take hours."""
    label = "a" + "$aaaaaaaaa" * 30
    assert problem_of({"relabelings": [{"targetLabel": label}]}) == ""
    assert "targetLabel" in problem_of({"relabelings": [{"targetLabel": f"{label}-"}]})


def optional(name: str) -> dict[str, Any]:
    """Return a reference to a Secret that does not exist."""
    return {"name": name, "key": "x", "optional": True}


def test_optional_references_may_be_missing() -> None:
    absent = {"secret": optional("absent")}
    endpoints = [
        {"port": "web", "authorization": {"credentials": optional("absent")}},
        {"port": "web", "basicAuth": {"username": optional("a"), "password": optional("b")}},
        {"port": "web", "tlsConfig": {"ca": absent, "cert": absent, "keySecret": optional("absent")}},
    ]
    monitor = service_monitor("s", *endpoints)
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[monitor], contents={}))
    assert declared.problems == {}
    header, login, tls = yaml.safe_load(declared.text)["scrape_configs"]
    assert "authorization" not in header
    assert "basic_auth" not in login
    assert tls["tls_config"] == {}


def test_optional_password_may_be_missing() -> None:
    monitor = service_monitor("s", {"port": "web", "basicAuth": {**BASIC_AUTH, "password": optional("absent")}})
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[monitor], contents=CREDENTIALS))
    (job,) = yaml.safe_load(declared.text)["scrape_configs"]
    assert list(job["basic_auth"]) == ["username"]


def test_empty_values_are_not_ignored_fields() -> None:
    # Go programs write a token without a name for an absent one.
    endpoint = {"port": "web", "bearerTokenSecret": {"key": ""}, "proxyFromEnvironment": False}
    monitor = service_monitor("s", endpoint, sampleLimit=0, scrapeProtocols=[])
    assert ignored_fields(monitor) == []


def test_redirects_and_http2_can_be_disabled() -> None:
    monitor = service_monitor("s", {"port": "web", "followRedirects": False, "enableHttp2": False})
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[monitor], contents={}))
    (job,) = yaml.safe_load(declared.text)["scrape_configs"]
    assert (job["follow_redirects"], job["enable_http2"]) == (False, False)


@pytest.mark.parametrize("regex", [r"\p{Foo}", r"\p", r"\p{^}", "(?U)x**", "(?U)x*", "[[:^alpha:]]"])
def test_unsupported_regex_names_field(regex: str) -> None:
    problem = problem_of({"relabelings": [{"action": "keep", "regex": regex}]})
    assert problem.startswith("spec.endpoints[0].relabelings[0].regex is not supported: ")


@pytest.mark.parametrize("regex", [r"\pL+", r"[\P{^Greek}\d]", r"\\\p{Lu}", "a" * 4096])
def test_regex_that_prometheus_accepts_has_no_problem(regex: str) -> None:
    assert problem_of({"relabelings": [{"action": "keep", "regex": regex}]}) == ""


def test_long_regex_with_repeat_count_names_field() -> None:
    problem = problem_of({"relabelings": [{"action": "keep", "regex": f"({'a' * 4050}){{1000}}"}]})
    assert problem == "spec.endpoints[0].relabelings[0].regex has over 1600 characters. Split the rule."


@pytest.mark.parametrize("name", ["3scale.net/app", ""])
@pytest.mark.parametrize("field", ["targetLabels", "podTargetLabels"])
def test_invalid_target_label_names_field(field: str, name: str) -> None:
    assert problem_of(**{field: ["app", name]}).startswith(f"spec.{field}[1] ")


def test_pod_monitor_with_invalid_target_label_names_field() -> None:
    monitor = pod_monitor("p", podTargetLabels=["3scale.net/app"])
    declared = build(Inputs(prometheus=prometheus(), pod_monitors=[monitor], contents={}))
    assert str(declared.problems[type(monitor), monitor.key]).startswith("spec.podTargetLabels[0] ")


def test_unknown_selector_operator_names_field() -> None:
    problem = problem_of(selector={"matchExpressions": [{"key": "a", "operator": "Like"}]})
    assert problem == ("spec.selector.matchExpressions[0].operator is 'Like'. Use In, NotIn, Exists or DoesNotExist.")


def test_invalid_monitor_leaves_others_unchanged() -> None:
    good, bad = service_monitor("good"), service_monitor("bad", {"interval": "never"})
    alone = build(Inputs(prometheus=prometheus(), service_monitors=[good], contents={}))
    both = build(Inputs(prometheus=prometheus(), service_monitors=[bad, good], contents={}))
    assert both.text == alone.text
    assert list(both.problems) == [(type(bad), bad.key)]


def test_files_of_invalid_monitor_are_left_out() -> None:
    bad = service_monitor("bad", {"basicAuth": BASIC_AUTH}, {"interval": "never"})
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[bad], contents=CREDENTIALS))
    assert declared.credentials == {}


def test_revision_follows_rules_and_not_credentials() -> None:
    case = CASES["credentials"]
    rotated = {source: dict.fromkeys(data, b"scraper") for source, data in CREDENTIALS.items()}
    changed = Inputs(prometheus=case.prometheus, service_monitors=case.service_monitors, contents=rotated)
    assert build(changed).revision == build(case).revision
    first = build(Inputs(prometheus=prometheus(), rules=[rule(expr="up == 0")], contents={}))
    second = build(Inputs(prometheus=prometheus(), rules=[rule(expr="up == 1")], contents={}))
    assert first.revision != second.revision


def test_rule_file_has_fields_of_prometheus() -> None:
    ((name, content),) = build(Inputs(prometheus=prometheus(), rules=[rule()], contents={})).rules.items()
    assert re.fullmatch(r"rules-default_alerts-[0-9a-f]{8}\.yaml", name)
    assert yaml.safe_load(content)["groups"][0]["rules"][0] == {
        "alert": "Down",
        "expr": "up == 0",
        "for": "5m",
        "labels": {"severity": "page"},
    }


NAMESPACES = {"default": {"stage": "live"}, "shop": {"stage": "live"}, "lab": {"stage": "test"}}
MONITORS = [pod_monitor(name, namespace=name) for name in ("shop", "lab", "default")]


@pytest.mark.parametrize(
    ("selector", "namespace_selector", "selected"),
    [
        (None, {}, []),
        ({}, None, ["default"]),
        ({}, {}, ["default", "lab", "shop"]),
        ({"matchLabels": {"team": "frontend"}}, {"matchLabels": {"stage": "live"}}, ["default", "shop"]),
        ({"matchLabels": {"team": "backend"}}, {}, []),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["frontend"]}]}, None, ["default"]),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["backend"]}]}, None, ["default"]),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, None, ["default"]),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, None, []),
        ({"matchExpressions": [{"key": "team", "operator": "Like"}]}, None, []),
    ],
)
def test_selectors_choose_monitors(
    selector: dict[str, Any] | None, namespace_selector: dict[str, Any] | None, selected: list[str]
) -> None:
    found = select(
        MONITORS,
        None if selector is None else decode_builtins(selector, LabelSelector),
        None if namespace_selector is None else decode_builtins(namespace_selector, LabelSelector),
        own_namespace="default",
        namespaces=NAMESPACES,
    )
    assert [monitor.metadata.namespace for monitor in found] == selected
