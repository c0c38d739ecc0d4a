"""Lines of pg_hba.conf that PostgreSQL takes, and such as it does not."""

from __future__ import annotations

TAKEN = (
    "local all all peer",
    "host all all all scram-sha-256",
    "hostssl shop,stock clerk 10.0.0.0/8 scram-sha-256",
    "hostssl all all 10.0.0.1 255.255.255.255 reject",
    "hostnossl all all ::1/128 reject",
    "host all all samenet md5",
    "host all all .example.com scram-sha-256",
    'hostssl "my base" "clerk" all cert map=people',
    "host all +group 0.0.0.0/0 ldap ldapserver=ldap.example.com ldapprefix=cn=",
    "host all all all trust  # for now",
    "# only a remark",
)
WRONG = (
    "nonsense",
    "hosts all all all reject",
    "host all all all",
    "host all all all guess",
    "host all all all peer",
    "host all all all cert",
    "local all all gss",
    "local all all",
    "host all all 10.0.0.1 reject",
    "host all all 10.0.0.0/40 reject",
    "host all all all reject now",
    "host all all all ldap ldapserver=ldap.example.com",
    "host all all all radius radiusservers=10.0.0.1",
    "include /data/more",
    "host @names all all reject",
    "host all all all reject \\",
    'host all "clerk all all reject',
)
