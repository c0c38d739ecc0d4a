"""Lines of pg_hba.conf and pg_ident.conf. The first match decides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from itertools import chain

from steersman_databases.engines.connection.dns import is_ip_address
from steersman_databases.engines.naming import OPERATOR_ROLE as OPERATOR_ROLE
from steersman_databases.engines.naming import QUERIES_ROLE as QUERIES_ROLE
from steersman_databases.engines.naming import REPLICATION_ROLE as REPLICATION_ROLE
from steersman_databases.engines.naming import SUPERUSER_ROLE as SUPERUSER_ROLE

from .hba_patterns import is_valid_pattern

REWIND_ROLE = "steersman_rewind"
POOLER_ROLE = "steersman_pooler"
ADMINISTRATOR_ROLE = "postgres"
CERTIFICATE_ROLES = (REWIND_ROLE, OPERATOR_ROLE, SUPERUSER_ROLE, POOLER_ROLE)
"""Roles that log in only with a certificate of the client authority."""

_OS_ACCOUNT = "postgres"  # account of the operating system in the image
_IDENT_MAP = "steersman"
_CONNECTIONS = ("local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc")
_METHODS = (
    "trust",
    "reject",
    "scram-sha-256",
    "md5",
    "password",
    "gss",
    "ident",
    "peer",
    "pam",
    "ldap",
    "radius",
    "cert",
)
_FORMS = {True: "local DATABASE USER METHOD", False: "hostssl DATABASE USER ADDRESS METHOD"}
_FIELD = re.compile(r'(?:"[^"]*"|[^\s"#,]|,\s*)+|#.*')
_PART = re.compile(r'(?:"[^"]*"|[^",])+')
_PATTERN = (
    "{} begins with a slash, so it is a regular expression, but PostgreSQL may not accept it: "
    r"use only characters, classes such as [a-z] or \d, groups and repetitions, such as /^shop_\d+$, "
    'and quote it by "" if it contains a comma or a space'
)
_NEEDED_OPTIONS = {
    "ldap": (("ldapserver", "ldapurl", "ldapbasedn"), ("ldapbasedn", "ldapprefix", "ldapsuffix", "ldapurl")),
    "radius": (("radiusservers",), ("radiussecrets",)),
}
_CLIENT_OPTIONS = {"clientcert": ("verify-full", "verify-ca"), "clientname": ("CN", "DN")}
# By method, in addition to those of hostssl. Source: hba.c, parse_hba_auth_opt.
_OPTIONS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("ident", "peer", "cert"), ("map",)),
    "gss": ("map", "include_realm", "krb_realm"),
    "pam": ("pamservice", "pam_use_hostname"),
    "ldap": (
        *("ldapurl", "ldaptls", "ldapscheme", "ldapserver", "ldapport", "ldapprefix", "ldapsuffix", "ldapbasedn"),
        *("ldapbinddn", "ldapbindpasswd", "ldapsearchattribute", "ldapsearchfilter"),
    ),
    "radius": ("radiusservers", "radiussecrets", "radiusports", "radiusidentifiers"),
}
_SEARCH = ("ldapbasedn", "ldapbinddn", "ldapbindpasswd", "ldapsearchattribute", "ldapsearchfilter")
_EXCLUSIVE_OPTIONS = (
    *((bind, search) for bind in ("ldapprefix", "ldapsuffix") for search in _SEARCH),
    ("ldapsearchattribute", "ldapsearchfilter"),
)
_SECRET_OPTIONS = ("ldapbindpasswd", "radiussecrets")
_QUOTE = r'(?:\\{0,7}")'  # logs may be JSON, and so may quoted text in them
# Everything up to the next option: a value without quotes may lack them by mistake.
_VALUE = (
    rf'(?:{_QUOTE}[^"\n]*{_QUOTE}'
    rf"|(?![\s,]{_QUOTE}?(?:{'|'.join({*_CLIENT_OPTIONS, *chain(*_OPTIONS.values())})}){_QUOTE}?=)[^\n])*"
)
# Quotes may begin and end anywhere in an option, even inside its name.
_NAME = "|".join(f"{_QUOTE}?".join(name) for name in _SECRET_OPTIONS)
_SECRETS = re.compile(
    rf'{_QUOTE}(?P<quoted>(?:{_NAME})=)[^"\n]*{_QUOTE}{_VALUE}'
    rf"|(?P<bare>(?:{_NAME}){_QUOTE}?=|could not parse RADIUS secret list (?={_QUOTE})){_VALUE}"
)
_RISKS = {
    "trust": "trust accepts any user name without a password",
    "password": "password sends the password in clear text: use scram-sha-256",
    "md5": "md5 is weak, and stored passwords are SCRAM: use scram-sha-256",
}


def hba_lines(declared: Sequence[str], *, tls_required: bool, superuser: bool = True) -> tuple[str, ...]:
    """Return the lines of pg_hba.conf.

    Args:
        declared: the user's lines, unchanged. They follow the operator's lines, so they can neither admit anyone as
            an account of the operator nor lock such an account out.
        tls_required: accept passwords over encrypted connections only.
        superuser: the administrator may log in with a password, from everywhere.
    """
    operator_lines = (*CERTIFICATE_ROLES, REPLICATION_ROLE)
    return (
        # The pod's account, for Patroni and for users with exec into the pod.
        f"local all {ADMINISTRATOR_ROLE} peer",
        f"local replication {REPLICATION_ROLE} peer map={_IDENT_MAP}",
        f"local all {QUERIES_ROLE} peer map={_IDENT_MAP}",
        f"hostssl replication {REPLICATION_ROLE} all cert",
        *(f"hostssl all {role} all cert map={_IDENT_MAP}" for role in CERTIFICATE_ROLES),
        *((f"hostssl all {ADMINISTRATOR_ROLE} all scram-sha-256",) if superuser else ()),
        *(
            f"host {databases} {role} all reject"
            for role in (*operator_lines, QUERIES_ROLE, ADMINISTRATOR_ROLE)
            for databases in ("all", "replication")
        ),
        *declared,
        # `all` does not include streaming replication. The second line admits only roles with the attribute
        # REPLICATION.
        *(
            f"{connection} {what} all all scram-sha-256"
            for connection in ("hostssl", *(() if tls_required else ("host",)))
            for what in ("all", "replication")
        ),
    )


def ident_lines() -> tuple[str, ...]:
    """Return the lines of pg_ident.conf, which map accounts to roles.

    All members use one certificate for streaming and for pg_rewind.
    """
    return (
        f"{_IDENT_MAP} {_OS_ACCOUNT} {REPLICATION_ROLE}",
        f"{_IDENT_MAP} {_OS_ACCOUNT} {QUERIES_ROLE}",
        f"{_IDENT_MAP} {REPLICATION_ROLE} {REWIND_ROLE}",
        *(f"{_IDENT_MAP} {role} {role}" for role in CERTIFICATE_ROLES),
    )


def validate_line(line: str) -> str | None:
    """Return the reason why a user's line is refused, or None.

    With one wrong line of pg_hba.conf a running server keeps its previous file, while another server does not start.
    Lines that include other files, or that continue in the next line, would have another meaning than their text.

    Source: PostgreSQL 17 documentation, 20.1 "The pg_hba.conf File", and hba.c.
    """
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    if text.endswith("\\"):
        return "the backslash at its end continues the line: remove it"
    if text.count('"') % 2:
        return 'a " is not closed'
    fields = _fields(text)
    kind = fields[0]
    names = [name.replace('"', "") for field in fields[1:3] for name in _PART.findall(field)]
    if kind.startswith("include") or any(name.startswith("@") for name in names):
        return "it includes another file, which does not exist: write the rules themselves"
    if (
        pattern := next((name for name in names if name[:1] == "/" and not is_valid_pattern(name[1:])), None)
    ) is not None:
        return _PATTERN.format(pattern)
    if kind not in _CONNECTIONS:
        return f'"{kind}" is not a connection type: begin with {", ".join(_CONNECTIONS[:4])}'
    needed = 4 if kind == "local" else 5
    if len(fields) < needed:
        return f"it has too few fields: {_FORMS[kind == 'local']}"
    if kind == "local":
        return _validate_method(kind, fields[3], fields[4:])
    rest = fields[4:]
    if (invalid := _validate_address(fields[3], rest)) is not None:
        return invalid
    if is_ip_address(rest[0]):
        rest = rest[1:]
    return _validate_method(kind, rest[0], rest[1:]) if rest else f"it has no method: {_FORMS[False]}"


def security_warning(line: str) -> str | None:
    """Return the risk of a user's valid line, or None."""
    return next((message for field, message in _RISKS.items() if field in _fields(line)[3:]), None)


def redact(text: str) -> str:
    """Replace passwords in options of pg_hba.conf by `***`.

    This applies to lines and to any text that quotes them. A server logs the line that rejected a login.
    Source: auth.c, auth_failed, and hba.c, parse_hba_auth_opt.
    """
    return _SECRETS.sub(lambda found: f"{found['quoted'] or found['bare']}***", text)


def _fields(line: str) -> list[str]:
    """Return the fields of a line without its trailing comment."""
    found = _FIELD.findall(line)
    return found[: next((n for n, each in enumerate(found) if each.startswith("#")), None)]


def _validate_method(kind: str, method: str, options: Sequence[str]) -> str | None:
    if method not in _METHODS:
        if method == "oauth":
            return "oauth needs a validator library, which the images do not have: use scram-sha-256, ldap or cert"
        return f'"{method}" is not a method: use scram-sha-256, cert or reject'
    if method == "peer" and kind != "local":
        return "peer is for local connections: use scram-sha-256 or cert"
    if method == "gss" and kind == "local":
        return "gss is not for local connections: use peer or scram-sha-256"
    if method == "cert" and kind != "hostssl":
        return "cert is for hostssl only"
    given: dict[str, str] = {}
    for option in (part.strip() for field in options for part in _PART.findall(field)):
        name, equals, value = option.replace('"', "").partition("=")
        if not equals:
            # The text is not repeated, because it may be the end of a password.
            reported = f'what follows "{[*given][-1]}"' if given else f'"{option}"'
            return f'{reported} is not an option of the form name=value: quote a value with a comma or a space by ""'
        if (wrong := _validate_option(kind, method, name, value)) is not None:
            return wrong
        given[name] = value
    missing = next((each for each in _NEEDED_OPTIONS.get(method, ()) if given.keys().isdisjoint(each)), None)
    return _validate_combination(given) if missing is None else f"{method} needs {' or '.join(missing)}"


def _validate_option(kind: str, method: str, name: str, value: str) -> str | None:
    if (values := _CLIENT_OPTIONS.get(name)) is not None:
        if kind != "hostssl":
            return f"{name} is for hostssl only"
        allowed = values[:1] if (method, name) == ("cert", "clientcert") else values
        return None if value in allowed else f'{name} of {method} is {" or ".join(allowed)}, not "{value}"'
    own = _OPTIONS.get(method, ())
    if name not in own:
        has = f": {method} has {', '.join(own)}" if own else ""
        return f'"{name}" is not an option of {method}{has}'
    if name in ("ldapport", "radiusports") and not all(_is_port(port) for port in value.split(",")):
        return f'"{value}" is not a port in {name}'
    return None


def _validate_combination(given: Mapping[str, str]) -> str | None:
    """Return the reason why valid options are refused in combination, or None."""
    if (exclusive := next((pair for pair in _EXCLUSIVE_OPTIONS if given.keys() >= set(pair)), None)) is not None:
        return f"{exclusive[0]} and {exclusive[1]} exclude each other"
    servers = given.get("radiusservers", "").count(",")
    uneven = (n for n in _OPTIONS["radius"][1:] if given.get(n, "").count(",") not in (0, servers))
    name = next(uneven, None)
    return None if name is None else f"{name} needs one value, or as many as radiusservers"


def _is_port(text: str) -> bool:
    bare = text.strip()
    return bare.isascii() and bare.isdecimal() and int(bare) > 0


def _validate_address(address: str, rest: Sequence[str]) -> str | None:
    """Return the problem of an address field, or None.

    `rest` begins with the mask, if there is one.
    """
    address_only, slash, length = address.strip('"').partition("/")
    if not is_ip_address(address_only):
        # A host name, or one of the keywords all, samehost, samenet.
        return f'"{address}" is not an address, such as 10.0.0.0/8' if slash or not address_only else None
    if slash:
        try:
            ip_network(f"{address_only}/{length}", strict=False)
        except ValueError:
            return f'"{address}" is not an address range, such as 10.0.0.0/8'
    elif not is_ip_address(rest[0]):
        network = 128 if ":" in address_only else 32
        return f"{address} needs a mask: write {address_only}/{network} for this one address"
    return None
