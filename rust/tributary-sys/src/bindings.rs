// Made from include/tributary.h by bindings.sh; do not edit.

pub const TRIB_VERSION_MAJOR: u32 = 0;
pub const TRIB_VERSION_MINOR: u32 = 1;
pub const TRIB_VERSION_PATCH: u32 = 0;
pub const TRIB_VERSION: u32 = 100;
pub const TRIB_NO_COLOR: i32 = -1;
#[doc = " One of the TRIB_OK / TRIB_ERR_ numbers below. Numbers are never changed or reused; a newer\n  library may return one that this header does not list."]
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_status(pub i32);
pub const TRIB_OK: trib_status = trib_status(0);
pub const TRIB_ERR_INVALID_ARGUMENT: trib_status = trib_status(1);
pub const TRIB_ERR_INVALID_BUFFER: trib_status = trib_status(2);
pub const TRIB_ERR_INVALID_STREAM: trib_status = trib_status(3);
pub const TRIB_ERR_INVALID_USAGE: trib_status = trib_status(4);
pub const TRIB_ERR_UNSUPPORTED: trib_status = trib_status(5);
pub const TRIB_ERR_UNKNOWN_NAME: trib_status = trib_status(6);
pub const TRIB_ERR_MISMATCH: trib_status = trib_status(7);
pub const TRIB_ERR_NON_FINITE: trib_status = trib_status(8);
pub const TRIB_ERR_ABORTED: trib_status = trib_status(10);
pub const TRIB_ERR_CLOSED: trib_status = trib_status(11);
pub const TRIB_ERR_TIMEOUT: trib_status = trib_status(12);
pub const TRIB_ERR_OUT_OF_MEMORY: trib_status = trib_status(20);
pub const TRIB_ERR_NO_DEVICE: trib_status = trib_status(21);
pub const TRIB_ERR_CUDA: trib_status = trib_status(30);
pub const TRIB_ERR_NCCL: trib_status = trib_status(31);
pub const TRIB_ERR_SYSTEM: trib_status = trib_status(32);
pub const TRIB_ERR_INTERNAL: trib_status = trib_status(90);
#[doc = " Element type. 0 is not one."]
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_dtype(pub i32);
#[doc = " IEEE 754 binary16"]
pub const TRIB_F16: trib_dtype = trib_dtype(1);
#[doc = " the upper half of a binary32"]
pub const TRIB_BF16: trib_dtype = trib_dtype(2);
pub const TRIB_F32: trib_dtype = trib_dtype(3);
pub const TRIB_F64: trib_dtype = trib_dtype(4);
pub const TRIB_I8: trib_dtype = trib_dtype(5);
pub const TRIB_U8: trib_dtype = trib_dtype(6);
pub const TRIB_I32: trib_dtype = trib_dtype(7);
pub const TRIB_U32: trib_dtype = trib_dtype(8);
pub const TRIB_I64: trib_dtype = trib_dtype(9);
pub const TRIB_U64: trib_dtype = trib_dtype(10);
#[doc = " Reduction. 0 is not one. Integers wrap. TRIB_AVG is the sum divided by the number of ranks,\n  rounded towards zero for integers (floats on nccl: every summand is multiplied by the rounded\n  reciprocal first, as NCCL does it, which differs in the last bits). MIN and MAX with a NaN among the inputs give NaN or a number:\n  do not rely on either."]
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_op(pub i32);
pub const TRIB_SUM: trib_op = trib_op(1);
pub const TRIB_PROD: trib_op = trib_op(2);
pub const TRIB_MIN: trib_op = trib_op(3);
pub const TRIB_MAX: trib_op = trib_op(4);
pub const TRIB_AVG: trib_op = trib_op(5);
#[doc = " A queue of work on one device: a `cudaStream_t` on nccl (yours, or from trib_stream_create), a\n  host stream on host (only from trib_stream_create). NULL is the device's default stream (on nccl\n  the legacy default stream). `cudaStreamPerThread` is refused."]
pub type trib_stream = *mut ::core::ffi::c_void;
#[doc = " A point in a stream: a `cudaEvent_t` on nccl, a host event on host."]
pub type trib_event = *mut ::core::ffi::c_void;
#[doc = " One tensor of a list: `count` elements at `data`, contiguous."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_tensor {
    pub data: *mut ::core::ffi::c_void,
    pub count: usize,
    pub dtype: trib_dtype,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_tensor"][::core::mem::size_of::<trib_tensor>() - 24usize];
    ["Alignment of trib_tensor"][::core::mem::align_of::<trib_tensor>() - 8usize];
    ["Offset of field: trib_tensor::data"][::core::mem::offset_of!(trib_tensor, data) - 0usize];
    ["Offset of field: trib_tensor::count"][::core::mem::offset_of!(trib_tensor, count) - 8usize];
    ["Offset of field: trib_tensor::dtype"][::core::mem::offset_of!(trib_tensor, dtype) - 16usize];
    ["Offset of field: trib_tensor::reserved"]
        [::core::mem::offset_of!(trib_tensor, reserved) - 20usize];
};
#[doc = " Where a rank's memory and streams live: device `ordinal` of a backend."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_device {
    _unused: [u8; 0],
}
#[doc = " Skip the checks of buffers and streams (their memory, device and range). What the arguments\n  say by themselves is still checked."]
pub const TRIB_UNCHECKED: u32 = 1;
#[doc = " Debug mode: before each collective every rank compares operation, count, type, reduction and\n  root with all others, and all of them return TRIB_ERR_MISMATCH if one differs, instead of\n  waiting for ever; if a rank does not come, or its stream not to this call, within timeout_ms of\n  the call: TRIB_ERR_TIMEOUT, and the communicator is over. So it is if a rank cannot queue what\n  all have agreed on. Sends and receives take no part in it, nor do the counts of alltoallv. Calls\n  then wait for each other, so give every rank a thread of its own, and cannot be captured in a\n  CUDA graph."]
pub const TRIB_MATCH: u32 = 2;
#[doc = " Calls that differ never touch memory that is not theirs. On host they never do: every call is\n  compared on the stream before memory is touched. On nccl this is TRIB_MATCH: NCCL compares\n  nothing, and a rank may write as far as its own count goes into a peer's buffer."]
pub const TRIB_COMPARED: u32 = 4;
#[doc = " How a communicator or group is made. Start from TRIB_OPTIONS_INIT; zero is the default of every\n  field. Every rank passes the same."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_options {
    #[doc = " sizeof(trib_options)"]
    pub size: u32,
    #[doc = " TRIB_UNCHECKED | TRIB_MATCH | TRIB_COMPARED"]
    pub flags: u32,
    #[doc = " NULL: what the id says; for a group the first that has the devices"]
    pub backend: *const ::core::ffi::c_char,
    #[doc = " deadline for meeting the other ranks: in create and split; in\n   trib_sparse_create, set and import (`add` 0), calls still queued\n   included; with TRIB_MATCH (on nccl TRIB_COMPARED, too) in each call,\n   from when it is made: what the stream has to run before it counts,\n   so allow for any rank's earlier work. 0 is 300,000"]
    pub timeout_ms: u32,
    #[doc = " how long destroy waits for work still queued; 0 is 5,000"]
    pub close_timeout_ms: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_options"][::core::mem::size_of::<trib_options>() - 24usize];
    ["Alignment of trib_options"][::core::mem::align_of::<trib_options>() - 8usize];
    ["Offset of field: trib_options::size"][::core::mem::offset_of!(trib_options, size) - 0usize];
    ["Offset of field: trib_options::flags"][::core::mem::offset_of!(trib_options, flags) - 4usize];
    ["Offset of field: trib_options::backend"]
        [::core::mem::offset_of!(trib_options, backend) - 8usize];
    ["Offset of field: trib_options::timeout_ms"]
        [::core::mem::offset_of!(trib_options, timeout_ms) - 16usize];
    ["Offset of field: trib_options::close_timeout_ms"]
        [::core::mem::offset_of!(trib_options, close_timeout_ms) - 20usize];
};
#[doc = " Stops a communicator from anywhere. Counted: it outlives the communicator if need be."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_abort {
    _unused: [u8; 0],
}
#[doc = " Every rank of a communicator whose ranks all live in this process. One thread drives them all."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_group {
    _unused: [u8; 0],
}
#[doc = " One rank of a communicator."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_comm {
    _unused: [u8; 0],
}
#[doc = " What ranks that want to meet have in common: made once, sent to the others as bytes. On nccl it\n  holds exactly an ncclUniqueId."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_id {
    pub bytes: [u8; 128usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_id"][::core::mem::size_of::<trib_id>() - 128usize];
    ["Alignment of trib_id"][::core::mem::align_of::<trib_id>() - 1usize];
    ["Offset of field: trib_id::bytes"][::core::mem::offset_of!(trib_id, bytes) - 0usize];
};
#[doc = " What a rank has done so far."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_counters {
    #[doc = " sizeof(trib_counters), set by the caller"]
    pub size: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " collectives queued, each list or batch member once"]
    pub calls: u64,
    #[doc = " bytes of this rank's send side in those calls: of its tensors. What\n   moves for them is another number: 2(P-1)/P times as much for an\n   allreduce; of a sparse call, trib_sparse_statistics tells it"]
    pub bytes: u64,
    #[doc = " calls handed to the backend for them"]
    pub engine_calls: u64,
    #[doc = " scratch memory held"]
    pub workspace_bytes: u64,
    #[doc = " list and weighted-average calls queued"]
    pub lists_queued: u64,
    #[doc = " of those, how many have written their tensors on this rank"]
    pub lists_committed: u64,
    #[doc = " of those, weighted averages that have written nothing because a\n   rank's weight was not valid: the same number on every rank"]
    pub lists_refused: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_counters"][::core::mem::size_of::<trib_counters>() - 64usize];
    ["Alignment of trib_counters"][::core::mem::align_of::<trib_counters>() - 8usize];
    ["Offset of field: trib_counters::size"][::core::mem::offset_of!(trib_counters, size) - 0usize];
    ["Offset of field: trib_counters::reserved"]
        [::core::mem::offset_of!(trib_counters, reserved) - 4usize];
    ["Offset of field: trib_counters::calls"]
        [::core::mem::offset_of!(trib_counters, calls) - 8usize];
    ["Offset of field: trib_counters::bytes"]
        [::core::mem::offset_of!(trib_counters, bytes) - 16usize];
    ["Offset of field: trib_counters::engine_calls"]
        [::core::mem::offset_of!(trib_counters, engine_calls) - 24usize];
    ["Offset of field: trib_counters::workspace_bytes"]
        [::core::mem::offset_of!(trib_counters, workspace_bytes) - 32usize];
    ["Offset of field: trib_counters::lists_queued"]
        [::core::mem::offset_of!(trib_counters, lists_queued) - 40usize];
    ["Offset of field: trib_counters::lists_committed"]
        [::core::mem::offset_of!(trib_counters, lists_committed) - 48usize];
    ["Offset of field: trib_counters::lists_refused"]
        [::core::mem::offset_of!(trib_counters, lists_refused) - 56usize];
};
#[doc = " `factor` counts."]
pub const TRIB_CALL_FACTOR: u32 = 1;
#[doc = " What a single call may want, each rank for itself unless it is said otherwise. Start from\n  TRIB_CALL_OPTIONS_INIT; zero is the default of every field. Read during the call. It will grow: a\n  library that knows less of it takes a larger one if what it does not know is 0."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct trib_call_options {
    #[doc = " sizeof(trib_call_options)"]
    pub size: u32,
    #[doc = " TRIB_CALL_FACTOR"]
    pub flags: u32,
    #[doc = " with TRIB_CALL_FACTOR: this rank's factor; any number"]
    pub factor: f64,
    #[doc = " if not NULL, the factor is the float that lies there, in device\n   memory, when the stream comes to the call; `factor` is then not\n   looked at. As a buffer of the call, and not inside `recv`"]
    pub device_factor: *const f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_call_options"][::core::mem::size_of::<trib_call_options>() - 24usize];
    ["Alignment of trib_call_options"][::core::mem::align_of::<trib_call_options>() - 8usize];
    ["Offset of field: trib_call_options::size"]
        [::core::mem::offset_of!(trib_call_options, size) - 0usize];
    ["Offset of field: trib_call_options::flags"]
        [::core::mem::offset_of!(trib_call_options, flags) - 4usize];
    ["Offset of field: trib_call_options::factor"]
        [::core::mem::offset_of!(trib_call_options, factor) - 8usize];
    ["Offset of field: trib_call_options::device_factor"]
        [::core::mem::offset_of!(trib_call_options, device_factor) - 16usize];
};
#[doc = " One tensor's sparse allreduce on one rank: residual, thresholds, counters and scratch memory."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_sparse {
    _unused: [u8; 0],
}
#[doc = " The result is the sum divided by the number of ranks."]
pub const TRIB_SPARSE_AVERAGE: u32 = 1;
#[doc = " The result is a list of indices and values: trib_sparse_allreduce_entries."]
pub const TRIB_SPARSE_ENTRIES: u32 = 2;
#[doc = " `gradient` of each call is the accumulator itself: gradients are added into it, and after the\n  call it holds the residual, to which the next gradient is added. Reads and writes 4 bytes an\n  element instead of 12. Types f32 and f64. The residual is then decayed after the call. An\n  infinity or a NaN that was added stays there: nothing is delivered until the caller mends it."]
pub const TRIB_SPARSE_IN_PLACE: u32 = 4;
#[doc = " `k` of the options counts, 0 included, not `density`."]
pub const TRIB_SPARSE_USE_K: u32 = 8;
#[doc = " The result, or its values, are f32 for gradients of f16 and bf16: sums as they were made, so that\n  nothing is lost by rounding them, and none is too large. `result` may not be `gradient` then. Of\n  f32 it changes nothing; not for f64."]
pub const TRIB_SPARSE_F32_RESULT: u32 = 16;
#[doc = " How a sparse allreduce is made. Start from TRIB_SPARSE_OPTIONS_INIT; zero is the default of every\n  field. Every rank passes the same."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct trib_sparse_options {
    #[doc = " sizeof(trib_sparse_options)"]
    pub size: u32,
    #[doc = " TRIB_SPARSE_..."]
    pub flags: u32,
    #[doc = " NULL: \"auto\""]
    pub algorithm: *const ::core::ffi::c_char,
    #[doc = " k = count * density rounded down, at least 1; 0 is 0.01, at most 1"]
    pub density: f64,
    #[doc = " with TRIB_SPARSE_USE_K; more than count is count"]
    pub k: u64,
    #[doc = " of the residual; 0 is 1; above 0, at most 1"]
    pub decay: f64,
    #[doc = " of chosen values: 0 as the residual, or TRIB_BF16 (not for f64): then\n   what rounding takes away stays in the residual. Where only sums travel\n   (dense, shared) there is nothing to round"]
    pub wire: trib_dtype,
    #[doc = " chunked: elements, a power of two up to 65,536; 0 is 4,096"]
    pub chunk: u32,
    #[doc = " of the published code: \"vgg\", \"lstm\" or \"bert\". oktopk: NULL is the\n   exact mode. gaussiank, gaussiankconcat: NULL is \"vgg\""]
    pub constants: *const ::core::ffi::c_char,
    #[doc = " measure the residual's norm in every so many-th call, which reads the\n   residual once more; 0: never"]
    pub norm_every: u32,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_sparse_options"][::core::mem::size_of::<trib_sparse_options>() - 64usize];
    ["Alignment of trib_sparse_options"][::core::mem::align_of::<trib_sparse_options>() - 8usize];
    ["Offset of field: trib_sparse_options::size"]
        [::core::mem::offset_of!(trib_sparse_options, size) - 0usize];
    ["Offset of field: trib_sparse_options::flags"]
        [::core::mem::offset_of!(trib_sparse_options, flags) - 4usize];
    ["Offset of field: trib_sparse_options::algorithm"]
        [::core::mem::offset_of!(trib_sparse_options, algorithm) - 8usize];
    ["Offset of field: trib_sparse_options::density"]
        [::core::mem::offset_of!(trib_sparse_options, density) - 16usize];
    ["Offset of field: trib_sparse_options::k"]
        [::core::mem::offset_of!(trib_sparse_options, k) - 24usize];
    ["Offset of field: trib_sparse_options::decay"]
        [::core::mem::offset_of!(trib_sparse_options, decay) - 32usize];
    ["Offset of field: trib_sparse_options::wire"]
        [::core::mem::offset_of!(trib_sparse_options, wire) - 40usize];
    ["Offset of field: trib_sparse_options::chunk"]
        [::core::mem::offset_of!(trib_sparse_options, chunk) - 44usize];
    ["Offset of field: trib_sparse_options::constants"]
        [::core::mem::offset_of!(trib_sparse_options, constants) - 48usize];
    ["Offset of field: trib_sparse_options::norm_every"]
        [::core::mem::offset_of!(trib_sparse_options, norm_every) - 56usize];
    ["Offset of field: trib_sparse_options::reserved"]
        [::core::mem::offset_of!(trib_sparse_options, reserved) - 60usize];
};
#[doc = " What a state has done on this rank. Words are 4 bytes of entries, the last one of a message counted\n  whole; bytes are all that was sent. All ranks together receive as many of both as they send.\n  A broadcast counts as if it were a chain, an allreduce and an allgather as rings."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct trib_sparse_statistics {
    #[doc = " sizeof(trib_sparse_statistics), set by the caller"]
    pub size: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " which one runs"]
    pub algorithm: *const ::core::ffi::c_char,
    #[doc = " why it runs; \"\" if it was asked for. Lives as the state"]
    pub reason: *const ::core::ffi::c_char,
    #[doc = " elements; entries to choose in a call (dense: all; srs: of P blocks,\n   each of which gives k / P, rounded down, at least 1; chunked: of all\n   chunks, each of which gives its part of k, rounded, at least 1, and\n   no more than it has)"]
    pub count: u64,
    #[doc = " elements; entries to choose in a call (dense: all; srs: of P blocks,\n   each of which gives k / P, rounded down, at least 1; chunked: of all\n   chunks, each of which gives its part of k, rounded, at least 1, and\n   no more than it has)"]
    pub k: u64,
    #[doc = " ended"]
    pub calls: u64,
    #[doc = " of those"]
    pub calls_delivered: u64,
    #[doc = " of those: acc or the result was not finite"]
    pub calls_non_finite: u64,
    #[doc = " entries that this rank chose in the last call that delivered"]
    pub selected: u64,
    #[doc = " of those, part of the result"]
    pub delivered: u64,
    #[doc = " over all calls that delivered, as all below"]
    pub total_selected: u64,
    pub total_delivered: u64,
    pub words_sent: u64,
    pub words_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    #[doc = " selections so far whose first guess missed (slower, not different), or\n   that were exact after calls in which nothing was chosen"]
    pub fallbacks: u64,
    #[doc = " when last measured; -1: never"]
    pub residual_norm: f64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_sparse_statistics"][::core::mem::size_of::<trib_sparse_statistics>() - 144usize];
    ["Alignment of trib_sparse_statistics"]
        [::core::mem::align_of::<trib_sparse_statistics>() - 8usize];
    ["Offset of field: trib_sparse_statistics::size"]
        [::core::mem::offset_of!(trib_sparse_statistics, size) - 0usize];
    ["Offset of field: trib_sparse_statistics::reserved"]
        [::core::mem::offset_of!(trib_sparse_statistics, reserved) - 4usize];
    ["Offset of field: trib_sparse_statistics::algorithm"]
        [::core::mem::offset_of!(trib_sparse_statistics, algorithm) - 8usize];
    ["Offset of field: trib_sparse_statistics::reason"]
        [::core::mem::offset_of!(trib_sparse_statistics, reason) - 16usize];
    ["Offset of field: trib_sparse_statistics::count"]
        [::core::mem::offset_of!(trib_sparse_statistics, count) - 24usize];
    ["Offset of field: trib_sparse_statistics::k"]
        [::core::mem::offset_of!(trib_sparse_statistics, k) - 32usize];
    ["Offset of field: trib_sparse_statistics::calls"]
        [::core::mem::offset_of!(trib_sparse_statistics, calls) - 40usize];
    ["Offset of field: trib_sparse_statistics::calls_delivered"]
        [::core::mem::offset_of!(trib_sparse_statistics, calls_delivered) - 48usize];
    ["Offset of field: trib_sparse_statistics::calls_non_finite"]
        [::core::mem::offset_of!(trib_sparse_statistics, calls_non_finite) - 56usize];
    ["Offset of field: trib_sparse_statistics::selected"]
        [::core::mem::offset_of!(trib_sparse_statistics, selected) - 64usize];
    ["Offset of field: trib_sparse_statistics::delivered"]
        [::core::mem::offset_of!(trib_sparse_statistics, delivered) - 72usize];
    ["Offset of field: trib_sparse_statistics::total_selected"]
        [::core::mem::offset_of!(trib_sparse_statistics, total_selected) - 80usize];
    ["Offset of field: trib_sparse_statistics::total_delivered"]
        [::core::mem::offset_of!(trib_sparse_statistics, total_delivered) - 88usize];
    ["Offset of field: trib_sparse_statistics::words_sent"]
        [::core::mem::offset_of!(trib_sparse_statistics, words_sent) - 96usize];
    ["Offset of field: trib_sparse_statistics::words_received"]
        [::core::mem::offset_of!(trib_sparse_statistics, words_received) - 104usize];
    ["Offset of field: trib_sparse_statistics::bytes_sent"]
        [::core::mem::offset_of!(trib_sparse_statistics, bytes_sent) - 112usize];
    ["Offset of field: trib_sparse_statistics::bytes_received"]
        [::core::mem::offset_of!(trib_sparse_statistics, bytes_received) - 120usize];
    ["Offset of field: trib_sparse_statistics::fallbacks"]
        [::core::mem::offset_of!(trib_sparse_statistics, fallbacks) - 128usize];
    ["Offset of field: trib_sparse_statistics::residual_norm"]
        [::core::mem::offset_of!(trib_sparse_statistics, residual_norm) - 136usize];
};
pub const TRIB_LOG_ERROR: i32 = 1;
pub const TRIB_LOG_WARN: i32 = 2;
pub const TRIB_LOG_INFO: i32 = 3;
pub const TRIB_LOG_DEBUG: i32 = 4;
#[doc = " Receives one line without a line end. Called from any thread; must not call Tributary."]
pub type trib_log_fn = ::core::option::Option<
    unsafe extern "C" fn(
        context: *mut ::core::ffi::c_void,
        level: i32,
        line: *const ::core::ffi::c_char,
    ),
>;
extern "C" {
    #[doc = " The version of the library that is loaded, in the form of TRIB_VERSION."]
    pub fn trib_version() -> u32;
    #[doc = " \"TRIB_ERR_ABORTED\"; never NULL, also for numbers that this library does not know. This and the\n  other names and sentences that take no object live for ever."]
    pub fn trib_status_name(status: trib_status) -> *const ::core::ffi::c_char;
    #[doc = " The sentence of TRIB_STATUS_MAP; never NULL."]
    pub fn trib_status_message(status: trib_status) -> *const ::core::ffi::c_char;
    #[doc = " The calling thread's last failure in words; \"\" before the first. Valid until this thread's next\n  failing call. A call that succeeds leaves it as it was."]
    pub fn trib_last_detail() -> *const ::core::ffi::c_char;
    #[doc = " Bytes of one element; 0 for a number that is no type."]
    pub fn trib_dtype_size(dtype: trib_dtype) -> usize;
    #[doc = " \"f32\"; \"?\" for a number that is no type."]
    pub fn trib_dtype_name(dtype: trib_dtype) -> *const ::core::ffi::c_char;
    #[doc = " \"sum\"; \"?\" for a number that is no reduction."]
    pub fn trib_op_name(op: trib_op) -> *const ::core::ffi::c_char;
    #[doc = " Number of backends in this build."]
    pub fn trib_backend_count() -> i32;
    #[doc = " Name of backend `index`, best first; NULL beyond the last. The names live for ever."]
    pub fn trib_backend_name(index: i32) -> *const ::core::ffi::c_char;
    #[doc = " Version of the engine below a backend: of the NCCL that is loaded (22809 for 2.28.9), of\n  Tributary for host. Makes no CUDA context. TRIB_ERR_UNKNOWN_NAME."]
    pub fn trib_backend_version(out: *mut u32, backend: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " Number of devices that a backend can use now: GPUs for nccl (0 without a driver), 64 for host.\n  Makes no CUDA context."]
    pub fn trib_backend_devices(out: *mut i32, backend: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " Device `ordinal` of `backend` (NULL: the first backend that has such a device). `*out` is\n  borrowed: it lives for ever, every thread may share it, asking again gives the same pointer.\n  TRIB_ERR_UNKNOWN_NAME, TRIB_ERR_NO_DEVICE."]
    pub fn trib_device_get(
        out: *mut *mut trib_device,
        backend: *const ::core::ffi::c_char,
        ordinal: i32,
    ) -> trib_status;
    #[doc = " Name of the device's backend."]
    pub fn trib_device_backend(device: *const trib_device) -> *const ::core::ffi::c_char;
    #[doc = " The device's ordinal."]
    pub fn trib_device_ordinal(device: *const trib_device) -> i32;
    #[doc = " `bytes` bytes of this device's memory, aligned to 256; 0 bytes give a unique pointer. Blocking.\n  Host memory of any origin may be used on host; memory from here is checked more strictly: for\n  its range and its device."]
    pub fn trib_device_alloc(
        out: *mut *mut ::core::ffi::c_void,
        device: *mut trib_device,
        bytes: usize,
    ) -> trib_status;
    #[doc = " Give back memory of trib_device_alloc. NULL is allowed. No queued work may still use it."]
    pub fn trib_device_free(
        device: *mut trib_device,
        data: *mut ::core::ffi::c_void,
    ) -> trib_status;
    #[doc = " Queue a copy of `bytes` bytes on `stream`. Each side may be host memory or memory of `device`.\n  Host memory must stay untouched until the stream has passed this point. On nccl, host memory that\n  is not pinned makes the call itself wait for the stream, and CUDA lets no other thread allocate\n  meanwhile: wait for a collective before its result is copied to such memory."]
    pub fn trib_device_copy(
        device: *mut trib_device,
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        bytes: usize,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " A new stream of `device`."]
    pub fn trib_stream_create(out: *mut trib_stream, device: *mut trib_device) -> trib_status;
    #[doc = " Wait until everything queued so far has run. Says nothing about success: ask trib_comm_status().\n  On host, the waiting thread may itself run what is queued. Any thread.\n\n  Of a wait, or a question, for a stream or an event that fails, TRIB_ERR_CUDA means that the device\n  has failed, and runs nothing any more. Any other failure says nothing about what is queued, which\n  may still run and use its buffers: CUDA refuses to answer (TRIB_ERR_INVALID_USAGE) for a stream that\n  is being captured, while another thread captures, and inside a function that a stream calls."]
    pub fn trib_stream_wait(device: *mut trib_device, stream: trib_stream) -> trib_status;
    #[doc = " `*out` = 1 if everything queued has run, else 0. Never waits. Any thread."]
    pub fn trib_stream_query(
        out: *mut i32,
        device: *mut trib_device,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Later work on `stream` waits for what `event` recorded last (for nothing, if it never did)."]
    pub fn trib_stream_wait_event(
        device: *mut trib_device,
        event: trib_event,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Queue a call of `function(argument)`. It must not call Tributary functions that wait. On nccl it\n  must call no CUDA function either."]
    pub fn trib_stream_submit(
        device: *mut trib_device,
        function: ::core::option::Option<unsafe extern "C" fn(argument: *mut ::core::ffi::c_void)>,
        argument: *mut ::core::ffi::c_void,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Wait for the stream, then give it back. NULL is allowed."]
    pub fn trib_stream_destroy(device: *mut trib_device, stream: trib_stream) -> trib_status;
    #[doc = " A new event of `device`, which takes times."]
    pub fn trib_event_create(out: *mut trib_event, device: *mut trib_device) -> trib_status;
    #[doc = " Remember this point of `stream`."]
    pub fn trib_event_record(
        device: *mut trib_device,
        event: trib_event,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Wait until the stream has passed the point recorded last. Any thread."]
    pub fn trib_event_wait(device: *mut trib_device, event: trib_event) -> trib_status;
    #[doc = " `*out` = 1 if the stream has passed the point recorded last, else 0. Any thread."]
    pub fn trib_event_query(
        out: *mut i32,
        device: *mut trib_device,
        event: trib_event,
    ) -> trib_status;
    #[doc = " Milliseconds between two events that have both been passed."]
    pub fn trib_event_elapsed(
        out_ms: *mut f32,
        device: *mut trib_device,
        start: trib_event,
        end: trib_event,
    ) -> trib_status;
    #[doc = " Give an event back. NULL is allowed."]
    pub fn trib_event_destroy(device: *mut trib_device, event: trib_event) -> trib_status;
    #[doc = " Another reference to the same handle. Any thread."]
    pub fn trib_abort_clone(out: *mut *mut trib_abort, handle: *mut trib_abort) -> trib_status;
    #[doc = " Abort every rank of the communicator in this process. Returns at once, frees nothing and never\n  waits for a device. From then on every call on those ranks returns TRIB_ERR_ABORTED, and streams\n  that were waiting inside a collective come free, with garbage in its outputs (except lists, see\n  trib_allreduce_list). Ranks in other processes have to be aborted there. `reason` (NULL allowed)\n  is copied into the detail of those errors; the first one stays. Any thread, any number of times,\n  also after the communicator is gone.\n\n  On nccl, ranks connect in their first call of a kind. Memory of connections that an abort leaves\n  half made, up to some 300 MB a GPU, stays until the process ends (NCCL 2.28). With\n  NCCL_RUNTIME_CONNECT=0 in the environment they connect when the communicator is made instead, and\n  an abort leaves nothing."]
    pub fn trib_abort_raise(
        handle: *mut trib_abort,
        reason: *const ::core::ffi::c_char,
    ) -> trib_status;
    #[doc = " 1 once the communicator has been aborted or has failed, else 0. Any thread."]
    pub fn trib_abort_raised(handle: *const trib_abort) -> i32;
    #[doc = " TRIB_OK, or why the communicator is over, with the detail: for a watchdog of your own. Errors that\n  NCCL has found meanwhile on any rank of this process are asked for, and end the communicator, as\n  with trib_comm_status; what only CUDA knows (a kernel's fault) is not, for that might wait for a\n  device. Never waits; costs an atomic load once the communicator is over, and well below a\n  microsecond a rank before. Any thread at any time, also after the communicator is gone: then it\n  says what was the last of it (TRIB_OK for one that was closed in good order)."]
    pub fn trib_abort_status(handle: *mut trib_abort) -> trib_status;
    #[doc = " Give one reference back. NULL is allowed. Aborts nothing."]
    pub fn trib_abort_release(handle: *mut trib_abort);
    #[doc = " A group of `size` ranks; rank i is on `devices[i]` (NULL: device i). Devices are distinct.\n  Blocking. Up to 64 ranks on host. `options` may be NULL."]
    pub fn trib_group_create(
        out: *mut *mut trib_group,
        devices: *const i32,
        size: i32,
        options: *const trib_options,
    ) -> trib_status;
    #[doc = " Number of ranks."]
    pub fn trib_group_size(group: *const trib_group) -> i32;
    #[doc = " Device of rank `rank`; -1 if there is no such rank."]
    pub fn trib_group_device(group: *const trib_group, rank: i32) -> i32;
    #[doc = " Name of the backend."]
    pub fn trib_group_backend(group: *const trib_group) -> *const ::core::ffi::c_char;
    #[doc = " trib_allreduce on every rank: buffers and stream of rank i are `send[i]`, `recv[i]`,\n  `streams[i]`. `streams` NULL: every device's default stream. Nothing is queued on any rank\n  unless the arguments of all are valid."]
    pub fn trib_group_allreduce(
        group: *mut trib_group,
        send: *const *const ::core::ffi::c_void,
        recv: *const *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        op: trib_op,
        streams: *const trib_stream,
    ) -> trib_status;
    #[doc = " trib_broadcast on every rank, in the form of trib_group_allreduce."]
    pub fn trib_group_broadcast(
        group: *mut trib_group,
        send: *const *const ::core::ffi::c_void,
        recv: *const *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        root: i32,
        streams: *const trib_stream,
    ) -> trib_status;
    #[doc = " trib_allreduce_list on every rank: rank i's list is `tensors[i]`, each of `n` tensors."]
    pub fn trib_group_allreduce_list(
        group: *mut trib_group,
        tensors: *const *const trib_tensor,
        n: usize,
        op: trib_op,
        streams: *const trib_stream,
    ) -> trib_status;
    #[doc = " trib_broadcast_list on every rank, in the form of trib_group_allreduce_list."]
    pub fn trib_group_broadcast_list(
        group: *mut trib_group,
        tensors: *const *const trib_tensor,
        n: usize,
        root: i32,
        streams: *const trib_stream,
    ) -> trib_status;
    #[doc = " A handle that aborts all ranks."]
    pub fn trib_group_abort_handle(
        out: *mut *mut trib_abort,
        group: *mut trib_group,
    ) -> trib_status;
    #[doc = " TRIB_OK, or why the group is no longer usable."]
    pub fn trib_group_status(group: *mut trib_group) -> trib_status;
    #[doc = " Turn the group into its communicators, for one thread each: `out[i]` becomes rank i. Consumes the\n  group: on success it is gone; on failure it is as before."]
    pub fn trib_group_split(out: *mut *mut trib_comm, group: *mut trib_group) -> trib_status;
    #[doc = " Destroy every rank as trib_comm_destroy does, with trib_quiesce to wait for what it leaves to the\n  background. NULL is allowed."]
    pub fn trib_group_destroy(group: *mut trib_group) -> trib_status;
    #[doc = " A new id for `backend` (NULL: the first backend that has a device)."]
    pub fn trib_id_create(out: *mut trib_id, backend: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " Rank `rank` of `size`, on device `device`, of the communicator that `id` names. Blocking: returns\n  when all ranks have come, or with TRIB_ERR_TIMEOUT. On host all ranks are threads of this\n  process. An id serves once. `options` may be NULL.\n\n  On nccl this, as everything that makes a communicator, first waits for what earlier ones leave to\n  the background (trib_quiesce), at most half of its deadline, and 2 s if nothing goes on there:\n  CUDA keeps a lock while memory is given back on a busy device, and a call of another thread that\n  needs it, even one that destroys an event, would wait until that device is idle."]
    pub fn trib_comm_create(
        out: *mut *mut trib_comm,
        id: *const trib_id,
        rank: i32,
        size: i32,
        device: i32,
        options: *const trib_options,
    ) -> trib_status;
    #[doc = " This rank's number, 0 .. size-1."]
    pub fn trib_comm_rank(comm: *const trib_comm) -> i32;
    #[doc = " Number of ranks."]
    pub fn trib_comm_size(comm: *const trib_comm) -> i32;
    #[doc = " This rank's device."]
    pub fn trib_comm_device(comm: *const trib_comm) -> i32;
    #[doc = " Name of the backend."]
    pub fn trib_comm_backend(comm: *const trib_comm) -> *const ::core::ffi::c_char;
    #[doc = " New communicators: ranks with the same `color` (0 or more) come together, in the order of `key`,\n  then of rank. A call of all ranks; blocking, with the deadline of the options. The new ones do\n  not depend on the old one. `*out` is NULL for TRIB_NO_COLOR. If a rank does not come\n  (TRIB_ERR_TIMEOUT), `comm` is lost as well on nccl, and stays usable on host."]
    pub fn trib_comm_split(
        out: *mut *mut trib_comm,
        comm: *mut trib_comm,
        color: i32,
        key: i32,
    ) -> trib_status;
    #[doc = " A handle that aborts this communicator."]
    pub fn trib_comm_abort_handle(out: *mut *mut trib_abort, comm: *mut trib_comm) -> trib_status;
    #[doc = " TRIB_OK, or why the communicator is no longer usable: TRIB_ERR_ABORTED, TRIB_ERR_CLOSED (this rank\n  has closed, or was waiting for one that did), or the status of what failed on a stream, with its\n  detail (a mistake found there is named here only: calls after it return TRIB_ERR_ABORTED). Never\n  waits."]
    pub fn trib_comm_status(comm: *mut trib_comm) -> trib_status;
    #[doc = " Fill `*out`. `lists_committed` and `lists_refused` are exact once the stream has been waited for;\n  the first tells, after an abort, whether the last list was written on this rank. Also after an\n  abort."]
    pub fn trib_comm_counters(out: *mut trib_counters, comm: *mut trib_comm) -> trib_status;
    #[doc = " Wait until everything queued on this communicator has run on all ranks of this process; then\n  release what the engine holds, in the background. Ranks of one process may close one after the\n  other: the last one does the waiting. If `timeout_ms` passes first, the communicator is aborted\n  and TRIB_ERR_TIMEOUT returned. Later calls return TRIB_ERR_CLOSED; trib_comm_destroy is still to\n  be called.\n\n  A rank that has closed, or destroyed, has left once all that it queued has run. Ranks of this\n  process that have made equally many calls are not disturbed. One that has made more, and so waits\n  for the rank that left, ends the communicator for all that stay: their streams come free, status\n  and later calls are TRIB_ERR_CLOSED with the reason (\"rank 2 left after call 17\"), a split that\n  waits returns it, and lists and sparse states are as after an abort. The close of the last rank\n  returns it, too. (nccl counts calls when they are queued: if a peer has queued more when a rank\n  closes, the communicator ends then, with what that rank had queued, and its close returns it.)"]
    pub fn trib_comm_close(comm: *mut trib_comm, timeout_ms: u32) -> trib_status;
    #[doc = " Close with the options' deadline unless that was done, then free. Never blocks for ever: what is\n  still stuck is aborted and reclaimed in the background, and TRIB_ERR_TIMEOUT returned; `comm` is\n  gone all the same. What the engine holds is given back in the background in any case: see\n  trib_quiesce. NULL is allowed."]
    pub fn trib_comm_destroy(comm: *mut trib_comm) -> trib_status;
    #[doc = " Wait until all background work of the library has ended: everything that communicators which were\n  aborted, closed or destroyed have held is given back, and if none is left, the threads that do it\n  have ended. TRIB_ERR_TIMEOUT if `timeout_ms` passes first; the detail counts what is left. Any\n  thread. Call it before cudaDeviceReset, which would take CUDA away under that work, and before a\n  program leaves by _exit. (A process that exits waits for such work by itself as long as it goes\n  on, but at most 3 s for each communicator.) Threads that serve host streams and watch deadlines\n  stay: the shared library is therefore never unloaded, and what links the static one must not be."]
    pub fn trib_quiesce(timeout_ms: u32) -> trib_status;
    #[doc = " `recv` = reduction of every rank's `send`. In place: recv == send."]
    pub fn trib_allreduce(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        op: trib_op,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " trib_allreduce with what `options` ask for; NULL is trib_allreduce.\n\n  With factors, `recv` = sum over the ranks of factor_i * (`send` of rank i). All ranks have one or\n  none has; their values may differ, be negative, or 0: then a number contributes 0, and an infinity\n  or a NaN a NaN. The factor is rounded to `dtype` first. Products of f16 and bf16 are rounded to\n  `dtype` on nccl (it is NCCL's pre-multiplied sum) and kept as f32 on host. For TRIB_SUM alone (an\n  average divides the factor by the number of ranks) and f16, bf16, f32, f64; anything else is\n  TRIB_ERR_UNSUPPORTED. Allowed in a batch."]
    pub fn trib_allreduce_with(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        op: trib_op,
        options: *const trib_call_options,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " `recv` on every rank = `send` of `root`; only there is `send` looked at. In place: recv == send."]
    pub fn trib_broadcast(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        root: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " `recv` of `root` = reduction of every rank's `send`; elsewhere `recv` is not looked at. In place\n  on the root: recv == send."]
    pub fn trib_reduce(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        op: trib_op,
        root: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " `recv` holds `size * count` elements: block i is `send` of rank i. In place: send is block `rank`\n  of recv."]
    pub fn trib_allgather(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " `send` holds `size * count` elements; `recv` = reduction of every rank's block `rank`. In place:\n  recv is block `rank` of send."]
    pub fn trib_reduce_scatter(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        op: trib_op,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Both hold `size * count` elements: block i of `recv` is block `rank` of rank i's `send`. In place:\n  recv == send; that takes scratch memory of the communicator as large as `send`, and a copy. Each\n  rank chooses for itself."]
    pub fn trib_alltoall(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Block i of the root's `recv` (`size * count` elements) = `send` of rank i. In place on the root:\n  send is block `root` of recv."]
    pub fn trib_gather(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        root: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " `recv` of rank i = block i of the root's `send` (`size * count` elements). In place on the root:\n  recv is block `root` of send."]
    pub fn trib_scatter(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        root: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Send to rank `peer`, which calls trib_recv with the same count and type. The stream waits for\n  it; put a send and a recv that depend on each other into one batch. A rank may send to itself\n  inside a batch."]
    pub fn trib_send(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        peer: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Receive from rank `peer` what it sends with trib_send."]
    pub fn trib_recv(
        comm: *mut trib_comm,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        peer: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Later work on `stream` runs when every rank's stream has come to its barrier."]
    pub fn trib_barrier(comm: *mut trib_comm, stream: trib_stream) -> trib_status;
    #[doc = " allgather with a count a rank: rank i sends `counts[i]` elements, which land at element\n  `offsets[i]` of every rank's `recv`. `counts` and `offsets` (`size` entries each, the same on all\n  ranks) are read during the call. In place: send == recv + offsets[rank]."]
    pub fn trib_allgatherv(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        counts: *const usize,
        offsets: *const usize,
        dtype: trib_dtype,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " alltoall with counts: `send_counts[i]` elements at `send_offsets[i]` go to rank i,\n  `recv_counts[i]` elements from rank i land at `recv_offsets[i]`. What one rank sends another is\n  what that one receives. The arrays (`size` entries each) are read during the call. Not in\n  place."]
    pub fn trib_alltoallv(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        send_counts: *const usize,
        send_offsets: *const usize,
        recv: *mut ::core::ffi::c_void,
        recv_counts: *const usize,
        recv_offsets: *const usize,
        dtype: trib_dtype,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Allreduce `n` tensors in place: they are packed into one buffer of each element type, reduced in\n  one collective and spread back, by one kernel each. The spreading is all or nothing on each\n  rank: an aborted or failed call leaves every tensor bit for bit as it was (and\n  trib_counters.lists_committed says which it was), so it can be tried again without a snapshot.\n  `tensors` is read during the call; order, counts and types are the same on all ranks. Tensors\n  must not overlap. Not inside a batch, nor on a stream that is being captured into a CUDA graph\n  (TRIB_ERR_UNSUPPORTED)."]
    pub fn trib_allreduce_list(
        comm: *mut trib_comm,
        tensors: *const trib_tensor,
        n: usize,
        op: trib_op,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " trib_allreduce_list with what `options` ask for, as trib_allreduce_with; NULL is\n  trib_allreduce_list. With a factor all tensors are of f16, bf16, f32 or f64."]
    pub fn trib_allreduce_list_with(
        comm: *mut trib_comm,
        tensors: *const trib_tensor,
        n: usize,
        op: trib_op,
        options: *const trib_call_options,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Broadcast `n` tensors of `root` in place, in the way of trib_allreduce_list."]
    pub fn trib_broadcast_list(
        comm: *mut trib_comm,
        tensors: *const trib_tensor,
        n: usize,
        root: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Replace `n` tensors, in place, by their weighted average over the ranks:\n  sum(w_i * x_i) / sum(w_i), in the way of trib_allreduce_list.\n\n  This rank's weight is `weight`, or, if `device_weight` is not NULL, the float that lies there in\n  device memory when the stream comes to this call. Weights are finite and not negative. A rank of\n  weight 0 contributes nothing (its values, NaN included, are not looked at) and receives the\n  average like the others. If the weights add up to 0, every tensor stays as it was.\n\n  A weight that is not valid (negative, infinite, NaN), from the host or from the device, on any\n  rank, and weights whose sum f32 cannot hold (f64 for tensors of f64 alone), are no failure of the call: this rank alone would\n  return, and the others wait for it. Every rank's call is queued and returns TRIB_OK, no rank\n  writes a tensor, and afterwards every rank can tell: `device_total` is NaN, and\n  trib_counters.lists_refused has grown by 1. The communicator stays usable.\n\n  `device_total` (device memory, may be NULL) receives the sum of the weights: a number above 0 if\n  the tensors were written, 0 or NaN if not. No host wait, one collective a type. Types f16, bf16,\n  f32 (summed in f32) and f64."]
    pub fn trib_weighted_average(
        comm: *mut trib_comm,
        tensors: *const trib_tensor,
        n: usize,
        weight: f32,
        device_weight: *const f32,
        device_total: *mut f32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Number of algorithms in this build, \"auto\" included."]
    pub fn trib_sparse_algorithm_count() -> i32;
    #[doc = " Name of algorithm `index`; NULL beyond the last. The names live for ever."]
    pub fn trib_sparse_algorithm_name(index: i32) -> *const ::core::ffi::c_char;
    #[doc = " Bytes of device memory that trib_sparse_create would hold: residuals (two of `count` elements,\n  none in place) and scratch. Asks nobody; so \"auto\" is answered as if all ranks were on one host,\n  until a first state of the communicator has been made."]
    pub fn trib_sparse_bytes(
        out: *mut u64,
        comm: *const trib_comm,
        count: usize,
        dtype: trib_dtype,
        options: *const trib_sparse_options,
    ) -> trib_status;
    #[doc = " The state for a tensor of `count` elements (at most 2^32 - 1) of `dtype`: f16, bf16 and f32, whose\n  residual and sums are f32, or f64. The residual is 0. A call of all ranks; blocking: they compare\n  count, type and what the options come to (a density and a k that give the same k are the same), and\n  all return TRIB_ERR_MISMATCH if one differs; so do the others if a rank is refused what it passes\n  (which it is told). If one lacks memory no rank gets a state. If one does not come within the\n  communicator's timeout_ms: TRIB_ERR_TIMEOUT, and the communicator is over. `options` may be NULL.\n  `comm` must outlive the state. All memory is allocated here."]
    pub fn trib_sparse_create(
        out: *mut *mut trib_sparse,
        comm: *mut trib_comm,
        count: usize,
        dtype: trib_dtype,
        options: *const trib_sparse_options,
    ) -> trib_status;
    #[doc = " Another k from the next call on: `density` as in the options. Residual and statistics stay. A call\n  of all ranks, blocking and compared as in trib_sparse_create; may allocate. On failure the old k\n  stays. Waits for calls still queued, within timeout_ms. A CUDA graph that was captured before refers\n  to memory that may be gone: capture again. \"auto\" chooses anew."]
    pub fn trib_sparse_set_density(sparse: *mut trib_sparse, density: f64) -> trib_status;
    #[doc = " The same with a number of entries."]
    pub fn trib_sparse_set_k(sparse: *mut trib_sparse, k: u64) -> trib_status;
    #[doc = " Queue one sparse allreduce. `gradient` holds `count` elements; in place it is the accumulator.\n  `result` (count elements) is written once, 0 where nothing was chosen; it may be `gradient`\n  unless in place. Its type is dtype, or f32 with TRIB_SPARSE_F32_RESULT. Sums that it has no number for\n  are rounded once. Algorithms whose messages have no\n  fixed size (topkaopt, topksa, oktopk, gaussian...) wait for the stream inside the call on nccl;\n  the others do not, and may be captured in a CUDA graph (in which the schedule stands still: the\n  leader of shared, norm_every). Not inside a batch. Calls of one state on different streams run one\n  after the other, but of a replayed graph the state knows nothing: wait for it before calls outside\n  of it, also before export, import, set and destroy."]
    pub fn trib_sparse_allreduce(
        sparse: *mut trib_sparse,
        gradient: *mut ::core::ffi::c_void,
        result: *mut ::core::ffi::c_void,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " The same with TRIB_SPARSE_ENTRIES: `*count` (device memory) entries with ascending `index` and\n  their `value` (of the result's type). Both arrays have room for trib_sparse_capacity() elements; what lies\n  beyond `*count` is undefined."]
    pub fn trib_sparse_allreduce_entries(
        sparse: *mut trib_sparse,
        gradient: *mut ::core::ffi::c_void,
        index: *mut u32,
        value: *mut ::core::ffi::c_void,
        count: *mut u32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " The most entries that a call can have as its result, now."]
    pub fn trib_sparse_capacity(sparse: *const trib_sparse) -> u64;
    #[doc = " The k that was asked for, by options or since, at most count. (trib_sparse_statistics has what the\n  algorithm makes of it.)"]
    pub fn trib_sparse_k(sparse: *const trib_sparse) -> u64;
    #[doc = " TRIB_OK if the last call that has ended delivered (or none has); TRIB_ERR_NON_FINITE;\n  TRIB_ERR_MISMATCH if the ranks' calls were not of the same state; or what trib_comm_status() says.\n  Never waits. Calls that differ more may wait for each other for ever: states whose messages differ in\n  length, on host also a call that sends from rank to rank (gtopk) on one rank and a collective (a dense\n  call) on another. TRIB_MATCH tells those."]
    pub fn trib_sparse_status(sparse: *mut trib_sparse) -> trib_status;
    #[doc = " A word in device memory: 1 after a call that delivered, 0 after one that did not. Borrowed."]
    pub fn trib_sparse_outcome(sparse: *const trib_sparse) -> *const u32;
    #[doc = " Fill `*out` with what has ended so far. Never waits."]
    pub fn trib_sparse_statistics_get(
        out: *mut trib_sparse_statistics,
        sparse: *mut trib_sparse,
    ) -> trib_status;
    #[doc = " Queue a copy of this rank's residual, as the calls queued before leave it: `count` elements of f32\n  (of f64 where the state is) to `out`, in device memory. A call of this rank alone. In place\n  TRIB_ERR_INVALID_USAGE: the residual is the caller's accumulator."]
    pub fn trib_sparse_residual(
        sparse: *mut trib_sparse,
        out: *mut ::core::ffi::c_void,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Bytes of an export."]
    pub fn trib_sparse_export_bytes(sparse: *const trib_sparse) -> u64;
    #[doc = " Write what a later import needs (residual, thresholds, schedule) to host memory. Blocking, as a wait\n  for the stream is: without a deadline, and what an abort frees, calls still queued. In place\n  there is no residual in it: it is the caller's. The schedule counts the calls that this rank has\n  queued, also those that were not finite or were aborted."]
    pub fn trib_sparse_export(
        sparse: *mut trib_sparse,
        out: *mut ::core::ffi::c_void,
        bytes: usize,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Take over an export of a state of the same count and residual type, of any algorithm, k and number\n  of ranks. Blocking. TRIB_ERR_INVALID_ARGUMENT for anything that is not such an export, and nothing is\n  changed.\n  `add` 0: a call of all ranks, as trib_sparse_create is: if one of them is refused, the others return\n  TRIB_ERR_MISMATCH. Thresholds and schedule come with it if algorithm, k, chunk and number of ranks are\n  the same on all ranks, and begin anew on all if not. The schedule goes on with the smallest of the\n  ranks', for after an abort not all may have queued as many calls.\n  `add` 1: a call of this rank alone. The residual is added to the one that is there, so that the\n  residuals of ranks that are gone can be given to those that stay; thresholds and schedule stay. It\n  blocks as trib_sparse_export does."]
    pub fn trib_sparse_import(
        sparse: *mut trib_sparse,
        data: *const ::core::ffi::c_void,
        bytes: usize,
        add: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Queue: residual, thresholds and schedule as new. Statistics stay. In place the accumulator is the\n  caller's to zero. Every rank does it at the same point."]
    pub fn trib_sparse_reset(sparse: *mut trib_sparse, stream: trib_stream) -> trib_status;
    #[doc = " Free it. Waits, at most as long as trib_comm_destroy, for calls still queued; after that\n  TRIB_ERR_TIMEOUT: the state is gone all the same, its memory is freed when they have run. NULL is\n  allowed."]
    pub fn trib_sparse_destroy(sparse: *mut trib_sparse) -> trib_status;
    #[doc = " Begin a batch: calls that follow are checked and remembered, and trib_batch_end queues them all\n  as one. All use the same stream. Sends and receives of a batch run together. Their buffers may\n  not depend on each other. Batches do not nest."]
    pub fn trib_batch_begin(comm: *mut trib_comm) -> trib_status;
    #[doc = " Queue what the batch remembers, as one call to the engine. If a call inside it failed, nothing is\n  queued and that call's status is returned. Either way the batch is over."]
    pub fn trib_batch_end(comm: *mut trib_comm) -> trib_status;
    #[doc = " Send messages of `level` and below to `function`; NULL switches the log off, as it is at the\n  start. Any thread."]
    pub fn trib_log_set(
        function: trib_log_fn,
        context: *mut ::core::ffi::c_void,
        level: i32,
    ) -> trib_status;
}
