# shellcheck shell=sh
# How MariaDB is initialised and run; read by entrypoint.sh and probe.sh.

make_data() {
    # --bootstrap starts without accounts, so the tables that hold them are read in first.
    mariadb-install-db --defaults-file=/usr/local/share/steersman/mariadb.cnf --datadir="$1" \
        --auth-root-authentication-method=socket --auth-root-socket-user=mysql --skip-test-db --force \
        && mariadbd --defaults-file=/usr/local/share/steersman/mariadb.cnf --datadir="$1" --bootstrap <<SQL
FLUSH PRIVILEGES;
$(cat <&3)
SQL
}

serve() {
    exec mariadbd --defaults-file=/usr/local/share/steersman/mariadb.cnf "$@"
}

# Any answer counts, "too many connections" too: it is the server that gives it. The client's own errors are 2000 and up.
ask() {
    answer=$(mariadb --no-defaults --user=mysql --socket="$1" --connect-timeout=3 --execute='DO 0' 2>&1) && return
    case $answer in *'ERROR 2'[0-9][0-9][0-9]' '*) return 1 ;; esac
}
