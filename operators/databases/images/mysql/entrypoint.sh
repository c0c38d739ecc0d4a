#!/bin/sh
# Makes the database on an empty volume, once, then becomes the server. Arguments go to the server as they are.
set -eu
umask 077

volume=/var/lib/steersman/data
data=$volume/mysql
unfinished=$volume/.mysql.unfinished
temporary=$volume/mysql.temporary
admin=/etc/steersman/admin
run=/run/steersman

fail() {
    echo "steersman: $*" >&2
    exit 1
}

# make_data DIRECTORY (runs the SQL from file descriptor 3 in it) and serve ARGUMENTS... are the engine's own.
. /usr/local/lib/steersman/engine.sh

# The first line of a file as an SQL expression. In hexadecimal no character can end the string it stands in.
sql_text() {
    hex=$(head -n 1 "$1" | tr -d '\n' | od -An -v -tx1 | tr -d ' \n')
    [ -n "$hex" ] || fail "$1 is empty"
    echo "QUOTE(CONVERT(x'$hex' USING utf8mb4))"
}

# The administrator comes from the network; who is in the pod as this account needs no password.
accounts() {
    username=$(sql_text "$admin/username")
    password=$(sql_text "$admin/password")
    cat <<SQL
SET SESSION sql_mode = '';
SET @account = CONCAT($username, '@''%''');
SET @statement = CONCAT('CREATE USER ', @account, ' IDENTIFIED BY ', $password);
PREPARE statement FROM @statement;
EXECUTE statement;
SET @statement = CONCAT('GRANT ALL ON *.* TO ', @account, ' WITH GRANT OPTION');
PREPARE statement FROM @statement;
EXECUTE statement;
DEALLOCATE PREPARE statement;
SET @statement = NULL;
SQL
}

initialise() {
    sql=$(accounts)
    # A killed container leaves this behind; nobody has ever been served from it.
    rm -rf "$unfinished"
    # The SQL goes through a pipe: no file has the password. In the background, because a shell that waits for a
    # foreground child is deaf to SIGTERM.
    make_data "$unfinished" 3<<SQL &
$sql
SQL
    wait $!
    find "$unfinished" -exec sync {} +
    mv -T "$unfinished" "$data"
    sync "$volume"
}

# The process that will be the server is number 1 until then, and number 1 ignores what it does not trap.
trap 'exit 143' TERM INT

[ -w "$volume" ] || fail "user $(id -u) cannot write to $volume: set fsGroup 10001 or change the volume's owner"
# Held by the server for life: there is never a second one on the volume, not even one that initialises it.
exec 9>"$volume/.lock"
flock --wait 60 9 || fail "another server uses $volume"

[ -d "$data" ] || initialise

# A restarted container finds its predecessor's socket, and probes must not take it for the new server's.
rm -f "$run"/mysqld.*

# What is sorted and set aside there takes as much room as the largest table: more than the pod has of its own.
rm -rf "$temporary"
mkdir "$temporary"

serve --tmpdir="$temporary" "$@"
