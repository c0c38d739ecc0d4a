"""Who may log in to a cluster's servers: the lines of pg_hba.conf and pg_ident.conf. The first match decides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from itertools import chain

from ..addresses import is_address
from ..cluster_names import OPERATOR as OPERATOR
from ..cluster_names import REPLICATION as REPLICATION
from ..cluster_names import SUPERUSER as SUPERUSER
from .patterns import is_readable

REWIND = "steersman_rewind"
POOLER = "steersman_pooler"
ADMINISTRATOR = "postgres"
BY_CERTIFICATE = (REWIND, OPERATOR, SUPERUSER, POOLER)
"""The roles that come in by a certificate of the cluster's client authority and by nothing else, ever."""

_ACCOUNT = "postgres"  # the operating system's, in the image
_MAP = "steersman"
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
    "{} begins with a slash, which makes it a regular expression, and it is none that PostgreSQL is sure to read: "
    r"write one of characters, classes such as [a-z] or \d, groups and repetitions, such as /^shop_\d+$, "
    'and in "" where it has a comma or a space'
)
_NEEDED_OPTIONS = {
    "ldap": (("ldapserver", "ldapurl", "ldapbasedn"), ("ldapbasedn", "ldapprefix", "ldapsuffix", "ldapurl")),
    "radius": (("radiusservers",), ("radiussecrets",)),
}
_CLIENT_OPTIONS = {"clientcert": ("verify-full", "verify-ca"), "clientname": ("CN", "DN")}
# By method, beside those of hostssl. Source: hba.c, parse_hba_auth_opt.
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
_APART = (
    *((bind, search) for bind in ("ldapprefix", "ldapsuffix") for search in _SEARCH),
    ("ldapsearchattribute", "ldapsearchfilter"),
)
_SECRET = ("ldapbindpasswd", "radiussecrets")
_QUOTE = r'(?:\\{0,7}")'  # a log may be JSON, and what it quotes as well
# All up to the option that comes next: what is not in quotes may have been meant to be.
_VALUE = (
    rf'(?:{_QUOTE}[^"\n]*{_QUOTE}'
    rf"|(?![\s,]{_QUOTE}?(?:{'|'.join({*_CLIENT_OPTIONS, *chain(*_OPTIONS.values())})}){_QUOTE}?=)[^\n])*"
)
# Quotes begin and end anywhere in an option, its name included.
_NAME = "|".join(f"{_QUOTE}?".join(name) for name in _SECRET)
_SECRETS = re.compile(
    rf'{_QUOTE}(?P<quoted>(?:{_NAME})=)[^"\n]*{_QUOTE}{_VALUE}'
    rf"|(?P<bare>(?:{_NAME}){_QUOTE}?=|could not parse RADIUS secret list (?={_QUOTE})){_VALUE}"
)
_RISKS = {
    "trust": "trust lets in whoever claims a name, without a password",
    "password": "password has clients send it in clear text: use scram-sha-256",
    "md5": "md5 is weak, and kept passwords are SCRAM anyway: use scram-sha-256",
}


def access_rules(declared: Sequence[str], *, tls_required: bool, superuser: bool = True) -> tuple[str, ...]:
    """The lines of pg_hba.conf.

    Args:
        declared: the user's lines, as they stand. They come after ours, so they cannot let anybody in as one of our
            accounts, nor lock these out.
        tls_required: whether passwords are taken over encrypted connections only.
        superuser: whether the administrator comes in by a password, from everywhere.
    """
    ours = (*BY_CERTIFICATE, REPLICATION)
    return (
        # The pod's own account, for Patroni and for who may exec into the pod.
        f"local all {ADMINISTRATOR} peer",
        f"local replication {REPLICATION} peer map={_MAP}",
        f"hostssl replication {REPLICATION} all cert",
        *(f"hostssl all {role} all cert map={_MAP}" for role in BY_CERTIFICATE),
        *((f"hostssl all {ADMINISTRATOR} all scram-sha-256",) if superuser else ()),
        *(f"host {what} {role} all reject" for role in (*ours, ADMINISTRATOR) for what in ("all", "replication")),
        *declared,
        # `all` databases are not what is streamed. By the second, only roles with the attribute REPLICATION get on.
        *(
            f"{connection} {what} all all scram-sha-256"
            for connection in ("hostssl", *(() if tls_required else ("host",)))
            for what in ("all", "replication")
        ),
    )


def account_map() -> tuple[str, ...]:
    """The lines of pg_ident.conf: which account may be which role.

    The members have one certificate, for streaming and for pg_rewind.
    """
    return (
        f"{_MAP} {_ACCOUNT} {REPLICATION}",
        f"{_MAP} {REPLICATION} {REWIND}",
        *(f"{_MAP} {role} {role}" for role in BY_CERTIFICATE),
    )


def problem(line: str) -> str | None:
    """Why a user's line of pg_hba.conf is not taken; None where it is.

    One wrong line and a running server keeps its former file, while another one does not start at all. Besides,
    lines that bring in others, or that run on into the next, would not be what stands there.

    Source: PostgreSQL 17 documentation, 20.1 "The pg_hba.conf File", and hba.c.
    """
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    if text.endswith("\\"):
        return "it would run on into the next line: leave out the backslash at its end"
    if text.count('"') % 2:
        return 'a " is not closed'
    fields = _fields(text)
    kind = fields[0]
    names = [name.replace('"', "") for field in fields[1:3] for name in _PART.findall(field)]
    if kind.startswith("include") or any(name.startswith("@") for name in names):
        return "it reads another file, and there is none: write the rules themselves"
    if (pattern := next((name for name in names if name[:1] == "/" and not is_readable(name[1:])), None)) is not None:
        return _PATTERN.format(pattern)
    if kind not in _CONNECTIONS:
        return f'"{kind}" is no connection type: begin with {", ".join(_CONNECTIONS[:4])}'
    needed = 4 if kind == "local" else 5
    if len(fields) < needed:
        return f"it has too few fields: {_FORMS[kind == 'local']}"
    if kind == "local":
        return _refused_method(kind, fields[3], fields[4:])
    rest = fields[4:]
    if (wrong := _refused_address(fields[3], rest)) is not None:
        return wrong
    if is_address(rest[0]):
        rest = rest[1:]
    return _refused_method(kind, rest[0], rest[1:]) if rest else f"it names no method: {_FORMS[False]}"


def risk(line: str) -> str | None:
    """What a user's line, which is taken, opens; None where it opens nothing unusual."""
    return next((words for field, words in _RISKS.items() if field in _fields(line)[3:]), None)


def without_secrets(text: str) -> str:
    """Lines of pg_hba.conf, and whatever quotes them, with ``***`` in the place of passwords that are options.

    A server logs the line by which somebody was refused. Source: auth.c, auth_failed, and hba.c, parse_hba_auth_opt.
    """
    return _SECRETS.sub(lambda found: f"{found['quoted'] or found['bare']}***", text)


def _fields(line: str) -> list[str]:
    """What stands in a line, without the remark at its end."""
    found = _FIELD.findall(line)
    return found[: next((n for n, each in enumerate(found) if each.startswith("#")), None)]


def _refused_method(kind: str, method: str, options: Sequence[str]) -> str | None:
    if method not in _METHODS:
        return f'"{method}" is no method: use scram-sha-256, cert or reject'
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
            # Not as it stands there, where it may be the end of a password.
            said = f'what follows "{[*given][-1]}"' if given else f'"{option}"'
            return f'{said} is no option, which is name=value: write a value with a comma or a space in ""'
        if (wrong := _refused_option(kind, method, name, value)) is not None:
            return wrong
        given[name] = value
    lacks = next((each for each in _NEEDED_OPTIONS.get(method, ()) if given.keys().isdisjoint(each)), None)
    return _refused_together(given) if lacks is None else f"{method} needs {' or '.join(lacks)}"


def _refused_option(kind: str, method: str, name: str, value: str) -> str | None:
    if (values := _CLIENT_OPTIONS.get(name)) is not None:
        if kind != "hostssl":
            return f"{name} is for hostssl only"
        allowed = values[:1] if (method, name) == ("cert", "clientcert") else values
        return None if value in allowed else f'{name} of {method} is {" or ".join(allowed)}, not "{value}"'
    own = _OPTIONS.get(method, ())
    if name not in own:
        has = f": {method} has {', '.join(own)}" if own else ""
        return f'"{name}" is no option of {method}{has}'
    if name in ("ldapport", "radiusports") and not all(_is_port(port) for port in value.split(",")):
        return f'"{value}" is no port in {name}'
    return None


def _refused_together(given: Mapping[str, str]) -> str | None:
    """Why options, each of which is taken, are not taken beside each other."""
    if (apart := next((pair for pair in _APART if given.keys() >= set(pair)), None)) is not None:
        return f"{apart[0]} and {apart[1]} exclude each other"
    servers = given.get("radiusservers", "").count(",")
    uneven = (n for n in _OPTIONS["radius"][1:] if given.get(n, "").count(",") not in (0, servers))
    name = next(uneven, None)
    return None if name is None else f"{name} has one value, or as many as radiusservers"


def _is_port(text: str) -> bool:
    bare = text.strip()
    return bare.isascii() and bare.isdecimal() and int(bare) > 0


def _refused_address(address: str, rest: Sequence[str]) -> str | None:
    """Why what stands in an address's place is none. ``rest`` begins with the mask, if there is one."""
    bare, slash, length = address.strip('"').partition("/")
    if not is_address(bare):
        # A name, or one of the words all, samehost, samenet.
        return f'"{address}" is no address, such as 10.0.0.0/8' if slash or not bare else None
    if slash:
        try:
            ip_network(f"{bare}/{length}", strict=False)
        except ValueError:
            return f'"{address}" is no range of addresses, such as 10.0.0.0/8'
    elif not is_address(rest[0]):
        whole = 128 if ":" in bare else 32
        return f"{address} needs a mask: write {bare}/{whole} for this one address"
    return None
