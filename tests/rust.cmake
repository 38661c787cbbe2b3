# One check of the Rust crates. CHECK is test, train, train_tsan, clippy, fmt, doc, bindings,
# package, bench (each benchmark once) or fuzz (libFuzzer, with ARGUMENTS); RUST the workspace, NEEDED the oldest Rust that its tests
# take; TARGET cargo's output. The C library: test and bench link the one in INSTALLED; train and
# package have build.rs make it, as the environment says; the others need none.
cmake_minimum_required(VERSION 3.25)

function(skip why)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${why}")
endfunction()

# Flags for rustc, and a `target` by name, so that build scripts and procedural macros are left as they
# are.
function(only_here)
    execute_process(COMMAND rustc -vV OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "host: ([^\n]+)" match "${said}")
    list(JOIN ARGN " " flags)
    set(ENV{RUSTFLAGS} ${flags})
    set(target --target ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

find_program(cargo cargo HINTS $ENV{HOME}/.cargo/bin)
if(NOT cargo)
    skip("cargo is not installed")
    return()
endif()

# The oldest Rust that can read all that the lock file names: what the tests and examples use may
# need a newer one than the library does.
execute_process(COMMAND ${cargo} --version OUTPUT_VARIABLE line COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" found "${line}")
if(found VERSION_LESS NEEDED)
    skip("cargo ${found} is older than ${NEEDED}, which this needs: rustup brings a newer one")
    return()
endif()
# For rustc, and for the scripts.
cmake_path(GET cargo PARENT_PATH folder)
set(ENV{PATH} "${folder}:$ENV{PATH}")

set(ENV{CARGO_TARGET_DIR} ${TARGET})
set(ENV{CARGO_TERM_COLOR} never)
# Not all features: bindgen, of tributary-sys, needs libclang. The check train takes none.
set(features)
if(RUST MATCHES "/rust$")
    set(features --features tributary-ccl/half,tributary-ccl/dlpack)
    # What cudarc loads libraries with needs it.
    if(found VERSION_GREATER_EQUAL 1.88)
        string(APPEND features ,tributary-ccl/cudarc)
    endif()
endif()
if(CHECK MATCHES "^(test|bench)$")
    file(GLOB_RECURSE library ${INSTALLED}/libtributary.a)
    cmake_path(GET library PARENT_PATH library)
    set(ENV{TRIBUTARY_LIB_DIR} ${library})
    set(ENV{TRIBUTARY_INCLUDE_DIR} ${INSTALLED}/include)
elseif(CHECK MATCHES "^(clippy|doc)$")
    set(ENV{DOCS_RS} 1)
endif()
if(CHECK STREQUAL "test")
    set(command ${cargo} test --workspace --locked ${features})
elseif(CHECK STREQUAL "train")
    set(command ${cargo} run --release --locked --example train)
elseif(CHECK STREQUAL "train_tsan")
    # Both languages under the thread sanitizer. Rust's own library is compiled without, so its
    # locks and channels are seen only as far as they are generic; that it is, is said to be
    # allowed.
    set(flags -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer)
    set(ENV{RUSTC_BOOTSTRAP} 1)
    execute_process(COMMAND rustc ${flags} --print cfg RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
    if(missing)
        skip("rustc has no thread sanitizer")
        return()
    endif()
    only_here(${flags})
    set(ENV{TRIBUTARY_SANITIZE} thread)
    set(command ${cargo} run --release --locked ${target} --example train -- --ranks 4 --epochs 8
        --no-reference)
elseif(CHECK STREQUAL "fuzz")
    set(coverage level=4 inline-8bit-counters pc-table trace-compares)
    list(TRANSFORM coverage PREPEND -Cllvm-args=-sanitizer-coverage-)
    only_here(-Cpasses=sancov-module ${coverage} --cfg fuzzing)
    separate_arguments(ARGUMENTS)
    set(command ${cargo} run --release --locked ${target} -- ${ARGUMENTS})
elseif(CHECK STREQUAL "clippy")
    set(command ${cargo} clippy --workspace --all-targets --locked ${features} -- -D warnings)
elseif(CHECK STREQUAL "bench")
    set(command ${cargo} test --lib --benches --locked)
elseif(CHECK STREQUAL "fmt")
    set(command ${cargo} fmt --all --check)
elseif(CHECK STREQUAL "doc")
    set(ENV{RUSTDOCFLAGS} "-D warnings")
    set(command ${cargo} doc --workspace --no-deps --locked ${features})
elseif(CHECK STREQUAL "bindings")
    file(GLOB libclang /usr/lib/llvm-*/lib/libclang.so* /usr/lib/llvm-*/lib/libclang-[0-9]*.so*
         /usr/lib64/libclang.so* /usr/lib/libclang.so* /usr/lib/*/libclang-[0-9]*.so*)
    if(NOT libclang AND NOT DEFINED ENV{LIBCLANG_PATH})
        skip("libclang is not installed and LIBCLANG_PATH is not set")
        return()
    endif()
    set(command ${RUST}/bindings.sh --check)
elseif(CHECK STREQUAL "package")
    set(command ${RUST}/package.sh ${features})
endif()

# Parts of the toolchain that may be missing.
set(part ${CHECK})
if(CHECK STREQUAL "bindings")
    set(part fmt)
endif()
if(part MATCHES "^(clippy|fmt)$")
    execute_process(COMMAND ${cargo} ${part} --version RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
    if(missing)
        skip("cargo ${part} is not installed")
        return()
    endif()
endif()

execute_process(COMMAND ${command} WORKING_DIRECTORY ${RUST} COMMAND_ECHO STDOUT
                COMMAND_ERROR_IS_FATAL ANY)
