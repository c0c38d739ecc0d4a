#!/bin/sh
# Makes the database on an empty volume, once, then becomes the server. Arguments go to the server as they are.
set -eu
umask 077

volume=/var/lib/steersman/data
data=$volume/pgdata
unfinished=$volume/.pgdata.unfinished
admin=/etc/steersman/admin
run=/run/steersman

fail() {
    echo "steersman: $*" >&2
    exit 1
}

initialise() {
    username=$(head -n 1 "$admin/username")
    case $username in
    '' | [!a-z_]* | *[!a-z0-9_]*) fail "the administrator's name in $admin/username must be a plain lower-case identifier" ;;
    esac
    # A killed container leaves this behind; nobody has ever been served from it.
    rm -rf "$unfinished"
    # The built-in C.UTF-8 sorts the same with every C library and ICU version, so a newer image breaks no index. 15 has
    # only the C library's.
    case $(postgres --version) in
    *' 15.'*) set -- --locale-provider=libc ;;
    *) set -- --locale-provider=builtin --builtin-locale=C.UTF-8 ;;
    esac
    # In the background, because a shell that waits for a foreground child is deaf to SIGTERM.
    initdb --pgdata="$unfinished" --username="$username" --pwfile="$admin/password" \
        --encoding=UTF8 --locale=C.UTF-8 "$@" \
        --data-checksums --auth-local=peer --auth-host=scram-sha-256 --no-instructions &
    wait $!
    # initdb has synced the files; the name is what makes them count.
    mv -T "$unfinished" "$data"
    sync "$volume"
}

# The process that will be the server is number 1 until then, and number 1 ignores what it does not trap.
trap 'exit 143' TERM INT

[ -w "$volume" ] || fail "user $(id -u) cannot write to $volume: set fsGroup 10001 or change the volume's owner"
# Held by the server for life. Its own lock file tells nothing here: in containers every server is process 1.
exec 9>"$volume/.lock"
flock --wait 60 9 || fail "another server uses $volume"

[ -e "$data/PG_VERSION" ] || initialise

version=$(cat "$data/PG_VERSION")
case $(postgres --version) in
*" $version."*) ;;
*) fail "the data are PostgreSQL $version's, which $(postgres --version) cannot read" ;;
esac

# A restarted container finds its predecessor's socket, and probes must not take it for the new server's.
rm -f "$run"/.s.PGSQL.*
# Encrypted by default; who must know the server by its certificate mounts one and names it in the arguments.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 3650 -subj /CN=postgresql \
    -keyout "$run/tls.key" -out "$run/tls.crt" 2>"$run/openssl.log" || fail "$(cat "$run/openssl.log")"

exec postgres -D "$data" \
    -c listen_addresses='*' \
    -c unix_socket_directories="$run" \
    -c hba_file=/usr/local/share/steersman/pg_hba.conf \
    -c ssl=on -c ssl_cert_file="$run/tls.crt" -c ssl_key_file="$run/tls.key" \
    "$@"
