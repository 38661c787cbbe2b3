#!/bin/sh
# check.sh PYTHON: what CI checks of the package. Installs it into the environment of PYTHON by the command
# that the README names, and runs the tests and the documentation's examples on what is installed; has the
# types checked if that environment has mypy; builds a wheel, and looks into it; installs the package with the
# host backend alone, as where there is no CUDA, into a folder.
# TRIBUTARY_NCCL and the other variables of ../tributary-sys/README.md decide on the backends.
set -eu
cd "$(dirname "$0")"
python=$1
# Messages of Rust's panics name source files: not by the folders of this machine.
RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo --remap-path-prefix=$(cd ../.. && pwd)=tributary"
export RUSTFLAGS
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export PIP_DISABLE_PIP_VERSION_CHECK=1
started=$(date +%s)
done_in() { echo "$1: $(($(date +%s) - started)) s"; started=$(date +%s); }

# Not what an earlier run has left.
"$python" -m pip uninstall --quiet --quiet --yes tributary-ccl
"$python" -m pip install --quiet .
done_in "pip install"

# Here no folder is named tributary, so that the installed one is imported.
"$python" -m tributary.info
# A test that hangs says where.
timeout -s ABRT -k 10 900 "$python" -X faulthandler -W error -m unittest --quiet
done_in "tests"

if "$python" -c "import mypy" 2>/dev/null; then
    cache=$CARGO_TARGET_DIR/mypy
    "$python" -m mypy --strict --cache-dir "$cache" python tests examples/proof
    "$python" -m mypy.stubtest tributary._native
    done_in "types"
else
    echo "skipped: no mypy in the environment of $python"
fi

wheels=$CARGO_TARGET_DIR/wheels-checked
rm -rf "$wheels"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" .
"$python" tests/wheel.py "$wheels" ../../include/tributary.h
done_in "wheel"

# In a build folder of its own, so that neither build undoes the other.
if [ "${TRIBUTARY_NCCL:-}" != OFF ]; then
    host=$CARGO_TARGET_DIR/host-only
    rm -rf "$host/python"
    CARGO_TARGET_DIR=$host TRIBUTARY_NCCL=OFF "$python" -m pip install --quiet --no-deps --target "$host/python" .
    PYTHONPATH=$host/python "$python" -m tributary.info >"$host/info"
    grep '^in .*/host-only/python/tributary$' "$host/info"
    grep '^backend host: ' "$host/info"
    grep '^backend nccl: not built' "$host/info"
    done_in "host only"
fi
