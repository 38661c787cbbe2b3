#!/bin/sh
# Make tributary-sys/src/bindings.rs from include/tributary.h, or with --check say whether it is
# current. Needs libclang: the system's (libclang-dev), or any that LIBCLANG_PATH points to.
set -eu
cd "$(dirname "$0")"
kept=tributary-sys/src/bindings.rs

# Python's wheel of libclang brings no compiler headers; those of the C compiler at hand will do.
: "${BINDGEN_EXTRA_CLANG_ARGS=-isystem $(${CC:-cc} -print-file-name=include)}"
export BINDGEN_EXTRA_CLANG_ARGS

# DOCS_RS: make the bindings, build no library.
said=$(DOCS_RS=1 cargo build --quiet --locked -p tributary-sys --features bindgen \
        --message-format=json) || {
    echo "no bindings were made. If libclang is missing: install libclang-dev, or name its folder in" \
         "LIBCLANG_PATH" >&2
    exit 1
}
made=$(printf '%s\n' "$said" |
    sed -n '/"reason":"build-script-executed".*[/#]tributary-sys[@#]/s/.*"out_dir":"\([^"]*\)".*/\1/p')
made=$made/bindings.rs
rustfmt --quiet --edition 2021 --config-path rustfmt.toml "$made"

if [ "${1-}" != --check ]; then
    cp "$made" "$kept"
elif cmp -s "$made" "$kept"; then
    echo "bindings are current"
else
    echo "bindings are out of date: run rust/bindings.sh" >&2
    diff -u "$kept" "$made" >&2
    exit 1
fi
