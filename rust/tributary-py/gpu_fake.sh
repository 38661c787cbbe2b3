#!/bin/sh
# gpu_fake.sh PYTHON: the tests of GPUs' tensors, streams and graphs (tests/test_gpu.py), over the fake of
# CUDA and NCCL in tests/nccl_fake of the repository; and others. Each call of the library is looked
# at for the GIL (tests/gil.c). Needs no GPU, but the headers of CUDA and NCCL, which
# CUDA_HOME and NCCL_HOME name as for a build. PYTHON's environment keeps the package that it has.
set -eu
cd "$(dirname "$0")"
python=$1
target=${CARGO_TARGET_DIR:-$PWD/target}/fake
fake=$target/c/tests/nccl_fake

cmake -S ../.. -B "$target/c" -DCMAKE_BUILD_TYPE=Debug -DTRIBUTARY_NCCL=OFF -DTRIBUTARY_RUST=OFF \
    -DTRIBUTARY_BENCHES=OFF >"$target-configure.log"
cmake --build "$target/c" --target tributary_fake_driver --parallel "$(nproc)" >"$target-build.log" || {
    tail -n 20 "$target-build.log"
    echo "gpu_fake.sh: the fake cannot be built; are the headers of CUDA and NCCL in CUDA_HOME and NCCL_HOME?"
    exit 1
}
CARGO_TARGET_DIR=$target/rust TRIBUTARY_LIB_DIR=$fake TRIBUTARY_STATIC=0 PYO3_BUILD_EXTENSION_MODULE=1 \
    cargo build --quiet --locked
rm -rf "$target/python"
mkdir -p "$target/python"
cp -r python/tributary "$target/python"
cp "$target/rust/debug/lib_native.so" "$target/python/tributary/_native.abi3.so"

export LD_LIBRARY_PATH="$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TRIBUTARY_TEST_FAKE="$fake"
cc -shared -fPIC -O1 -o "$target/gil.so" tests/gil.c
run() {
    LD_PRELOAD=$target/gil.so PYTHONPATH=$target/python \
        "$python" -X faulthandler -W error -m unittest --quiet "$@"
}
run tests.test_gpu
# By themselves: the fake does not let a thread that has chosen no device free the memory of those above.
run tests.test_collectives tests.test_training tests.test_tensors tests.test_works
