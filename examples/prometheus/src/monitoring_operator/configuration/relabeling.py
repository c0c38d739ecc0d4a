"""Relabeling: rules of selectors, and checks of users' rules.

Prometheus rejects a whole configuration for one invalid rule. Each rule is therefore checked here, and only its
monitor is left out. Source: relabel_config in the documentation of Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from steersman.api.meta_v1 import LabelSelector
from steersman.meta.patterns import PatternError, UnsupportedPattern, compile_pattern

from monitoring_operator.api.v1.scraping import Relabeling
from monitoring_operator.configuration.model import RelabelConfig
from monitoring_operator.configuration.problems import InvalidObject
from monitoring_operator.configuration.unicode_classes import replace_unicode_classes

_ACTIONS = (
    *("replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep"),
    *("lowercase", "uppercase", "keepequal", "dropequal"),
)
_WITH_TARGET = ("replace", "hashmod", "lowercase", "uppercase", "keepequal", "dropequal")
_REGEX_ONLY = ("labeldrop", "labelkeep")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TARGET_TEMPLATE = re.compile(r"(?:[a-zA-Z_]|\$(?:\{\w+\}|\w))(?:\w|\$(?:\{\w+\}|\w))*", re.ASCII)
_NOT_IN_LABEL_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_MAX_REGEX_LENGTH = 4096
# A repeat count multiplies the size of the compiled regex, which Go limits.
_MAX_REPEATED_LENGTH = 1600
NOT_EMPTY = "(.+)"
"""Regex of values that are not empty."""


def label_name(kubernetes_name: str) -> str:
    """Return the name in Prometheus of a label, such as ``app_kubernetes_io_name``."""
    return _NOT_IN_LABEL_NAMES.sub("_", kubernetes_name)


def copy_label(source: str, target: str, *, regex: str | None = None) -> RelabelConfig:
    """Return a rule that copies a label. With ``regex``, only values that match it."""
    return RelabelConfig(source_labels=[source], regex=regex, target_label=target)


def copied_labels(prefix: str, names: Sequence[str], field: str) -> list[RelabelConfig]:
    """Return rules that copy labels of Services or pods to targets.

    Args:
        prefix: ``service`` or ``pod``.
        names: names of the labels in Kubernetes.
        field: path of the list, for errors.

    Raises:
        InvalidObject: a name does not result in a label name of Prometheus.
    """
    rules: list[RelabelConfig] = []
    for number, name in enumerate(names):
        target = label_name(name)
        if not _LABEL_NAME.fullmatch(target):
            problem = f"is {name!r}, which does not result in a label name"
            remedy = "Copy the label by relabelings, with a targetLabel that begins with a letter."
            raise InvalidObject(f"{field}[{number}]", problem, remedy)
        rules.append(copy_label(f"__meta_kubernetes_{prefix}_label_{target}", target, regex=NOT_EMPTY))
    return rules


def keep(source: str, value: str) -> RelabelConfig:
    """Return a rule that keeps targets whose label has ``value``."""
    return RelabelConfig(action="keep", source_labels=[source], regex=_literal(value))


def selector_rules(selector: LabelSelector, prefix: str) -> Iterator[RelabelConfig]:
    """Yield the rules that keep the selected targets.

    Args:
        selector: labels of Services or pods.
        prefix: ``service`` or ``pod``.

    Raises:
        InvalidObject: an operator is unknown.
    """
    for key, value in sorted(selector.match_labels.items()):
        yield _selector_rule("keep", prefix, key, [value])
    for number, term in enumerate(selector.match_expressions):
        match term.operator:
            case "In":
                yield _selector_rule("keep", prefix, term.key, term.values)
            case "NotIn":
                yield _selector_rule("drop", prefix, term.key, term.values)
            case "Exists" | "DoesNotExist":
                action = "keep" if term.operator == "Exists" else "drop"
                present = f"__meta_kubernetes_{prefix}_labelpresent_{label_name(term.key)}"
                yield RelabelConfig(action=action, source_labels=[present], regex="true")
            case _:
                field = f"selector.matchExpressions[{number}].operator"
                remedy = "Use In, NotIn, Exists or DoesNotExist."
                raise InvalidObject(field, f"is {term.operator!r}", remedy)


def user_rules(rules: Sequence[Relabeling], field: str) -> tuple[RelabelConfig, ...]:
    """Return the rules of a user.

    Args:
        rules: the rules.
        field: path of the list, for errors.

    Raises:
        InvalidObject: Prometheus would reject a rule.
    """
    return tuple(_user_rule(rule, f"{field}[{number}]") for number, rule in enumerate(rules))


def _selector_rule(action: str, prefix: str, key: str, values: Sequence[str]) -> RelabelConfig:
    # An absent label has an empty value, as a label with an empty value has.
    labels = [f"__meta_kubernetes_{prefix}_{kind}_{label_name(key)}" for kind in ("label", "labelpresent")]
    alternatives = "|".join(_literal(value) for value in values)
    return RelabelConfig(action=action, source_labels=labels, regex=f"({alternatives});true")


def _literal(value: str) -> str:
    return re.sub(r"([.+*?()|\[\]{}^$\\])", r"\\\1", value)


def _user_rule(rule: Relabeling, field: str) -> RelabelConfig:
    action = (rule.action or "replace").lower()
    if action not in _ACTIONS:
        raise InvalidObject(f"{field}.action", f"is {rule.action!r}", f"Use one of {', '.join(_ACTIONS)}.")
    _check_regex(rule, field)
    for number, name in enumerate(rule.source_labels):
        if not _LABEL_NAME.fullmatch(name):
            where = f"{field}.sourceLabels[{number}]"
            raise InvalidObject(where, f"is {name!r}", "A label name has letters, digits and underscores.")
    _check_target(rule, action, field)
    _check_combination(rule, action, field)
    return RelabelConfig(
        source_labels=rule.source_labels,
        separator=rule.separator,
        regex=rule.regex or None,
        modulus=rule.modulus or None,
        target_label=rule.target_label or None,
        replacement=rule.replacement,
        action=action,
    )


def _check_regex(rule: Relabeling, field: str) -> None:
    if rule.regex is None:
        return
    limit = _MAX_REPEATED_LENGTH if "{" in rule.regex else _MAX_REGEX_LENGTH
    if len(rule.regex) > limit:
        raise InvalidObject(f"{field}.regex", f"has over {limit} characters", "Split the rule.")
    regex = replace_unicode_classes(rule.regex)
    try:
        compile_pattern(regex, syntax_only=True)
        # Prometheus anchors the regex. Without its end, \Q would quote the anchor.
        compile_pattern(f"^(?s:{regex})$", syntax_only=True)
    except UnsupportedPattern as error:
        # Prometheus may reject it, and with it the rules of all monitors.
        raise InvalidObject(f"{field}.regex", f"is not supported: {error}", "Write it in another way.") from None
    except (PatternError, ValueError, OverflowError, RecursionError) as error:
        # One error that is not handled would stop all reconciles of the Prometheus.
        raise InvalidObject(f"{field}.regex", f"is invalid: {error}", "Use the syntax of RE2.") from None


def _check_target(rule: Relabeling, action: str, field: str) -> None:
    if action in _WITH_TARGET and not rule.target_label:
        raise InvalidObject(f"{field}.targetLabel", f"is missing for the action {action}", "Set it.")
    form = _TARGET_TEMPLATE if action == "replace" else _LABEL_NAME
    if action in _WITH_TARGET and not form.fullmatch(rule.target_label or ""):
        problem = f"is {rule.target_label!r}, which is not a label name"
        raise InvalidObject(f"{field}.targetLabel", problem, "Use letters, digits and underscores.")
    if action == "labelmap" and rule.replacement is not None and not _TARGET_TEMPLATE.fullmatch(rule.replacement):
        problem = f"is {rule.replacement!r}, which does not result in a label name"
        raise InvalidObject(f"{field}.replacement", problem, "Use a value such as k8s_$1.")


def _check_combination(rule: Relabeling, action: str, field: str) -> None:
    if action == "hashmod" and not rule.modulus:
        raise InvalidObject(f"{field}.modulus", "is missing for the action hashmod", "Set a positive number.")
    if rule.modulus is not None and rule.modulus < 0:
        raise InvalidObject(f"{field}.modulus", f"is {rule.modulus}", "Set a positive number.")
    unused: dict[str, object] = {}
    if action in _REGEX_ONLY:
        unused = {"sourceLabels": rule.source_labels, "targetLabel": rule.target_label, "modulus": rule.modulus}
    if action in (*_REGEX_ONLY, "keepequal", "dropequal"):
        unused |= {"separator": rule.separator}
    if action in (*_REGEX_ONLY, "keepequal", "dropequal", "lowercase", "uppercase"):
        unused |= {"replacement": rule.replacement}
    if action in ("keepequal", "dropequal"):
        unused |= {"regex": rule.regex, "modulus": rule.modulus}
    for name, value in unused.items():
        if value not in (None, ()):
            raise InvalidObject(f"{field}.{name}", f"has no effect with the action {action}", "Remove it.")
