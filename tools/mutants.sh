#!/usr/bin/env bash
# Plants bugs, one after the other, and says which of them no test sees: shard $2 of $3 (from 0 on)
# of the mutants of $1, names out of the list below. cargo-mutants works on a copy of the tree; what
# it found is in target/mutants/NAME-SHARD/mutants.out. Fails if one was missed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
names=$1 shard=$2 shards=$3

# Which sources are changed, and after `--` which tests have to notice.
arguments() {
    case "$1" in
    base | wire | classify | channel | congestion | transport) echo -p "clearway-$1" ;;
    switch) echo -p clearway-engine --file 'crates/engine/src/switch/**' ;;
    policy)
        echo -p clearway-daemon --file 'crates/daemon/src/policy*/**' \
            --file crates/daemon/src/policy.rs -- --lib
        ;;
    *) echo "mutants: there is no $1 in tools/mutants.sh" >&2 ;;
    esac
}

command -v cargo-mutants >/dev/null || cargo install --quiet --locked cargo-mutants
missed=0
for name in $names; do
    output=target/mutants/$name-$shard
    mkdir -p "$output"
    read -ra which < <(arguments "$name")
    # A mutant that hangs is a dead one: so are tests that go on for longer than any does.
    # Tests are not what is tested, also where they stand behind `cfg(all(test, ...))`.
    cargo mutants --sharding round-robin --shard "$shard/$shards" --colors never \
        --exclude '**/tests.rs' --exclude '**/tests/**' \
        --timeout "${MUTANT_SECONDS:-60}" --output "$output" "${which[@]}" || missed=1
done
exit $missed
