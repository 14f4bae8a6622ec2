# For scripts that start programs in the background: sourced, after `work` is a directory and `name`
# what to call the script. Ends what is in `pids` and removes `work` at the end, however it comes;
# `clean_more` may do more.
pids=()
clean_more() { :; }
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    clean_more
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

fail() {
    echo "$name: $*" >&2
    cat "$work"/*.log >&2 2>/dev/null || true
    exit 1
}
# Waits up to ten seconds for a condition.
wait_for() {
    for _ in $(seq 200); do
        if "$@" 2>/dev/null; then return 0; fi
        sleep 0.05
    done
    return 1
}
