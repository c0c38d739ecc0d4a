"""Functions and operators of CEL in rules of custom resources."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, definition

_TRUE_RULES = (
    "self.n + 1 == 4 && 7 / 2 == 3 && -7 % 2 == -1 && 2u + 1u == 3u",
    "self.t.startsWith('ab') && self.t.matches('^a.c$') && self.t.contains('b') && size(self.t) == 3",
    "'Ab'.lowerAscii() == 'ab' && ' a '.trim() == 'a'",
    "'abc'.charAt(1) == 'b' && 'abcb'.lastIndexOf('b') == 3 && 'abc'.replace('b', 'x') == 'axc'",
    "'abc'.substring(1) == 'bc' && [1, 2].reverse() == [2, 1] && '%d-%s'.format([1, 'x']) == '1-x'",
    "[1, 2, 3].all(x, x > 0) && [1, 2].exists_one(x, x == 1) && [1, 2].map(x, x * 2) == [2, 4]",
    "[1, 2, 3].filter(x, x > 1).sum() == 5 && [2, 1].min() == 1 && [1, 2].isSorted()",
    "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2",
    "{'a': 1}.all(k, k == 'a') && 'a' in {'a': 1} && 2 in [1, 2]",
    "[1, 2].all(i, v, v == i + 1) && {'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
    "duration('90m').getHours() == 1 && duration('1h') > duration('59m')",
    "timestamp('2024-02-29T12:00:00Z').getMonth() == 1 && timestamp('2024-02-29T12:00:00Z').getDayOfMonth() == 28",
    "quantity('1Gi').isGreaterThan(quantity('1G'))",
    "quantity('1500m').add(quantity('500m')).compareTo(quantity('2')) == 0",
    "isQuantity('1Ki') && !isQuantity('1x') && quantity('2k').asInteger() == 2000",
    "url('https://a.b:80/c?d=e').getHostname() == 'a.b' && isURL('https://a') && !isURL('a b')",
    "ip('10.0.0.1').family() == 4 && isIP('::1') && !isIP('10.0.0.256') && ip('127.0.0.1').isLoopback()",
    "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').prefixLength() == 8 && !isCIDR('10.0.0.0/33')",
    "semver('1.2.3').isLessThan(semver('1.10.0')) && isSemver('1.2.3-rc.1') && semver('1.2.3').minor() == 2",
    "!format.dns1123Label().validate('a-b').hasValue() && format.dns1123Label().validate('A_').hasValue()",
    "sets.contains([1, 2], [1]) && sets.equivalent([1, 2, 2], [2, 1]) && !sets.intersects([1], [2])",
    "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
    "self.?missing.orValue('x') == 'x' && optional.of(1).hasValue()",
    "self.set == ['b', 'a'] && type(self.n) == int && string(self.n) == '3' && double(1) == 1.0",
)
_FALSE_RULES = (
    "self.n > 3",
    "self.t == 'x'",
    "self.set.exists(x, x == 'z')",
    "quantity('1').isLessThan(quantity('1'))",
)
_INVALID_RULES = {
    "self.nope == 1": "undefined field 'nope'",
    "self.n == 'a'": "found no matching overload for '_==_' applied to '(int, string)'",
    "self.n + 'a' == 'b'": "found no matching overload for '_+_' applied to '(int, string)'",
    "self.t.getHours() == 1": "found no matching overload for 'getHours' applied to 'string.()'",
    "unknown == 1": "undeclared reference to 'unknown' (in container '')",
    "self.n": "cel expression must evaluate to a bool",
}
_SPEC: Json = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "t": {"type": "string", "maxLength": 5},
        "missing": {"type": "string"},
        "set": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": 3},
        },
    },
}


def _crd_with_rules(kind: str, rules: list[Json]) -> Json:
    return definition(kind, {"spec": {**_SPEC, "x-kubernetes-validations": rules}}, {})


_RULES = [*_TRUE_RULES, *_FALSE_RULES]
CRD = _crd_with_rules("Formula", [{"rule": rule, "message": f"rule {n}"} for n, rule in enumerate(_RULES)])


async def case_expression_results(api: Api) -> None:
    spec = {"n": 3, "t": "abc", "set": ["a", "b"]}
    names = {"apiVersion": f"{CRD['spec']['group']}/v1", "kind": "Formula", "metadata": {"name": "a"}}
    path = f"/apis/{CRD['spec']['group']}/v1/namespaces/{api.namespace}/formulas"
    rejected = (await api.call("POST", path, {**names, "spec": spec})).expect_error(422, "Invalid")
    reported = [cause["message"] for cause in rejected.body["details"]["causes"]]
    assert reported == [f"Invalid value: rule {n}" for n in range(len(_TRUE_RULES), len(_RULES))]


async def case_expression_type_errors(api: Api) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for rule, text in _INVALID_RULES.items():
        rejected = await api.call("POST", path, _crd_with_rules("Wrong", [{"rule": rule}]))
        rejected.expect_error(422, "Invalid", text)
        assert rejected.causes() == [
            ("spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule", "FieldValueInvalid")
        ]
