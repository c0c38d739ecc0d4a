#!/bin/sh
# Makes the declared configuration the running one, after promtool has checked it.
#
# Usage: reload.sh prepare|watch DECLARED RUNNING
#   prepare   before the start of Prometheus: write a configuration and exit
#   watch     reload Prometheus by SIGHUP after each change, forever
#   DECLARED  directory of the Secret: revision, *.yaml.gz, credential-*
#   RUNNING   directory with prometheus.yaml, its rules, and prometheus.pid
#
# The kubelet replaces all files of DECLARED at once. Each step can be interrupted and repeated: the file "reloaded"
# is written last. A rejection becomes a path in rule_files that matches no file, with the reason in hexadecimal:
# Prometheus reports it with its configuration, so that the operator needs no other access to the pod.
set -u
mode=$1 declared=$2 running=$3
poll_seconds=${POLL_SECONDS:-2}

# Prints the rejection of file $2 of revision $1. The reason is read from standard input.
rejection() {
    reason=$(tr -s '\n\t ' ' ' | head -c 300 | od -An -v -tx1 | tr -d ' \n')
    printf -- '- rejected/%s/%s/%s*\n' "$1" "$2" "$reason"
}

# Writes next.yaml: configuration $1 with the rejections.
configure() {
    sed -e '/^- rejected\//d' -e "/^rule_files:/r $running/rejections" "$1" >"$running/next.yaml"
}

# Writes the rules and the configuration of revision $1, without the rule files that promtool rejects.
unpack() {
    rm -rf "$running/$1" && mkdir -p "$running/$1/rules" && : >"$running/rejections" || return 1
    for archive in "$declared"/rules-*.yaml.gz; do
        [ -e "$archive" ] || continue
        name=${archive##*/} && name=${name%.gz} && file=$running/$1/rules/$name
        gunzip -c "$archive" >"$file" || return 1
        if ! message=$(promtool check rules "$file" 2>&1); then
            echo "rejected $name: $message" >&2
            printf '%s' "$message" | sed "/^Checking /d; /FAILED:$/d; s#^$file: ##" | rejection "$1" "$name" \
                >>"$running/rejections"
            rm "$file"
        fi
    done
    gunzip -c "$declared/prometheus.yaml.gz" >"$running/unpacked.yaml" && configure "$running/unpacked.yaml"
}

# Makes revision $1 prometheus.yaml. If promtool rejects it, the previous one stays, and contains the rejection.
accept() {
    unpack "$1" || return 1
    if ! message=$(promtool check config "$running/next.yaml" 2>&1); then
        echo "rejected $1: $message" >&2
        printf '%s' "$message" | sed '/^Checking /d; /SUCCESS/d' | rejection "$1" prometheus.yaml >"$running/rejections"
        [ -e "$running/prometheus.yaml" ] || echo "rule_files:" >"$running/prometheus.yaml"
        configure "$running/prometheus.yaml"
        rm -rf "${running:?}/$1"
    fi
    mv "$running/next.yaml" "$running/prometheus.yaml"
}

# Deletes the rules of revisions that prometheus.yaml does not use.
clean() {
    for directory in "$running"/*/; do
        revision_directory=$(basename "$directory")
        grep -q "^- $revision_directory/rules/" "$running/prometheus.yaml" || rm -rf "$directory"
    done
}

if [ "$mode" = prepare ]; then
    [ -e "$running/prometheus.yaml" ] && exit 0
    revision=$(cat "$declared/revision") && accept "$revision" && echo "$revision" >"$running/reloaded"
    exit
fi

trap 'exit 0' TERM INT
while true; do
    revision=$(cat "$declared/revision" 2>/dev/null)
    if [ -n "$revision" ] && [ "$revision" != "$(cat "$running/reloaded" 2>/dev/null)" ] && accept "$revision"; then
        # Files of two revisions were mixed if the kubelet replaced them meanwhile.
        [ "$revision" = "$(cat "$declared/revision" 2>/dev/null)" ] || continue
        if kill -HUP "$(cat "$running/prometheus.pid")"; then
            clean
            echo "$revision" >"$running/reloaded"
            echo "reloaded $revision"
        fi
    fi
    sleep "$poll_seconds" &
    wait $!
done
