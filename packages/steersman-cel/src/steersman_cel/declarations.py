"""Declarations of the functions that rules may call.

Each line has a name and the signatures of its overloads: parameters and result. The target of a method precedes a
dot. ``A`` and ``B`` are type parameters. Source: ``common/stdlib`` and ``ext`` of ``cel-go``;
``pkg/cel/environment/base.go`` and ``pkg/cel/library`` of ``k8s.io/apiserver`` 1.36.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from steersman_cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
)

_STANDARD = """
!_                      (bool)bool
-_                      (int)int (double)double
_&&_                    (bool,bool)bool
_||_                    (bool,bool)bool
_?_:_                   (bool,A,A)A
_==_                    (A,A)bool
_!=_                    (A,A)bool
_+_                     (int,int)int (uint,uint)uint (double,double)double (string,string)string (bytes,bytes)bytes \
(list(A),list(A))list(A) (duration,duration)duration (duration,timestamp)timestamp (timestamp,duration)timestamp
_-_                     (int,int)int (uint,uint)uint (double,double)double (duration,duration)duration \
(timestamp,duration)timestamp (timestamp,timestamp)duration
_*_                     (int,int)int (uint,uint)uint (double,double)double
_/_                     (int,int)int (uint,uint)uint (double,double)double
_%_                     (int,int)int (uint,uint)uint
@in                     (A,list(A))bool (A,map(A,B))bool
@not_strictly_false     (bool)bool
_[_]                    (list(A),int)A (map(A,B),A)B (optional_type(list(A)),int)optional_type(A) \
(optional_type(map(A,B)),A)optional_type(B)
_[?_]                   (list(A),int)optional_type(A) (map(A,B),A)optional_type(B) \
(optional_type(list(A)),int)optional_type(A) (optional_type(map(A,B)),A)optional_type(B)
size                    (string)int (bytes)int (list(A))int (map(A,B))int
size                    string.()int bytes.()int list(A).()int map(A,B).()int
matches                 (string,string)bool string.(string)bool
contains                string.(string)bool
startsWith              string.(string)bool
endsWith                string.(string)bool
bool                    (bool)bool (string)bool
bytes                   (bytes)bytes (string)bytes
double                  (double)double (int)double (string)double (uint)double
duration                (duration)duration (int)duration (string)duration
dyn                     (A)dyn
int                     (int)int (double)int (duration)int (string)int (timestamp)int (uint)int
string                  (bool)string (bytes)string (double)string (duration)string (int)string (string)string \
(timestamp)string (uint)string (net.IP)string (net.CIDR)string
timestamp               (timestamp)timestamp (int)timestamp (string)timestamp
type                    (A)type(A)
uint                    (uint)uint (double)uint (int)uint (string)uint
getFullYear             timestamp.()int timestamp.(string)int
getMonth                timestamp.()int timestamp.(string)int
getDayOfYear            timestamp.()int timestamp.(string)int
getDayOfMonth           timestamp.()int timestamp.(string)int
getDate                 timestamp.()int timestamp.(string)int
getDayOfWeek            timestamp.()int timestamp.(string)int
getHours                timestamp.()int timestamp.(string)int duration.()int
getMinutes              timestamp.()int timestamp.(string)int duration.()int
getSeconds              timestamp.()int timestamp.(string)int duration.()int
getMilliseconds         timestamp.()int timestamp.(string)int duration.()int
"""
_EXTENSIONS = """
charAt                  string.(int)string
indexOf                 string.(string)int string.(string,int)int list(A).(A)int
lastIndexOf             string.(string)int string.(string,int)int list(A).(A)int
join                    list(string).()string list(string).(string)string
lowerAscii              string.()string
upperAscii              string.()string
replace                 string.(string,string)string string.(string,string,int)string
split                   string.(string)list(string) string.(string,int)list(string)
substring               string.(int)string string.(int,int)string
trim                    string.()string
format                  string.(list(dyn))string
strings.quote           (string)string
optional.of             (A)optional_type(A)
optional.ofNonZeroValue (A)optional_type(A)
optional.none           ()optional_type(A)
optional.unwrap         (list(optional_type(A)))list(A)
unwrapOpt               list(optional_type(A)).()list(A)
value                   optional_type(A).()A
hasValue                optional_type(A).()bool
or                      optional_type(A).(optional_type(A))optional_type(A)
orValue                 optional_type(A).(A)A
first                   list(A).()optional_type(A)
last                    list(A).()optional_type(A)
slice                   list(A).(int,int)list(A)
flatten                 list(list(A)).()list(A) list(dyn).(int)list(dyn)
lists.range             (int)list(int)
distinct                list(A).()list(A)
reverse                 list(A).()list(A)
sets.contains           (list(A),list(A))bool
sets.equivalent         (list(A),list(A))bool
sets.intersects         (list(A),list(A))bool
@sortByAssociatedKeys   list(A).(list(S))list(A)
isSorted                list(S).()bool
min                     list(S).()S
max                     list(S).()S
sort                    list(S).()list(S)
sum                     list(int).()int list(uint).()uint list(double).()double list(duration).()duration
find                    string.(string)string
findAll                 string.(string)list(string) string.(string,int)list(string)
url                     (string)kubernetes.URL
isURL                   (string)bool
getScheme               kubernetes.URL.()string
getHost                 kubernetes.URL.()string
getHostname             kubernetes.URL.()string
getPort                 kubernetes.URL.()string
getEscapedPath          kubernetes.URL.()string
getQuery                kubernetes.URL.()map(string,list(string))
quantity                (string)kubernetes.Quantity
isQuantity              (string)bool
isInteger               kubernetes.Quantity.()bool
asInteger               kubernetes.Quantity.()int
asApproximateFloat      kubernetes.Quantity.()double
sign                    (kubernetes.Quantity)int
add                     kubernetes.Quantity.(kubernetes.Quantity)kubernetes.Quantity \
kubernetes.Quantity.(int)kubernetes.Quantity
sub                     kubernetes.Quantity.(kubernetes.Quantity)kubernetes.Quantity \
kubernetes.Quantity.(int)kubernetes.Quantity
isLessThan              kubernetes.Quantity.(kubernetes.Quantity)bool kubernetes.Semver.(kubernetes.Semver)bool
isGreaterThan           kubernetes.Quantity.(kubernetes.Quantity)bool kubernetes.Semver.(kubernetes.Semver)bool
compareTo               kubernetes.Quantity.(kubernetes.Quantity)int kubernetes.Semver.(kubernetes.Semver)int
semver                  (string)kubernetes.Semver (string,bool)kubernetes.Semver
isSemver                (string)bool (string,bool)bool
major                   kubernetes.Semver.()int
minor                   kubernetes.Semver.()int
patch                   kubernetes.Semver.()int
ip                      (string)net.IP net.CIDR.()net.IP
isIP                    (string)bool
ip.isCanonical          (string)bool
family                  net.IP.()int
isUnspecified           net.IP.()bool
isLoopback              net.IP.()bool
isLinkLocalMulticast    net.IP.()bool
isLinkLocalUnicast      net.IP.()bool
isGlobalUnicast         net.IP.()bool
cidr                    (string)net.CIDR
isCIDR                  (string)bool
containsIP              net.CIDR.(string)bool net.CIDR.(net.IP)bool
containsCIDR            net.CIDR.(string)bool net.CIDR.(net.CIDR)bool
prefixLength            net.CIDR.()int
masked                  net.CIDR.()net.CIDR
format.named            (string)optional_type(kubernetes.NamedFormat)
validate                kubernetes.NamedFormat.(string)optional_type(list(string))
"""
# Rules of custom resources have no authorizer, but cel-go knows these names.
_AUTHORIZATION = """
path                    AUTHORIZER.(string)AUTH.PathCheck
group                   AUTHORIZER.(string)AUTH.GroupCheck
serviceAccount          AUTHORIZER.(string,string)AUTHORIZER
resource                AUTH.GroupCheck.(string)AUTH.ResourceCheck
subresource             AUTH.ResourceCheck.(string)AUTH.ResourceCheck
namespace               AUTH.ResourceCheck.(string)AUTH.ResourceCheck
name                    AUTH.ResourceCheck.(string)AUTH.ResourceCheck
fieldSelector           AUTH.ResourceCheck.(string)AUTH.ResourceCheck
labelSelector           AUTH.ResourceCheck.(string)AUTH.ResourceCheck
check                   AUTH.PathCheck.(string)AUTH.Decision AUTH.ResourceCheck.(string)AUTH.Decision
errored                 AUTH.Decision.()bool
error                   AUTH.Decision.()string
allowed                 AUTH.Decision.()bool
reason                  AUTH.Decision.()string
""".replace("AUTHORIZER", "AUTH.Authorizer").replace("AUTH.", "kubernetes.authorization.")
FORMATS = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix"),
    *("dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime"),
)
_ORDERED_TYPES = ("int", "uint", "double", "string", "bytes", "bool", "timestamp", "duration")
_SORTABLE_TYPES = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_NUMERIC_TYPES = ("int", "uint", "double")
_SIMPLE_TYPES = {str(t): t for t in (INT, UINT, DOUBLE, BOOL, STRING, BYTES, NULL, DYN, TIMESTAMP, DURATION)} | {
    name: Type(name, is_type_param=True) for name in "AB"
}


class Overload(NamedTuple):
    """An overload of a function. If ``member`` is set, the first parameter is the target."""

    name: str
    params: tuple[Type, ...]
    result: Type
    member: bool


@cache
def parse_type(text: str) -> Type:
    """Parse a type such as ``map(string,list(A))``."""
    name, bracket, inside = text.partition("(")
    if not bracket:
        return _SIMPLE_TYPES.get(name) or Type(name)
    return Type(name, tuple(parse_type(part) for part in _split_arguments(inside[:-1])))


def _split_arguments(text: str) -> list[str]:
    """Split ``text`` at commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [p for p in parts if p]


def _parse_overloads(name: str, signatures: str) -> list[Overload]:
    found: list[Overload] = []
    for form in signatures.split():
        # S stands for sortable types.
        kinds = _SORTABLE_TYPES if re.search(r"\bS\b", form) else ("",)
        found += [_parse_overload(name, re.sub(r"\bS\b", kind, form)) for kind in kinds]
    return found


def _parse_overload(name: str, form: str) -> Overload:
    member = form[0] != "("
    target, _, rest = form.partition(".(") if member else ("", "", form[1:])
    depth, end = 1, 0
    while depth:
        depth += (rest[end] == "(") - (rest[end] == ")")
        end += 1
    params = [parse_type(p) for p in ([target] if member else []) + _split_arguments(rest[: end - 1])]
    return Overload(name, tuple(params), parse_type(rest[end:]), member)


@cache
def declared_functions() -> dict[str, list[Overload]]:
    """All functions by name."""
    found: dict[str, list[Overload]] = {}
    for line in (_STANDARD + _EXTENSIONS + _AUTHORIZATION).splitlines():
        if not line:
            continue
        name, signatures = line.split(maxsplit=1)
        found.setdefault(name, []).extend(_parse_overloads(name, signatures))
    pairs = [(t, t) for t in _ORDERED_TYPES] + [(a, b) for a in _NUMERIC_TYPES for b in _NUMERIC_TYPES if a != b]
    for operator in ("_<_", "_<=_", "_>_", "_>=_"):
        found[operator] = [Overload(operator, (parse_type(a), parse_type(b)), BOOL, False) for a, b in pairs]
    for name in FORMATS:
        found[f"format.{name}"] = [Overload(f"format.{name}", (), Type("kubernetes.NamedFormat"), False)]
    return found
