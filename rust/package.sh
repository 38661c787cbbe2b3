#!/bin/sh
# Prove that the packages are whole: package both crates, unpack them away from the repository, and
# build and test both there, with nothing of ours but what was packaged.
set -eu
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$PWD/target}
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT

# tributary-sys is not on the registry at this version, so packaging the other one with it takes
# both at once; --no-verify, for the build below verifies more. Uncommitted changes are packaged too.
cargo package --quiet --workspace --no-verify --allow-dirty --locked

for package in tributary-sys tributary-ccl; do
    archive=$(ls "$target/package/$package"-[0-9]*.crate)
    tar -xzf "$archive" -C "$away"
    size=$(wc -c <"$archive")
    echo "$package: $(tar -tzf "$archive" | wc -l) files, $size bytes"
    # The registry takes 10 MiB.
    [ "$size" -lt 10485760 ]
done

# No link, nothing of the repository around, no path that leads back.
[ -z "$(find "$away" -type l)" ]
cat >"$away/Cargo.toml" <<TOML
[workspace]
resolver = "2"
members = ["$(cd "$away" && echo tributary-ccl-*)", "$(cd "$away" && echo tributary-sys-*)"]
[patch.crates-io]
tributary-sys = { path = "$(cd "$away" && echo tributary-sys-*)" }
# As in our own workspace: the tests train a network.
[profile.test]
opt-level = 1
TOML
cp Cargo.lock "$away"
cd "$away"
export CARGO_TARGET_DIR="$away/target"
cargo test --quiet --workspace --locked "$@"
# As the tests have built it.
cargo run --quiet --profile test --package tributary-ccl --locked --example quickstart "$@"
echo "the packages build and work by themselves"
