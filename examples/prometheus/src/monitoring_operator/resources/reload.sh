#!/bin/sh
# Makes the declared configuration the running one, after promtool has checked it.
#
# Usage: reload.sh prepare|watch DECLARED RUNNING REPORT
#   prepare   before the start of Prometheus: write a configuration and exit
#   watch     reload Prometheus by SIGHUP after each change, forever
#   DECLARED  directory of the Secret: revision, *.yaml.gz, credential-*
#   RUNNING   directory with prometheus.yaml, its rules, and prometheus.pid
#   REPORT    file for the reason of a rejection: the termination log of the container
#
# The kubelet replaces all files of DECLARED at once. Each step can be interrupted and repeated: the file "reloaded"
# is written last. After a rejection the script exits once, so that the kubelet publishes the report in the pod.
set -u
mode=$1 declared=$2 running=$3 report=$4
poll_seconds=${POLL_SECONDS:-2}

# Writes rules and configuration of revision $1 under the name $2.
unpack() {
    rm -rf "$running/$2" && mkdir -p "$running/$2/rules" || return 1
    for archive in "$declared"/rules-*.yaml.gz; do
        [ -e "$archive" ] || continue
        unpacked=${archive##*/}
        gunzip -c "$archive" >"$running/$2/rules/${unpacked%.gz}" || return 1
    done
    configure "$1" "$2"
}

# Writes the configuration of revision $1 with the rules of directory $2.
configure() {
    gunzip -c "$declared/prometheus.yaml.gz" >"$running/unpacked.yaml" || return 1
    sed "s#^- $1/rules/#- $2/rules/#" "$running/unpacked.yaml" >"$running/next.yaml"
}

# Deletes the rule files of directory $1 that promtool rejects, and prints why. Returns 1 if it deleted one.
reject_rules() {
    result=0
    for file in "$1"/*.yaml; do
        [ -e "$file" ] || continue
        if ! message=$(promtool check rules "$file" 2>&1); then
            reason=$(printf '%s' "$message" | sed "/^Checking /d; /FAILED:$/d; s#^$file: ##" | tr -s '\n\t ' ' ' | head -c 300)
            printf '%s: %s\n' "${file##*/}" "$reason"
            rm "$file"
            result=1
        fi
    done
    return $result
}

# Checks revision $1 and makes it prometheus.yaml. Prints what was rejected. Returns 1 if nothing was accepted.
accept() {
    accepted=$1
    unpack "$1" "$accepted" || return 1
    if ! rejected=$(reject_rules "$running/$accepted/rules"); then
        printf '%s\n' "$rejected"
        accepted=$1-partial
        rm -rf "$running/$accepted" && mv "$running/$1" "$running/$accepted" && configure "$1" "$accepted" || return 1
    fi
    if ! message=$(promtool check config "$running/next.yaml" 2>&1); then
        printf '%s\n' "$message" | sed "/^Checking /d; /SUCCESS/d; /^$/d" | tail -n 5
        return 1
    fi
    mv "$running/next.yaml" "$running/prometheus.yaml"
}

# Deletes the rules of all revisions except $1.
clean() {
    for directory in "$running"/*/; do
        case $directory in */"$1"/ | */"$1"-partial/) ;; *) rm -rf "$directory" ;; esac
    done
}

if [ "$mode" = prepare ]; then
    # Whatever is rejected here, "watch" rejects and reports it again.
    [ -e "$running/prometheus.yaml" ] && exit 0
    revision=$(cat "$declared/revision")
    if output=$(accept "$revision") && [ -z "$output" ]; then
        echo "$revision" >"$running/reloaded"
    elif [ ! -e "$running/prometheus.yaml" ]; then
        echo "global: {}" >"$running/prometheus.yaml"
    fi
    exit 0
fi

trap 'exit 0' TERM INT
while true; do
    revision=$(cat "$declared/revision" 2>/dev/null)
    if [ -n "$revision" ] && [ "$revision" != "$(cat "$running/reloaded" 2>/dev/null)" ] &&
        [ "$revision" != "$(cat "$running/rejected" 2>/dev/null)" ]; then
        status=0
        output=$(accept "$revision") || status=$?
        # Files of two revisions were mixed if the kubelet replaced them meanwhile.
        [ "$revision" = "$(cat "$declared/revision" 2>/dev/null)" ] || continue
        reloaded=
        if [ "$status" = 0 ] && kill -HUP "$(cat "$running/prometheus.pid")"; then
            echo "reloaded $revision"
            reloaded=yes
        fi
        if [ -n "$output" ]; then
            { echo "$revision"; printf '%s\n' "$output"; } | head -c 2048 | tee "$report" >&2
            [ "$status" = 0 ] || echo "$revision" >"$running/rejected"
        fi
        if [ -n "$reloaded" ]; then
            clean "$revision"
            rm -f "$running/rejected"
            echo "$revision" >"$running/reloaded"
        fi
        [ -z "$output" ] || exit 1
    fi
    sleep "$poll_seconds" &
    wait $!
done
