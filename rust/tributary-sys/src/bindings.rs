// Made from include/tributary.h by bindings.sh; do not edit.

pub const TRIB_VERSION_MAJOR: u32 = 0;
pub const TRIB_VERSION_MINOR: u32 = 1;
pub const TRIB_VERSION_PATCH: u32 = 0;
pub const TRIB_VERSION: u32 = 100;
pub const TRIB_NAME_MAX: u32 = 63;
pub const TRIB_CTAS_MAX: u32 = 64;
pub const TRIB_NO_TIMEOUT: u32 = 4294967295;
pub const TRIB_NO_PEERS: u32 = 1;
pub const TRIB_NO_COLOR: i32 = -1;
pub const TRIB_HOST_MAX: u32 = 255;
pub const TRIB_JOB_RANKS_MAX: u32 = 65536;
#[doc = " One of the TRIB_OK / TRIB_ERR_ numbers below. Numbers never change and are never reused; a newer\n  library may return a number that this header does not list."]
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
#[doc = " Element type. 0 is invalid."]
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
#[doc = " Reduction. 0 is invalid. Integers wrap. TRIB_AVG is the sum divided by the number of ranks; for\n  integers it rounds towards zero. MIN and MAX of inputs with a NaN give either a NaN or a number.\n\n  ROUNDING.  MIN, MAX and integers are exact. Of floats let n be the number of ranks, u the unit\n  roundoff (2^-53 of f64, 2^-24 of f32, 2^-11 of f16, 2^-8 of bf16), A the sum of the magnitudes of the\n  n inputs, and let nothing overflow or become subnormal. To first order in u, a result of f32 or f64 is\n  off by at most (n - 1) u A for SUM, u A for AVG, (n - 1) u |product| for PROD. One of f16 or bf16 is off\n  by as much with the u of f32, and then by u of its own times the result; this holds\n  on host, and on nccl where kernels of the library reduce (PEERS): these reduce in rank order, f16 and\n  bf16 in f32. NCCL reduces in an order of its own and rounds each intermediate result to the type: there\n  f16 and bf16 are as f32, with their own u, and AVG, for which NCCL multiplies the inputs by the rounded\n  1 / n first, is off by (n + 1) u A / n. The bits are the same on all ranks of an allreduce. A factor\n  (trib_call_options) rounds each input once more.\n\n  A weighted average (trib_weighted_average, or of a reducer with device_weight) to which m ranks\n  bring a weight above 0 is off by at most 2 m u B, where B is the weighted average of the inputs'\n  magnitudes. One of f16 or bf16 is off by as much with the u of f32, in which its products, sums and\n  quotient are made, and then by u of its own times the result. This holds in any order of summing,\n  NCCL's included. Sparse allreduces: see there."]
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_op(pub i32);
pub const TRIB_SUM: trib_op = trib_op(1);
pub const TRIB_PROD: trib_op = trib_op(2);
pub const TRIB_MIN: trib_op = trib_op(3);
pub const TRIB_MAX: trib_op = trib_op(4);
pub const TRIB_AVG: trib_op = trib_op(5);
#[doc = " A queue of work on one device: on nccl a `cudaStream_t` (yours, or from trib_stream_create), on\n  host a host stream (from trib_stream_create only). NULL is the device's default stream (on nccl\n  the legacy default stream). `cudaStreamPerThread` is invalid."]
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
#[doc = " Ranks may be in several processes."]
pub const TRIB_CAN_PROCESSES: u32 = 1;
#[doc = " Buffers may be ordinary host memory."]
pub const TRIB_CAN_HOST_MEMORY: u32 = 2;
#[doc = " CUDA graphs can capture its calls: see CUDA GRAPHS above. Not with TRIB_MATCH, nor on nccl\n  with TRIB_COMPARED."]
pub const TRIB_CAN_CAPTURE: u32 = 4;
#[doc = " Mismatched calls touch no memory beyond the buffers that were passed. Of a backend: without\n  TRIB_COMPARED."]
pub const TRIB_CAN_COMPARE: u32 = 8;
#[doc = " An abort or a deadline ends the waits of streams inside collectives. Not of a communicator that\n  was adopted (trib_comm_adopt), nor with TRIB_WINDOWS_UNABORTABLE."]
pub const TRIB_CAN_INTERRUPT: u32 = 16;
#[doc = " A rank hears at once of deaths and aborts of the others, and trib_comm_shrink goes on without\n  them. Of a communicator: all ranks are in this process, or it has its side channel."]
pub const TRIB_CAN_HEAR: u32 = 32;
#[doc = " `min_ctas`, `max_ctas` and `network` of the options have an effect."]
pub const TRIB_CAN_CONFIGURE: u32 = 64;
#[doc = " It has the policy TRIB_CTA_EFFICIENCY."]
pub const TRIB_CAN_CTA_EFFICIENCY: u32 = 128;
#[doc = " It has the policy TRIB_CTA_ZERO."]
pub const TRIB_CAN_CTA_ZERO: u32 = 256;
#[doc = " The log tells what NCCL's RAS service knows of a late call, if that runs."]
pub const TRIB_CAN_ASK_RAS: u32 = 512;
#[doc = " trib_comm_adopt works."]
pub const TRIB_CAN_ADOPT: u32 = 1024;
#[doc = " TRIB_WINDOWS has an effect, and an abort ends the calls with windows."]
pub const TRIB_CAN_WINDOWS: u32 = 2048;
#[doc = " Kernels of the library serve small calls, and trib_symmetric_alloc works: see PEERS above. Of a\n  communicator: among its ranks, if there are several."]
pub const TRIB_CAN_PEERS: u32 = 4096;
#[doc = " They serve large calls as well, and the variants ONE_SHOT and TWO_SHOT work."]
pub const TRIB_CAN_PEERS_LARGE: u32 = 8192;
#[doc = " What a backend, or one communicator, can do. A newer library may set bits that this header does\n  not list."]
#[doc = " See TRIB_CAN_PROCESSES and what follows there."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_capabilities {
    #[doc = " sizeof(trib_capabilities), set by the caller"]
    pub size: u32,
    #[doc = " TRIB_CAN_..."]
    pub flags: u32,
    #[doc = " as trib_backend_version"]
    pub version: u32,
    #[doc = " of a communicator: 64 on host; INT32_MAX: the library knows of no limit"]
    pub max_ranks: i32,
    #[doc = " 0"]
    pub reserved: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_capabilities"][::core::mem::size_of::<trib_capabilities>() - 24usize];
    ["Alignment of trib_capabilities"][::core::mem::align_of::<trib_capabilities>() - 8usize];
    ["Offset of field: trib_capabilities::size"]
        [::core::mem::offset_of!(trib_capabilities, size) - 0usize];
    ["Offset of field: trib_capabilities::flags"]
        [::core::mem::offset_of!(trib_capabilities, flags) - 4usize];
    ["Offset of field: trib_capabilities::version"]
        [::core::mem::offset_of!(trib_capabilities, version) - 8usize];
    ["Offset of field: trib_capabilities::max_ranks"]
        [::core::mem::offset_of!(trib_capabilities, max_ranks) - 12usize];
    ["Offset of field: trib_capabilities::reserved"]
        [::core::mem::offset_of!(trib_capabilities, reserved) - 16usize];
};
#[doc = " The place of a rank's memory and streams: device `ordinal` of a backend."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_device {
    _unused: [u8; 0],
}
#[doc = " Skip the checks of buffers and streams (memory, device, range). All other arguments are\n  still checked."]
pub const TRIB_UNCHECKED: u32 = 1;
#[doc = " Debug mode: before each collective the ranks compare operation, count, type, reduction and\n  root. If one differs, all ranks return TRIB_ERR_MISMATCH instead of waiting for ever. If a\n  rank does not make the call, or its stream does not reach it, within timeout_ms, the others\n  return TRIB_ERR_TIMEOUT and the communicator is no longer usable. A rank that fails to queue\n  a call that all ranks have agreed on also ends it. Sends, receives and the counts of\n  alltoallv are not compared. Calls then block until all ranks have made them, so each rank\n  needs a thread of its own, and CUDA graphs cannot capture them."]
pub const TRIB_MATCH: u32 = 2;
#[doc = " Guarantee that mismatched calls never touch memory beyond the buffers that were passed. On\n  host this always holds: the stream compares the calls before it touches memory. On nccl this\n  is TRIB_MATCH: NCCL compares nothing, so a rank may write as many elements as its own count\n  into a peer's shorter buffer."]
pub const TRIB_COMPARED: u32 = 4;
#[doc = " No flight recorder and no watchdog for this communicator: calls have no deadlines, reports\n  do not mention it, and NCCL's errors are seen by those who ask (trib_comm_status,\n  trib_abort_status, trib_comm_wait). Saves some 50 ns per call."]
pub const TRIB_UNRECORDED: u32 = 8;
#[doc = " On nccl: two events per call tell when it starts and ends; see DEADLINES. About 1 us per\n  call. No effect on host."]
pub const TRIB_TIMED: u32 = 16;
#[doc = " No connections of Tributary's own between the processes of this communicator; see SIDE\n  CHANNEL. All ranks pass it, or none has a side channel."]
pub const TRIB_NO_SIDE_CHANNEL: u32 = 32;
#[doc = " On nccl: trib_symmetric_alloc and trib_symmetric_import register what they make with NCCL, as a window.\n  NCCL then serves its part of the calls with such buffers by its symmetric kernels, where it has one: see\n  TRIB_VARIANT_WINDOW. Each rank's NCCL chooses, and finds the others' buffers, by where its own lie, whatever\n  the variant: a buffer of a call lies in the same allocation at the same offset on all ranks, or in none. An abort ends these kernels since NCCL 2.29.7, and never the copy engines of\n  TRIB_CTA_ZERO (NCCL_CTA_POLICY counts): with an older NCCL, or that policy, TRIB_ERR_UNSUPPORTED. While\n  a rank allocates, no thread may capture a CUDA graph in global mode. No effect where a communicator is\n  adopted."]
pub const TRIB_WINDOWS: u32 = 64;
#[doc = " With TRIB_WINDOWS: an abort need not end calls with such buffers. Takes NCCL 2.27, in the build as well,\n  and any policy. An aborted communicator stays in TRIB_COMM_ABORTING until it is reclaimed. Where no abort\n  ends a call, and a rank does not make it, that is never, and the others' streams wait until the process\n  ends. Before 2.29.7 an abort also leaves the memory of windows to NCCL until then."]
pub const TRIB_WINDOWS_UNABORTABLE: u32 = 128;
#[doc = " What a communicator's kernels take of a GPU: NCCL's CTAPolicy."]
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_cta_policy(pub i32);
#[doc = " as many CTAs as are fastest, unless NCCL_CTA_POLICY says else"]
pub const TRIB_CTA_DEFAULT: trib_cta_policy = trib_cta_policy(0);
#[doc = " fewer, where that costs little speed. Since NCCL 2.27"]
pub const TRIB_CTA_EFFICIENCY: trib_cta_policy = trib_cta_policy(1);
#[doc = " none where copy engines can do it: for buffers in windows that the\n   caller registers with a communicator of his own (trib_comm_adopt),\n   or Tributary does (TRIB_WINDOWS_UNABORTABLE).\n   An abort does not interrupt copy engines. Since NCCL 2.28"]
pub const TRIB_CTA_ZERO: trib_cta_policy = trib_cta_policy(2);
#[doc = " Options of a communicator or group. Start from TRIB_OPTIONS_INIT; 0 is every field's default.\n  All ranks pass the same. Communicators that are made from one (split, shrink) have its options.\n\n  `min_ctas`, `max_ctas`, `cta_policy` and `network` are NCCL's configuration: they are checked on\n  every backend, and have no effect on host. NCCL's variables in the environment (NCCL_MIN_CTAS,\n  NCCL_MAX_CTAS, NCCL_CTA_POLICY, NCCL_NET) come before them. If the NCCL that is loaded, or the\n  one with which the library was built, has no such policy: TRIB_ERR_UNSUPPORTED."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_options {
    #[doc = " sizeof(trib_options)"]
    pub size: u32,
    #[doc = " any of TRIB_UNCHECKED ... TRIB_WINDOWS_UNABORTABLE"]
    pub flags: u32,
    #[doc = " NULL: the id's; for a group the first that has the devices"]
    pub backend: *const ::core::ffi::c_char,
    #[doc = " deadline of calls that wait for the other ranks: create, split;\n   trib_sparse_create, set and import (`add` 0), those of\n   reducers, trib_comm_adopt, including the wait\n   for calls still queued; with TRIB_MATCH (on nccl also\n   TRIB_COMPARED) each collective, including the wait for earlier\n   work of any rank's stream. 0 is 300,000"]
    pub timeout_ms: u32,
    #[doc = " how long destroy waits for queued work; 0 is 5,000"]
    pub close_timeout_ms: u32,
    #[doc = " deadline of every queued call, see DEADLINES; not of what calls\n   queue while `timeout_ms` runs. 0 is 600,000; TRIB_NO_TIMEOUT:\n   none. Ranks may differ"]
    pub call_timeout_ms: u32,
    #[doc = " CTAs of a collective's kernel on each GPU, at least and"]
    pub min_ctas: u32,
    #[doc = " at most: 1 to TRIB_CTAS_MAX. Fewer leave more of the GPU to the\n   caller's kernels. 0: NCCL's choice"]
    pub max_ctas: u32,
    #[doc = " TRIB_CTA_..."]
    pub cta_policy: trib_cta_policy,
    #[doc = " NCCL's network between hosts: \"Socket\", \"IB\", or the name of a\n   plugin. NULL: NCCL's choice"]
    pub network: *const ::core::ffi::c_char,
    #[doc = " for people: in the log, dumps and profiles, see trib_comm_name,\n   and with NCCL 2.27 and later in NCCL's log. NULL: none. This\n   and `network`: 1 to TRIB_NAME_MAX bytes, no control\n   characters; copied"]
    pub name: *const ::core::ffi::c_char,
    #[doc = " device memory that the kernels between GPUs may take on each\n   rank, see PEERS; 0: 48 MiB. With less than 40 there are none\n   for large calls (of 5 to 8 GPUs than 64, and by name);\n   TRIB_NO_PEERS: NCCL serves all calls. The smallest of all\n   ranks counts, and TRIB_NO_PEERS is 0 there"]
    pub peer_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_options"][::core::mem::size_of::<trib_options>() - 64usize];
    ["Alignment of trib_options"][::core::mem::align_of::<trib_options>() - 8usize];
    ["Offset of field: trib_options::size"][::core::mem::offset_of!(trib_options, size) - 0usize];
    ["Offset of field: trib_options::flags"][::core::mem::offset_of!(trib_options, flags) - 4usize];
    ["Offset of field: trib_options::backend"]
        [::core::mem::offset_of!(trib_options, backend) - 8usize];
    ["Offset of field: trib_options::timeout_ms"]
        [::core::mem::offset_of!(trib_options, timeout_ms) - 16usize];
    ["Offset of field: trib_options::close_timeout_ms"]
        [::core::mem::offset_of!(trib_options, close_timeout_ms) - 20usize];
    ["Offset of field: trib_options::call_timeout_ms"]
        [::core::mem::offset_of!(trib_options, call_timeout_ms) - 24usize];
    ["Offset of field: trib_options::min_ctas"]
        [::core::mem::offset_of!(trib_options, min_ctas) - 28usize];
    ["Offset of field: trib_options::max_ctas"]
        [::core::mem::offset_of!(trib_options, max_ctas) - 32usize];
    ["Offset of field: trib_options::cta_policy"]
        [::core::mem::offset_of!(trib_options, cta_policy) - 36usize];
    ["Offset of field: trib_options::network"]
        [::core::mem::offset_of!(trib_options, network) - 40usize];
    ["Offset of field: trib_options::name"][::core::mem::offset_of!(trib_options, name) - 48usize];
    ["Offset of field: trib_options::peer_bytes"]
        [::core::mem::offset_of!(trib_options, peer_bytes) - 56usize];
};
#[doc = " Aborts a communicator from any thread. Reference-counted; may outlive the communicator."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_abort {
    _unused: [u8; 0],
}
#[doc = " How far the end of a communicator has come in this process. A state never goes back, but\n  TRIB_COMM_ABORTED and TRIB_COMM_PARKED may alternate. A newer library may have more states."]
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_comm_state(pub i32);
#[doc = " neither aborted nor failed. A close changes nothing before\n   TRIB_COMM_RECLAIMED"]
pub const TRIB_COMM_LIVE: trib_comm_state = trib_comm_state(0);
#[doc = " the reason is set; a call has not returned yet, or a stream may\n   still wait inside a collective"]
pub const TRIB_COMM_ABORTING: trib_comm_state = trib_comm_state(1);
#[doc = " all calls have returned, and no stream waits inside a collective;\n   the backend still holds resources"]
pub const TRIB_COMM_ABORTED: trib_comm_state = trib_comm_state(2);
#[doc = " the same, but releasing them waits for the caller's CUDA graphs, or\n   for more than 1 s for work queued earlier"]
pub const TRIB_COMM_PARKED: trib_comm_state = trib_comm_state(3);
#[doc = " the backend has released everything but symmetric memory"]
pub const TRIB_COMM_RECLAIMED: trib_comm_state = trib_comm_state(4);
#[doc = " All ranks of a communicator within one process, driven by one thread."]
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
#[doc = " Bootstrap token of a new communicator: one rank creates it and distributes the 128 bytes. On\n  nccl it is an ncclUniqueId."]
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
#[doc = " Counters of one rank."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_counters {
    #[doc = " sizeof(trib_counters), set by the caller"]
    pub size: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " collectives queued; a list or a member of a batch is one"]
    pub calls: u64,
    #[doc = " size of this rank's send buffers in those calls. The traffic\n   differs: an allreduce moves 2(P-1)/P times as much;\n   trib_sparse_statistics counts that of sparse calls"]
    pub bytes: u64,
    #[doc = " calls to the backend for them"]
    pub backend_calls: u64,
    #[doc = " scratch memory held"]
    pub workspace_bytes: u64,
    #[doc = " list and weighted-average calls queued"]
    pub lists_queued: u64,
    #[doc = " of those, and of replays of captured ones, lists that have\n   written their tensors on this rank"]
    pub lists_committed: u64,
    #[doc = " of those, weighted averages that wrote nothing because a rank's\n   weight was invalid: the same on every rank"]
    pub lists_refused: u64,
    #[doc = " calls in which the peers could not reach a buffer of this rank's\n   where it lies, so it went through memory of the library (PEERS);\n   replays do not count"]
    pub staged_calls: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_counters"][::core::mem::size_of::<trib_counters>() - 72usize];
    ["Alignment of trib_counters"][::core::mem::align_of::<trib_counters>() - 8usize];
    ["Offset of field: trib_counters::size"][::core::mem::offset_of!(trib_counters, size) - 0usize];
    ["Offset of field: trib_counters::reserved"]
        [::core::mem::offset_of!(trib_counters, reserved) - 4usize];
    ["Offset of field: trib_counters::calls"]
        [::core::mem::offset_of!(trib_counters, calls) - 8usize];
    ["Offset of field: trib_counters::bytes"]
        [::core::mem::offset_of!(trib_counters, bytes) - 16usize];
    ["Offset of field: trib_counters::backend_calls"]
        [::core::mem::offset_of!(trib_counters, backend_calls) - 24usize];
    ["Offset of field: trib_counters::workspace_bytes"]
        [::core::mem::offset_of!(trib_counters, workspace_bytes) - 32usize];
    ["Offset of field: trib_counters::lists_queued"]
        [::core::mem::offset_of!(trib_counters, lists_queued) - 40usize];
    ["Offset of field: trib_counters::lists_committed"]
        [::core::mem::offset_of!(trib_counters, lists_committed) - 48usize];
    ["Offset of field: trib_counters::lists_refused"]
        [::core::mem::offset_of!(trib_counters, lists_refused) - 56usize];
    ["Offset of field: trib_counters::staged_calls"]
        [::core::mem::offset_of!(trib_counters, staged_calls) - 64usize];
};
#[doc = " The place of this process in its job, and where the ranks of the job meet. trib_job_read fills it,\n  or, under another launcher, the caller, from TRIB_JOB_INIT. All ranks have the same `n_ranks`,\n  `port` and `token`, and a `host` that leads to rank 0."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_job {
    #[doc = " sizeof(trib_job), set by the caller"]
    pub size: u32,
    #[doc = " of this process, 0 .. n_ranks-1"]
    pub rank: i32,
    #[doc = " of the job: 1 .. TRIB_JOB_RANKS_MAX"]
    pub n_ranks: i32,
    #[doc = " number of this process among those of the job on its host"]
    pub local_rank: i32,
    #[doc = " 1 .. 65535: where rank 0 listens. 0: at one of four ports from 61000\n   to 65479 that follow from `token`"]
    pub port: i32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " any number that tells the job from others"]
    pub token: u64,
    #[doc = " \"torchrun\", \"openmpi\", \"mpich\", \"slurm\"; valid for ever. NULL: the\n   caller has filled this. Not read by trib_job_meet"]
    pub launcher: *const ::core::ffi::c_char,
    #[doc = " of rank 0: a name, an IPv4 or an IPv6 address. \"\": none is\n   known, as one rank needs none"]
    pub host: [::core::ffi::c_char; 256usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_job"][::core::mem::size_of::<trib_job>() - 296usize];
    ["Alignment of trib_job"][::core::mem::align_of::<trib_job>() - 8usize];
    ["Offset of field: trib_job::size"][::core::mem::offset_of!(trib_job, size) - 0usize];
    ["Offset of field: trib_job::rank"][::core::mem::offset_of!(trib_job, rank) - 4usize];
    ["Offset of field: trib_job::n_ranks"][::core::mem::offset_of!(trib_job, n_ranks) - 8usize];
    ["Offset of field: trib_job::local_rank"]
        [::core::mem::offset_of!(trib_job, local_rank) - 12usize];
    ["Offset of field: trib_job::port"][::core::mem::offset_of!(trib_job, port) - 16usize];
    ["Offset of field: trib_job::reserved"][::core::mem::offset_of!(trib_job, reserved) - 20usize];
    ["Offset of field: trib_job::token"][::core::mem::offset_of!(trib_job, token) - 24usize];
    ["Offset of field: trib_job::launcher"][::core::mem::offset_of!(trib_job, launcher) - 32usize];
    ["Offset of field: trib_job::host"][::core::mem::offset_of!(trib_job, host) - 40usize];
};
#[doc = " Use `factor`."]
pub const TRIB_CALL_FACTOR: u32 = 1;
#[doc = " Refuse a buffer of this rank that peers access and cannot reach (PEERS)."]
pub const TRIB_CALL_UNSTAGED: u32 = 2;
#[doc = " Which code serves a call (PEERS). All ranks pass the same."]
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_variant(pub i32);
#[doc = " by a fixed table: what PEERS says"]
pub const TRIB_VARIANT_AUTO: trib_variant = trib_variant(0);
#[doc = " NCCL"]
pub const TRIB_VARIANT_NCCL: trib_variant = trib_variant(1);
#[doc = " each rank stores into its peers' memory; sizes as PEERS says"]
pub const TRIB_VARIANT_PUSH: trib_variant = trib_variant(2);
pub const TRIB_VARIANT_ONE_SHOT: trib_variant = trib_variant(3);
pub const TRIB_VARIANT_TWO_SHOT: trib_variant = trib_variant(4);
pub const TRIB_VARIANT_SYMMETRIC: trib_variant = trib_variant(5);
#[doc = " NCCL, of buffers in its windows: TRIB_WINDOWS"]
pub const TRIB_VARIANT_WINDOW: trib_variant = trib_variant(6);
#[doc = " Options of one call; unless stated otherwise each rank chooses its own. Start from\n  TRIB_CALL_OPTIONS_INIT; 0 is every field's default. Read during the call. The struct will grow:\n  an older library accepts a larger one if the fields it does not know are 0."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct trib_call_options {
    #[doc = " sizeof(trib_call_options)"]
    pub size: u32,
    #[doc = " any of TRIB_CALL_FACTOR and TRIB_CALL_UNSTAGED"]
    pub flags: u32,
    #[doc = " with TRIB_CALL_FACTOR: this rank's factor, any number; of allreduces"]
    pub factor: f64,
    #[doc = " if not NULL, replaces `factor`: the float in device memory that\n   the stream reads when it reaches the call. A buffer of the\n   call; not inside `recv`; of allreduces"]
    pub device_factor: *const f32,
    #[doc = " the same on all ranks"]
    pub variant: trib_variant,
    #[doc = " 0"]
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_call_options"][::core::mem::size_of::<trib_call_options>() - 32usize];
    ["Alignment of trib_call_options"][::core::mem::align_of::<trib_call_options>() - 8usize];
    ["Offset of field: trib_call_options::size"]
        [::core::mem::offset_of!(trib_call_options, size) - 0usize];
    ["Offset of field: trib_call_options::flags"]
        [::core::mem::offset_of!(trib_call_options, flags) - 4usize];
    ["Offset of field: trib_call_options::factor"]
        [::core::mem::offset_of!(trib_call_options, factor) - 8usize];
    ["Offset of field: trib_call_options::device_factor"]
        [::core::mem::offset_of!(trib_call_options, device_factor) - 16usize];
    ["Offset of field: trib_call_options::variant"]
        [::core::mem::offset_of!(trib_call_options, variant) - 24usize];
    ["Offset of field: trib_call_options::reserved"]
        [::core::mem::offset_of!(trib_call_options, reserved) - 28usize];
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
#[doc = " `gradient` of each call is the accumulator itself: add gradients into it; after the call it\n  holds the residual. A call moves 4 bytes per element instead of 12. Types f32 and f64. Decay\n  applies after the call. An infinity or a NaN in the accumulator stays there, and no call is\n  applied, until the caller replaces it. With momentum `gradient` is the velocity instead:\n  below."]
pub const TRIB_SPARSE_IN_PLACE: u32 = 4;
#[doc = " Use `k` of the options, 0 included, instead of `density`."]
pub const TRIB_SPARSE_USE_K: u32 = 8;
#[doc = " The result (or its values) is f32 for f16 and bf16 gradients: unrounded sums, which do not\n  overflow. `result` must then differ from `gradient`. No effect for f32; invalid for\n  f64."]
pub const TRIB_SPARSE_F32_RESULT: u32 = 16;
#[doc = " With momentum: velocities keep their elements that were sent."]
pub const TRIB_SPARSE_NO_MASKING: u32 = 32;
#[doc = " Options of a sparse allreduce. Start from TRIB_SPARSE_OPTIONS_INIT; 0 is every field's default.\n  All ranks pass the same."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct trib_sparse_options {
    #[doc = " sizeof(trib_sparse_options)"]
    pub size: u32,
    #[doc = " TRIB_SPARSE_..."]
    pub flags: u32,
    #[doc = " NULL: \"auto\""]
    pub algorithm: *const ::core::ffi::c_char,
    #[doc = " k = count * density rounded down, at least 1; 0 is 0.01, at most\n   1"]
    pub density: f64,
    #[doc = " with TRIB_SPARSE_USE_K; values above count mean count"]
    pub k: u64,
    #[doc = " of the residual; 0 is 1; above 0, at most 1"]
    pub decay: f64,
    #[doc = " type of selected values in messages: 0 is the residual's, or\n   TRIB_BF16 (not for f64), whose rounding errors stay in the residual.\n   No effect on shared, where only sums are sent; dense adds up in\n   bf16, and auto counts that among its rivals: see above"]
    pub wire: trib_dtype,
    #[doc = " chunked: elements, a power of two up to 65,536; 0 is 4,096"]
    pub chunk: u32,
    #[doc = " of the published code: \"vgg\", \"lstm\" or \"bert\". oktopk: NULL is the\n   exact mode. gaussiank, gaussiankconcat: NULL is \"vgg\""]
    pub constants: *const ::core::ffi::c_char,
    #[doc = " compute the residual norm every N calls (one extra pass over the\n   residual); 0: never"]
    pub norm_every: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " at least 0, below 1; 0: none, and no velocity"]
    pub momentum: f64,
    #[doc = " with momentum, not in place: clip gradients to this norm, of all\n   ranks together; one extra pass over the gradient; 0: never"]
    pub clip_norm: f64,
    #[doc = " hier: the number, at least 0, of each rank's host, one for every rank\n   of the communicator; read during the call. NULL: the hosts that the\n   ranks run on. No effect on other algorithms"]
    pub hosts: *const i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_sparse_options"][::core::mem::size_of::<trib_sparse_options>() - 88usize];
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
    ["Offset of field: trib_sparse_options::momentum"]
        [::core::mem::offset_of!(trib_sparse_options, momentum) - 64usize];
    ["Offset of field: trib_sparse_options::clip_norm"]
        [::core::mem::offset_of!(trib_sparse_options, clip_norm) - 72usize];
    ["Offset of field: trib_sparse_options::hosts"]
        [::core::mem::offset_of!(trib_sparse_options, hosts) - 80usize];
};
#[doc = " Statistics of one rank's state. Words: entries in units of 4 bytes, rounded up for each message.\n  Bytes: everything sent. Summed over the ranks, sent equals received. A broadcast counts as a\n  chain, an allreduce and an allgather count as rings."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct trib_sparse_statistics {
    #[doc = " sizeof(trib_sparse_statistics), set by the caller"]
    pub size: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " the one in use"]
    pub algorithm: *const ::core::ffi::c_char,
    #[doc = " why it runs: of auto's choice the figures of the link and the\n   time that it guesses for each rival; \"\" if requested by name.\n   Lives with the state"]
    pub reason: *const ::core::ffi::c_char,
    #[doc = " elements; entries to select in a call (dense: all; srs: k / P of\n   each of P blocks, rounded down, at least 1; chunked: its share\n   of k from each chunk, rounded, at least 1, at most its\n   length; hier: this rank's share of its host's k)"]
    pub count: u64,
    #[doc = " elements; entries to select in a call (dense: all; srs: k / P of\n   each of P blocks, rounded down, at least 1; chunked: its share\n   of k from each chunk, rounded, at least 1, at most its\n   length; hier: this rank's share of its host's k)"]
    pub k: u64,
    #[doc = " completed"]
    pub calls: u64,
    #[doc = " of those, applied"]
    pub calls_applied: u64,
    #[doc = " of those, calls whose acc or result was not finite"]
    pub calls_non_finite: u64,
    #[doc = " entries that this rank selected in the last applied call"]
    pub selected: u64,
    #[doc = " of those, entries in the result"]
    pub applied: u64,
    #[doc = " over all applied calls, like all below"]
    pub total_selected: u64,
    #[doc = " of those, entries in results"]
    pub total_applied: u64,
    #[doc = " entries, in units of 4 bytes"]
    pub words_sent: u64,
    #[doc = " the same"]
    pub words_received: u64,
    #[doc = " everything: headers, padding and histograms, too"]
    pub bytes_sent: u64,
    #[doc = " the same"]
    pub bytes_received: u64,
    #[doc = " selections whose first guess failed (slower, same result), or\n   that were exact because earlier calls had selected nothing"]
    pub fallbacks: u64,
    #[doc = " the last computed; -1: none"]
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
    ["Offset of field: trib_sparse_statistics::calls_applied"]
        [::core::mem::offset_of!(trib_sparse_statistics, calls_applied) - 48usize];
    ["Offset of field: trib_sparse_statistics::calls_non_finite"]
        [::core::mem::offset_of!(trib_sparse_statistics, calls_non_finite) - 56usize];
    ["Offset of field: trib_sparse_statistics::selected"]
        [::core::mem::offset_of!(trib_sparse_statistics, selected) - 64usize];
    ["Offset of field: trib_sparse_statistics::applied"]
        [::core::mem::offset_of!(trib_sparse_statistics, applied) - 72usize];
    ["Offset of field: trib_sparse_statistics::total_selected"]
        [::core::mem::offset_of!(trib_sparse_statistics, total_selected) - 80usize];
    ["Offset of field: trib_sparse_statistics::total_applied"]
        [::core::mem::offset_of!(trib_sparse_statistics, total_applied) - 88usize];
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
#[doc = " The gradients of one rank, their buckets, and a stream that reduces them while others are made."]
#[repr(C)]
#[derive(Debug)]
pub struct trib_reducer {
    _unused: [u8; 0],
}
#[doc = " Sums instead of averages."]
pub const TRIB_REDUCER_SUM: u32 = 1;
#[doc = " The gradients lie in the buckets: see trib_reducer_view. `data` of each tensor is ignored."]
pub const TRIB_REDUCER_VIEWS: u32 = 2;
#[doc = " With TRIB_REDUCER_VIEWS: a second set of buckets takes the sums, so that a step that is not\n  applied leaves the gradients as they were."]
pub const TRIB_REDUCER_TWINS: u32 = 4;
#[doc = " The first trib_reducer_finish fills the buckets anew, in the order in which rank 0 called\n  trib_reducer_ready; gradients that were not ready there come last. That finish blocks until\n  all ranks have come to it, within timeout_ms, and the step has run; what fails then ends the\n  communicator, and is returned though the step was applied. It needs as much device memory\n  again for as long if the gradients are views, and with options.sparse a second set of\n  states. If a rank has no memory for it, the order stays (and the log says so,\n  TRIB_LOG_WARN). Views move: ask trib_reducer_view again after that finish; what was\n  in them moves with them."]
pub const TRIB_REDUCER_LEARN_ORDER: u32 = 8;
#[doc = " Options of a reducer. Start from TRIB_REDUCER_OPTIONS_INIT; 0 is every field's default. All ranks\n  pass the same."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_reducer_options {
    #[doc = " sizeof(trib_reducer_options)"]
    pub size: u32,
    #[doc = " TRIB_REDUCER_..."]
    pub flags: u32,
    #[doc = " Of a bucket, at most; 0 is 50 MiB. A larger gradient has a bucket of its own. Few large ones\n  take less time in all, but what comes late hides less: 102 MB of gradients, all ready at once,\n  take 378 us on 2 x H200 over NVLink, in buckets of 10 MiB 523, of 100 MiB 368 (the first and the\n  last of 1 MiB), as one tensor 339."]
    pub bucket_bytes: u64,
    #[doc = " The same for the first bucket of each type and for its last one, which should be small: until\n  the first is queued nothing is sent, and nothing hides the last, as it is ready when the\n  backward pass has ended; 0 is 256 KiB, or bucket_bytes if that is less."]
    pub first_bytes: u64,
    #[doc = " NULL: plain averages, or sums. Otherwise this rank's weight, in device memory: see WEIGHTS."]
    pub device_weight: *const f32,
    #[doc = " NULL: dense. Otherwise what a state of each bucket is created with: see SPARSE. Of its flags\n  only TRIB_SPARSE_NO_MASKING is allowed: the reducer itself chooses averages or sums. Read by\n  trib_reducer_create."]
    pub sparse: *const trib_sparse_options,
    #[doc = " NULL: buckets are filled with the gradients as they are passed. Otherwise in this order, a\n  permutation of 0 to n - 1. An export has the order in which they are passed all the same. Not\n  with TRIB_REDUCER_LEARN_ORDER. Read by trib_reducer_create."]
    pub order: *const u64,
    #[doc = " NULL: buckets of the reducer's own. Otherwise how many gradients each of `nbuckets` of the\n  caller's has, n in all: see IN PLACE. (One whose gradients have no elements is none of\n  trib_reducer_buckets.) Not with TRIB_REDUCER_VIEWS, TRIB_REDUCER_LEARN_ORDER or device_weight;\n  bucket_bytes and first_bytes are ignored. Read by trib_reducer_create."]
    pub buckets: *const u64,
    #[doc = " of the caller's; 0 without `buckets`"]
    pub nbuckets: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_reducer_options"][::core::mem::size_of::<trib_reducer_options>() - 64usize];
    ["Alignment of trib_reducer_options"][::core::mem::align_of::<trib_reducer_options>() - 8usize];
    ["Offset of field: trib_reducer_options::size"]
        [::core::mem::offset_of!(trib_reducer_options, size) - 0usize];
    ["Offset of field: trib_reducer_options::flags"]
        [::core::mem::offset_of!(trib_reducer_options, flags) - 4usize];
    ["Offset of field: trib_reducer_options::bucket_bytes"]
        [::core::mem::offset_of!(trib_reducer_options, bucket_bytes) - 8usize];
    ["Offset of field: trib_reducer_options::first_bytes"]
        [::core::mem::offset_of!(trib_reducer_options, first_bytes) - 16usize];
    ["Offset of field: trib_reducer_options::device_weight"]
        [::core::mem::offset_of!(trib_reducer_options, device_weight) - 24usize];
    ["Offset of field: trib_reducer_options::sparse"]
        [::core::mem::offset_of!(trib_reducer_options, sparse) - 32usize];
    ["Offset of field: trib_reducer_options::order"]
        [::core::mem::offset_of!(trib_reducer_options, order) - 40usize];
    ["Offset of field: trib_reducer_options::buckets"]
        [::core::mem::offset_of!(trib_reducer_options, buckets) - 48usize];
    ["Offset of field: trib_reducer_options::nbuckets"]
        [::core::mem::offset_of!(trib_reducer_options, nbuckets) - 56usize];
};
pub const TRIB_LOG_ERROR: i32 = 1;
pub const TRIB_LOG_WARN: i32 = 2;
pub const TRIB_LOG_INFO: i32 = 3;
pub const TRIB_LOG_DEBUG: i32 = 4;
#[doc = " Receives one line, without a newline. Called from any thread; must not call Tributary."]
pub type trib_log_fn = ::core::option::Option<
    unsafe extern "C" fn(
        context: *mut ::core::ffi::c_void,
        level: i32,
        line: *const ::core::ffi::c_char,
    ),
>;
#[doc = " What the library has allocated for itself, in bytes: now, and the most at one time (`peak`).\n  Not counted: what you allocate (trib_device_alloc), ordinary host memory, abort flags, and what\n  NCCL and CUDA allocate. Memory that is being freed in the background counts no longer."]
#[repr(C)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct trib_memory {
    #[doc = " sizeof(trib_memory), set by the caller"]
    pub size: u32,
    #[doc = " 0"]
    pub reserved: u32,
    #[doc = " scratch of communicators, on the device"]
    pub workspace_bytes: u64,
    #[doc = " the most so far"]
    pub workspace_peak_bytes: u64,
    #[doc = " sparse states, on the device: residuals, velocities, ..."]
    pub sparse_bytes: u64,
    #[doc = " the most so far"]
    pub sparse_peak_bytes: u64,
    #[doc = " pinned host memory of workspaces and sparse states"]
    pub pinned_bytes: u64,
    #[doc = " the most so far"]
    pub pinned_peak_bytes: u64,
    #[doc = " on the device, where ranks of communicators reach each other: what\n   PEERS says, from their creation to their end, symmetric\n   memory, and packets of sparse states, former ones' too"]
    pub peer_bytes: u64,
    #[doc = " the most so far"]
    pub peer_peak_bytes: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of trib_memory"][::core::mem::size_of::<trib_memory>() - 72usize];
    ["Alignment of trib_memory"][::core::mem::align_of::<trib_memory>() - 8usize];
    ["Offset of field: trib_memory::size"][::core::mem::offset_of!(trib_memory, size) - 0usize];
    ["Offset of field: trib_memory::reserved"]
        [::core::mem::offset_of!(trib_memory, reserved) - 4usize];
    ["Offset of field: trib_memory::workspace_bytes"]
        [::core::mem::offset_of!(trib_memory, workspace_bytes) - 8usize];
    ["Offset of field: trib_memory::workspace_peak_bytes"]
        [::core::mem::offset_of!(trib_memory, workspace_peak_bytes) - 16usize];
    ["Offset of field: trib_memory::sparse_bytes"]
        [::core::mem::offset_of!(trib_memory, sparse_bytes) - 24usize];
    ["Offset of field: trib_memory::sparse_peak_bytes"]
        [::core::mem::offset_of!(trib_memory, sparse_peak_bytes) - 32usize];
    ["Offset of field: trib_memory::pinned_bytes"]
        [::core::mem::offset_of!(trib_memory, pinned_bytes) - 40usize];
    ["Offset of field: trib_memory::pinned_peak_bytes"]
        [::core::mem::offset_of!(trib_memory, pinned_peak_bytes) - 48usize];
    ["Offset of field: trib_memory::peer_bytes"]
        [::core::mem::offset_of!(trib_memory, peer_bytes) - 56usize];
    ["Offset of field: trib_memory::peer_peak_bytes"]
        [::core::mem::offset_of!(trib_memory, peer_peak_bytes) - 64usize];
};
extern "C" {
    #[doc = " The version of the library that is loaded, in the form of TRIB_VERSION."]
    pub fn trib_version() -> u32;
    #[doc = " \"TRIB_ERR_ABORTED\"; never NULL, not even for unknown numbers. Strings returned by functions that\n  take no object stay valid for ever."]
    pub fn trib_status_name(status: trib_status) -> *const ::core::ffi::c_char;
    #[doc = " The sentence of TRIB_STATUS_MAP; never NULL."]
    pub fn trib_status_message(status: trib_status) -> *const ::core::ffi::c_char;
    #[doc = " Explanation of the calling thread's last failure; \"\" before the first. Valid until the next call\n  of this thread that fails. Calls that succeed leave it unchanged."]
    pub fn trib_last_detail() -> *const ::core::ffi::c_char;
    #[doc = " Bytes of one element; 0 for an invalid type."]
    pub fn trib_dtype_size(dtype: trib_dtype) -> usize;
    #[doc = " \"f32\"; \"?\" for an invalid type."]
    pub fn trib_dtype_name(dtype: trib_dtype) -> *const ::core::ffi::c_char;
    #[doc = " \"sum\"; \"?\" for an invalid reduction."]
    pub fn trib_op_name(op: trib_op) -> *const ::core::ffi::c_char;
    #[doc = " Number of backends in this build. Any thread."]
    pub fn trib_backend_count() -> i32;
    #[doc = " Name of backend `index`, in order of preference; NULL beyond the last. Valid for ever."]
    pub fn trib_backend_name(index: i32) -> *const ::core::ffi::c_char;
    #[doc = " Version of the library behind a backend: the loaded NCCL's (22809 for 2.28.9), or Tributary's\n  for host. Creates no CUDA context. TRIB_ERR_UNKNOWN_NAME."]
    pub fn trib_backend_version(out: *mut u32, backend: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " Number of devices that a backend can use now: GPUs for nccl (0 without a driver), 64 for host.\n  Creates no CUDA context."]
    pub fn trib_backend_devices(out: *mut i32, backend: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " Fill `*out` with what a backend can do in this process. Creates no CUDA context.\n  TRIB_ERR_UNKNOWN_NAME."]
    pub fn trib_backend_capabilities(
        out: *mut trib_capabilities,
        backend: *const ::core::ffi::c_char,
    ) -> trib_status;
    #[doc = " Device `ordinal` of `backend` (NULL: the first backend that has such a device). `*out` is\n  borrowed and valid for ever; threads may share it; each call returns the same pointer.\n  TRIB_ERR_UNKNOWN_NAME, TRIB_ERR_NO_DEVICE."]
    pub fn trib_device_get(
        out: *mut *mut trib_device,
        backend: *const ::core::ffi::c_char,
        ordinal: i32,
    ) -> trib_status;
    #[doc = " Name of the device's backend."]
    pub fn trib_device_backend(device: *const trib_device) -> *const ::core::ffi::c_char;
    #[doc = " The device's ordinal."]
    pub fn trib_device_ordinal(device: *const trib_device) -> i32;
    #[doc = " Allocate `bytes` bytes of device memory, aligned to 256; 0 bytes give a unique pointer.\n  Blocking. On host, collectives take any host memory; memory allocated here is also bounds- and\n  device-checked."]
    pub fn trib_device_alloc(
        out: *mut *mut ::core::ffi::c_void,
        device: *mut trib_device,
        bytes: usize,
    ) -> trib_status;
    #[doc = " Free memory from trib_device_alloc. NULL is allowed. Queued work must no longer use it."]
    pub fn trib_device_free(
        device: *mut trib_device,
        data: *mut ::core::ffi::c_void,
    ) -> trib_status;
    #[doc = " Queue a copy of `bytes` bytes on `stream`. Each side may be host memory or memory of `device`.\n  Leave host memory untouched until the stream has passed this point. On nccl, a copy from or to\n  pageable host memory blocks the call until the stream gets there, and CUDA blocks allocations of\n  other threads meanwhile: wait for a collective before you copy its result to such memory."]
    pub fn trib_device_copy(
        device: *mut trib_device,
        dst: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        bytes: usize,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Create a stream on `device`."]
    pub fn trib_stream_create(out: *mut trib_stream, device: *mut trib_device) -> trib_status;
    #[doc = " Wait until everything queued so far has run. TRIB_OK says nothing about the communicator whose\n  calls those were: trib_comm_status() tells whether they succeeded. On host, the waiting thread\n  may itself run queued work. Any thread.\n\n  If a wait or a query for a stream or an event fails with TRIB_ERR_CUDA, the device has failed\n  and runs nothing any more. After any other failure queued work may still run and use its\n  buffers: CUDA rejects the query (TRIB_ERR_INVALID_USAGE) while the stream is captured, while\n  another thread captures, or inside a host function."]
    pub fn trib_stream_wait(device: *mut trib_device, stream: trib_stream) -> trib_status;
    #[doc = " `*out` = 1 if everything queued has run, else 0. Never waits. Any thread."]
    pub fn trib_stream_query(
        out: *mut i32,
        device: *mut trib_device,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Make later work on `stream` wait for the last record of `event`; no wait if there was none."]
    pub fn trib_stream_wait_event(
        device: *mut trib_device,
        event: trib_event,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Queue a call of `function(argument)`, which must not call Tributary functions that wait, and on\n  nccl no CUDA function."]
    pub fn trib_stream_submit(
        device: *mut trib_device,
        function: ::core::option::Option<unsafe extern "C" fn(argument: *mut ::core::ffi::c_void)>,
        argument: *mut ::core::ffi::c_void,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Wait for the stream, then destroy it. NULL is allowed."]
    pub fn trib_stream_destroy(device: *mut trib_device, stream: trib_stream) -> trib_status;
    #[doc = " Create an event on `device` (timing enabled)."]
    pub fn trib_event_create(out: *mut trib_event, device: *mut trib_device) -> trib_status;
    #[doc = " Record the current point of `stream`."]
    pub fn trib_event_record(
        device: *mut trib_device,
        event: trib_event,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Wait until the stream has passed the last recorded point. As for trib_stream_wait, TRIB_OK says\n  nothing about the communicator: trib_comm_status() does. Any thread."]
    pub fn trib_event_wait(device: *mut trib_device, event: trib_event) -> trib_status;
    #[doc = " `*out` = 1 if the stream has passed the last recorded point, else 0. Any thread."]
    pub fn trib_event_query(
        out: *mut i32,
        device: *mut trib_device,
        event: trib_event,
    ) -> trib_status;
    #[doc = " Milliseconds between two events, both of which have completed."]
    pub fn trib_event_elapsed(
        out_ms: *mut f32,
        device: *mut trib_device,
        start: trib_event,
        end: trib_event,
    ) -> trib_status;
    #[doc = " Destroy an event. NULL is allowed."]
    pub fn trib_event_destroy(device: *mut trib_device, event: trib_event) -> trib_status;
    #[doc = " \"efficiency\"; \"?\" for an invalid policy."]
    pub fn trib_cta_policy_name(policy: trib_cta_policy) -> *const ::core::ffi::c_char;
    #[doc = " Another reference to the same handle. Any thread."]
    pub fn trib_abort_clone(out: *mut *mut trib_abort, handle: *mut trib_abort) -> trib_status;
    #[doc = " Abort all ranks of the communicator. Returns at once, frees nothing and never waits for a device.\n  Other processes hear of it over the side channel (without one they abort their own ranks): a few\n  ms later, and their details say who told them. NCCL's kernels are interrupted once those processes\n  have answered, 100 ms later at most (a process that is stopped does not answer): a kernel of NCCL's\n  that ends early sends its peers what happens to lie in its buffers, and theirs end as if all were\n  well. A stream that has refused a list, a sparse call or a call that PEERS serves waits as long: what is queued\n  behind would hand tensors that were not written to processes that have not heard (or 200 ms for each such call,\n  if the library's own threads do not run meanwhile). Every later call on those ranks returns\n  TRIB_ERR_ABORTED, and so does every call that waits at this moment; streams that wait inside a\n  collective continue, with undefined outputs (except lists, see trib_allreduce_list). `reason`\n  (NULL allowed) is copied into the detail of those errors; the first one counts. Any thread, any\n  number of times, also after the communicator is gone.\n\n  A kernel of NCCL's that waits for a peer looks for the abort every 10,000 turns, some 4 ms, and\n  those queued behind it do so one after the other: a stream with 1,000 queued calls is free after\n  some 4 s. Calls and trib_comm_wait do not wait for that.\n\n  On nccl, ranks connect in their first call of each operation. If an abort interrupts that, NCCL\n  2.28 keeps the memory of unfinished connections, up to some 300 MB per GPU, until the process\n  ends.\n  With NCCL_RUNTIME_CONNECT=0 in the environment ranks connect when the communicator is created,\n  and an abort leaves nothing behind."]
    pub fn trib_abort_raise(
        handle: *mut trib_abort,
        reason: *const ::core::ffi::c_char,
    ) -> trib_status;
    #[doc = " 1 once the communicator was aborted or has failed, else 0. Any thread."]
    pub fn trib_abort_raised(handle: *const trib_abort) -> i32;
    #[doc = " TRIB_OK, or why the communicator is no longer usable, with the detail: for your own watchdog.\n  Like trib_comm_status it also queries NCCL's asynchronous errors on all ranks of this process,\n  and such an error ends the communicator. An error that another process may have caused by ending\n  counts after 50 ms, the time in which the side channel says which. It does not query CUDA (a\n  kernel's fault), which might wait for a device. Never waits: an atomic load once the communicator\n  is no longer usable; before that, under a microsecond per rank. Any thread at any time, also\n  after the communicator is gone: then it returns the last status (TRIB_OK after a close without\n  error)."]
    pub fn trib_abort_status(handle: *mut trib_abort) -> trib_status;
    #[doc = " Extend all deadlines of queued calls: for `ms` milliseconds from now no late call ends the\n  communicator, on any rank of this process. A shorter time than before changes nothing;\n  TRIB_NO_TIMEOUT: for good. For a slow phase (a first compilation, a checkpoint) that one rank\n  knows about and the others wait for. Any thread."]
    pub fn trib_abort_defer(handle: *mut trib_abort, ms: u32) -> trib_status;
    #[doc = " `*out` = the state of the communicator. `waits_for`, a string of up to `bytes` bytes (NULL if\n  `bytes` is 0), tells what the next state waits for: \"2 calls that are in flight\", \"ranks of other\n  processes, which have not stopped yet\", or, parked,\n  \"3 live CUDA graphs that captured its calls, for 12.3 s\"; \"\" if nothing is known.\n\n  An aborted communicator is reclaimed in the background on nccl; on host when all its ranks are\n  destroyed and the calls queued on them have run. A CUDA graph counts while it, a copy or an\n  executable graph made from it exists. Graphs whose calls were captured with TRIB_UNCHECKED are\n  not counted: they show as earlier work. Never waits. Any thread at any time, also after the\n  communicator is gone."]
    pub fn trib_abort_state(
        out: *mut trib_comm_state,
        waits_for: *mut ::core::ffi::c_char,
        bytes: usize,
        handle: *mut trib_abort,
    ) -> trib_status;
    #[doc = " Release one reference; aborts nothing. NULL is allowed."]
    pub fn trib_abort_release(handle: *mut trib_abort);
    #[doc = " Create a group of `size` ranks; rank i uses `devices[i]` (NULL: device i). Devices are distinct.\n  Blocking. Up to 64 ranks on host. `options` may be NULL."]
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
    #[doc = " trib_allreduce on every rank: rank i uses `send[i]`, `recv[i]` and `streams[i]`. `streams` NULL:\n  every device's default stream. Unless the arguments of all ranks are valid, nothing is\n  queued."]
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
    #[doc = " Rank `rank`, borrowed until trib_group_split or trib_group_destroy; NULL if there is no such rank.\n  For every call that has no group form: between trib_group_batch_begin and trib_group_batch_end,\n  where one thread makes it for rank after rank. Outside of a batch a call on one rank may wait\n  for the others: then each rank needs a thread of its own. Not to be destroyed."]
    pub fn trib_group_comm(group: *mut trib_group, rank: i32) -> *mut trib_comm;
    #[doc = " trib_batch_begin on every rank. The group's own calls join the batch, too, but for lists."]
    pub fn trib_group_batch_begin(group: *mut trib_group) -> trib_status;
    #[doc = " trib_batch_end_all on every rank."]
    pub fn trib_group_batch_end(group: *mut trib_group) -> trib_status;
    #[doc = " Call `function(comm, rank, argument)` for every rank at once, rank 0 on this thread and each other\n  on a thread that the group keeps, and return when all have returned. For what waits for other\n  ranks and has no group form: splits, shrinks, reducers, weighted averages, changes of sparse\n  states, calls with TRIB_MATCH. The function uses no communicator but its own, and not the group.\n  Returns the failure of the lowest rank that has one, with its detail, which is also this\n  thread's."]
    pub fn trib_group_run(
        group: *mut trib_group,
        function: ::core::option::Option<
            unsafe extern "C" fn(
                comm: *mut trib_comm,
                rank: i32,
                argument: *mut ::core::ffi::c_void,
            ) -> trib_status,
        >,
        argument: *mut ::core::ffi::c_void,
    ) -> trib_status;
    #[doc = " A handle that aborts all ranks."]
    pub fn trib_group_abort_handle(
        out: *mut *mut trib_abort,
        group: *mut trib_group,
    ) -> trib_status;
    #[doc = " TRIB_OK, or why the group is no longer usable."]
    pub fn trib_group_status(group: *mut trib_group) -> trib_status;
    #[doc = " trib_comm_wait on every rank, for streams[i] on rank i, in the form of trib_group_allreduce: until\n  everything queued on all of them so far has run. The deadline is one for all. TRIB_ERR_TIMEOUT:\n  the detail is that of the first rank whose stream is late."]
    pub fn trib_group_wait(
        group: *mut trib_group,
        streams: *const trib_stream,
        timeout_ms: u32,
    ) -> trib_status;
    #[doc = " Split the group into communicators, one for each thread: `out[i]` is rank i. Consumes the group\n  on success; on failure the group is unchanged."]
    pub fn trib_group_split(out: *mut *mut trib_comm, group: *mut trib_group) -> trib_status;
    #[doc = " Destroy every rank as trib_comm_destroy does; trib_quiesce waits for the background work. NULL\n  is allowed."]
    pub fn trib_group_destroy(group: *mut trib_group) -> trib_status;
    #[doc = " Create an id for `backend` (NULL: the first backend that has a device)."]
    pub fn trib_id_create(out: *mut trib_id, backend: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " Create rank `rank` of `size`, on device `device`, of the communicator of `id`. Blocks until all\n  ranks have called it, or returns TRIB_ERR_TIMEOUT; there is no abort handle before it returns. On\n  host all ranks are threads of this\n  process. An id serves one communicator. `options` may be NULL.\n\n  On nccl every call that creates a communicator first waits for the background work of earlier\n  ones (trib_quiesce): at most half of its deadline, and at most 2 s without progress. CUDA holds\n  a lock while it frees memory on a busy device, and other threads' calls that need the lock, even\n  cudaEventDestroy, would block until that device is idle."]
    pub fn trib_comm_create(
        out: *mut *mut trib_comm,
        id: *const trib_id,
        rank: i32,
        size: i32,
        device: i32,
        options: *const trib_options,
    ) -> trib_status;
    #[doc = " Create a communicator over an ncclComm_t that stays the caller's: for a program that has one, and\n  wants lists, sparse states, deadlines and the rest on it. Rank, size and device are those of\n  `nccl_comm`. All its ranks call this, each on its own thread; blocking, with the deadline of\n  `options` (NULL allowed). They exchange an id by two small allreduces on `nccl_comm`, and open the\n  side channel. TRIB_ERR_UNSUPPORTED: no nccl in this build, another backend in the options, or\n  `nccl_comm` is non-blocking (of which only its answers tell: it may show in the first call).\n\n  The library never finalizes, aborts or destroys `nccl_comm`. So keep it until `*out` is destroyed;\n  then do with it what you like. Meanwhile you may make calls of your own on it, on the same thread\n  and in the same order on all ranks; not while a TRIB call waits, and not inside a batch.\n\n  What does not hold, since only ncclCommAbort interrupts NCCL's kernels:\n   - An abort, and a deadline that passes, end the communicator as they always do: status, later\n     calls, waits, lists, sparse states, other processes. But streams that wait inside a collective\n     go on waiting, and so do threads inside a first call that connects, until you abort\n     `nccl_comm`. To free them: trib_abort_raise; wait until trib_abort_state tells of no ranks of\n     other processes any more (100 ms at most); then ncclGroupStart, ncclCommAbort for each rank\n     of this process, wait until trib_abort_state tells of no call in flight any more, ncclGroupEnd.\n     After trib_abort_raise has returned nothing but these calls uses `nccl_comm`. (While one waits\n     to connect, calls of other communicators on its device wait, too.)\n   - TRIB_COMM_RECLAIMED means that the library has freed what is its own; there is no\n     TRIB_COMM_ABORTED before it.\n   - trib_comm_close and trib_comm_destroy do not wait for queued work or CUDA graphs: it runs on in\n     `nccl_comm`. So wait for your streams before you free what it uses, and launch no graph\n     afterwards that captured its calls.\n   - If this call, trib_comm_split or a call with TRIB_MATCH misses its deadline, what it has queued\n     stays in `nccl_comm`: abort that. trib_comm_shrink may need it, too: it allocates memory, for\n     which CUDA may wait until no kernel hangs on the device. If you abort `nccl_comm` while this\n     call waits for the other ranks, it returns TRIB_ERR_ABORTED.\n\n  Communicators that trib_comm_split and trib_comm_shrink make from it are the library's own, made\n  with `min_ctas`, `max_ctas`, `cta_policy` and `network` of the options; for `nccl_comm` these have\n  no effect. A communicator of one rank makes no use of `nccl_comm`, and all holds."]
    pub fn trib_comm_adopt(
        out: *mut *mut trib_comm,
        nccl_comm: *mut ::core::ffi::c_void,
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
    #[doc = " `name` of the options, \"\" if there was none; valid as long as `comm`."]
    pub fn trib_comm_name(comm: *const trib_comm) -> *const ::core::ffi::c_char;
    #[doc = " Fill `*out` with what this communicator can do: what its backend can, as far as its options and\n  its side channel allow. Works after an abort, too."]
    pub fn trib_comm_capabilities(
        out: *mut trib_capabilities,
        comm: *const trib_comm,
    ) -> trib_status;
    #[doc = " Create one communicator for each `color` (0 or more), its ranks ordered by `key`, then by rank\n  in `comm`. All ranks call it; blocking, with the deadline of the options. The new communicators\n  are independent of `comm`; but where an abort of `comm` overtakes the call on a rank, that rank's\n  new communicator is aborted. `*out` is NULL for TRIB_NO_COLOR. If a rank does not call it\n  (TRIB_ERR_TIMEOUT), `comm` is no longer usable on nccl; on host it is."]
    pub fn trib_comm_split(
        out: *mut *mut trib_comm,
        comm: *mut trib_comm,
        color: i32,
        key: i32,
    ) -> trib_status;
    #[doc = " A handle that aborts this communicator."]
    pub fn trib_comm_abort_handle(out: *mut *mut trib_abort, comm: *mut trib_comm) -> trib_status;
    #[doc = " TRIB_OK, or why the communicator is no longer usable: TRIB_ERR_ABORTED, TRIB_ERR_CLOSED (this\n  rank closed, or waited for one that had), or the status of a failure on a stream, with its\n  detail (only here: later calls return TRIB_ERR_ABORTED if that failure was a mistake of the\n  caller's). Never waits."]
    pub fn trib_comm_status(comm: *mut trib_comm) -> trib_status;
    #[doc = " The ranks that were found missing when the communicator ended: those that had not made the call\n  whose deadline ended it (if all had, those that did not answer), those that had closed or whose\n  process had died (TRIB_ERR_CLOSED), or those that a trib_comm_shrink excluded; and those whose\n  process has died since. `*out_n` is how many they are, the first `capacity` of them, ascending,\n  are written to `ranks`. 0 while the communicator is usable, and where nobody knows\n  (trib_abort_raise, an error of NCCL, a send or receive that is late, a split). A slow rank may\n  be among them. The same on all ranks of this process, and on all others that have heard of the\n  same deaths, so that they can pass it to trib_comm_shrink. The ranks of a process that died may\n  be known some milliseconds after the status: after TRIB_ERR_NCCL, TRIB_ERR_SYSTEM or\n  TRIB_ERR_CLOSED ask for 100 ms."]
    pub fn trib_comm_lost(
        out_n: *mut i32,
        comm: *const trib_comm,
        ranks: *mut i32,
        capacity: i32,
    ) -> trib_status;
    #[doc = " Create a communicator of the ranks that are not among the `n` `excluded`, on the same devices and\n  with the same options, anew, so it does not matter what has become of the excluded. The others\n  keep their order and become ranks 0 .. size-n-1. `n` may be 0: the same ranks again.\n\n  Every rank that is not excluded calls it, each on its own thread; blocking, at most `timeout_ms`\n  (0: the options' timeout_ms). `comm` has ended (status TRIB_ERR_ABORTED, TRIB_ERR_TIMEOUT ...);\n  if not, this aborts it, with a reason that names the excluded ranks. `comm` stays yours: destroy\n  it before or after `*out`, with its sparse states (export their residuals first, and import them\n  into states of `*out`). Shrink `*out` again as you like.\n\n  One attempt ends alike on all ranks that take part, and a failed one can be repeated, with other\n  ranks excluded. TRIB_ERR_MISMATCH: two ranks passed different sets (any order), or this one comes\n  after the others have gone on without it. (Two ranks that exclude each other need not meet: each\n  may go on without the other.) TRIB_ERR_TIMEOUT: the ranks that the detail names have\n  not called it; they get this status when they do (ranks of other processes may wait for their own\n  deadline). TRIB_ERR_CLOSED: a rank that is not excluded has died, or has closed `comm` in another\n  process. TRIB_ERR_UNSUPPORTED: ranks of `comm` are in other processes, and it has no side channel.\n  An abort handle of `comm` has done its work and does not end the wait.\n  TRIB_ERR_INVALID_ARGUMENT and TRIB_ERR_INVALID_USAGE (inside a batch) have changed nothing.\n\n  A trib_group, whose one thread knows what has ended, needs none of this: destroy it, and create\n  one with the remaining devices."]
    pub fn trib_comm_shrink(
        out: *mut *mut trib_comm,
        comm: *mut trib_comm,
        excluded: *const i32,
        n: i32,
        timeout_ms: u32,
    ) -> trib_status;
    #[doc = " Wait until everything queued on `stream` so far has run. TRIB_OK: it has, and the communicator\n  is usable: results are valid. Otherwise the stream may still run: TRIB_ERR_TIMEOUT after\n  `timeout_ms` (TRIB_NO_TIMEOUT: never), with the communicator as before and a detail as that of a\n  late call; or, as soon as the communicator ends, its status, also if it ended before\n  (TRIB_ERR_ABORTED if a caller's mistake ended it: see trib_comm_status). All queued calls on\n  `stream` have a deadline from here on (DEADLINES). Works for graph launches, too. It polls, about\n  every sixteenth of the time waited, at most every millisecond.\n\n  With 0 it asks once, queues one event at most, and the detail names no call: for a program that\n  goes on to wait in some other way. If you repeat a wait that was late, before the stream has\n  reached the point of that, the detail tells the time since the first one began."]
    pub fn trib_comm_wait(
        comm: *mut trib_comm,
        stream: trib_stream,
        timeout_ms: u32,
    ) -> trib_status;
    #[doc = " The deadline of calls made from now on, as `call_timeout_ms` of the options (0 and\n  TRIB_NO_TIMEOUT included), and whether they are timed (1, as with TRIB_TIMED) or not (0). Set it\n  around a call to give that call a deadline of its own."]
    pub fn trib_comm_set_call_timeout(
        comm: *mut trib_comm,
        timeout_ms: u32,
        timed: i32,
    ) -> trib_status;
    #[doc = " Fill `*out`. `lists_committed` and `lists_refused` are exact after a wait for the stream. Works\n  after an abort, too: `lists_committed` then tells whether the last list was written on this\n  rank."]
    pub fn trib_comm_counters(out: *mut trib_counters, comm: *mut trib_comm) -> trib_status;
    #[doc = " Wait until everything queued on this communicator has run on all ranks of this process, then\n  release the backend's resources in the background. Ranks of one process may close one after the\n  other; the last one waits. If `timeout_ms` passes first, the communicator is aborted and the\n  call returns TRIB_ERR_TIMEOUT; an abort meanwhile ends the wait, and the call returns its status.\n  On nccl it also waits for the end of every CUDA graph that captured a call. Later calls return\n  TRIB_ERR_CLOSED; call trib_comm_destroy in any case.\n\n  A rank has left once it has closed (or destroyed) and its queued work has run. Ranks of this\n  process that have made as many calls are not affected. If a remaining rank has made more calls\n  than the one that left, the communicator ends for all remaining ranks: their streams continue;\n  status, later calls, a split that waits and the close of the last rank return TRIB_ERR_CLOSED\n  with the reason (\"rank 2 left after call 17\"); lists and sparse states are as after an abort.\n  (nccl counts calls when they are queued: if a peer has queued more when a rank closes, the\n  communicator ends at that moment, queued calls of the closing rank included, and its close\n  returns TRIB_ERR_CLOSED.)"]
    pub fn trib_comm_close(comm: *mut trib_comm, timeout_ms: u32) -> trib_status;
    #[doc = " Close (with the options' deadline) unless that was done, then free. Never blocks for ever: after\n  the deadline it aborts the communicator, reclaims it in the background and returns\n  TRIB_ERR_TIMEOUT; `comm` is gone all the same. The backend's resources are always released in\n  the background: see trib_quiesce. NULL is allowed."]
    pub fn trib_comm_destroy(comm: *mut trib_comm) -> trib_status;
    #[doc = " Wait until the library's background work has ended: the resources of all aborted, closed and\n  destroyed communicators are released, and if no communicator is left, the background threads\n  have ended. TRIB_ERR_TIMEOUT if `timeout_ms` passes first; the detail counts the remaining work.\n  Any thread. Call it before cudaDeviceReset, which would destroy the CUDA context under that\n  work, and before _exit. (At exit a process waits for this work by itself while it makes\n  progress, at most 3 s for each communicator.) The threads of host streams and deadlines stay\n  alive, so the shared library is never unloaded; do not unload a module that links the static\n  library."]
    pub fn trib_quiesce(timeout_ms: u32) -> trib_status;
    #[doc = " Fill `*out` from the launcher's variables, which are for rank, number of ranks, rank on the host\n\n   -  torchrun: RANK, WORLD_SIZE, LOCAL_RANK\n   -  openmpi: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK\n   -  mpich: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID or PMI_LOCAL_RANK\n   -  slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID\n\n  The launcher is the first of these whose rank is set (mpirun also runs inside SLURM; srun with\n  PMI sets PMI_RANK, and no rank on its host, so that is slurm), or the one that\n  TRIBUTARY_LAUNCHER names. mpich is every launcher of that family: Hydra, Intel MPI, PALS.\n\n  The ranks of a job of several meet at the first of these that is set:\n\n   -  TRIBUTARY_ADDRESS, \"host:port\" or \"[IPv6]:port\": there exactly.\n   -  MASTER_ADDR and MASTER_PORT, which torchrun sets: at that host, on a port that follows from\n      both. MASTER_PORT itself belongs to torch: under torchrun its agent listens there for as long\n      as the job runs (TORCHELASTIC_USE_AGENT_STORE), else rank 0 of a process group does. Where\n      only certain ports are open between hosts, set TRIBUTARY_ADDRESS.\n   -  slurm: at the first host of SLURM_STEP_NODELIST, where srun starts rank 0 unless it was given\n      another distribution. (SLURM_LAUNCH_NODE_IPADDR is where srun itself runs.) openmpi: at\n      127.0.0.1 if all ranks are on one host.\n\n  `token` is a hash of what the launcher calls the job: TORCHELASTIC_RUN_ID; SLURM_JOB_ID and\n  SLURM_STEP_ID; PMIX_NAMESPACE (openmpi); and of MASTER_ADDR and MASTER_PORT.\n\n  TRIB_ERR_INVALID_USAGE: a variable is missing; the detail names it. TRIB_ERR_INVALID_ARGUMENT: a\n  variable has a value that it cannot have. Any thread, while none changes the environment."]
    pub fn trib_job_read(out: *mut trib_job) -> trib_status;
    #[doc = " Meet the other ranks of `job`, and get the id of their communicator. Rank 0 creates it for\n  `backend` (as trib_id_create; the other ranks' is not read), listens, and when every rank has come\n  hands it to each of them, once. Blocking, until all have it or `timeout_ms` (0: 300,000) have\n  passed; the time in which the system finds the address of a name is not counted. One rank alone\n  meets nobody.\n\n  Each rank proves to rank 0, and rank 0 to it, that it knows `token`, `n_ranks`, and the secret of\n  the job in the variable TRIBUTARY_SECRET, if that is set (empty, it is an error); none of them is\n  sent. Without a secret whoever reaches rank 0 and can guess the launcher's variables can take part.\n  Take a secret that nobody can guess (32 hexadecimal digits at random): who reads a proof can try\n  guesses. The id itself is authenticated, not encrypted. Strangers, other services on the ports and connections that say\n  nothing do not disturb the meeting. Rank 0 listens on all interfaces (on loopback alone if `host`\n  is localhost or 127.0.0.1), and holds one descriptor per rank.\n\n  TRIB_ERR_TIMEOUT: the detail names the ranks that did not come, on every rank that did, and those\n  that came and left again; on one that has not reached rank 0, what it found at its address. (A rank\n  waits up to 2 s longer for what rank 0 has to say.) TRIB_ERR_INVALID_USAGE: another process has\n  come as the same rank, which the detail names; that one is not disturbed. (A process that connects\n  again takes its own place.) TRIB_ERR_MISMATCH: rank 0 refuses this rank: it has another secret,\n  token or number of ranks (said after 10 s of refusals at most: there may be another job on the\n  port). TRIB_ERR_SYSTEM: rank 0 finds none of its ports free within 3 s. Any thread."]
    pub fn trib_job_meet(
        out: *mut trib_id,
        job: *const trib_job,
        backend: *const ::core::ffi::c_char,
        timeout_ms: u32,
    ) -> trib_status;
    #[doc = " trib_job_read, trib_job_meet and trib_comm_create, on device `local_rank`; on device 0 if the\n  process sees only one, as under srun --gpus-per-task=1. The meeting and the creation each have the\n  deadline of `options` (NULL allowed). Blocking. Every process of the job calls it.\n  TRIB_ERR_UNSUPPORTED: the job has several ranks, and the backend connects no processes (without\n  TRIB_CAN_PROCESSES: host). TRIB_ERR_NO_DEVICE: this process does not see that device; said before\n  the meeting."]
    pub fn trib_comm_from_env(
        out: *mut *mut trib_comm,
        options: *const trib_options,
    ) -> trib_status;
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
    #[doc = " \"two_shot\"; \"?\" for an invalid variant."]
    pub fn trib_variant_name(variant: trib_variant) -> *const ::core::ffi::c_char;
    #[doc = " trib_allreduce with options; NULL is trib_allreduce.\n\n  With factors, `recv` = sum over the ranks of factor_i * (`send` of rank i). All ranks pass a\n  factor, or none does; factors may differ, be negative or 0 (0 times an infinity or a NaN is a\n  NaN). The factor is rounded to `dtype` first. Products of f16 and bf16 are rounded to `dtype` on\n  nccl (NCCL's pre-multiplied sum) and kept as f32 on host. Only for TRIB_SUM (for an average\n  divide the factor by the number of ranks) and f16, bf16, f32, f64; otherwise\n  TRIB_ERR_UNSUPPORTED. Allowed in a batch.\n\n  A variant that cannot serve the call is TRIB_ERR_UNSUPPORTED, before anything is queued, on all ranks;\n  the detail says what it takes. So is every one but AUTO in a batch and in trib_allreduce_list_with,\n  and every one but AUTO and SYMMETRIC on host. The shots take what the large calls of PEERS take, TWO_SHOT its\n  allreduces, but calls of any size, and ONE_SHOT also broadcasts of 3 GPUs and more; buffers that the peers\n  cannot map go through memory of the library there, too.\n  With TRIB_CALL_UNSTAGED such a buffer is TRIB_ERR_INVALID_BUFFER on its rank alone, before anything is\n  queued: the other ranks, if they have made the call, wait for this one until it makes it without the flag, or an\n  abort. The flag is TRIB_ERR_UNSUPPORTED in a batch and in trib_allreduce_list_with, and changes nothing where\n  nothing is staged: where push or NCCL serves the call, and on host. With a process each it refuses all that the\n  large calls of PEERS serve, by AUTO or by name, but of symmetric memory. Variants are the same on all ranks: if\n  others have made the call, a rank whose call was refused may not make it by another one.\n  SYMMETRIC takes every call, and WINDOW every one of a communicator with TRIB_WINDOWS: a buffer that is not\n  symmetric memory is TRIB_ERR_INVALID_BUFFER on its rank alone. These are `send` (of a broadcast the root's)\n  and `recv`; with SYMMETRIC, but without TRIB_WINDOWS, of a call other than an allreduce `send` alone, for no\n  peer reaches `recv`. All variants give the same bits but where NCCL serves the call. NCCL 2.28 has symmetric\n  kernels for allgathers, and for allreduces and reduce_scatters that are sums of f16, bf16 and f32, without a\n  factor; it serves the rest on windows by its other ones. With the same buffers TRIB_VARIANT_NCCL is no\n  different."]
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
    #[doc = " `recv` on every rank = `send` of `root`; other ranks' `send` is ignored. In place: recv ==\n  send."]
    pub fn trib_broadcast(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        root: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " trib_broadcast with options, of which it takes the variant and TRIB_CALL_UNSTAGED; NULL is trib_broadcast.\n  So do the next ones of this kind. What trib_allreduce_with says of variants holds for all of them."]
    pub fn trib_broadcast_with(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        root: i32,
        options: *const trib_call_options,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " `recv` of `root` = reduction of every rank's `send`; other ranks' `recv` is ignored. In place on\n  the root: recv == send."]
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
    #[doc = " `recv` holds `size * count` elements: block i is `send` of rank i. In place: send is block\n  `rank` of recv."]
    pub fn trib_allgather(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " trib_allgather with options."]
    pub fn trib_allgather_with(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        options: *const trib_call_options,
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
    #[doc = " trib_reduce_scatter with options."]
    pub fn trib_reduce_scatter_with(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        op: trib_op,
        options: *const trib_call_options,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Both hold `size * count` elements: block i of `recv` is block `rank` of rank i's `send`. In\n  place: recv == send, which takes scratch memory as large as `send` and a copy; each rank decides\n  for itself."]
    pub fn trib_alltoall(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " trib_alltoall with options. In place what the peers read is a copy, in no symmetric memory: with\n  TRIB_VARIANT_SYMMETRIC that is slower than with AUTO, on all ranks (trib_counters.staged_calls), and with a\n  process each TRIB_CALL_UNSTAGED refuses it."]
    pub fn trib_alltoall_with(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        options: *const trib_call_options,
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
    #[doc = " Send to rank `peer`, which calls trib_recv with the same count and type. The stream waits for\n  the peer; put a send and a recv that depend on each other into one batch. Inside a batch a rank\n  may send to itself."]
    pub fn trib_send(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        peer: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Receive from rank `peer`, which calls trib_send."]
    pub fn trib_recv(
        comm: *mut trib_comm,
        recv: *mut ::core::ffi::c_void,
        count: usize,
        dtype: trib_dtype,
        peer: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Work queued on `stream` after this call starts once every rank's stream has reached the\n  barrier."]
    pub fn trib_barrier(comm: *mut trib_comm, stream: trib_stream) -> trib_status;
    #[doc = " Allgather with a count for each rank: rank i sends `counts[i]` elements to element `offsets[i]`\n  of every rank's `recv`. The call reads `counts` and `offsets` (`size` entries each, the same on\n  all ranks) before it returns. In place: send == recv + offsets[rank]."]
    pub fn trib_allgatherv(
        comm: *mut trib_comm,
        send: *const ::core::ffi::c_void,
        recv: *mut ::core::ffi::c_void,
        counts: *const usize,
        offsets: *const usize,
        dtype: trib_dtype,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Alltoall with counts: `send_counts[i]` elements at `send_offsets[i]` go to rank i;\n  `recv_counts[i]` elements from rank i go to `recv_offsets[i]`. Counts of the two ends are equal.\n  The call reads the arrays (`size` entries each) before it returns. Not in place."]
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
    #[doc = " `bytes` bytes of each rank, undefined, aligned to 256; `*out` is this rank's. nccl rounds up to what\n  devices map at once, 2 MiB. TRIB_ERR_UNSUPPORTED if the ranks do not reach each other's memory: why, the log has\n  told (TRIB_LOG_INFO) when the communicator was made."]
    pub fn trib_symmetric_alloc(
        out: *mut *mut ::core::ffi::c_void,
        comm: *mut trib_comm,
        bytes: usize,
    ) -> trib_status;
    #[doc = " The same; and this rank's `bytes` bytes at `data` are copied to it, queued on `stream`."]
    pub fn trib_symmetric_import(
        out: *mut *mut ::core::ffi::c_void,
        comm: *mut trib_comm,
        data: *const ::core::ffi::c_void,
        bytes: usize,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Where this rank's device (on host: any thread) reaches what `rank` has in the place of this rank's\n  [data, data + bytes). NULL if not all of these lie in one allocation of symmetric memory of `comm`; of\n  the rank itself it is `data`. Waits for nobody; also after an abort, and once `comm` is closed."]
    pub fn trib_symmetric_query(
        out: *mut *mut ::core::ffi::c_void,
        comm: *mut trib_comm,
        data: *const ::core::ffi::c_void,
        bytes: usize,
        rank: i32,
    ) -> trib_status;
    #[doc = " Free what the ranks have allocated together; `data` is this rank's."]
    pub fn trib_symmetric_free(comm: *mut trib_comm, data: *mut ::core::ffi::c_void)
        -> trib_status;
    #[doc = " Allreduce `n` tensors in place: one kernel packs them into one buffer for each element type, one\n  collective reduces the buffers, one kernel unpacks them. Each rank unpacks all tensors or none:\n  an aborted or failed call leaves every tensor unchanged to the bit, so a retry needs no\n  snapshot; trib_counters.lists_committed tells which it was. (Between processes this takes the side\n  channel: without one, of an adopted communicator that its owner aborts first or that its rank has\n  closed before its streams were done, if NCCL itself fails in a process, and in a process that does\n  not answer for 100 ms, a list that NCCL serves while another process ends may be torn, and one\n  that is queued behind a list which another process has not written may have its old tensors.) The\n  call reads `tensors` before it\n  returns; order, counts and types are the same on all ranks; tensors do not overlap. Not inside a\n  batch.\n\n  On host, lists above 4 KiB are not packed: once all ranks have begun one, and it has not been\n  aborted, they reduce the tensors where they lie, and no abort interrupts that: all ranks' tensors\n  are written, or none. Lists that differ between ranks are TRIB_ERR_MISMATCH there."]
    pub fn trib_allreduce_list(
        comm: *mut trib_comm,
        tensors: *const trib_tensor,
        n: usize,
        op: trib_op,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " trib_allreduce_list with the options of trib_allreduce_with; NULL is trib_allreduce_list. With a\n  factor all tensors are f16, bf16, f32 or f64."]
    pub fn trib_allreduce_list_with(
        comm: *mut trib_comm,
        tensors: *const trib_tensor,
        n: usize,
        op: trib_op,
        options: *const trib_call_options,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Broadcast `n` tensors of `root` in place, packed and unpacked as in trib_allreduce_list."]
    pub fn trib_broadcast_list(
        comm: *mut trib_comm,
        tensors: *const trib_tensor,
        n: usize,
        root: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Replace `n` tensors, in place, by their weighted average over the ranks:\n  sum(w_i * x_i) / sum(w_i), packed and unpacked as in trib_allreduce_list.\n\n  This rank's weight is `weight` or, if `device_weight` is not NULL, the float in device memory\n  that the stream reads when it reaches the call. Weights are finite and not negative. A rank with\n  weight 0 contributes nothing (not even a NaN among its values) and receives the average like the\n  others. If the weights sum to 0, all tensors stay unchanged.\n\n  An invalid weight (negative, infinite, NaN) on any rank, from host or device, or weights whose\n  sum overflows f32 (f64 if all tensors are f64), do not fail the call, which would leave the\n  other ranks waiting: every rank's call is queued and returns TRIB_OK, no rank writes a tensor,\n  `device_total` is NaN, and trib_counters.lists_refused grows by 1 on every rank. The\n  communicator stays usable.\n\n  `device_total` (device memory, may be NULL) receives the sum of the weights: above 0 if the\n  tensors were written, 0 or NaN if not. No host wait; one collective for each type. Types f16,\n  bf16, f32 (summed in f32) and f64.\n\n  One thread may drive all ranks of a group: by trib_group_run, for there is no group form and, as\n  with all lists, no batch of them. On host, without TRIB_MATCH, also by one call after another."]
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
    #[doc = " Name of algorithm `index`; NULL beyond the last. Valid for ever."]
    pub fn trib_sparse_algorithm_name(index: i32) -> *const ::core::ffi::c_char;
    #[doc = " Bytes of device memory that trib_sparse_create would allocate: residuals (two of `count`\n  elements; none in place without momentum), velocities (two with momentum, none in place), scratch,\n  and the packet of a rank that the others read (see trib_sparse_create), which trib_memory counts\n  among peer_bytes, rounded up to what the backend allocates; a creation takes less if a former\n  state has left such memory. Local call, no communication: until the ranks have measured their\n  link (AUTO above), \"auto\" is sized for the link that the backend usually has inside one host.\n  What the measurement takes for a while is not counted."]
    pub fn trib_sparse_bytes(
        out: *mut u64,
        comm: *const trib_comm,
        count: usize,
        dtype: trib_dtype,
        options: *const trib_sparse_options,
    ) -> trib_status;
    #[doc = " Create the state for a tensor of `count` elements (at most 2^32 - 1) of `dtype`: f16, bf16 or\n  f32 (residual and sums are f32), or f64. Residual and velocity start at 0. All ranks call it;\n  blocking. They compare count, type and the effect of the options (a density and a k with the\n  same k are equal); if one differs, all return TRIB_ERR_MISMATCH. If one rank's arguments are\n  invalid it gets that error, and every other rank gets TRIB_ERR_MISMATCH. If one rank lacks\n  memory, no rank gets a state. If a rank does not call it within the communicator's timeout_ms:\n  TRIB_ERR_TIMEOUT, and the communicator is no longer usable. `options` may be NULL. `comm` must\n  outlive the state. All memory is allocated here. With \"auto\" the first one measures the link:\n  AUTO above.\n\n  With dense results, \"topka\" and \"chunked\" (of chunks of up to 4,096) leave each rank's packet where it is made,\n  for the other ranks to read, where these reach its memory: on host in one process; on nccl packets of 512 KiB\n  and more of 2 to 4 GPUs over NVLink, in one process, or with a process each, where small calls do not reach NCCL\n  (PEERS). That memory stays for later states and larger k until the communicator is destroyed."]
    pub fn trib_sparse_create(
        out: *mut *mut trib_sparse,
        comm: *mut trib_comm,
        count: usize,
        dtype: trib_dtype,
        options: *const trib_sparse_options,
    ) -> trib_status;
    #[doc = " Change k from the next call on: `density` as in the options. Residual, velocity and statistics\n  stay. All ranks call it; blocking and compared as in trib_sparse_create; may allocate; waits for\n  queued calls, within timeout_ms. On failure the old k stays. Synchronize with replays before, and\n  capture CUDA graphs again: older ones may refer to memory that is freed, or another state's.\n  \"auto\" chooses again, by the same figures of the link."]
    pub fn trib_sparse_set_density(sparse: *mut trib_sparse, density: f64) -> trib_status;
    #[doc = " The same with a number of entries."]
    pub fn trib_sparse_set_k(sparse: *mut trib_sparse, k: u64) -> trib_status;
    #[doc = " Queue one sparse allreduce. `gradient` holds `count` elements; in place it is the accumulator,\n  with momentum the velocity. The call writes all `count` elements of `result` once, 0 where\n  nothing was selected; `result` may be `gradient` unless in place. Its type is dtype, or f32 with\n  TRIB_SPARSE_F32_RESULT; sums are rounded to it once. On nccl, algorithms whose messages vary in\n  size (topkaopt, topksa, oktopk, gaussian...) wait for the stream inside the call; the others do\n  not, and CUDA graphs may capture them. Not inside a batch. Calls of one state on different\n  streams run one after the other.\n\n  The state's schedule is a step counter: it decides whose turn it is in \"shared\", when\n  `norm_every` is due, and when a reused threshold is computed again. A graph replay repeats the\n  captured step. Replays are not tracked: synchronize with a replay before any other use of the\n  state."]
    pub fn trib_sparse_allreduce(
        sparse: *mut trib_sparse,
        gradient: *mut ::core::ffi::c_void,
        result: *mut ::core::ffi::c_void,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " The same with TRIB_SPARSE_ENTRIES: `*count` (device memory) entries with ascending `index` and\n  their `value` (of the result's type). Both arrays hold trib_sparse_capacity() elements; those\n  beyond `*count` are undefined."]
    pub fn trib_sparse_allreduce_entries(
        sparse: *mut trib_sparse,
        gradient: *mut ::core::ffi::c_void,
        index: *mut u32,
        value: *mut ::core::ffi::c_void,
        count: *mut u32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " trib_sparse_create on every rank of a group: `out[i]` is rank i's state. On failure all are\n  NULL."]
    pub fn trib_group_sparse_create(
        out: *mut *mut trib_sparse,
        group: *mut trib_group,
        count: usize,
        dtype: trib_dtype,
        options: *const trib_sparse_options,
    ) -> trib_status;
    #[doc = " trib_sparse_allreduce on every rank: rank i's state is `sparse[i]`, in the form of\n  trib_group_allreduce. Unless the arguments of all ranks are valid, nothing is queued. Each rank's\n  call is made on a thread of its own, as by trib_group_run."]
    pub fn trib_group_sparse_allreduce(
        group: *mut trib_group,
        sparse: *const *mut trib_sparse,
        gradient: *const *mut ::core::ffi::c_void,
        result: *const *mut ::core::ffi::c_void,
        streams: *const trib_stream,
    ) -> trib_status;
    #[doc = " The largest number of entries that a call's result can have, with the current k."]
    pub fn trib_sparse_capacity(sparse: *const trib_sparse) -> u64;
    #[doc = " The k requested by the options or a later set, at most count. (trib_sparse_statistics has the k\n  that the algorithm uses.)"]
    pub fn trib_sparse_k(sparse: *const trib_sparse) -> u64;
    #[doc = " TRIB_OK if the last completed call was applied (or none has completed); TRIB_ERR_NON_FINITE;\n  TRIB_ERR_MISMATCH if the ranks' calls were not of the same state; or trib_comm_status(). Never\n  waits. Calls that differ more may wait for each other for ever: states whose messages differ in\n  length; on host also sends (gtopk) on one rank and a collective (dense) on another. TRIB_MATCH\n  detects those."]
    pub fn trib_sparse_status(sparse: *mut trib_sparse) -> trib_status;
    #[doc = " A uint32_t in device memory: 1 after a call that was applied, 0 after one that was not.\n  Borrowed."]
    pub fn trib_sparse_outcome(sparse: *const trib_sparse) -> *const u32;
    #[doc = " Fill `*out` from the calls completed so far. Never waits."]
    pub fn trib_sparse_statistics_get(
        out: *mut trib_sparse_statistics,
        sparse: *mut trib_sparse,
    ) -> trib_status;
    #[doc = " Queue a copy of this rank's residual, after the calls queued before: `count` elements of f32\n  (f64 for an f64 state) to `out` in device memory. Local call. TRIB_ERR_INVALID_USAGE in place\n  without momentum: there the accumulator is the residual."]
    pub fn trib_sparse_residual(
        sparse: *mut trib_sparse,
        out: *mut ::core::ffi::c_void,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Bytes of an export."]
    pub fn trib_sparse_export_bytes(sparse: *const trib_sparse) -> u64;
    #[doc = " Write residual, velocity, thresholds and schedule to host memory, for a later import. Blocks\n  until the queued calls have run or an abort has ended them; no deadline. In place the export has\n  no residual, or with momentum no velocity: that is the caller's `gradient`. The schedule counts\n  the calls queued by this rank, including non-finite and aborted ones."]
    pub fn trib_sparse_export(
        sparse: *mut trib_sparse,
        out: *mut ::core::ffi::c_void,
        bytes: usize,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Restore an export of a state with the same count and residual type, of any algorithm, k,\n  momentum and number of ranks. Blocking. TRIB_ERR_INVALID_ARGUMENT, with nothing changed, if\n  `data` is no such export, or if it has a velocity (of an export with momentum, not in place) and\n  this state keeps none. An export without one (older ones have none) counts as a velocity of 0.\n  `add` 0: all ranks call it, as with trib_sparse_create: if one rank's call is invalid, the\n  others return TRIB_ERR_MISMATCH. Thresholds and schedule are restored if algorithm, k, chunk and\n  number of ranks are the same on all ranks, else all ranks reset them. The schedule continues\n  from the smallest of the ranks', since after an abort ranks may have queued different numbers of\n  calls.\n  `add` 1: a local call. Adds residual and velocity to the existing ones, so that remaining ranks\n  can take over those of lost ranks, if those exported them while they lived (after\n  trib_comm_shrink one rank imports them into its new state); thresholds and schedule stay. Blocks\n  as trib_sparse_export does."]
    pub fn trib_sparse_import(
        sparse: *mut trib_sparse,
        data: *const ::core::ffi::c_void,
        bytes: usize,
        add: i32,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " Queue a reset of residual, velocity, thresholds and schedule; statistics stay. In place the\n  caller zeroes `gradient`. All ranks call it at the same point of their sequence of calls."]
    pub fn trib_sparse_reset(sparse: *mut trib_sparse, stream: trib_stream) -> trib_status;
    #[doc = " Destroy the state. Waits for queued calls, at most as long as trib_comm_destroy; then returns\n  TRIB_ERR_TIMEOUT: the state is gone all the same, and its memory is freed once those calls have\n  run, but for a packet that other ranks read (trib_sparse_create). Synchronize with replays of its graphs\n  before. NULL is allowed."]
    pub fn trib_sparse_destroy(sparse: *mut trib_sparse) -> trib_status;
    #[doc = " Register `n` gradients of f16, bf16, f32 or f64, of any count, disjoint. All ranks call it;\n  blocking. They compare counts, types and options: if one differs, all return TRIB_ERR_MISMATCH.\n  If one rank's arguments are invalid it gets that error, and every other rank gets\n  TRIB_ERR_MISMATCH; if one rank lacks memory, no rank gets a reducer. If a rank does not call it\n  within the communicator's timeout_ms: TRIB_ERR_TIMEOUT, and the communicator is no longer usable.\n  The call reads `gradients` before it returns; the memory of the gradients must stay where it is,\n  and `comm` must outlive the reducer. `options` may be NULL. All memory is allocated here: buckets\n  as large as all gradients, two sets with TRIB_REDUCER_TWINS, none in place (and see\n  TRIB_REDUCER_LEARN_ORDER), and with options.sparse what trib_sparse_bytes says of each.\n\n  Where ranks have a process each, and some bucket is as large as calls that the kernels of PEERS serve better in\n  symmetric memory, all buckets lie in such memory, and those do not reach NCCL.\n  (Not with options.sparse, nor in place.) trib_memory counts it among peer_bytes, rounded up to 2 MiB; it stays\n  for later reducers and sparse states until the communicator is destroyed. If a rank cannot map it, no rank gets a reducer."]
    pub fn trib_reducer_create(
        out: *mut *mut trib_reducer,
        comm: *mut trib_comm,
        gradients: *const trib_tensor,
        n: usize,
        options: *const trib_reducer_options,
    ) -> trib_status;
    #[doc = " Where gradient `i` lies, with TRIB_REDUCER_VIEWS: device memory, aligned to 16 bytes, 0 at first.\n  NULL if it has no elements. Valid until the reducer is destroyed, or with\n  TRIB_REDUCER_LEARN_ORDER until the first trib_reducer_finish."]
    pub fn trib_reducer_view(
        out: *mut *mut ::core::ffi::c_void,
        reducer: *const trib_reducer,
        i: usize,
    ) -> trib_status;
    #[doc = " The number of buckets; another one after TRIB_REDUCER_LEARN_ORDER filled them anew."]
    pub fn trib_reducer_buckets(reducer: *const trib_reducer) -> u64;
    #[doc = " Gradient `i` is complete once what is queued on `stream` by now has run; leave it alone from then\n  on until the finish. (Its bucket also waits for what is queued there until the bucket's last\n  gradient is ready; the last bucket until the finish.) Once in a step for each gradient: TRIB_ERR_INVALID_USAGE otherwise. Streams of\n  one step must live until its finish. Not inside a batch.\n\n  On nccl a CUDA graph may capture whole steps, from the first trib_reducer_ready to the finish, all\n  streams of a step in the same capture (TRIB_ERR_INVALID_USAGE otherwise). The reducer's own stream\n  takes part in it: until the capture has ended, no other step can be made. A replay repeats the\n  step: the same gradients are ready, and the others count as 0; a weight is read anew;\n  trib_reducer_outcome and trib_reducer_status tell of it. It uses the reducer's buckets and, with\n  options.sparse, residuals and schedules as trib_sparse_allreduce says. Replays are not tracked:\n  launch them on the stream of the other steps, or order them in another way; wait for them before\n  trib_reducer_set_density (after which you capture anew), trib_reducer_export,\n  trib_reducer_import and trib_reducer_destroy (after which none is launched). Refused with\n  TRIB_ERR_UNSUPPORTED: the first step with TRIB_REDUCER_LEARN_ORDER (capture later ones), sparse\n  algorithms that wait for the stream, TRIB_MATCH."]
    pub fn trib_reducer_ready(
        reducer: *mut trib_reducer,
        i: usize,
        stream: trib_stream,
    ) -> trib_status;
    #[doc = " End the step: queue the buckets that are left, the last one at least, and make later work on\n  `stream` wait for the averages. What is on `stream` by now runs before those buckets: finish on\n  the stream of the backward pass, right behind it; with one bucket nothing is sent before. Earlier\n  work on `stream`, and none on other streams but what trib_reducer_ready covered, has run before a\n  gradient that is copied to a bucket is written; others are written from their trib_reducer_ready\n  on, and those that were not ready as the copied ones. A step without a trib_reducer_ready is\n  valid: zeros of this rank. The next step may begin at once. Waits for no device, but for the first\n  step's with TRIB_REDUCER_LEARN_ORDER.\n\n  After a failure `stream` may not wait for the step, though what is queued of it still runs, and\n  reads and writes gradients: use and free them once trib_reducer_wait has returned TRIB_OK."]
    pub fn trib_reducer_finish(reducer: *mut trib_reducer, stream: trib_stream) -> trib_status;
    #[doc = " Wait until everything that steps have queued so far has run, applied or not: nothing uses the\n  gradients then. Needed after a trib_reducer_finish that has failed; otherwise a wait for its stream\n  will do. TRIB_ERR_TIMEOUT if something still runs after `timeout_ms` (TRIB_NO_TIMEOUT; with 0 it\n  asks once), or if CUDA took no event at the end of a step, so that nobody knows: the communicator\n  is as before, so wait again, or abort it. Also after the communicator has ended, whose end is no\n  failure of this call. TRIB_ERR_INVALID_USAGE while a CUDA graph captures a step; replays are not\n  waited for."]
    pub fn trib_reducer_wait(reducer: *mut trib_reducer, timeout_ms: u32) -> trib_status;
    #[doc = " A uint32_t in device memory, to be read on the stream of the finish: 1 after a step that was\n  applied on this rank, 0 after one that was not. Borrowed."]
    pub fn trib_reducer_outcome(reducer: *const trib_reducer) -> *const u32;
    #[doc = " TRIB_OK if the newest step that has run was applied, or none has run; TRIB_ERR_NON_FINITE if it\n  was not on any rank, because a value or a weight was not finite (or a weight negative, or all of\n  them 0); or trib_comm_status(). Never waits."]
    pub fn trib_reducer_status(reducer: *const trib_reducer) -> trib_status;
    #[doc = " Change the density of every bucket's state, as trib_sparse_set_density does. Only with\n  options.sparse. All ranks call it; between steps; blocking. On failure the old density stays,\n  unless the communicator has ended."]
    pub fn trib_reducer_set_density(reducer: *mut trib_reducer, density: f64) -> trib_status;
    #[doc = " Fill `*out` with the sums over the states of all buckets, from the steps completed so far; a step\n  is a call of each. `count` includes what pads the gradients in their buckets; `algorithm` and\n  `reason` are those of the first bucket, and `residual_norm` is -1 unless every bucket has computed\n  its own. With TRIB_REDUCER_LEARN_ORDER the first step makes the states anew, and is not in the\n  sums. Only with options.sparse. Never waits."]
    pub fn trib_reducer_statistics(
        out: *mut trib_sparse_statistics,
        reducer: *const trib_reducer,
    ) -> trib_status;
    #[doc = " Bytes of an export: residuals of all gradients, and with momentum their velocities. 0 without\n  options.sparse."]
    pub fn trib_reducer_export_bytes(reducer: *const trib_reducer) -> u64;
    #[doc = " Write this rank's residuals and velocities to host memory, in the order in which the gradients\n  were passed, whatever bucket they lie in. Between steps; blocks until queued steps have run or an\n  abort has ended them; no deadline. Thresholds and schedules are not in it."]
    pub fn trib_reducer_export(
        reducer: *mut trib_reducer,
        out: *mut ::core::ffi::c_void,
        bytes: usize,
    ) -> trib_status;
    #[doc = " Restore an export of a reducer of gradients of the same counts and types, of any bucket sizes,\n  order, algorithm, density and number of ranks. TRIB_ERR_INVALID_ARGUMENT, with nothing changed,\n  if `data` is no such export, or if it has velocities and this reducer has no momentum. Without\n  velocities they become 0.\n  `add` 0: all ranks call it, between steps; blocking. If one rank's call is invalid, the others\n  return TRIB_ERR_MISMATCH. Thresholds and schedules begin anew.\n  `add` 1: a local call. Adds to the existing residuals and velocities, as trib_sparse_import\n  does."]
    pub fn trib_reducer_import(
        reducer: *mut trib_reducer,
        data: *const ::core::ffi::c_void,
        bytes: usize,
        add: i32,
    ) -> trib_status;
    #[doc = " Destroy the reducer. Waits for queued steps, at most as long as trib_comm_destroy; then returns\n  TRIB_ERR_TIMEOUT: the reducer is gone all the same, and its memory, that of views included, is\n  freed once they have run (that which other processes reach never). In the middle of a step: TRIB_ERR_INVALID_USAGE and nothing happens,\n  unless the communicator has ended. NULL is allowed."]
    pub fn trib_reducer_destroy(reducer: *mut trib_reducer) -> trib_status;
    #[doc = " Begin a batch: the following calls are checked and recorded; trib_batch_end queues them as one\n  (ncclGroupStart and ncclGroupEnd). All use the same stream. Sends and receives of a batch run\n  together; no call may depend on another's output. Batches do not nest. A CUDA graph captures all of\n  a batch: if a call of it has scratch, and the capture begins or ends inside of the batch,\n  TRIB_ERR_INVALID_USAGE."]
    pub fn trib_batch_begin(comm: *mut trib_comm) -> trib_status;
    #[doc = " Queue the recorded calls as one call of the backend. If a call of the batch failed, nothing is\n  queued, and that call's status is returned. The batch ends in both cases."]
    pub fn trib_batch_end(comm: *mut trib_comm) -> trib_status;
    #[doc = " End the open batches of `n` communicators as one call of the backend: several communicators of\n  one rank (of tensor and data parallelism, for example), or several ranks that one thread drives.\n  Each communicator is given once, and all are of one backend. Each batch has a stream of its own.\n  If any call of any batch failed, nothing is queued on any, and the status of the first is\n  returned. All n batches end in all cases (none, if one of `comms` is NULL).\n\n  Calls of one communicator run in their order. Of two communicators that use one stream, the\n  first in `comms` comes first on host: list those that several ranks share in the same order on\n  all of them.\n\n  NCCL gets one group of all calls. If it fails, all n communicators end, because NCCL ends them\n  together. If one of them is aborted meanwhile, that one's status is returned, and calls of the\n  others may be queued; its abort is complete when this call returns, which may wait for ranks of\n  the others (their first calls).\n\n  TRIB_MATCH compares the batches of a communicator if one of its ranks is here, which waits for\n  the others, or if all are; otherwise TRIB_ERR_INVALID_USAGE."]
    pub fn trib_batch_end_all(comms: *const *mut trib_comm, n: usize) -> trib_status;
    #[doc = " Send messages of `level` and below to `function`; NULL, the initial state, disables the log. Any\n  thread."]
    pub fn trib_log_set(
        function: trib_log_fn,
        context: *mut ::core::ffi::c_void,
        level: i32,
    ) -> trib_status;
    #[doc = " Write a dump to `path` now. TRIB_ERR_SYSTEM if the file cannot be written, or is a\n  directory, pipe or device. Any thread."]
    pub fn trib_dump(path: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " From now on write a dump whenever a communicator ends by a deadline, an abort or a failure: to\n  PREFIX followed by \"HOST-PROCESS-N.json\", N counting from 1 to 16. NULL or \"\": none. Initially\n  the value of TRIBUTARY_DUMP in the environment. A thread of the library writes the file; an exit\n  waits for it, at most 2 s. Any thread."]
    pub fn trib_dump_set(prefix: *const ::core::ffi::c_char) -> trib_status;
    #[doc = " Fill `*out` with what one rank's communicator holds, its sparse states included."]
    pub fn trib_comm_memory(out: *mut trib_memory, comm: *mut trib_comm) -> trib_status;
    #[doc = " Fill `*out` with what all communicators of this process hold on `device`, including those that\n  were destroyed while queued work still used their memory. Any thread."]
    pub fn trib_device_memory(out: *mut trib_memory, device: *const trib_device) -> trib_status;
    #[doc = " The debug switch: 1 is on, 0 off. While it is on, the log tells at TRIB_LOG_INFO where things\n  are: of each new communicator rank, size, device, process and host; of each new sparse state\n  type, algorithm and bytes; of each block of memory that the library allocates or frees on a\n  device bytes, address, and for which communicator, rank and sparse state. Dumps written\n  meanwhile list all blocks. Nothing is logged per call. Initially on if TRIBUTARY_DEBUG in the\n  environment is set, and neither empty nor \"0\". Any thread."]
    pub fn trib_debug_set(on: i32) -> trib_status;
}
