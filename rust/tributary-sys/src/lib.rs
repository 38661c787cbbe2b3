//! Raw bindings to Tributary: the items of `include/tributary.h`, unchanged. The safe crate is
//! `tributary-ccl` (library name `tributary`).
//!
//! `trib_status`, `trib_dtype` and `trib_op` are newtypes over `i32`, not enums: a newer library
//! may return a number unknown to this crate, which must not be undefined behaviour.
//!
//! The build script compiles the C sources in this crate. It reads, in this order:
//!
//! | environment | effect |
//! |---|---|
//! | `DOCS_RS` | builds and links nothing |
//! | `TRIBUTARY_LIB_DIR` | links the library in that folder (dependents get `TRIBUTARY_INCLUDE_DIR`) |
//! | feature `system`, or `TRIBUTARY_USE_PKG_CONFIG=1` | links the installed library that pkg-config finds, if it has exactly this version |
//! | otherwise | builds with CMake; `TRIBUTARY_NCCL` is `AUTO` (default), `ON` or `OFF`; the feature `nccl` is `ON` |
//!
//! The build links the shared form of an installed library if there is one, else the static one;
//! `TRIBUTARY_STATIC` selects the static (`1`) or the shared (`0`) form. `cargo run` and `cargo
//! test` find a shared one. A program started without cargo needs its folder in its run path or in
//! `LD_LIBRARY_PATH`. With the feature `nccl` an installed library must have that backend.
//!
//! The CMake build reads `CC`, `CFLAGS`, `AR`, `RANLIB` and `CMAKE_TOOLCHAIN_FILE`, each first as
//! `CC_<target>` and `TARGET_CC` or `HOST_CC`; cross-compiling requires a compiler or a toolchain
//! file under such a name. It also reads `CUDA_HOME`, `CUDACXX`, `CUDAARCHS`,
//! `CMAKE_CUDA_ARCHITECTURES`, `NCCL_ROOT`, `NCCL_HOME` and the active Python environment, and
//! starts afresh when one of them changes. Dependents get the folder of the header in
//! `DEP_TRIBUTARY_INCLUDE`, and that of an installed library in `DEP_TRIBUTARY_LIBDIR`.
#![allow(non_camel_case_types, non_upper_case_globals)]

// The header's comments are the documentation. Not every constant has one there, and its brackets
// are C's.
#[cfg(not(feature = "bindgen"))]
#[allow(missing_docs, rustdoc::broken_intra_doc_links)]
mod bindings;
#[cfg(feature = "bindgen")]
#[allow(missing_docs, rustdoc::broken_intra_doc_links)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;

/// The default of every field, with `size` set: `TRIB_OPTIONS_INIT` of the header.
pub const TRIB_OPTIONS_INIT: trib_options = trib_options {
    size: core::mem::size_of::<trib_options>() as u32,
    flags: 0,
    backend: core::ptr::null(),
    timeout_ms: 0,
    close_timeout_ms: 0,
    call_timeout_ms: 0,
    min_ctas: 0,
    max_ctas: 0,
    cta_policy: trib_cta_policy(0),
    network: core::ptr::null(),
    name: core::ptr::null(),
    peer_bytes: 0,
};

/// All zero, with `size` set: `TRIB_COUNTERS_INIT` of the header.
pub const TRIB_COUNTERS_INIT: trib_counters = trib_counters {
    size: core::mem::size_of::<trib_counters>() as u32,
    reserved: 0,
    calls: 0,
    bytes: 0,
    backend_calls: 0,
    workspace_bytes: 0,
    lists_queued: 0,
    lists_committed: 0,
    lists_refused: 0,
    staged_calls: 0,
};

/// A job of one rank, with `size` set: `TRIB_JOB_INIT` of the header.
pub const TRIB_JOB_INIT: trib_job = trib_job {
    size: core::mem::size_of::<trib_job>() as u32,
    rank: 0,
    n_ranks: 1,
    local_rank: 0,
    port: 0,
    reserved: 0,
    token: 0,
    launcher: core::ptr::null(),
    host: [0; TRIB_HOST_MAX as usize + 1],
};

/// All zero, with `size` set: `TRIB_CAPABILITIES_INIT` of the header.
pub const TRIB_CAPABILITIES_INIT: trib_capabilities = trib_capabilities {
    size: core::mem::size_of::<trib_capabilities>() as u32,
    flags: 0,
    version: 0,
    max_ranks: 0,
    reserved: 0,
};

/// All zero, with `size` set: `TRIB_MEMORY_INIT` of the header.
pub const TRIB_MEMORY_INIT: trib_memory = trib_memory {
    size: core::mem::size_of::<trib_memory>() as u32,
    reserved: 0,
    workspace_bytes: 0,
    workspace_peak_bytes: 0,
    sparse_bytes: 0,
    sparse_peak_bytes: 0,
    pinned_bytes: 0,
    pinned_peak_bytes: 0,
    peer_bytes: 0,
    peer_peak_bytes: 0,
};

/// The default of every field, with `size` set: `TRIB_CALL_OPTIONS_INIT` of the header.
pub const TRIB_CALL_OPTIONS_INIT: trib_call_options = trib_call_options {
    size: core::mem::size_of::<trib_call_options>() as u32,
    flags: 0,
    factor: 0.0,
    device_factor: core::ptr::null(),
    variant: trib_variant(0),
    reserved: 0,
};

/// The default of every field, with `size` set: `TRIB_SPARSE_OPTIONS_INIT` of the header.
pub const TRIB_SPARSE_OPTIONS_INIT: trib_sparse_options = trib_sparse_options {
    size: core::mem::size_of::<trib_sparse_options>() as u32,
    flags: 0,
    algorithm: core::ptr::null(),
    density: 0.0,
    k: 0,
    decay: 0.0,
    wire: trib_dtype(0),
    chunk: 0,
    constants: core::ptr::null(),
    norm_every: 0,
    reserved: 0,
    momentum: 0.0,
    clip_norm: 0.0,
    hosts: core::ptr::null(),
};

/// All zero, with `size` set: `TRIB_SPARSE_STATISTICS_INIT` of the header.
pub const TRIB_SPARSE_STATISTICS_INIT: trib_sparse_statistics = trib_sparse_statistics {
    size: core::mem::size_of::<trib_sparse_statistics>() as u32,
    reserved: 0,
    algorithm: core::ptr::null(),
    reason: core::ptr::null(),
    count: 0,
    k: 0,
    calls: 0,
    calls_applied: 0,
    calls_non_finite: 0,
    selected: 0,
    applied: 0,
    total_selected: 0,
    total_applied: 0,
    words_sent: 0,
    words_received: 0,
    bytes_sent: 0,
    bytes_received: 0,
    fallbacks: 0,
    residual_norm: 0.0,
};

/// The default of every field, with `size` set: `TRIB_REDUCER_OPTIONS_INIT` of the header.
pub const TRIB_REDUCER_OPTIONS_INIT: trib_reducer_options = trib_reducer_options {
    size: core::mem::size_of::<trib_reducer_options>() as u32,
    flags: 0,
    bucket_bytes: 0,
    first_bytes: 0,
    device_weight: core::ptr::null(),
    sparse: core::ptr::null(),
    order: core::ptr::null(),
    buckets: core::ptr::null(),
    nbuckets: 0,
};
