#!/bin/sh
# Prove that the packages are whole: package both libraries, unpack them where no path of theirs leads to
# the repository, see that no file is missing, and build and try them there. The tests are packaged as
# they are here, where they are run; there only those of tributary-sys are, which read its files.
# Arguments are handed on to cargo.
set -eu
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$PWD/target}
# In the folder that cargo builds in: what the crates depend on is compiled there already.
away=$target/away
rm -rf "$away"
mkdir -p "$away"
trap 'rm -rf "$away"' EXIT

# tributary-sys is not on the registry at this version, so packaging the other one with it takes
# both at once; --no-verify, for the build below verifies more. Uncommitted changes are packaged too.
cargo package --quiet --package tributary-sys --package tributary-ccl --no-verify --allow-dirty --locked

for crate in tributary-sys:tributary-sys tributary:tributary-ccl; do
    folder=${crate%:*} package=${crate#*:}
    archive=$(ls "$target/package/$package"-[0-9]*.crate)
    # As new files: they are packaged with one date, by which cargo would not see that they changed.
    tar -xzmf "$archive" -C "$away"
    size=$(wc -c <"$archive")
    echo "$package: $(tar -tzf "$archive" | wc -l) files, $size bytes"
    # The registry takes 10 MiB.
    [ "$size" -lt 10485760 ]
    # Nothing is missing. Cargo writes a manifest of its own.
    unpacked=$(echo "$away/$package"-[0-9]*)
    (cd "$folder" && find -L . -type f ! -name Cargo.toml) | while read -r file; do
        cmp "$folder/$file" "$unpacked/$file"
    done
done

# No link, nothing of the repository around, no path that leads back.
[ -z "$(find "$away" -type l)" ]
cat >"$away/Cargo.toml" <<TOML
[workspace]
resolver = "2"
members = ["$(cd "$away" && echo tributary-ccl-*)", "$(cd "$away" && echo tributary-sys-*)"]
[patch.crates-io]
tributary-sys = { path = "$(cd "$away" && echo tributary-sys-*)" }
$(sed -n '/^\[profile.test\]/,$p' Cargo.toml)
TOML
cp Cargo.lock "$away"
cd "$away"
export CARGO_TARGET_DIR="$target"
# Forget what only tributary-blame needs, and change nothing else.
cargo update --quiet --offline --workspace
cargo test --quiet --workspace --locked --lib --test bindings --test build_script "$@"
cargo build --quiet --profile test --workspace --locked --examples "$@"
# As the tests have built it.
cargo run --quiet --profile test --package tributary-ccl --locked --example quickstart "$@"
echo "the packages build and work by themselves"
