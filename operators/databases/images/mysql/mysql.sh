# shellcheck shell=sh
# How MySQL is initialised and run; read by entrypoint.sh and probe.sh.

make_data() {
    # The suppressed warning tells of the empty password that root has until the SQL, a moment later, takes it away.
    mysqld --defaults-file=/usr/local/share/steersman/mysql.cnf --log-error-suppression-list=MY-010453 \
        --datadir="$1" --initialize-insecure --init-file=/dev/fd/4 4<<SQL
$(cat <&3)
INSTALL PLUGIN auth_socket SONAME 'auth_socket.so';
ALTER USER root@localhost IDENTIFIED WITH auth_socket AS 'mysql';
SQL
}

serve() {
    exec mysqld --defaults-file=/usr/local/share/steersman/mysql.cnf "$@"
}

# Any answer counts, "too many connections" too: it is the server that gives it.
ask() {
    mysqladmin --no-defaults --user=root --socket="$1" --connect-timeout=3 ping >/dev/null 2>&1
}
