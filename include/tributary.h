/* Tributary: collective communication for people who write deep-learning frameworks.
 * SPDX-License-Identifier: MIT */
#ifndef TRIBUTARY_H
#define TRIBUTARY_H

/** @file
 *  The whole C API, in the order in which to read it.
 *
 *  THE MODEL.  A *rank* is one participant. Ranks that work together form a communicator of
 *  `size` ranks; a `trib_comm` is one rank's end of it. A `trib_group` holds all ranks of one
 *  process. A *backend* defines how ranks communicate and where their memory lives: on "nccl" a
 *  rank is a GPU; on "host" a rank is a thread of this process and its memory is ordinary memory.
 *  The same program runs on both.
 *
 *  QUEUED CALLS.  A collective is queued on a stream and returns at once. Its buffers stay yours;
 *  keep them alive and untouched until the stream has passed that point. Work on one stream runs in
 *  order; events order work on different streams. Calls on one communicator run in the order of the
 *  calls, whichever streams they name. Every rank makes the same calls in the same order.
 *
 *  THREADS.  Threads may share a `const T *`, but not a `T *`: use each communicator, group, stream
 *  and event from one thread at a time. Three exceptions: an abort handle works from any thread at
 *  any time, a device's default stream (NULL) is every thread's, and functions that take no object
 *  may be called from any thread. Functions marked "Any thread" need no lock of the caller's.
 *
 *  PROCESSES.  A forked child has none of its parent's threads, and CUDA does not work in it. Once
 *  a process has called trib_device_get or trib_job_meet or made a communicator, every function that
 *  returns a status returns TRIB_ERR_INVALID_USAGE in its children and does nothing, not even to
 *  `*out`. Fork earlier, or start children with exec. (CUDA requires more: fork before the first
 *  CUDA call.)
 *
 *  SEVERAL COMMUNICATORS on the same devices: use them in the same order on all ranks, as NCCL
 *  requires. On nccl the first call of each operation may block until its peers make theirs, and
 *  calls on one device are issued one at a time. An abort ends such a wait.
 *
 *  ERRORS.  Every function that can fail returns a status; TRIB_OK is 0. trib_last_detail()
 *  explains the calling thread's last failure: the argument, operation, rank and device, what was
 *  expected, what was found, what to do. A call that returns a status of the family "your mistake"
 *  has queued nothing and changed nothing. A status of the family "state" means that the
 *  communicator is no longer usable; the outputs of that call are undefined (but see
 *  trib_allreduce_list). trib_comm_status() reports failures that happen later, on the stream:
 *  after a wait for the stream, results are valid if and only if trib_comm_status() is TRIB_OK.
 *
 *  DEADLINES.  No call waits for ever. Calls that block have a deadline (`timeout_ms`), and so do
 *  queued calls (`call_timeout_ms`; on nccl the last ones of a burst only under the conditions
 *  below). One thread of the library, the watchdog, looks at all communicators of the process while
 *  calls are queued, and sleeps otherwise. (Calls whose end it cannot notice, see below, count as
 *  queued until that of a later one is noticed. If they are a minute old, and no others are left,
 *  it looks once a second.) It ends a communicator whose call is late, or whose backend reports an
 *  error, as trib_abort_raise would: streams continue, and status and later calls return
 *  TRIB_ERR_TIMEOUT with a detail that says which rank waits in which call since when, and which
 *  rank has not made it; of a send or receive, for which partner. It notices within 100 ms after
 *  the deadline, 150 ms if another process is asked and does not answer. The deadline of a call
 *  that blocks (but for create, split, shrink, close) ends the communicator with such a detail,
 *  too. On nccl the log then also gets what NCCL's RAS service (NCCL 2.24 and later) answers within
 *  2 s, as lines "NCCL RAS: ..." of TRIB_LOG_WARN; NCCL_RAS_ADDR says where it listens (localhost,
 *  or numbers), NCCL_RAS_ENABLE=0 that there is none.
 *
 *  The deadline of a call counts from its start on its stream. On host that is exact. On nccl it
 *  costs two events per call, which TRIB_TIMED or trib_comm_set_call_timeout ask for. Without,
 *  calls that follow another within some 50 us share their events, and so may up to 15 calls after
 *  a burst of more than 64: their deadline counts from the end of the call before, or from the call
 *  itself, and earlier work of the stream counts too. The last calls of such a burst have no event.
 *  They have a deadline once trib_comm_wait waits for them (0 ms are enough) or another call
 *  follows, or if a rank is known not to have made them. Replays of a CUDA graph have no deadlines,
 *  and the watchdog does not know of them: trib_comm_wait has one, and asks NCCL for errors.
 *
 *  CUDA GRAPHS (nccl).  A graph may capture every queued call that does not need the host:
 *  collectives, sends and receives, the barrier, lists and weighted averages, batches, calls of
 *  groups, steps of a reducer, sparse allreduces whose messages have a fixed size. What cannot be
 *  captured is refused before anything is queued, with TRIB_ERR_UNSUPPORTED, and the capture and
 *  the communicator go on: every call with TRIB_MATCH (on nccl TRIB_COMPARED is the same), the other
 *  sparse allreduces, the first step with TRIB_REDUCER_LEARN_ORDER. Blocking calls have no place in
 *  a capture.
 *
 *  A replay repeats the captured call on the memory that was passed. Counts, roots, the tensors of a
 *  list, and factors and weights passed by value are those of the capture; device memory is read and
 *  written anew. Each rank's graph holds that rank's calls, or one graph those of all ranks of a
 *  group; all ranks launch their graphs, in the same order with their other calls of the
 *  communicator. Of captures that take turns on one communicator at most four may go on at once: in a fifth the
 *  calls on different streams have no order. trib_counters counts a captured call once, when it is captured, but
 *  `lists_committed` and `lists_refused` count each replay.
 *
 *  A captured call that needs scratch (lists, the barrier, alltoall in place, a device factor of a
 *  type other than f32) allocates its own: replays share it with no eager call, and with no other
 *  captured one. The graph owns it: it is freed in the background once the graph, its copies and its
 *  executable graphs are destroyed and have run, also after trib_comm_destroy; trib_comm_memory
 *  counts it until then. Executable graphs of one graph share it, as they share the tensors: let one
 *  run before you launch the next. A sparse state and a reducer lend theirs to the graph: see
 *  trib_sparse_allreduce and trib_reducer_ready.
 *
 *  An abort ends replays as it ends queued calls, and a replay's list is whole or unchanged, too.
 *  What live graphs delay is told at trib_abort_state and trib_comm_close; a communicator of one rank
 *  waits for none.
 *
 *  PEERS (nccl).  If all ranks of a communicator, 2 to 8, are on GPUs of one host that reach each other's
 *  memory, and all in one process or each in a process of its own, kernels of the library serve small
 *  allreduces, reduce_scatters, allgathers, alltoalls and broadcasts, and so lists, averages and the
 *  barrier: each rank stores its part straight into memory of its peers. A larger allreduce is divided:
 *  each rank stores one share into the memory of each peer, and each peer reduces its share and stores the
 *  result into that of all. They serve up to so many bytes, by default:
 *
 *    GPUs                 allreduce                reduce_scatter, to each rank
 *    2, over NVLink       4 MiB                    as an allreduce
 *    3, over NVLink       3 MiB                    512 KiB
 *    4, over NVLink       2,796,160 bytes          512 KiB
 *    5 to 8, over NVLink  512 KiB                  256 KiB, to all ranks together
 *    over PCI Express     64 KiB                   64 KiB, as above
 *
 *  For f64 and integers it is half of that, and for an allgather, an alltoall (to each rank) or a broadcast
 *  half of what a reduce_scatter may be, whatever its type, but with 2 GPUs 1 MiB, of an alltoall 512 KiB. The
 *  memory is what `peer_bytes` allows, less 32 MiB where larger calls are served (see below); an allreduce with 2
 *  GPUs takes four times its bytes of it, with 4 six times. With more of it allreduces with 2 and 3 GPUs
 *  go up to 8 MiB, with 4 up to 4; with less there may be room for less. Any buffer will do. A root, too,
 *  waits for all ranks to come. NCCL serves the rest: scaled calls, several in one batch, sends and
 *  receives, and communicators that were adopted, or split from such. Every rank reduces in rank order, so a
 *  result has the same bits wherever it is, and TRIB_AVG is the sum divided by the number of ranks; copies
 *  keep every bit. When the communicator is made, every pair of GPUs is tried; where that fails, or
 *  NCCL_P2P_DISABLE is set, NCCL serves all, and the log (TRIB_LOG_INFO) says why. In one process an abort ends these kernels within some 20 us, between processes
 *  once the others have stopped as well, which takes 100 ms at most (trib_abort_raise).
 *
 *  Processes hand each other that memory over the side channel (see below), so NCCL serves those that have
 *  none, or reach each other by TCP. NCCL_HOSTID counts: where it differs, hosts do. A process that sees
 *  its own GPU alone (CUDA_VISIBLE_DEVICES) takes the limit of PCI Express, for all ranks.
 *
 *  With 2 to 4 GPUs over NVLink, in one process or a process each, and 40 MiB or more of `peer_bytes`, larger
 *  allreduces do not reach NCCL either, up to 1 GiB with 2 GPUs, 256 MiB with 3, 64 MiB with 4: each rank
 *  reduces its share of the elements, of which the others store their parts in memory of the library, and
 *  stores the result where all ranks want it. Nor do larger reduce_scatters, allgathers and alltoalls, up to
 *  256 MiB of the longer buffer (with 3 GPUs 4, 256 and 16 MiB), and with 2 GPUs broadcasts, from 1 to 64 MiB:
 *  each rank reads what it needs where the others have it. In one process the GPUs are given access to each
 *  other's memory (cudaDeviceEnablePeerAccess) and default pools (cudaMemPoolSetAccess) for that, which stays as
 *  long as the process: do not disable it, nor the access that you have given to a pool or a mapping of your
 *  own while a call or a graph has memory of it. With less `peer_bytes` nothing is opened. The buffer that the
 *  others access, of an allreduce `recv` (in one shot `send`), else `send`, is to be of cudaMalloc, of a pool that all these GPUs
 *  have access to, or of cuMemMap, if all of them may read and write each mapping on which it lies
 *  (cuMemSetAccess). Any other, on any rank, sends the call through memory of the library instead: of an
 *  allreduce with 2 GPUs still ahead of NCCL, with more up to 12 % behind from 32 MiB on, and of the other kinds
 *  far behind from some MiB on (trib_counters.staged_calls counts them, and TRIB_CALL_UNSTAGED refuses
 *  them); TRIB_VARIANT_NCCL asks for NCCL. Symmetric memory will do. With a process each nothing else does: by
 *  TRIB_VARIANT_SYMMETRIC, and in the buckets of reducers, calls go as in one process. Others go through
 *  memory of the library where that is ahead of NCCL, which is allreduces of more than 1 MiB, with 3 and 4 GPUs up
 *  to 16 and 8 MiB; the rest is NCCL's. With 5 to 8 GPUs over NVLink, which nobody has measured, large calls are
 *  NCCL's, but for those by the names ONE_SHOT and TWO_SHOT, for which there must be 64 MiB or more of `peer_bytes`.
 *  On a GPU at most two communicators of a process have all this, the first that are created there: less than 40 MiB
 *  of `peer_bytes` leaves a place to others. The place of one that was aborted is free again when its memory is, so a
 *  communicator that is shrunk from it may find none. Others have the same room for small calls, and NCCL serves
 *  their large ones, which TRIB_LOG_INFO says. (Processes that run at once on a GPU, under MPS, may have two
 *  communicators with all this between them: give the others less `peer_bytes`.) When a rank's call has
 *  ended, after an abort as well, no other rank accesses its buffers any more; an abort waits until what has begun
 *  to is done.
 *
 *  Replays of two CUDA graphs that captured calls of one communicator may not overlap on a GPU, nor
 *  two of one graph: launch them on one stream, or order the streams by events. (Calls that no graph
 *  captured may run beside a replay.) Which calls form a batch is the same on all ranks.
 *
 *  SIDE CHANNEL.  If the ranks of a communicator are in several processes, creating it (create,
 *  split, shrink) also connects every two of them that are in different processes: by a Unix socket
 *  inside a host, by TCP between hosts. It carries no tensor data, but the descriptors by which ranks of a
 *  host map each other's memory (PEERS). Over it a rank hears at once that
 *  another process has died (which ends the communicator with TRIB_ERR_CLOSED and a detail that
 *  names rank, process, host and signal; a host that vanishes takes 25 s), that the communicator has
 *  ended elsewhere (with the status and the detail of that process), and that a rank has closed
 *  without making a call of all ranks for which this one waits. The watchdog asks over it who has
 *  not made a late call, and trib_comm_shrink sends the new id. A process that returns from main or
 *  calls exit() has closed its communicators; calls that it had queued may not have run, and those
 *  who wait for them wait until their deadline. _exit() is a death.
 *
 *  Who connects proves, without sending it, that it knows the communicator's id (after a split or
 *  shrink, that of the first one); messages are authenticated, not encrypted. While it is created, a
 *  rank listens on all interfaces (NCCL_SOCKET_IFNAME does not count), tells the others up to 4
 *  addresses, and tries theirs for at most 10 s and half of `timeout_ms`: that long creation takes
 *  longer where a firewall drops packets. Nobody listens once all are connected. It takes one
 *  descriptor per rank and per rank in another process, one more if that is on the same host, and
 *  one thread per process. If a rank has switched it off (TRIB_NO_SIDE_CHANNEL) or cannot connect,
 *  all ranks go without, and a warning is logged: then deadlines are all that ends a wait for
 *  another process.
 *
 *  OWNERSHIP.  You own an object returned through the first parameter `out` and destroy it with the
 *  destroy function of its type. A pointer that a function returns directly is borrowed. On failure
 *  `*out` is set to NULL.
 *
 *  DEVICE OF THE CALLER.  No function changes the calling thread's current CUDA device. */

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#  define TRIB_API
#else
#  define TRIB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------- version */

#define TRIB_VERSION_MAJOR 0
#define TRIB_VERSION_MINOR 1
#define TRIB_VERSION_PATCH 0
/** 10000 * major + 100 * minor + patch. */
#define TRIB_VERSION (10000 * TRIB_VERSION_MAJOR + 100 * TRIB_VERSION_MINOR + TRIB_VERSION_PATCH)

/** The version of the library that is loaded, in the form of TRIB_VERSION. */
TRIB_API uint32_t trib_version(void);

/* -------------------------------------------------------------------------------------- status */

/** One of the TRIB_OK / TRIB_ERR_ numbers below. Numbers never change and are never reused; a newer
 *  library may return a number that this header does not list. */
typedef int32_t trib_status;

/** X(name, number, sentence). Families: 1-9 your mistake, 10-19 state of the communicator,
 *  20-29 resources, 30-39 CUDA, NCCL and the system, 90-99 defects of this library. */
#define TRIB_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(ERR_INVALID_ARGUMENT, 1, "an argument is outside what the function accepts")                 \
    X(ERR_INVALID_BUFFER, 2, "a buffer is not memory that this rank may use in that way")          \
    X(ERR_INVALID_STREAM, 3, "a stream cannot be used with this rank's device")                    \
    X(ERR_INVALID_USAGE, 4, "the call is not allowed at this point")                               \
    X(ERR_UNSUPPORTED, 5, "this backend or build does not support the call")                       \
    X(ERR_UNKNOWN_NAME, 6, "no backend or algorithm has that name")                                \
    X(ERR_MISMATCH, 7, "the ranks did not make the same call")                                     \
    X(ERR_NON_FINITE, 8, "a gradient holds infinities or NaNs; nothing was changed")               \
    X(ERR_ABORTED, 10, "the communicator was aborted")                                             \
    X(ERR_CLOSED, 11, "the communicator is closed")                                                \
    X(ERR_TIMEOUT, 12, "a deadline passed")                                                        \
    X(ERR_OUT_OF_MEMORY, 20, "memory could not be allocated")                                      \
    X(ERR_NO_DEVICE, 21, "there is no such device")                                                \
    X(ERR_CUDA, 30, "a CUDA call failed")                                                          \
    X(ERR_NCCL, 31, "an NCCL call failed")                                                         \
    X(ERR_SYSTEM, 32, "an operating system call failed")                                           \
    X(ERR_INTERNAL, 90, "a defect in Tributary; please report it")

enum {
#define TRIB_STATUS_ENUM_(name, number, sentence) TRIB_##name = (number),
    TRIB_STATUS_MAP(TRIB_STATUS_ENUM_)
#undef TRIB_STATUS_ENUM_
};

/** "TRIB_ERR_ABORTED"; never NULL, not even for unknown numbers. Strings returned by functions that
 *  take no object stay valid for ever. */
TRIB_API const char *trib_status_name(trib_status status);

/** The sentence of TRIB_STATUS_MAP; never NULL. */
TRIB_API const char *trib_status_message(trib_status status);

/** Explanation of the calling thread's last failure; "" before the first. Valid until the next call
 *  of this thread that fails. Calls that succeed leave it unchanged. */
TRIB_API const char *trib_last_detail(void);

/* --------------------------------------------------------------------------------------- types */

/** Element type. 0 is invalid. */
typedef int32_t trib_dtype;
enum {
    TRIB_F16 = 1,  /**< IEEE 754 binary16 */
    TRIB_BF16 = 2, /**< the upper half of a binary32 */
    TRIB_F32 = 3,
    TRIB_F64 = 4,
    TRIB_I8 = 5,
    TRIB_U8 = 6,
    TRIB_I32 = 7,
    TRIB_U32 = 8,
    TRIB_I64 = 9,
    TRIB_U64 = 10
};

/** Bytes of one element; 0 for an invalid type. */
TRIB_API size_t trib_dtype_size(trib_dtype dtype);

/** "f32"; "?" for an invalid type. */
TRIB_API const char *trib_dtype_name(trib_dtype dtype);

/** Reduction. 0 is invalid. Integers wrap. TRIB_AVG is the sum divided by the number of ranks; for
 *  integers it rounds towards zero. MIN and MAX of inputs with a NaN give either a NaN or a number.
 *
 *  ROUNDING.  MIN, MAX and integers are exact. Of floats let n be the number of ranks, u the unit
 *  roundoff (2^-53 of f64, 2^-24 of f32, 2^-11 of f16, 2^-8 of bf16), A the sum of the magnitudes of the
 *  n inputs, and let nothing overflow or become subnormal. To first order in u, a result of f32 or f64 is
 *  off by at most (n - 1) u A for SUM, u A for AVG, (n - 1) u |product| for PROD. One of f16 or bf16 is off
 *  by as much with the u of f32, and then by u of its own times the result; this holds
 *  on host, and on nccl where kernels of the library reduce (PEERS): these reduce in rank order, f16 and
 *  bf16 in f32. NCCL reduces in an order of its own and rounds each intermediate result to the type: there
 *  f16 and bf16 are as f32, with their own u, and AVG, for which NCCL multiplies the inputs by the rounded
 *  1 / n first, is off by (n + 1) u A / n. The bits are the same on all ranks of an allreduce. A factor
 *  (trib_call_options) rounds each input once more.
 *
 *  A weighted average (trib_weighted_average, or of a reducer with device_weight) to which m ranks
 *  bring a weight above 0 is off by at most 2 m u B, where B is the weighted average of the inputs'
 *  magnitudes. One of f16 or bf16 is off by as much with the u of f32, in which its products, sums and
 *  quotient are made, and then by u of its own times the result. This holds in any order of summing,
 *  NCCL's included. Sparse allreduces: see there. */
typedef int32_t trib_op;
enum { TRIB_SUM = 1, TRIB_PROD = 2, TRIB_MIN = 3, TRIB_MAX = 4, TRIB_AVG = 5 };

/** "sum"; "?" for an invalid reduction. */
TRIB_API const char *trib_op_name(trib_op op);

/** A queue of work on one device: on nccl a `cudaStream_t` (yours, or from trib_stream_create), on
 *  host a host stream (from trib_stream_create only). NULL is the device's default stream (on nccl
 *  the legacy default stream). `cudaStreamPerThread` is invalid. */
typedef void *trib_stream;

/** A point in a stream: a `cudaEvent_t` on nccl, a host event on host. */
typedef void *trib_event;

/** One tensor of a list: `count` elements at `data`, contiguous. */
typedef struct trib_tensor {
    void *data;
    size_t count;
    trib_dtype dtype;
    uint32_t reserved; /**< 0 */
} trib_tensor;

/* ------------------------------------------------------------------------------------ backends */

/** Number of backends in this build. Any thread. */
TRIB_API int32_t trib_backend_count(void);

/** Name of backend `index`, in order of preference; NULL beyond the last. Valid for ever. */
TRIB_API const char *trib_backend_name(int32_t index);

/** Version of the library behind a backend: the loaded NCCL's (22809 for 2.28.9), or Tributary's
 *  for host. Creates no CUDA context. TRIB_ERR_UNKNOWN_NAME. */
TRIB_API trib_status trib_backend_version(uint32_t *out, const char *backend);

/** Number of devices that a backend can use now: GPUs for nccl (0 without a driver), 64 for host.
 *  Creates no CUDA context. */
TRIB_API trib_status trib_backend_devices(int32_t *out, const char *backend);

/** What a backend, or one communicator, can do. A newer library may set bits that this header does
 *  not list. */
enum {
    /** Ranks may be in several processes. */
    TRIB_CAN_PROCESSES = 1u << 0,
    /** Buffers may be ordinary host memory. */
    TRIB_CAN_HOST_MEMORY = 1u << 1,
    /** CUDA graphs can capture its calls: see CUDA GRAPHS above. Not with TRIB_MATCH, nor on nccl
     *  with TRIB_COMPARED. */
    TRIB_CAN_CAPTURE = 1u << 2,
    /** Mismatched calls touch no memory beyond the buffers that were passed. Of a backend: without
     *  TRIB_COMPARED. */
    TRIB_CAN_COMPARE = 1u << 3,
    /** An abort or a deadline ends the waits of streams inside collectives. Not of a communicator that
     *  was adopted (trib_comm_adopt), nor with TRIB_WINDOWS_UNABORTABLE. */
    TRIB_CAN_INTERRUPT = 1u << 4,
    /** A rank hears at once of deaths and aborts of the others, and trib_comm_shrink goes on without
     *  them. Of a communicator: all ranks are in this process, or it has its side channel. */
    TRIB_CAN_HEAR = 1u << 5,
    /** `min_ctas`, `max_ctas` and `network` of the options have an effect. */
    TRIB_CAN_CONFIGURE = 1u << 6,
    /** It has the policy TRIB_CTA_EFFICIENCY. */
    TRIB_CAN_CTA_EFFICIENCY = 1u << 7,
    /** It has the policy TRIB_CTA_ZERO. */
    TRIB_CAN_CTA_ZERO = 1u << 8,
    /** The log tells what NCCL's RAS service knows of a late call, if that runs. */
    TRIB_CAN_ASK_RAS = 1u << 9,
    /** trib_comm_adopt works. */
    TRIB_CAN_ADOPT = 1u << 10,
    /** TRIB_WINDOWS has an effect, and an abort ends the calls with windows. */
    TRIB_CAN_WINDOWS = 1u << 11,
    /** Kernels of the library serve small calls, and trib_symmetric_alloc works: see PEERS above. Of a
     *  communicator: among its ranks, if there are several. */
    TRIB_CAN_PEERS = 1u << 12,
    /** They serve large calls as well, and the variants ONE_SHOT and TWO_SHOT work. */
    TRIB_CAN_PEERS_LARGE = 1u << 13
};

/** See TRIB_CAN_PROCESSES and what follows there. */
typedef struct trib_capabilities {
    uint32_t size;    /**< sizeof(trib_capabilities), set by the caller */
    uint32_t flags;   /**< TRIB_CAN_... */
    uint32_t version; /**< as trib_backend_version */
    int32_t
        max_ranks; /**< of a communicator: 64 on host; INT32_MAX: the library knows of no limit */
    uint64_t reserved; /**< 0 */
} trib_capabilities;
#define TRIB_CAPABILITIES_INIT {(uint32_t)sizeof(trib_capabilities), 0, 0, 0, 0}

/** Fill `*out` with what a backend can do in this process. Creates no CUDA context.
 *  TRIB_ERR_UNKNOWN_NAME. */
TRIB_API trib_status trib_backend_capabilities(trib_capabilities *out, const char *backend);

/* ------------------------------------------------------- devices, memory, streams, events
 *
 * On GPUs, frameworks with tensors and streams of their own need none of this. It lets one program
 * run on every backend, and creates host streams. */

/** The place of a rank's memory and streams: device `ordinal` of a backend. */
typedef struct trib_device trib_device;

/** Device `ordinal` of `backend` (NULL: the first backend that has such a device). `*out` is
 *  borrowed and valid for ever; threads may share it; each call returns the same pointer.
 *  TRIB_ERR_UNKNOWN_NAME, TRIB_ERR_NO_DEVICE. */
TRIB_API trib_status trib_device_get(trib_device **out, const char *backend, int32_t ordinal);

/** Name of the device's backend. */
TRIB_API const char *trib_device_backend(const trib_device *device);

/** The device's ordinal. */
TRIB_API int32_t trib_device_ordinal(const trib_device *device);

/** Allocate `bytes` bytes of device memory, aligned to 256; 0 bytes give a unique pointer.
 *  Blocking. On host, collectives take any host memory; memory allocated here is also bounds- and
 *  device-checked. */
TRIB_API trib_status trib_device_alloc(void **out, trib_device *device, size_t bytes);

/** Free memory from trib_device_alloc. NULL is allowed. Queued work must no longer use it. */
TRIB_API trib_status trib_device_free(trib_device *device, void *data);

/** Queue a copy of `bytes` bytes on `stream`. Each side may be host memory or memory of `device`.
 *  Leave host memory untouched until the stream has passed this point. On nccl, a copy from or to
 *  pageable host memory blocks the call until the stream gets there, and CUDA blocks allocations of
 *  other threads meanwhile: wait for a collective before you copy its result to such memory. */
TRIB_API trib_status trib_device_copy(trib_device *device, void *dst, const void *src, size_t bytes,
                                      trib_stream stream);

/** Create a stream on `device`. */
TRIB_API trib_status trib_stream_create(trib_stream *out, trib_device *device);

/** Wait until everything queued so far has run. TRIB_OK says nothing about the communicator whose
 *  calls those were: trib_comm_status() tells whether they succeeded. On host, the waiting thread
 *  may itself run queued work. Any thread.
 *
 *  If a wait or a query for a stream or an event fails with TRIB_ERR_CUDA, the device has failed
 *  and runs nothing any more. After any other failure queued work may still run and use its
 *  buffers: CUDA rejects the query (TRIB_ERR_INVALID_USAGE) while the stream is captured, while
 *  another thread captures, or inside a host function. */
TRIB_API trib_status trib_stream_wait(trib_device *device, trib_stream stream);

/** `*out` = 1 if everything queued has run, else 0. Never waits. Any thread. */
TRIB_API trib_status trib_stream_query(int32_t *out, trib_device *device, trib_stream stream);

/** Make later work on `stream` wait for the last record of `event`; no wait if there was none. */
TRIB_API trib_status trib_stream_wait_event(trib_device *device, trib_event event,
                                            trib_stream stream);

/** Queue a call of `function(argument)`, which must not call Tributary functions that wait, and on
 *  nccl no CUDA function. */
TRIB_API trib_status trib_stream_submit(trib_device *device, void (*function)(void *argument),
                                        void *argument, trib_stream stream);

/** Wait for the stream, then destroy it. NULL is allowed. */
TRIB_API trib_status trib_stream_destroy(trib_device *device, trib_stream stream);

/** Create an event on `device` (timing enabled). */
TRIB_API trib_status trib_event_create(trib_event *out, trib_device *device);

/** Record the current point of `stream`. */
TRIB_API trib_status trib_event_record(trib_device *device, trib_event event, trib_stream stream);

/** Wait until the stream has passed the last recorded point. As for trib_stream_wait, TRIB_OK says
 *  nothing about the communicator: trib_comm_status() does. Any thread. */
TRIB_API trib_status trib_event_wait(trib_device *device, trib_event event);

/** `*out` = 1 if the stream has passed the last recorded point, else 0. Any thread. */
TRIB_API trib_status trib_event_query(int32_t *out, trib_device *device, trib_event event);

/** Milliseconds between two events, both of which have completed. */
TRIB_API trib_status trib_event_elapsed(float *out_ms, trib_device *device, trib_event start,
                                        trib_event end);

/** Destroy an event. NULL is allowed. */
TRIB_API trib_status trib_event_destroy(trib_device *device, trib_event event);

/* ------------------------------------------------------------------------------------- options */

enum {
    /** Skip the checks of buffers and streams (memory, device, range). All other arguments are
     *  still checked. */
    TRIB_UNCHECKED = 1u << 0,
    /** Debug mode: before each collective the ranks compare operation, count, type, reduction and
     *  root. If one differs, all ranks return TRIB_ERR_MISMATCH instead of waiting for ever. If a
     *  rank does not make the call, or its stream does not reach it, within timeout_ms, the others
     *  return TRIB_ERR_TIMEOUT and the communicator is no longer usable. A rank that fails to queue
     *  a call that all ranks have agreed on also ends it. Sends, receives and the counts of
     *  alltoallv are not compared. Calls then block until all ranks have made them, so each rank
     *  needs a thread of its own, and CUDA graphs cannot capture them. */
    TRIB_MATCH = 1u << 1,
    /** Guarantee that mismatched calls never touch memory beyond the buffers that were passed. On
     *  host this always holds: the stream compares the calls before it touches memory. On nccl this
     *  is TRIB_MATCH: NCCL compares nothing, so a rank may write as many elements as its own count
     *  into a peer's shorter buffer. */
    TRIB_COMPARED = 1u << 2,
    /** No flight recorder and no watchdog for this communicator: calls have no deadlines, reports
     *  do not mention it, and NCCL's errors are seen by those who ask (trib_comm_status,
     *  trib_abort_status, trib_comm_wait). Saves some 50 ns per call. */
    TRIB_UNRECORDED = 1u << 3,
    /** On nccl: two events per call tell when it starts and ends; see DEADLINES. About 1 us per
     *  call. No effect on host. */
    TRIB_TIMED = 1u << 4,
    /** No connections of Tributary's own between the processes of this communicator; see SIDE
     *  CHANNEL. All ranks pass it, or none has a side channel. */
    TRIB_NO_SIDE_CHANNEL = 1u << 5,
    /** On nccl: trib_symmetric_alloc and trib_symmetric_import register what they make with NCCL, as a window.
     *  NCCL then serves its part of the calls with such buffers by its symmetric kernels, where it has one: see
     *  TRIB_VARIANT_WINDOW. Each rank's NCCL chooses, and finds the others' buffers, by where its own lie, whatever
     *  the variant: a buffer of a call lies in the same allocation at the same offset on all ranks, or in none. An abort ends these kernels since NCCL 2.29.7, and never the copy engines of
     *  TRIB_CTA_ZERO (NCCL_CTA_POLICY counts): with an older NCCL, or that policy, TRIB_ERR_UNSUPPORTED. While
     *  a rank allocates, no thread may capture a CUDA graph in global mode. No effect where a communicator is
     *  adopted. */
    TRIB_WINDOWS = 1u << 6,
    /** With TRIB_WINDOWS: an abort need not end calls with such buffers. Takes NCCL 2.27, in the build as well,
     *  and any policy. An aborted communicator stays in TRIB_COMM_ABORTING until it is reclaimed. Where no abort
     *  ends a call, and a rank does not make it, that is never, and the others' streams wait until the process
     *  ends. Before 2.29.7 an abort also leaves the memory of windows to NCCL until then. */
    TRIB_WINDOWS_UNABORTABLE = 1u << 7
};

/** What a communicator's kernels take of a GPU: NCCL's CTAPolicy. */
typedef int32_t trib_cta_policy;
enum {
    TRIB_CTA_DEFAULT = 0,    /**< as many CTAs as are fastest, unless NCCL_CTA_POLICY says else */
    TRIB_CTA_EFFICIENCY = 1, /**< fewer, where that costs little speed. Since NCCL 2.27 */
    TRIB_CTA_ZERO = 2        /**< none where copy engines can do it: for buffers in windows that the
                              *   caller registers with a communicator of his own (trib_comm_adopt),
                              *   or Tributary does (TRIB_WINDOWS_UNABORTABLE).
                              *   An abort does not interrupt copy engines. Since NCCL 2.28 */
};

/** "efficiency"; "?" for an invalid policy. */
TRIB_API const char *trib_cta_policy_name(trib_cta_policy policy);

/** Bytes of the longest name of a communicator or network, without the 0 at its end. */
#define TRIB_NAME_MAX 63
/** CTAs that a communicator's kernels can have at most. */
#define TRIB_CTAS_MAX 64

/** Options of a communicator or group. Start from TRIB_OPTIONS_INIT; 0 is every field's default.
 *  All ranks pass the same. Communicators that are made from one (split, shrink) have its options.
 *
 *  `min_ctas`, `max_ctas`, `cta_policy` and `network` are NCCL's configuration: they are checked on
 *  every backend, and have no effect on host. NCCL's variables in the environment (NCCL_MIN_CTAS,
 *  NCCL_MAX_CTAS, NCCL_CTA_POLICY, NCCL_NET) come before them. If the NCCL that is loaded, or the
 *  one with which the library was built, has no such policy: TRIB_ERR_UNSUPPORTED. */
typedef struct trib_options {
    uint32_t size;              /**< sizeof(trib_options) */
    uint32_t flags;             /**< any of TRIB_UNCHECKED ... TRIB_WINDOWS_UNABORTABLE */
    const char *backend;        /**< NULL: the id's; for a group the first that has the devices */
    uint32_t timeout_ms;        /**< deadline of calls that wait for the other ranks: create, split;
                                *   trib_sparse_create, set and import (`add` 0), those of
                                *   reducers, trib_comm_adopt, including the wait
                                *   for calls still queued; with TRIB_MATCH (on nccl also
                                *   TRIB_COMPARED) each collective, including the wait for earlier
                                *   work of any rank's stream. 0 is 300,000 */
    uint32_t close_timeout_ms;  /**< how long destroy waits for queued work; 0 is 5,000 */
    uint32_t call_timeout_ms;   /**< deadline of every queued call, see DEADLINES; not of what calls
                                *   queue while `timeout_ms` runs. 0 is 600,000; TRIB_NO_TIMEOUT:
                                *   none. Ranks may differ */
    uint32_t min_ctas;          /**< CTAs of a collective's kernel on each GPU, at least and */
    uint32_t max_ctas;          /**< at most: 1 to TRIB_CTAS_MAX. Fewer leave more of the GPU to the
                                *   caller's kernels. 0: NCCL's choice */
    trib_cta_policy cta_policy; /**< TRIB_CTA_... */
    const char *network;        /**< NCCL's network between hosts: "Socket", "IB", or the name of a
                                 *   plugin. NULL: NCCL's choice */
    const char *name;           /**< for people: in the log, dumps and profiles, see trib_comm_name,
                                 *   and with NCCL 2.27 and later in NCCL's log. NULL: none. This
                                 *   and `network`: 1 to TRIB_NAME_MAX bytes, no control
                                 *   characters; copied */
    uint64_t peer_bytes;        /**< device memory that the kernels between GPUs may take on each
                                 *   rank, see PEERS; 0: 48 MiB. With less than 40 there are none
                                 *   for large calls (of 5 to 8 GPUs than 64, and by name);
                                 *   TRIB_NO_PEERS: NCCL serves all calls. The smallest of all
                                 *   ranks counts, and TRIB_NO_PEERS is 0 there */
} trib_options;
#define TRIB_OPTIONS_INIT {(uint32_t)sizeof(trib_options), 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}

/** For a timeout in milliseconds: there is none. */
#define TRIB_NO_TIMEOUT 0xffffffffu

/** For `peer_bytes`: none. */
#define TRIB_NO_PEERS 1u

/* --------------------------------------------------------------------------------------- abort */

/** Aborts a communicator from any thread. Reference-counted; may outlive the communicator. */
typedef struct trib_abort trib_abort;

/** Another reference to the same handle. Any thread. */
TRIB_API trib_status trib_abort_clone(trib_abort **out, trib_abort *handle);

/** Abort all ranks of the communicator. Returns at once, frees nothing and never waits for a device.
 *  Other processes hear of it over the side channel (without one they abort their own ranks): a few
 *  ms later, and their details say who told them. NCCL's kernels are interrupted once those processes
 *  have answered, 100 ms later at most (a process that is stopped does not answer): a kernel of NCCL's
 *  that ends early sends its peers what happens to lie in its buffers, and theirs end as if all were
 *  well. A stream that has refused a list, a sparse call or a call that PEERS serves waits as long: what is queued
 *  behind would hand tensors that were not written to processes that have not heard (or 200 ms for each such call,
 *  if the library's own threads do not run meanwhile). Every later call on those ranks returns
 *  TRIB_ERR_ABORTED, and so does every call that waits at this moment; streams that wait inside a
 *  collective continue, with undefined outputs (except lists, see trib_allreduce_list). `reason`
 *  (NULL allowed) is copied into the detail of those errors; the first one counts. Any thread, any
 *  number of times, also after the communicator is gone.
 *
 *  A kernel of NCCL's that waits for a peer looks for the abort every 10,000 turns, some 4 ms, and
 *  those queued behind it do so one after the other: a stream with 1,000 queued calls is free after
 *  some 4 s. Calls and trib_comm_wait do not wait for that.
 *
 *  On nccl, ranks connect in their first call of each operation. If an abort interrupts that, NCCL
 *  2.28 keeps the memory of unfinished connections, up to some 300 MB per GPU, until the process
 *  ends.
 *  With NCCL_RUNTIME_CONNECT=0 in the environment ranks connect when the communicator is created,
 *  and an abort leaves nothing behind. */
TRIB_API trib_status trib_abort_raise(trib_abort *handle, const char *reason);

/** 1 once the communicator was aborted or has failed, else 0. Any thread. */
TRIB_API int32_t trib_abort_raised(const trib_abort *handle);

/** TRIB_OK, or why the communicator is no longer usable, with the detail: for your own watchdog.
 *  Like trib_comm_status it also queries NCCL's asynchronous errors on all ranks of this process,
 *  and such an error ends the communicator. An error that another process may have caused by ending
 *  counts after 50 ms, the time in which the side channel says which. It does not query CUDA (a
 *  kernel's fault), which might wait for a device. Never waits: an atomic load once the communicator
 *  is no longer usable; before that, under a microsecond per rank. Any thread at any time, also
 *  after the communicator is gone: then it returns the last status (TRIB_OK after a close without
 *  error). */
TRIB_API trib_status trib_abort_status(trib_abort *handle);

/** Extend all deadlines of queued calls: for `ms` milliseconds from now no late call ends the
 *  communicator, on any rank of this process. A shorter time than before changes nothing;
 *  TRIB_NO_TIMEOUT: for good. For a slow phase (a first compilation, a checkpoint) that one rank
 *  knows about and the others wait for. Any thread. */
TRIB_API trib_status trib_abort_defer(trib_abort *handle, uint32_t ms);

/** How far the end of a communicator has come in this process. A state never goes back, but
 *  TRIB_COMM_ABORTED and TRIB_COMM_PARKED may alternate. A newer library may have more states. */
typedef int32_t trib_comm_state;
enum {
    TRIB_COMM_LIVE = 0,     /**< neither aborted nor failed. A close changes nothing before
                             *   TRIB_COMM_RECLAIMED */
    TRIB_COMM_ABORTING = 1, /**< the reason is set; a call has not returned yet, or a stream may
                             *   still wait inside a collective */
    TRIB_COMM_ABORTED = 2,  /**< all calls have returned, and no stream waits inside a collective;
                             *   the backend still holds resources */
    TRIB_COMM_PARKED = 3,   /**< the same, but releasing them waits for the caller's CUDA graphs, or
                             *   for more than 1 s for work queued earlier */
    TRIB_COMM_RECLAIMED = 4 /**< the backend has released everything but symmetric memory */
};

/** `*out` = the state of the communicator. `waits_for`, a string of up to `bytes` bytes (NULL if
 *  `bytes` is 0), tells what the next state waits for: "2 calls that are in flight", "ranks of other
 *  processes, which have not stopped yet", or, parked,
 *  "3 live CUDA graphs that captured its calls, for 12.3 s"; "" if nothing is known.
 *
 *  An aborted communicator is reclaimed in the background on nccl; on host when all its ranks are
 *  destroyed and the calls queued on them have run. A CUDA graph counts while it, a copy or an
 *  executable graph made from it exists. Graphs whose calls were captured with TRIB_UNCHECKED are
 *  not counted: they show as earlier work. Never waits. Any thread at any time, also after the
 *  communicator is gone. */
TRIB_API trib_status trib_abort_state(trib_comm_state *out, char *waits_for, size_t bytes,
                                      trib_abort *handle);

/** Release one reference; aborts nothing. NULL is allowed. */
TRIB_API void trib_abort_release(trib_abort *handle);

/* --------------------------------------------------------------------------------------- group */

/** All ranks of a communicator within one process, driven by one thread. */
typedef struct trib_group trib_group;
/** One rank of a communicator. */
typedef struct trib_comm trib_comm;

/** Create a group of `size` ranks; rank i uses `devices[i]` (NULL: device i). Devices are distinct.
 *  Blocking. Up to 64 ranks on host. `options` may be NULL. */
TRIB_API trib_status trib_group_create(trib_group **out, const int32_t *devices, int32_t size,
                                       const trib_options *options);

/** Number of ranks. */
TRIB_API int32_t trib_group_size(const trib_group *group);

/** Device of rank `rank`; -1 if there is no such rank. */
TRIB_API int32_t trib_group_device(const trib_group *group, int32_t rank);

/** Name of the backend. */
TRIB_API const char *trib_group_backend(const trib_group *group);

/** trib_allreduce on every rank: rank i uses `send[i]`, `recv[i]` and `streams[i]`. `streams` NULL:
 *  every device's default stream. Unless the arguments of all ranks are valid, nothing is
 *  queued. */
TRIB_API trib_status trib_group_allreduce(trib_group *group, const void *const *send,
                                          void *const *recv, size_t count, trib_dtype dtype,
                                          trib_op op, const trib_stream *streams);

/** trib_broadcast on every rank, in the form of trib_group_allreduce. */
TRIB_API trib_status trib_group_broadcast(trib_group *group, const void *const *send,
                                          void *const *recv, size_t count, trib_dtype dtype,
                                          int32_t root, const trib_stream *streams);

/** trib_allreduce_list on every rank: rank i's list is `tensors[i]`, each of `n` tensors. */
TRIB_API trib_status trib_group_allreduce_list(trib_group *group, const trib_tensor *const *tensors,
                                               size_t n, trib_op op, const trib_stream *streams);

/** trib_broadcast_list on every rank, in the form of trib_group_allreduce_list. */
TRIB_API trib_status trib_group_broadcast_list(trib_group *group, const trib_tensor *const *tensors,
                                               size_t n, int32_t root, const trib_stream *streams);

/** Rank `rank`, borrowed until trib_group_split or trib_group_destroy; NULL if there is no such rank.
 *  For every call that has no group form: between trib_group_batch_begin and trib_group_batch_end,
 *  where one thread makes it for rank after rank. Outside of a batch a call on one rank may wait
 *  for the others: then each rank needs a thread of its own. Not to be destroyed. */
TRIB_API trib_comm *trib_group_comm(trib_group *group, int32_t rank);

/** trib_batch_begin on every rank. The group's own calls join the batch, too, but for lists. */
TRIB_API trib_status trib_group_batch_begin(trib_group *group);

/** trib_batch_end_all on every rank. */
TRIB_API trib_status trib_group_batch_end(trib_group *group);

/** Call `function(comm, rank, argument)` for every rank at once, rank 0 on this thread and each other
 *  on a thread that the group keeps, and return when all have returned. For what waits for other
 *  ranks and has no group form: splits, shrinks, reducers, weighted averages, changes of sparse
 *  states, calls with TRIB_MATCH. The function uses no communicator but its own, and not the group.
 *  Returns the failure of the lowest rank that has one, with its detail, which is also this
 *  thread's. */
TRIB_API trib_status trib_group_run(trib_group *group,
                                    trib_status (*function)(trib_comm *comm, int32_t rank,
                                                            void *argument),
                                    void *argument);

/** A handle that aborts all ranks. */
TRIB_API trib_status trib_group_abort_handle(trib_abort **out, trib_group *group);

/** TRIB_OK, or why the group is no longer usable. */
TRIB_API trib_status trib_group_status(trib_group *group);

/** trib_comm_wait on every rank, for streams[i] on rank i, in the form of trib_group_allreduce: until
 *  everything queued on all of them so far has run. The deadline is one for all. TRIB_ERR_TIMEOUT:
 *  the detail is that of the first rank whose stream is late. */
TRIB_API trib_status trib_group_wait(trib_group *group, const trib_stream *streams,
                                     uint32_t timeout_ms);

/** Split the group into communicators, one for each thread: `out[i]` is rank i. Consumes the group
 *  on success; on failure the group is unchanged. */
TRIB_API trib_status trib_group_split(trib_comm **out, trib_group *group);

/** Destroy every rank as trib_comm_destroy does; trib_quiesce waits for the background work. NULL
 *  is allowed. */
TRIB_API trib_status trib_group_destroy(trib_group *group);

/* ------------------------------------------------------------------- lifetime of a communicator */

/** Bootstrap token of a new communicator: one rank creates it and distributes the 128 bytes. On
 *  nccl it is an ncclUniqueId. */
typedef struct trib_id {
    uint8_t bytes[128];
} trib_id;

/** Create an id for `backend` (NULL: the first backend that has a device). */
TRIB_API trib_status trib_id_create(trib_id *out, const char *backend);

/** Create rank `rank` of `size`, on device `device`, of the communicator of `id`. Blocks until all
 *  ranks have called it, or returns TRIB_ERR_TIMEOUT; there is no abort handle before it returns. On
 *  host all ranks are threads of this
 *  process. An id serves one communicator. `options` may be NULL.
 *
 *  On nccl every call that creates a communicator first waits for the background work of earlier
 *  ones (trib_quiesce): at most half of its deadline, and at most 2 s without progress. CUDA holds
 *  a lock while it frees memory on a busy device, and other threads' calls that need the lock, even
 *  cudaEventDestroy, would block until that device is idle. */
TRIB_API trib_status trib_comm_create(trib_comm **out, const trib_id *id, int32_t rank,
                                      int32_t size, int32_t device, const trib_options *options);

/** Create a communicator over an ncclComm_t that stays the caller's: for a program that has one, and
 *  wants lists, sparse states, deadlines and the rest on it. Rank, size and device are those of
 *  `nccl_comm`. All its ranks call this, each on its own thread; blocking, with the deadline of
 *  `options` (NULL allowed). They exchange an id by two small allreduces on `nccl_comm`, and open the
 *  side channel. TRIB_ERR_UNSUPPORTED: no nccl in this build, another backend in the options, or
 *  `nccl_comm` is non-blocking (of which only its answers tell: it may show in the first call).
 *
 *  The library never finalizes, aborts or destroys `nccl_comm`. So keep it until `*out` is destroyed;
 *  then do with it what you like. Meanwhile you may make calls of your own on it, on the same thread
 *  and in the same order on all ranks; not while a TRIB call waits, and not inside a batch.
 *
 *  What does not hold, since only ncclCommAbort interrupts NCCL's kernels:
 *   - An abort, and a deadline that passes, end the communicator as they always do: status, later
 *     calls, waits, lists, sparse states, other processes. But streams that wait inside a collective
 *     go on waiting, and so do threads inside a first call that connects, until you abort
 *     `nccl_comm`. To free them: trib_abort_raise; wait until trib_abort_state tells of no ranks of
 *     other processes any more (100 ms at most); then ncclGroupStart, ncclCommAbort for each rank
 *     of this process, wait until trib_abort_state tells of no call in flight any more, ncclGroupEnd.
 *     After trib_abort_raise has returned nothing but these calls uses `nccl_comm`. (While one waits
 *     to connect, calls of other communicators on its device wait, too.)
 *   - TRIB_COMM_RECLAIMED means that the library has freed what is its own; there is no
 *     TRIB_COMM_ABORTED before it.
 *   - trib_comm_close and trib_comm_destroy do not wait for queued work or CUDA graphs: it runs on in
 *     `nccl_comm`. So wait for your streams before you free what it uses, and launch no graph
 *     afterwards that captured its calls.
 *   - If this call, trib_comm_split or a call with TRIB_MATCH misses its deadline, what it has queued
 *     stays in `nccl_comm`: abort that. trib_comm_shrink may need it, too: it allocates memory, for
 *     which CUDA may wait until no kernel hangs on the device. If you abort `nccl_comm` while this
 *     call waits for the other ranks, it returns TRIB_ERR_ABORTED.
 *
 *  Communicators that trib_comm_split and trib_comm_shrink make from it are the library's own, made
 *  with `min_ctas`, `max_ctas`, `cta_policy` and `network` of the options; for `nccl_comm` these have
 *  no effect. A communicator of one rank makes no use of `nccl_comm`, and all holds. */
TRIB_API trib_status trib_comm_adopt(trib_comm **out, void *nccl_comm, const trib_options *options);

/** This rank's number, 0 .. size-1. */
TRIB_API int32_t trib_comm_rank(const trib_comm *comm);
/** Number of ranks. */
TRIB_API int32_t trib_comm_size(const trib_comm *comm);
/** This rank's device. */
TRIB_API int32_t trib_comm_device(const trib_comm *comm);
/** Name of the backend. */
TRIB_API const char *trib_comm_backend(const trib_comm *comm);
/** `name` of the options, "" if there was none; valid as long as `comm`. */
TRIB_API const char *trib_comm_name(const trib_comm *comm);

/** Fill `*out` with what this communicator can do: what its backend can, as far as its options and
 *  its side channel allow. Works after an abort, too. */
TRIB_API trib_status trib_comm_capabilities(trib_capabilities *out, const trib_comm *comm);

/** Pass as `color` to take part without joining a new communicator (cf. MPI_UNDEFINED). */
#define TRIB_NO_COLOR (-1)

/** Create one communicator for each `color` (0 or more), its ranks ordered by `key`, then by rank
 *  in `comm`. All ranks call it; blocking, with the deadline of the options. The new communicators
 *  are independent of `comm`; but where an abort of `comm` overtakes the call on a rank, that rank's
 *  new communicator is aborted. `*out` is NULL for TRIB_NO_COLOR. If a rank does not call it
 *  (TRIB_ERR_TIMEOUT), `comm` is no longer usable on nccl; on host it is. */
TRIB_API trib_status trib_comm_split(trib_comm **out, trib_comm *comm, int32_t color, int32_t key);

/** A handle that aborts this communicator. */
TRIB_API trib_status trib_comm_abort_handle(trib_abort **out, trib_comm *comm);

/** TRIB_OK, or why the communicator is no longer usable: TRIB_ERR_ABORTED, TRIB_ERR_CLOSED (this
 *  rank closed, or waited for one that had), or the status of a failure on a stream, with its
 *  detail (only here: later calls return TRIB_ERR_ABORTED if that failure was a mistake of the
 *  caller's). Never waits. */
TRIB_API trib_status trib_comm_status(trib_comm *comm);

/** The ranks that were found missing when the communicator ended: those that had not made the call
 *  whose deadline ended it (if all had, those that did not answer), those that had closed or whose
 *  process had died (TRIB_ERR_CLOSED), or those that a trib_comm_shrink excluded; and those whose
 *  process has died since. `*out_n` is how many they are, the first `capacity` of them, ascending,
 *  are written to `ranks`. 0 while the communicator is usable, and where nobody knows
 *  (trib_abort_raise, an error of NCCL, a send or receive that is late, a split). A slow rank may
 *  be among them. The same on all ranks of this process, and on all others that have heard of the
 *  same deaths, so that they can pass it to trib_comm_shrink. The ranks of a process that died may
 *  be known some milliseconds after the status: after TRIB_ERR_NCCL, TRIB_ERR_SYSTEM or
 *  TRIB_ERR_CLOSED ask for 100 ms. */
TRIB_API trib_status trib_comm_lost(int32_t *out_n, const trib_comm *comm, int32_t *ranks,
                                    int32_t capacity);

/** Create a communicator of the ranks that are not among the `n` `excluded`, on the same devices and
 *  with the same options, anew, so it does not matter what has become of the excluded. The others
 *  keep their order and become ranks 0 .. size-n-1. `n` may be 0: the same ranks again.
 *
 *  Every rank that is not excluded calls it, each on its own thread; blocking, at most `timeout_ms`
 *  (0: the options' timeout_ms). `comm` has ended (status TRIB_ERR_ABORTED, TRIB_ERR_TIMEOUT ...);
 *  if not, this aborts it, with a reason that names the excluded ranks. `comm` stays yours: destroy
 *  it before or after `*out`, with its sparse states (export their residuals first, and import them
 *  into states of `*out`). Shrink `*out` again as you like.
 *
 *  One attempt ends alike on all ranks that take part, and a failed one can be repeated, with other
 *  ranks excluded. TRIB_ERR_MISMATCH: two ranks passed different sets (any order), or this one comes
 *  after the others have gone on without it. (Two ranks that exclude each other need not meet: each
 *  may go on without the other.) TRIB_ERR_TIMEOUT: the ranks that the detail names have
 *  not called it; they get this status when they do (ranks of other processes may wait for their own
 *  deadline). TRIB_ERR_CLOSED: a rank that is not excluded has died, or has closed `comm` in another
 *  process. TRIB_ERR_UNSUPPORTED: ranks of `comm` are in other processes, and it has no side channel.
 *  An abort handle of `comm` has done its work and does not end the wait.
 *  TRIB_ERR_INVALID_ARGUMENT and TRIB_ERR_INVALID_USAGE (inside a batch) have changed nothing.
 *
 *  A trib_group, whose one thread knows what has ended, needs none of this: destroy it, and create
 *  one with the remaining devices. */
TRIB_API trib_status trib_comm_shrink(trib_comm **out, trib_comm *comm, const int32_t *excluded,
                                      int32_t n, uint32_t timeout_ms);

/** Wait until everything queued on `stream` so far has run. TRIB_OK: it has, and the communicator
 *  is usable: results are valid. Otherwise the stream may still run: TRIB_ERR_TIMEOUT after
 *  `timeout_ms` (TRIB_NO_TIMEOUT: never), with the communicator as before and a detail as that of a
 *  late call; or, as soon as the communicator ends, its status, also if it ended before
 *  (TRIB_ERR_ABORTED if a caller's mistake ended it: see trib_comm_status). All queued calls on
 *  `stream` have a deadline from here on (DEADLINES). Works for graph launches, too. It polls, about
 *  every sixteenth of the time waited, at most every millisecond.
 *
 *  With 0 it asks once, queues one event at most, and the detail names no call: for a program that
 *  goes on to wait in some other way. If you repeat a wait that was late, before the stream has
 *  reached the point of that, the detail tells the time since the first one began. */
TRIB_API trib_status trib_comm_wait(trib_comm *comm, trib_stream stream, uint32_t timeout_ms);

/** The deadline of calls made from now on, as `call_timeout_ms` of the options (0 and
 *  TRIB_NO_TIMEOUT included), and whether they are timed (1, as with TRIB_TIMED) or not (0). Set it
 *  around a call to give that call a deadline of its own. */
TRIB_API trib_status trib_comm_set_call_timeout(trib_comm *comm, uint32_t timeout_ms,
                                                int32_t timed);

/** Counters of one rank. */
typedef struct trib_counters {
    uint32_t size;            /**< sizeof(trib_counters), set by the caller */
    uint32_t reserved;        /**< 0 */
    uint64_t calls;           /**< collectives queued; a list or a member of a batch is one */
    uint64_t bytes;           /**< size of this rank's send buffers in those calls. The traffic
                               *   differs: an allreduce moves 2(P-1)/P times as much;
                               *   trib_sparse_statistics counts that of sparse calls */
    uint64_t backend_calls;   /**< calls to the backend for them */
    uint64_t workspace_bytes; /**< scratch memory held */
    uint64_t lists_queued;    /**< list and weighted-average calls queued */
    uint64_t lists_committed; /**< of those, and of replays of captured ones, lists that have
                               *   written their tensors on this rank */
    uint64_t lists_refused;   /**< of those, weighted averages that wrote nothing because a rank's
                               *   weight was invalid: the same on every rank */
    uint64_t staged_calls;    /**< calls in which the peers could not reach a buffer of this rank's
                               *   where it lies, so it went through memory of the library (PEERS);
                               *   replays do not count */
} trib_counters;
#define TRIB_COUNTERS_INIT {(uint32_t)sizeof(trib_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** Fill `*out`. `lists_committed` and `lists_refused` are exact after a wait for the stream. Works
 *  after an abort, too: `lists_committed` then tells whether the last list was written on this
 *  rank. */
TRIB_API trib_status trib_comm_counters(trib_counters *out, trib_comm *comm);

/** Wait until everything queued on this communicator has run on all ranks of this process, then
 *  release the backend's resources in the background. Ranks of one process may close one after the
 *  other; the last one waits. If `timeout_ms` passes first, the communicator is aborted and the
 *  call returns TRIB_ERR_TIMEOUT; an abort meanwhile ends the wait, and the call returns its status.
 *  On nccl it also waits for the end of every CUDA graph that captured a call. Later calls return
 *  TRIB_ERR_CLOSED; call trib_comm_destroy in any case.
 *
 *  A rank has left once it has closed (or destroyed) and its queued work has run. Ranks of this
 *  process that have made as many calls are not affected. If a remaining rank has made more calls
 *  than the one that left, the communicator ends for all remaining ranks: their streams continue;
 *  status, later calls, a split that waits and the close of the last rank return TRIB_ERR_CLOSED
 *  with the reason ("rank 2 left after call 17"); lists and sparse states are as after an abort.
 *  (nccl counts calls when they are queued: if a peer has queued more when a rank closes, the
 *  communicator ends at that moment, queued calls of the closing rank included, and its close
 *  returns TRIB_ERR_CLOSED.) */
TRIB_API trib_status trib_comm_close(trib_comm *comm, uint32_t timeout_ms);

/** Close (with the options' deadline) unless that was done, then free. Never blocks for ever: after
 *  the deadline it aborts the communicator, reclaims it in the background and returns
 *  TRIB_ERR_TIMEOUT; `comm` is gone all the same. The backend's resources are always released in
 *  the background: see trib_quiesce. NULL is allowed. */
TRIB_API trib_status trib_comm_destroy(trib_comm *comm);

/** Wait until the library's background work has ended: the resources of all aborted, closed and
 *  destroyed communicators are released, and if no communicator is left, the background threads
 *  have ended. TRIB_ERR_TIMEOUT if `timeout_ms` passes first; the detail counts the remaining work.
 *  Any thread. Call it before cudaDeviceReset, which would destroy the CUDA context under that
 *  work, and before _exit. (At exit a process waits for this work by itself while it makes
 *  progress, at most 3 s for each communicator.) The threads of host streams and deadlines stay
 *  alive, so the shared library is never unloaded; do not unload a module that links the static
 *  library. */
TRIB_API trib_status trib_quiesce(uint32_t timeout_ms);

/* ------------------------------------------------------------------------------------- launchers
 *
 * torchrun, srun and mpirun start the processes of a job, one for each rank, and tell each of them
 * its rank in variables of its environment. These functions read them, and make one communicator of
 * the job's ranks. Reading and meeting need no GPU. */

/** Bytes of the longest host of a job, without the 0 at its end. */
#define TRIB_HOST_MAX 255
/** Ranks that a job can have at most. */
#define TRIB_JOB_RANKS_MAX 65536

/** The place of this process in its job, and where the ranks of the job meet. trib_job_read fills it,
 *  or, under another launcher, the caller, from TRIB_JOB_INIT. All ranks have the same `n_ranks`,
 *  `port` and `token`, and a `host` that leads to rank 0. */
typedef struct trib_job {
    uint32_t size;        /**< sizeof(trib_job), set by the caller */
    int32_t rank;         /**< of this process, 0 .. n_ranks-1 */
    int32_t n_ranks;      /**< of the job: 1 .. TRIB_JOB_RANKS_MAX */
    int32_t local_rank;   /**< number of this process among those of the job on its host */
    int32_t port;         /**< 1 .. 65535: where rank 0 listens. 0: at one of four ports from 61000
                           *   to 65479 that follow from `token` */
    uint32_t reserved;    /**< 0 */
    uint64_t token;       /**< any number that tells the job from others */
    const char *launcher; /**< "torchrun", "openmpi", "mpich", "slurm"; valid for ever. NULL: the
                           *   caller has filled this. Not read by trib_job_meet */
    char host[TRIB_HOST_MAX + 1]; /**< of rank 0: a name, an IPv4 or an IPv6 address. "": none is
                                   *   known, as one rank needs none */
} trib_job;
#define TRIB_JOB_INIT {(uint32_t)sizeof(trib_job), 0, 1, 0, 0, 0, 0, NULL, {0}}

/** Fill `*out` from the launcher's variables, which are for rank, number of ranks, rank on the host
 *
 *   -  torchrun: RANK, WORLD_SIZE, LOCAL_RANK
 *   -  openmpi: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
 *   -  mpich: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID or PMI_LOCAL_RANK
 *   -  slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID
 *
 *  The launcher is the first of these whose rank is set (mpirun also runs inside SLURM; srun with
 *  PMI sets PMI_RANK, and no rank on its host, so that is slurm), or the one that
 *  TRIBUTARY_LAUNCHER names. mpich is every launcher of that family: Hydra, Intel MPI, PALS.
 *
 *  The ranks of a job of several meet at the first of these that is set:
 *
 *   -  TRIBUTARY_ADDRESS, "host:port" or "[IPv6]:port": there exactly.
 *   -  MASTER_ADDR and MASTER_PORT, which torchrun sets: at that host, on a port that follows from
 *      both. MASTER_PORT itself belongs to torch: under torchrun its agent listens there for as long
 *      as the job runs (TORCHELASTIC_USE_AGENT_STORE), else rank 0 of a process group does. Where
 *      only certain ports are open between hosts, set TRIBUTARY_ADDRESS.
 *   -  slurm: at the first host of SLURM_STEP_NODELIST, where srun starts rank 0 unless it was given
 *      another distribution. (SLURM_LAUNCH_NODE_IPADDR is where srun itself runs.) openmpi: at
 *      127.0.0.1 if all ranks are on one host.
 *
 *  `token` is a hash of what the launcher calls the job: TORCHELASTIC_RUN_ID; SLURM_JOB_ID and
 *  SLURM_STEP_ID; PMIX_NAMESPACE (openmpi); and of MASTER_ADDR and MASTER_PORT.
 *
 *  TRIB_ERR_INVALID_USAGE: a variable is missing; the detail names it. TRIB_ERR_INVALID_ARGUMENT: a
 *  variable has a value that it cannot have. Any thread, while none changes the environment. */
TRIB_API trib_status trib_job_read(trib_job *out);

/** Meet the other ranks of `job`, and get the id of their communicator. Rank 0 creates it for
 *  `backend` (as trib_id_create; the other ranks' is not read), listens, and when every rank has come
 *  hands it to each of them, once. Blocking, until all have it or `timeout_ms` (0: 300,000) have
 *  passed; the time in which the system finds the address of a name is not counted. One rank alone
 *  meets nobody.
 *
 *  Each rank proves to rank 0, and rank 0 to it, that it knows `token`, `n_ranks`, and the secret of
 *  the job in the variable TRIBUTARY_SECRET, if that is set (empty, it is an error); none of them is
 *  sent. Without a secret whoever reaches rank 0 and can guess the launcher's variables can take part.
 *  Take a secret that nobody can guess (32 hexadecimal digits at random): who reads a proof can try
 *  guesses. The id itself is authenticated, not encrypted. Strangers, other services on the ports and connections that say
 *  nothing do not disturb the meeting. Rank 0 listens on all interfaces (on loopback alone if `host`
 *  is localhost or 127.0.0.1), and holds one descriptor per rank.
 *
 *  TRIB_ERR_TIMEOUT: the detail names the ranks that did not come, on every rank that did, and those
 *  that came and left again; on one that has not reached rank 0, what it found at its address. (A rank
 *  waits up to 2 s longer for what rank 0 has to say.) TRIB_ERR_INVALID_USAGE: another process has
 *  come as the same rank, which the detail names; that one is not disturbed. (A process that connects
 *  again takes its own place.) TRIB_ERR_MISMATCH: rank 0 refuses this rank: it has another secret,
 *  token or number of ranks (said after 10 s of refusals at most: there may be another job on the
 *  port). TRIB_ERR_SYSTEM: rank 0 finds none of its ports free within 3 s. Any thread. */
TRIB_API trib_status trib_job_meet(trib_id *out, const trib_job *job, const char *backend,
                                   uint32_t timeout_ms);

/** trib_job_read, trib_job_meet and trib_comm_create, on device `local_rank`; on device 0 if the
 *  process sees only one, as under srun --gpus-per-task=1. The meeting and the creation each have the
 *  deadline of `options` (NULL allowed). Blocking. Every process of the job calls it.
 *  TRIB_ERR_UNSUPPORTED: the job has several ranks, and the backend connects no processes (without
 *  TRIB_CAN_PROCESSES: host). TRIB_ERR_NO_DEVICE: this process does not see that device; said before
 *  the meeting. */
TRIB_API trib_status trib_comm_from_env(trib_comm **out, const trib_options *options);

/* ---------------------------------------------------------------------------------- collectives
 *
 * All are queued. Unless stated otherwise, all ranks pass the same counts, type, reduction and
 * root. Host reduces in rank order, as do the kernels of PEERS; NCCL in its own. On all, every rank
 * gets the same bits.
 * Pointers are aligned to their element. `send` and `recv` do not overlap, unless the call defines
 * "in place". No two ranks receive into the same memory: on host, where ranks share memory, that
 * ends the communicator with TRIB_ERR_INVALID_BUFFER (but the tensors of lists are not compared with
 * those of other ranks). A count of 0 is allowed; pointers are then
 * ignored. Statuses worth handling: TRIB_ERR_ABORTED, TRIB_ERR_INVALID_BUFFER. */

/** `recv` = reduction of every rank's `send`. In place: recv == send. */
TRIB_API trib_status trib_allreduce(trib_comm *comm, const void *send, void *recv, size_t count,
                                    trib_dtype dtype, trib_op op, trib_stream stream);

enum {
    /** Use `factor`. */
    TRIB_CALL_FACTOR = 1u << 0,
    /** Refuse a buffer of this rank that peers access and cannot reach (PEERS). */
    TRIB_CALL_UNSTAGED = 1u << 1
};

/** Which code serves a call (PEERS). All ranks pass the same. */
typedef int32_t trib_variant;
enum {
    TRIB_VARIANT_AUTO = 0, /**< by a fixed table: what PEERS says */
    TRIB_VARIANT_NCCL = 1, /**< NCCL */
    TRIB_VARIANT_PUSH = 2, /**< each rank stores into its peers' memory; sizes as PEERS says */
    TRIB_VARIANT_ONE_SHOT =
        3, /**< each rank reads the parts of all where they lie; an allreduce not in place */
    TRIB_VARIANT_TWO_SHOT =
        4, /**< each rank reduces its share, whose parts the others store with it, to all: allreduces */
    TRIB_VARIANT_SYMMETRIC =
        5,                  /**< as AUTO, of symmetric memory (see there), which all ranks pass */
    TRIB_VARIANT_WINDOW = 6 /**< NCCL, of buffers in its windows: TRIB_WINDOWS */
};

/** "two_shot"; "?" for an invalid variant. */
TRIB_API const char *trib_variant_name(trib_variant variant);

/** Options of one call; unless stated otherwise each rank chooses its own. Start from
 *  TRIB_CALL_OPTIONS_INIT; 0 is every field's default. Read during the call. The struct will grow:
 *  an older library accepts a larger one if the fields it does not know are 0. */
typedef struct trib_call_options {
    uint32_t size;  /**< sizeof(trib_call_options) */
    uint32_t flags; /**< any of TRIB_CALL_FACTOR and TRIB_CALL_UNSTAGED */
    double factor;  /**< with TRIB_CALL_FACTOR: this rank's factor, any number; of allreduces */
    const float *device_factor; /**< if not NULL, replaces `factor`: the float in device memory that
                                 *   the stream reads when it reaches the call. A buffer of the
                                 *   call; not inside `recv`; of allreduces */
    trib_variant variant;       /**< the same on all ranks */
    uint32_t reserved;          /**< 0 */
} trib_call_options;
#define TRIB_CALL_OPTIONS_INIT {(uint32_t)sizeof(trib_call_options), 0, 0.0, NULL, 0, 0}

/** trib_allreduce with options; NULL is trib_allreduce.
 *
 *  With factors, `recv` = sum over the ranks of factor_i * (`send` of rank i). All ranks pass a
 *  factor, or none does; factors may differ, be negative or 0 (0 times an infinity or a NaN is a
 *  NaN). The factor is rounded to `dtype` first. Products of f16 and bf16 are rounded to `dtype` on
 *  nccl (NCCL's pre-multiplied sum) and kept as f32 on host. Only for TRIB_SUM (for an average
 *  divide the factor by the number of ranks) and f16, bf16, f32, f64; otherwise
 *  TRIB_ERR_UNSUPPORTED. Allowed in a batch.
 *
 *  A variant that cannot serve the call is TRIB_ERR_UNSUPPORTED, before anything is queued, on all ranks;
 *  the detail says what it takes. So is every one but AUTO in a batch and in trib_allreduce_list_with,
 *  and every one but AUTO and SYMMETRIC on host. The shots take what the large calls of PEERS take, TWO_SHOT its
 *  allreduces, but calls of any size, and ONE_SHOT also broadcasts of 3 GPUs and more; buffers that the peers
 *  cannot map go through memory of the library there, too.
 *  With TRIB_CALL_UNSTAGED such a buffer is TRIB_ERR_INVALID_BUFFER on its rank alone, before anything is
 *  queued: the other ranks, if they have made the call, wait for this one until it makes it without the flag, or an
 *  abort. The flag is TRIB_ERR_UNSUPPORTED in a batch and in trib_allreduce_list_with, and changes nothing where
 *  nothing is staged: where push or NCCL serves the call, and on host. With a process each it refuses all that the
 *  large calls of PEERS serve, by AUTO or by name, but of symmetric memory. Variants are the same on all ranks: if
 *  others have made the call, a rank whose call was refused may not make it by another one.
 *  SYMMETRIC takes every call, and WINDOW every one of a communicator with TRIB_WINDOWS: a buffer that is not
 *  symmetric memory is TRIB_ERR_INVALID_BUFFER on its rank alone. These are `send` (of a broadcast the root's)
 *  and `recv`; with SYMMETRIC, but without TRIB_WINDOWS, of a call other than an allreduce `send` alone, for no
 *  peer reaches `recv`. All variants give the same bits but where NCCL serves the call. NCCL 2.28 has symmetric
 *  kernels for allgathers, and for allreduces and reduce_scatters that are sums of f16, bf16 and f32, without a
 *  factor; it serves the rest on windows by its other ones. With the same buffers TRIB_VARIANT_NCCL is no
 *  different. */
TRIB_API trib_status trib_allreduce_with(trib_comm *comm, const void *send, void *recv,
                                         size_t count, trib_dtype dtype, trib_op op,
                                         const trib_call_options *options, trib_stream stream);

/** `recv` on every rank = `send` of `root`; other ranks' `send` is ignored. In place: recv ==
 *  send. */
TRIB_API trib_status trib_broadcast(trib_comm *comm, const void *send, void *recv, size_t count,
                                    trib_dtype dtype, int32_t root, trib_stream stream);

/** trib_broadcast with options, of which it takes the variant and TRIB_CALL_UNSTAGED; NULL is trib_broadcast.
 *  So do the next ones of this kind. What trib_allreduce_with says of variants holds for all of them. */
TRIB_API trib_status trib_broadcast_with(trib_comm *comm, const void *send, void *recv,
                                         size_t count, trib_dtype dtype, int32_t root,
                                         const trib_call_options *options, trib_stream stream);

/** `recv` of `root` = reduction of every rank's `send`; other ranks' `recv` is ignored. In place on
 *  the root: recv == send. */
TRIB_API trib_status trib_reduce(trib_comm *comm, const void *send, void *recv, size_t count,
                                 trib_dtype dtype, trib_op op, int32_t root, trib_stream stream);

/** `recv` holds `size * count` elements: block i is `send` of rank i. In place: send is block
 *  `rank` of recv. */
TRIB_API trib_status trib_allgather(trib_comm *comm, const void *send, void *recv, size_t count,
                                    trib_dtype dtype, trib_stream stream);

/** trib_allgather with options. */
TRIB_API trib_status trib_allgather_with(trib_comm *comm, const void *send, void *recv,
                                         size_t count, trib_dtype dtype,
                                         const trib_call_options *options, trib_stream stream);

/** `send` holds `size * count` elements; `recv` = reduction of every rank's block `rank`. In place:
 *  recv is block `rank` of send. */
TRIB_API trib_status trib_reduce_scatter(trib_comm *comm, const void *send, void *recv,
                                         size_t count, trib_dtype dtype, trib_op op,
                                         trib_stream stream);

/** trib_reduce_scatter with options. */
TRIB_API trib_status trib_reduce_scatter_with(trib_comm *comm, const void *send, void *recv,
                                              size_t count, trib_dtype dtype, trib_op op,
                                              const trib_call_options *options, trib_stream stream);

/** Both hold `size * count` elements: block i of `recv` is block `rank` of rank i's `send`. In
 *  place: recv == send, which takes scratch memory as large as `send` and a copy; each rank decides
 *  for itself. */
TRIB_API trib_status trib_alltoall(trib_comm *comm, const void *send, void *recv, size_t count,
                                   trib_dtype dtype, trib_stream stream);

/** trib_alltoall with options. In place what the peers read is a copy, in no symmetric memory: with
 *  TRIB_VARIANT_SYMMETRIC that is slower than with AUTO, on all ranks (trib_counters.staged_calls), and with a
 *  process each TRIB_CALL_UNSTAGED refuses it. */
TRIB_API trib_status trib_alltoall_with(trib_comm *comm, const void *send, void *recv, size_t count,
                                        trib_dtype dtype, const trib_call_options *options,
                                        trib_stream stream);

/** Block i of the root's `recv` (`size * count` elements) = `send` of rank i. In place on the root:
 *  send is block `root` of recv. */
TRIB_API trib_status trib_gather(trib_comm *comm, const void *send, void *recv, size_t count,
                                 trib_dtype dtype, int32_t root, trib_stream stream);

/** `recv` of rank i = block i of the root's `send` (`size * count` elements). In place on the root:
 *  recv is block `root` of send. */
TRIB_API trib_status trib_scatter(trib_comm *comm, const void *send, void *recv, size_t count,
                                  trib_dtype dtype, int32_t root, trib_stream stream);

/** Send to rank `peer`, which calls trib_recv with the same count and type. The stream waits for
 *  the peer; put a send and a recv that depend on each other into one batch. Inside a batch a rank
 *  may send to itself. */
TRIB_API trib_status trib_send(trib_comm *comm, const void *send, size_t count, trib_dtype dtype,
                               int32_t peer, trib_stream stream);

/** Receive from rank `peer`, which calls trib_send. */
TRIB_API trib_status trib_recv(trib_comm *comm, void *recv, size_t count, trib_dtype dtype,
                               int32_t peer, trib_stream stream);

/** Work queued on `stream` after this call starts once every rank's stream has reached the
 *  barrier. */
TRIB_API trib_status trib_barrier(trib_comm *comm, trib_stream stream);

/** Allgather with a count for each rank: rank i sends `counts[i]` elements to element `offsets[i]`
 *  of every rank's `recv`. The call reads `counts` and `offsets` (`size` entries each, the same on
 *  all ranks) before it returns. In place: send == recv + offsets[rank]. */
TRIB_API trib_status trib_allgatherv(trib_comm *comm, const void *send, void *recv,
                                     const size_t *counts, const size_t *offsets, trib_dtype dtype,
                                     trib_stream stream);

/** Alltoall with counts: `send_counts[i]` elements at `send_offsets[i]` go to rank i;
 *  `recv_counts[i]` elements from rank i go to `recv_offsets[i]`. Counts of the two ends are equal.
 *  The call reads the arrays (`size` entries each) before it returns. Not in place. */
TRIB_API trib_status trib_alltoallv(trib_comm *comm, const void *send, const size_t *send_counts,
                                    const size_t *send_offsets, void *recv,
                                    const size_t *recv_counts, const size_t *recv_offsets,
                                    trib_dtype dtype, trib_stream stream);

/* ----------------------------------------------------------------------------- symmetric memory
 *
 * Memory that all ranks of a communicator allocate together, the same number of bytes each on its own
 * device; the device of each rank reads and writes that of all others where it lies. On host, where ranks
 * share memory, there always is some; on nccl where kernels serve small calls (PEERS), and with one rank.
 *
 * It is for kernels of your own, at the addresses that trib_symmetric_query gives, and for
 * TRIB_VARIANT_SYMMETRIC, of trib_allreduce_with and its kin. That serves calls as AUTO does; but where each rank
 * has a process of its own, large ones as those of one process (PEERS). With TRIB_WINDOWS it is registered with NCCL.
 *
 * All ranks make the calls alloc, import and free, which block, within the communicator's timeout_ms. Not in
 * a batch. They succeed on all ranks or on none, unless the communicator ends meanwhile (as it does if an
 * import cannot queue its copy, or NCCL cannot register memory or end its window): TRIB_ERR_MISMATCH if the
 * ranks' arguments differ, or their TRIB_WINDOWS, or another rank's were invalid.
 *
 * The memory is the communicator's: what is left is freed when that has been destroyed on all ranks of the
 * process, and its calls have ended, and not by an abort. By then your work that uses it has ended on all
 * ranks, and graphs whose calls use it are destroyed; before trib_symmetric_free, calls have ended as well. */

/** `bytes` bytes of each rank, undefined, aligned to 256; `*out` is this rank's. nccl rounds up to what
 *  devices map at once, 2 MiB. TRIB_ERR_UNSUPPORTED if the ranks do not reach each other's memory: why, the log has
 *  told (TRIB_LOG_INFO) when the communicator was made. */
TRIB_API trib_status trib_symmetric_alloc(void **out, trib_comm *comm, size_t bytes);

/** The same; and this rank's `bytes` bytes at `data` are copied to it, queued on `stream`. */
TRIB_API trib_status trib_symmetric_import(void **out, trib_comm *comm, const void *data,
                                           size_t bytes, trib_stream stream);

/** Where this rank's device (on host: any thread) reaches what `rank` has in the place of this rank's
 *  [data, data + bytes). NULL if not all of these lie in one allocation of symmetric memory of `comm`; of
 *  the rank itself it is `data`. Waits for nobody; also after an abort, and once `comm` is closed. */
TRIB_API trib_status trib_symmetric_query(void **out, trib_comm *comm, const void *data,
                                          size_t bytes, int32_t rank);

/** Free what the ranks have allocated together; `data` is this rank's. */
TRIB_API trib_status trib_symmetric_free(trib_comm *comm, void *data);

/* ---------------------------------------------------------------------------------------- lists */

/** Allreduce `n` tensors in place: one kernel packs them into one buffer for each element type, one
 *  collective reduces the buffers, one kernel unpacks them. Each rank unpacks all tensors or none:
 *  an aborted or failed call leaves every tensor unchanged to the bit, so a retry needs no
 *  snapshot; trib_counters.lists_committed tells which it was. (Between processes this takes the side
 *  channel: without one, of an adopted communicator that its owner aborts first or that its rank has
 *  closed before its streams were done, if NCCL itself fails in a process, and in a process that does
 *  not answer for 100 ms, a list that NCCL serves while another process ends may be torn, and one
 *  that is queued behind a list which another process has not written may have its old tensors.) The
 *  call reads `tensors` before it
 *  returns; order, counts and types are the same on all ranks; tensors do not overlap. Not inside a
 *  batch.
 *
 *  On host, lists above 4 KiB are not packed: once all ranks have begun one, and it has not been
 *  aborted, they reduce the tensors where they lie, and no abort interrupts that: all ranks' tensors
 *  are written, or none. Lists that differ between ranks are TRIB_ERR_MISMATCH there. */
TRIB_API trib_status trib_allreduce_list(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                         trib_op op, trib_stream stream);

/** trib_allreduce_list with the options of trib_allreduce_with; NULL is trib_allreduce_list. With a
 *  factor all tensors are f16, bf16, f32 or f64. */
TRIB_API trib_status trib_allreduce_list_with(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                              trib_op op, const trib_call_options *options,
                                              trib_stream stream);

/** Broadcast `n` tensors of `root` in place, packed and unpacked as in trib_allreduce_list. */
TRIB_API trib_status trib_broadcast_list(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                         int32_t root, trib_stream stream);

/** Replace `n` tensors, in place, by their weighted average over the ranks:
 *  sum(w_i * x_i) / sum(w_i), packed and unpacked as in trib_allreduce_list.
 *
 *  This rank's weight is `weight` or, if `device_weight` is not NULL, the float in device memory
 *  that the stream reads when it reaches the call. Weights are finite and not negative. A rank with
 *  weight 0 contributes nothing (not even a NaN among its values) and receives the average like the
 *  others. If the weights sum to 0, all tensors stay unchanged.
 *
 *  An invalid weight (negative, infinite, NaN) on any rank, from host or device, or weights whose
 *  sum overflows f32 (f64 if all tensors are f64), do not fail the call, which would leave the
 *  other ranks waiting: every rank's call is queued and returns TRIB_OK, no rank writes a tensor,
 *  `device_total` is NaN, and trib_counters.lists_refused grows by 1 on every rank. The
 *  communicator stays usable.
 *
 *  `device_total` (device memory, may be NULL) receives the sum of the weights: above 0 if the
 *  tensors were written, 0 or NaN if not. No host wait; one collective for each type. Types f16,
 *  bf16, f32 (summed in f32) and f64.
 *
 *  One thread may drive all ranks of a group: by trib_group_run, for there is no group form and, as
 *  with all lists, no batch of them. On host, without TRIB_MATCH, also by one call after another. */
TRIB_API trib_status trib_weighted_average(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                           float weight, const float *device_weight,
                                           float *device_total, trib_stream stream);

/* ---------------------------------------------------------------------------- sparse allreduce
 *
 * Each call sends the k largest entries of a gradient and keeps the rest as a *residual*, which it
 * adds to the next gradient (error feedback), so nothing is lost:
 *
 *     acc      = gradient + decay * residual
 *     result   = sum (or average) over the ranks of the selected entries of acc
 *     residual = acc minus its entries that are in the result
 *
 * The sum of acc over all ranks equals the result (before division) plus the sum of all residuals,
 * to the bit where the sums are exact. All ranks get the same bits, in every run. A value of the
 * result is off from the exact sum, or average, of the entries in it by at most what ROUNDING (trib_op)
 * says of SUM, or AVG, on host: on every backend, but for DENSE WITH A BF16 WIRE below.
 *
 * NON-FINITE VALUES.  If any rank's acc holds an infinity or a NaN, the call is not applied on any
 * rank: the result is 0 everywhere, residuals are unchanged, trib_sparse_status() returns
 * TRIB_ERR_NON_FINITE and trib_sparse_outcome() points to 0. Of the statistics only `calls` and
 * `calls_non_finite` change. The communicator stays usable. An aborted or failed call leaves the
 * residual unchanged on every rank that has not applied it (trib_sparse_outcome(); between processes
 * with the exceptions of trib_allreduce_list). The same holds
 * if a value of the result (a sum, an average, or a partial sum) overflows although all acc are
 * finite: two f16 gradients of 60000 exceed f16. The detail of trib_sparse_status() tells which it
 * was. If gradients are too large, lower the loss scale. If residuals (f32 for 16-bit gradients)
 * alone exceed the gradient's type, every call fails: use TRIB_SPARSE_AVERAGE or
 * TRIB_SPARSE_F32_RESULT.
 *
 * ALGORITHMS, by name.  n: elements, P: ranks; traffic in words of 4 bytes per rank and call.
 *   "auto"             dense, topka or srs, by count, density, ranks and the link's measured speed:
 *                      below
 *   "dense"            all of acc; 2n(P-1)/P; with a bf16 wire half of that
 *   "topka"            exact top-k of each rank, one allgather; 2k(P-1)
 *   "topka2"           the same, then the top-k of the sum; 2k(P-1)
 *   "topkaopt"         topka with a threshold reused for 32 calls; 2k(P-1) in the call that
 *                      computes it, about as much later, but up to 2(4k + 1024)(P-1) while
 *                      residuals grow, as in the first 32 calls
 *   "topksa"           split by regions, reduced by owners, gathered; 4k(P-1)/P .. (2k+n)(P-1)/P
 *   "gtopk"            binomial tree of top-k; 4k log2 P
 *   "oktopk"           balanced regions, global top-k; about 6k(P-1)/P; with constants, lists of up
 *                      to 4k + 1024 entries instead of k while residuals grow: in the first 32
 *                      calls, with "bert" (raises no threshold within a call) in the first 128
 *   "gaussiank"        threshold from mean and deviation; about 2k(P-1)
 *   "gaussiankconcat"  the same in one message
 *   "gaussianksa"      topksa that never becomes dense
 *   "srs"              top-k/P of each of P blocks, recursive; 4k(P-1)/P
 *   "shared"           one rank, in turn, selects the indices for all; k + 2k(P-1)/P
 *   "chunked"          top-k of each chunk, 16-bit indices, one allgather; 1.5k(P-1)
 *   "hier"             dense inside each host, top-k of each host's sum; of H hosts with L ranks each
 *                      2(k/L)(H-1) between hosts, n(L-1)/L + 2(k/L)H(L-1) inside: HOSTS below
 * csrc/sparse/algorithms/NAME.c or csrc/sparse/published/NAME.c explains each, with its source;
 * csrc/sparse/auto.c explains auto, published/oktopk_published.c oktopk with constants.
 *
 * Largest means largest magnitude, ties going to the lower index; the selection is the same in
 * every run. Zeros are never selected, so there may be fewer than k entries. ("dense" sends all
 * elements.)
 *
 * Words count entries alone. Bytes (trib_sparse_statistics) also count a header of 64 bytes per
 * rank, the padding of packets (header and entries) to 64 bytes, and oktopk's histograms, an
 * allreduce of about 40 KB in every call, however small k is. With k = n (density 1) "dense" runs
 * whatever the name, as the statistics show: without a host wait. Algorithms that reuse or estimate a threshold (topkaopt, gaussiank, gaussiankconcat, oktopk
 * with constants) select exactly in the next call if nothing exceeded the threshold in 4 calls in a
 * row: `fallbacks` counts this.
 *
 * AUTO.  The ranks measure their link in the first blocking call on a communicator that lets auto
 * choose: trib_sparse_create, trib_sparse_set_k, trib_sparse_set_density, or what calls these for a
 * reducer. Never in a call on a stream. They make 15 allreduces of each of 1 KiB, 256 KiB, 4 MiB
 * and 16 MiB, in 16 MiB of device memory that are freed before the call returns. After each size
 * they agree on the slowest rank's time, and from 256 KiB on they stop if one allreduce took more
 * than 1 ms. That takes milliseconds over NVLink, about 70 ms at 1 GB/s, and counts against
 * timeout_ms. If a rank has no memory for it, no rank measures, and the call fails on all; any later
 * failure ends the communicator, as other exchanges of such calls do.
 *
 * The figures are the communicator's and never change. So all ranks choose the same, a state's
 * algorithm changes only where its k does, and graphs stay valid. A communicator that was split off,
 * shrunk or adopted measures its own; one of 1 rank exchanges nothing. Measure on idle devices: what
 * else they do counts as a slow link. Another run may measure other figures and choose otherwise:
 * name the algorithm to have the same bits in every run.
 *
 * The choice is dense, unless topka or srs is guessed to take a sixth less. With `wire` TRIB_BF16 in
 * the options auto takes it that bf16 is allowed: then they must take a sixth less than a plain
 * allreduce of a gradient in bf16, too. No state runs that one, because its rounding would be lost;
 * dense runs there, which keeps it, and so takes longer (below). `reason` has the figures and the time
 * of each: consider trib_allreduce in bf16 there.
 *
 * HOSTS ("hier").  Ranks are on one host if NCCL_HOSTID is the same in their processes' environment or,
 * where it is not set, if their machine and its boot are the same; or as options.hosts says, which is
 * the only way for ranks of one process. The ranks agree on the map in their first trib_sparse_create,
 * and it stays the communicator's; a state keeps its own. Any ranks a host, and different numbers.
 *
 * The L ranks of a host first add up their acc, each the sum of its shard: one of L ranges of the
 * tensor, n / L elements rounded down to a multiple of 4, and the last one has what is left. Each
 * selects from that sum, and all ranks get every rank's entries. So k is what a host selects: its
 * ranks share it as they share the elements, rounded down where a shard begins and ends, but at least
 * 1 each of a shard that has elements. Statistics, and the k in them, are of the rank's shard.
 *
 * The residual is the host's, each rank's on its shard and 0 elsewhere, whichever rank of the host it
 * came from; in place each call that is applied moves it there. It still has `count` elements on every
 * rank, in memory, exports and trib_sparse_residual: so imports, a new k and states of other
 * algorithms or hosts take it as any other, and wherever it holds something the next call takes it in.
 * Its sum over the ranks is conserved as always. The velocity is each rank's own, of all `count`
 * elements; masking clears it where any rank of the host sent an entry.
 *
 * On nccl, and where all ranks are on one host, a reduce_scatter adds up inside a host, as a call of
 * that size would (PEERS): in rank order, in the residual's type, unless NCCL adds up the parts of more
 * than two ranks. What equal shards leave goes by messages, in rank order; so does everything on host
 * with several hosts, and where a communicator was adopted. With several hosts, on nccl, the first state
 * (or new k) of a communicator makes another one for the ranks of each host, by a split as
 * trib_comm_split's, with peer memory of its own (it takes one of the two places of PEERS on a GPU), once
 * for each map of the hosts. The library keeps it: whatever ends either ends both, and an abort handle
 * speaks for both. The last rank of a process that closes closes both, within its timeout; the closes
 * before it do not wait. trib_memory counts both.
 *
 * On one host "hier" is dense inside it, and sends sparse what the shards have selected; where all
 * hosts have one rank it is topka. Where a reduce_scatter adds up, a state takes device memory for the
 * sums only in place, for the elements up to the end of its shard; where messages do, for another
 * (L+1)/L of `count` elements; none where L is 1. Before the hosts are known trib_sparse_bytes counts
 * all ranks to one. auto does not choose it.
 *
 * DENSE WITH A BF16 WIRE.  Each rank sends its acc rounded to bf16, and the rest stays in its
 * residual. The backend adds up in bf16: a sum that bf16 does not hold is rounded, on host once, by
 * NCCL after each addition, and what that drops is in no residual. In place without
 * momentum, and with TRIB_SPARSE_ENTRIES, dense is in f32. */

/** One tensor's sparse allreduce on one rank: residual, thresholds, counters and scratch memory. */
typedef struct trib_sparse trib_sparse;

enum {
    /** The result is the sum divided by the number of ranks. */
    TRIB_SPARSE_AVERAGE = 1u << 0,
    /** The result is a list of indices and values: trib_sparse_allreduce_entries. */
    TRIB_SPARSE_ENTRIES = 1u << 1,
    /** `gradient` of each call is the accumulator itself: add gradients into it; after the call it
     *  holds the residual. A call moves 4 bytes per element instead of 12. Types f32 and f64. Decay
     *  applies after the call. An infinity or a NaN in the accumulator stays there, and no call is
     *  applied, until the caller replaces it. With momentum `gradient` is the velocity instead:
     *  below. */
    TRIB_SPARSE_IN_PLACE = 1u << 2,
    /** Use `k` of the options, 0 included, instead of `density`. */
    TRIB_SPARSE_USE_K = 1u << 3,
    /** The result (or its values) is f32 for f16 and bf16 gradients: unrounded sums, which do not
     *  overflow. `result` must then differ from `gradient`. No effect for f32; invalid for
     *  f64. */
    TRIB_SPARSE_F32_RESULT = 1u << 4,
    /** With momentum: velocities keep their elements that were sent. */
    TRIB_SPARSE_NO_MASKING = 1u << 5
};

/* Momentum (Deep Gradient Compression, arXiv 1712.01887, section 3). With options.momentum m above
 * 0, a state keeps a velocity u beside its residual v. A call makes, from its gradient g,
 *
 *   u' = m u + g;  acc = u' + decay v;  selects from acc, and exchanges as always;
 *   v  = acc less what was applied, as always;
 *   u  = u', but 0 where this rank's entry was applied (momentum factor masking).
 *
 * Each product and each sum is rounded to the residual's type. A call that is not applied leaves u
 * and v as they were. The sum of acc is conserved, as without momentum. The caller's update is the
 * plain one, x -= rate * result, without a momentum of its own.
 *
 * Masking is the default, as in the paper: an element that has waited in v has piled up momentum of
 * old gradients, which would go on pushing it after it was sent. "dense" (also where auto or k = n
 * choose it) sends everything in every call, so nothing waits and nothing is masked: its result is
 * the sum of the velocities, as SGD with momentum has it.
 *
 * With TRIB_SPARSE_IN_PLACE `gradient` of each call is u', the caller's: add gradients into it, and
 * zero it at first. v is the state's. A call that is applied masks u', then multiplies it by m, so
 * that it is ready for the next gradient; one that is not leaves it. Decay applies as out of place.
 *
 * With options.clip_norm, g is clipped before all this: it is multiplied by min(1, limit / norm),
 * where norm is that of this rank's gradient of this tensor, in f64, and limit is clip_norm /
 * sqrt(ranks). So the norm of the sum is at most clip_norm * sqrt(ranks), and about clip_norm where
 * the ranks' gradients are independent. A norm that is not finite makes the call not finite. */

/** Options of a sparse allreduce. Start from TRIB_SPARSE_OPTIONS_INIT; 0 is every field's default.
 *  All ranks pass the same. */
typedef struct trib_sparse_options {
    uint32_t size;         /**< sizeof(trib_sparse_options) */
    uint32_t flags;        /**< TRIB_SPARSE_... */
    const char *algorithm; /**< NULL: "auto" */
    double density;        /**< k = count * density rounded down, at least 1; 0 is 0.01, at most
                            *   1 */
    uint64_t k;            /**< with TRIB_SPARSE_USE_K; values above count mean count */
    double decay;          /**< of the residual; 0 is 1; above 0, at most 1 */
    trib_dtype wire;       /**< type of selected values in messages: 0 is the residual's, or
                            *   TRIB_BF16 (not for f64), whose rounding errors stay in the residual.
                            *   No effect on shared, where only sums are sent; dense adds up in
                            *   bf16, and auto counts that among its rivals: see above */
    uint32_t chunk;        /**< chunked: elements, a power of two up to 65,536; 0 is 4,096 */
    const char *constants; /**< of the published code: "vgg", "lstm" or "bert". oktopk: NULL is the
                            *   exact mode. gaussiank, gaussiankconcat: NULL is "vgg" */
    uint32_t norm_every;   /**< compute the residual norm every N calls (one extra pass over the
                            *   residual); 0: never */
    uint32_t reserved;     /**< 0 */
    double momentum;       /**< at least 0, below 1; 0: none, and no velocity */
    double clip_norm;      /**< with momentum, not in place: clip gradients to this norm, of all
                            *   ranks together; one extra pass over the gradient; 0: never */
    const int32_t *hosts; /**< hier: the number, at least 0, of each rank's host, one for every rank
                            *   of the communicator; read during the call. NULL: the hosts that the
                            *   ranks run on. No effect on other algorithms */
} trib_sparse_options;
#define TRIB_SPARSE_OPTIONS_INIT                                                                   \
    {(uint32_t)sizeof(trib_sparse_options), 0, NULL, 0.0, 0, 0.0, 0, 0, NULL, 0, 0, 0.0, 0.0, NULL}

/** Number of algorithms in this build, "auto" included. */
TRIB_API int32_t trib_sparse_algorithm_count(void);
/** Name of algorithm `index`; NULL beyond the last. Valid for ever. */
TRIB_API const char *trib_sparse_algorithm_name(int32_t index);

/** Bytes of device memory that trib_sparse_create would allocate: residuals (two of `count`
 *  elements; none in place without momentum), velocities (two with momentum, none in place), scratch,
 *  and the packet of a rank that the others read (see trib_sparse_create), which trib_memory counts
 *  among peer_bytes, rounded up to what the backend allocates; a creation takes less if a former
 *  state has left such memory. Local call, no communication: until the ranks have measured their
 *  link (AUTO above), "auto" is sized for the link that the backend usually has inside one host.
 *  What the measurement takes for a while is not counted. */
TRIB_API trib_status trib_sparse_bytes(uint64_t *out, const trib_comm *comm, size_t count,
                                       trib_dtype dtype, const trib_sparse_options *options);

/** Create the state for a tensor of `count` elements (at most 2^32 - 1) of `dtype`: f16, bf16 or
 *  f32 (residual and sums are f32), or f64. Residual and velocity start at 0. All ranks call it;
 *  blocking. They compare count, type and the effect of the options (a density and a k with the
 *  same k are equal); if one differs, all return TRIB_ERR_MISMATCH. If one rank's arguments are
 *  invalid it gets that error, and every other rank gets TRIB_ERR_MISMATCH. If one rank lacks
 *  memory, no rank gets a state. If a rank does not call it within the communicator's timeout_ms:
 *  TRIB_ERR_TIMEOUT, and the communicator is no longer usable. `options` may be NULL. `comm` must
 *  outlive the state. All memory is allocated here. With "auto" the first one measures the link:
 *  AUTO above.
 *
 *  With dense results, "topka" and "chunked" (of chunks of up to 4,096) leave each rank's packet where it is made,
 *  for the other ranks to read, where these reach its memory: on host in one process; on nccl packets of 512 KiB
 *  and more of 2 to 4 GPUs over NVLink, in one process, or with a process each, where small calls do not reach NCCL
 *  (PEERS). That memory stays for later states and larger k until the communicator is destroyed.
 */
TRIB_API trib_status trib_sparse_create(trib_sparse **out, trib_comm *comm, size_t count,
                                        trib_dtype dtype, const trib_sparse_options *options);

/** Change k from the next call on: `density` as in the options. Residual, velocity and statistics
 *  stay. All ranks call it; blocking and compared as in trib_sparse_create; may allocate; waits for
 *  queued calls, within timeout_ms. On failure the old k stays. Synchronize with replays before, and
 *  capture CUDA graphs again: older ones may refer to memory that is freed, or another state's.
 *  "auto" chooses again, by the same figures of the link. */
TRIB_API trib_status trib_sparse_set_density(trib_sparse *sparse, double density);
/** The same with a number of entries. */
TRIB_API trib_status trib_sparse_set_k(trib_sparse *sparse, uint64_t k);

/** Queue one sparse allreduce. `gradient` holds `count` elements; in place it is the accumulator,
 *  with momentum the velocity. The call writes all `count` elements of `result` once, 0 where
 *  nothing was selected; `result` may be `gradient` unless in place. Its type is dtype, or f32 with
 *  TRIB_SPARSE_F32_RESULT; sums are rounded to it once. On nccl, algorithms whose messages vary in
 *  size (topkaopt, topksa, oktopk, gaussian...) wait for the stream inside the call; the others do
 *  not, and CUDA graphs may capture them. Not inside a batch. Calls of one state on different
 *  streams run one after the other.
 *
 *  The state's schedule is a step counter: it decides whose turn it is in "shared", when
 *  `norm_every` is due, and when a reused threshold is computed again. A graph replay repeats the
 *  captured step. Replays are not tracked: synchronize with a replay before any other use of the
 *  state. */
TRIB_API trib_status trib_sparse_allreduce(trib_sparse *sparse, void *gradient, void *result,
                                           trib_stream stream);

/** The same with TRIB_SPARSE_ENTRIES: `*count` (device memory) entries with ascending `index` and
 *  their `value` (of the result's type). Both arrays hold trib_sparse_capacity() elements; those
 *  beyond `*count` are undefined. */
TRIB_API trib_status trib_sparse_allreduce_entries(trib_sparse *sparse, void *gradient,
                                                   uint32_t *index, void *value, uint32_t *count,
                                                   trib_stream stream);

/** trib_sparse_create on every rank of a group: `out[i]` is rank i's state. On failure all are
 *  NULL. */
TRIB_API trib_status trib_group_sparse_create(trib_sparse **out, trib_group *group, size_t count,
                                              trib_dtype dtype, const trib_sparse_options *options);

/** trib_sparse_allreduce on every rank: rank i's state is `sparse[i]`, in the form of
 *  trib_group_allreduce. Unless the arguments of all ranks are valid, nothing is queued. Each rank's
 *  call is made on a thread of its own, as by trib_group_run. */
TRIB_API trib_status trib_group_sparse_allreduce(trib_group *group, trib_sparse *const *sparse,
                                                 void *const *gradient, void *const *result,
                                                 const trib_stream *streams);

/** The largest number of entries that a call's result can have, with the current k. */
TRIB_API uint64_t trib_sparse_capacity(const trib_sparse *sparse);

/** The k requested by the options or a later set, at most count. (trib_sparse_statistics has the k
 *  that the algorithm uses.) */
TRIB_API uint64_t trib_sparse_k(const trib_sparse *sparse);

/** TRIB_OK if the last completed call was applied (or none has completed); TRIB_ERR_NON_FINITE;
 *  TRIB_ERR_MISMATCH if the ranks' calls were not of the same state; or trib_comm_status(). Never
 *  waits. Calls that differ more may wait for each other for ever: states whose messages differ in
 *  length; on host also sends (gtopk) on one rank and a collective (dense) on another. TRIB_MATCH
 *  detects those. */
TRIB_API trib_status trib_sparse_status(trib_sparse *sparse);

/** A uint32_t in device memory: 1 after a call that was applied, 0 after one that was not.
 *  Borrowed. */
TRIB_API const uint32_t *trib_sparse_outcome(const trib_sparse *sparse);

/** Statistics of one rank's state. Words: entries in units of 4 bytes, rounded up for each message.
 *  Bytes: everything sent. Summed over the ranks, sent equals received. A broadcast counts as a
 *  chain, an allreduce and an allgather count as rings. */
typedef struct trib_sparse_statistics {
    uint32_t size;             /**< sizeof(trib_sparse_statistics), set by the caller */
    uint32_t reserved;         /**< 0 */
    const char *algorithm;     /**< the one in use */
    const char *reason;        /**< why it runs: of auto's choice the figures of the link and the
                                *   time that it guesses for each rival; "" if requested by name.
                                *   Lives with the state */
    uint64_t count, k;         /**< elements; entries to select in a call (dense: all; srs: k / P of
                                *   each of P blocks, rounded down, at least 1; chunked: its share
                                *   of k from each chunk, rounded, at least 1, at most its
                                *   length; hier: this rank's share of its host's k) */
    uint64_t calls;            /**< completed */
    uint64_t calls_applied;    /**< of those, applied */
    uint64_t calls_non_finite; /**< of those, calls whose acc or result was not finite */
    uint64_t selected;         /**< entries that this rank selected in the last applied call */
    uint64_t applied;          /**< of those, entries in the result */
    uint64_t total_selected;   /**< over all applied calls, like all below */
    uint64_t total_applied;    /**< of those, entries in results */
    uint64_t words_sent;       /**< entries, in units of 4 bytes */
    uint64_t words_received;   /**< the same */
    uint64_t bytes_sent;       /**< everything: headers, padding and histograms, too */
    uint64_t bytes_received;   /**< the same */
    uint64_t fallbacks;        /**< selections whose first guess failed (slower, same result), or
                                *   that were exact because earlier calls had selected nothing */
    double residual_norm;      /**< the last computed; -1: none */
} trib_sparse_statistics;
/* clang-format off */
#define TRIB_SPARSE_STATISTICS_INIT                                                                \
    {(uint32_t)sizeof(trib_sparse_statistics),                                                     \
     0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0}
/* clang-format on */

/** Fill `*out` from the calls completed so far. Never waits. */
TRIB_API trib_status trib_sparse_statistics_get(trib_sparse_statistics *out, trib_sparse *sparse);

/** Queue a copy of this rank's residual, after the calls queued before: `count` elements of f32
 *  (f64 for an f64 state) to `out` in device memory. Local call. TRIB_ERR_INVALID_USAGE in place
 *  without momentum: there the accumulator is the residual. */
TRIB_API trib_status trib_sparse_residual(trib_sparse *sparse, void *out, trib_stream stream);

/** Bytes of an export. */
TRIB_API uint64_t trib_sparse_export_bytes(const trib_sparse *sparse);

/** Write residual, velocity, thresholds and schedule to host memory, for a later import. Blocks
 *  until the queued calls have run or an abort has ended them; no deadline. In place the export has
 *  no residual, or with momentum no velocity: that is the caller's `gradient`. The schedule counts
 *  the calls queued by this rank, including non-finite and aborted ones. */
TRIB_API trib_status trib_sparse_export(trib_sparse *sparse, void *out, size_t bytes,
                                        trib_stream stream);

/** Restore an export of a state with the same count and residual type, of any algorithm, k,
 *  momentum and number of ranks. Blocking. TRIB_ERR_INVALID_ARGUMENT, with nothing changed, if
 *  `data` is no such export, or if it has a velocity (of an export with momentum, not in place) and
 *  this state keeps none. An export without one (older ones have none) counts as a velocity of 0.
 *  `add` 0: all ranks call it, as with trib_sparse_create: if one rank's call is invalid, the
 *  others return TRIB_ERR_MISMATCH. Thresholds and schedule are restored if algorithm, k, chunk and
 *  number of ranks are the same on all ranks, else all ranks reset them. The schedule continues
 *  from the smallest of the ranks', since after an abort ranks may have queued different numbers of
 *  calls.
 *  `add` 1: a local call. Adds residual and velocity to the existing ones, so that remaining ranks
 *  can take over those of lost ranks, if those exported them while they lived (after
 *  trib_comm_shrink one rank imports them into its new state); thresholds and schedule stay. Blocks
 *  as trib_sparse_export does. */
TRIB_API trib_status trib_sparse_import(trib_sparse *sparse, const void *data, size_t bytes,
                                        int32_t add, trib_stream stream);

/** Queue a reset of residual, velocity, thresholds and schedule; statistics stay. In place the
 *  caller zeroes `gradient`. All ranks call it at the same point of their sequence of calls. */
TRIB_API trib_status trib_sparse_reset(trib_sparse *sparse, trib_stream stream);

/** Destroy the state. Waits for queued calls, at most as long as trib_comm_destroy; then returns
 *  TRIB_ERR_TIMEOUT: the state is gone all the same, and its memory is freed once those calls have
 *  run, but for a packet that other ranks read (trib_sparse_create). Synchronize with replays of its graphs
 *  before. NULL is allowed. */
TRIB_API trib_status trib_sparse_destroy(trib_sparse *sparse);

/* -------------------------------------------------------------------------------------- reducer
 *
 * The gradients of a training step, averaged in buckets while the backward pass makes the others.
 *
 *   trib_reducer_create(&reducer, comm, gradients, n, NULL);   once, on all ranks
 *   trib_reducer_ready(reducer, i, stream);    for each gradient, when what makes it is queued
 *   trib_reducer_finish(reducer, stream);      then later work on `stream` sees the averages
 *
 * BUCKETS. Gradients of one type share buckets, in the order in which they are passed: pass them in
 * the order in which the backward pass makes them, say it (options.order), or let the first step show
 * it (TRIB_REDUCER_LEARN_ORDER). The first bucket and the last are small, and those between them as few
 * and as even as they can be. The reducer queues a bucket, on a stream of its own, when all gradients
 * in it are ready and the buckets before it are queued, and the last one in trib_reducer_finish, on
 * the stream of that; so all ranks queue the same buckets in the same order. (In a CUDA graph the
 * last one is as the others.) No call waits for a device, but with TRIB_MATCH the ranks compare every
 * bucket first.
 *
 * A STEP lasts from its first trib_reducer_ready to trib_reducer_finish, and is all or nothing over
 * all buckets: gradients are written only when the last bucket has been reduced. If the
 * communicator ended meanwhile, every gradient is as it was, and trib_reducer_outcome points to 0.
 * With TRIB_REDUCER_VIEWS the gradients lie in the buckets, and are reduced where they are, from
 * their trib_reducer_ready on: nothing is copied, and after such a step they are undefined; with
 * TRIB_REDUCER_TWINS too they are as they were.
 *
 * IN PLACE. With options.buckets the gradients lie in buckets of the caller's, as those of PyTorch's
 * DDP do: in the order above, the first buckets[0] gradients are one, the next buckets[1] another, and
 * so on. Those of a bucket have one type, and lie one right behind the other in memory. They are
 * reduced where they are, as views are; after a step that is not applied they are 0, or, if the
 * communicator has ended, undefined.
 *
 * A gradient that is not ready at the finish counts as 0, and gets the average as all do (one that is
 * reduced where it lies becomes 0 before, and stays 0 if the step is not applied). To accumulate over
 * several backward passes, call ready and finish for the last one only.
 *
 * WEIGHTS. With options.device_weight, on all ranks or on none, gradients become weighted averages,
 * sum(w_i * x_i) / sum(w_i), as in trib_weighted_average: a rank with weight 0 contributes nothing,
 * not even a NaN; if the weights sum to 0, or one is negative, infinite or NaN, the step is not
 * applied on any rank, and the communicator stays usable. A gradient that is not ready counts as 0
 * with this rank's weight. Each bucket reads the weight when its gradients are complete: write it on
 * their streams, before trib_reducer_ready, and leave it until the step has run. Not with
 * TRIB_REDUCER_SUM; nor with TRIB_REDUCER_VIEWS, since weighted sums of f16 and bf16 are made in f32,
 * for which a bucket of them has no room.
 *
 * SPARSE. With options.sparse each bucket is reduced by a sparse allreduce with a state of its own:
 * of each bucket the largest entries are sent, and the rest stays as its residual. What is said of
 * states holds, momentum included, but that the decision is one for all buckets: if a value of one
 * bucket is not finite, no gradient is written on any rank (views without TRIB_REDUCER_TWINS are
 * undefined then, and gradients in place 0), and no residual and no velocity changes;
 * trib_reducer_status returns TRIB_ERR_NON_FINITE, and the communicator stays usable. (Thresholds and
 * schedules of the other buckets have moved on, on all ranks alike.) A gradient that is not ready
 * counts as 0: its residual takes part. Algorithms that wait for the stream in a call, see
 * trib_sparse_allreduce, do so in trib_reducer_ready and trib_reducer_finish. Residuals move with
 * their gradients when TRIB_REDUCER_LEARN_ORDER fills the buckets anew. Not with device_weight.
 *
 * THREADS. trib_reducer_ready: any thread, several at once; one that completes a bucket records
 * events on the streams of the others. Everything else: one thread at a time, and not beside a
 * trib_reducer_ready. The communicator serves the reducer alone from the first trib_reducer_ready of
 * a step to its finish. Each trib_reducer_ready has returned before the finish is called.
 *
 * ERRORS. trib_reducer_ready returns what is wrong with its own arguments, and then changes
 * nothing. What fails later, while a bucket is queued, ends the communicator, since the other ranks
 * wait for this one, and trib_reducer_finish returns it. */

/** The gradients of one rank, their buckets, and a stream that reduces them while others are made. */
typedef struct trib_reducer trib_reducer;

enum {
    /** Sums instead of averages. */
    TRIB_REDUCER_SUM = 1u << 0,
    /** The gradients lie in the buckets: see trib_reducer_view. `data` of each tensor is ignored. */
    TRIB_REDUCER_VIEWS = 1u << 1,
    /** With TRIB_REDUCER_VIEWS: a second set of buckets takes the sums, so that a step that is not
     *  applied leaves the gradients as they were. */
    TRIB_REDUCER_TWINS = 1u << 2,
    /** The first trib_reducer_finish fills the buckets anew, in the order in which rank 0 called
     *  trib_reducer_ready; gradients that were not ready there come last. That finish blocks until
     *  all ranks have come to it, within timeout_ms, and the step has run; what fails then ends the
     *  communicator, and is returned though the step was applied. It needs as much device memory
     *  again for as long if the gradients are views, and with options.sparse a second set of
     *  states. If a rank has no memory for it, the order stays (and the log says so,
     *  TRIB_LOG_WARN). Views move: ask trib_reducer_view again after that finish; what was
     *  in them moves with them. */
    TRIB_REDUCER_LEARN_ORDER = 1u << 3
};

/** Options of a reducer. Start from TRIB_REDUCER_OPTIONS_INIT; 0 is every field's default. All ranks
 *  pass the same. */
typedef struct trib_reducer_options {
    uint32_t size;  /**< sizeof(trib_reducer_options) */
    uint32_t flags; /**< TRIB_REDUCER_... */
    /** Of a bucket, at most; 0 is 50 MiB. A larger gradient has a bucket of its own. Few large ones
     *  take less time in all, but what comes late hides less: 102 MB of gradients, all ready at once,
     *  take 378 us on 2 x H200 over NVLink, in buckets of 10 MiB 523, of 100 MiB 368 (the first and the
     *  last of 1 MiB), as one tensor 339. */
    uint64_t bucket_bytes;
    /** The same for the first bucket of each type and for its last one, which should be small: until
     *  the first is queued nothing is sent, and nothing hides the last, as it is ready when the
     *  backward pass has ended; 0 is 256 KiB, or bucket_bytes if that is less. */
    uint64_t first_bytes;
    /** NULL: plain averages, or sums. Otherwise this rank's weight, in device memory: see WEIGHTS. */
    const float *device_weight;
    /** NULL: dense. Otherwise what a state of each bucket is created with: see SPARSE. Of its flags
     *  only TRIB_SPARSE_NO_MASKING is allowed: the reducer itself chooses averages or sums. Read by
     *  trib_reducer_create. */
    const trib_sparse_options *sparse;
    /** NULL: buckets are filled with the gradients as they are passed. Otherwise in this order, a
     *  permutation of 0 to n - 1. An export has the order in which they are passed all the same. Not
     *  with TRIB_REDUCER_LEARN_ORDER. Read by trib_reducer_create. */
    const uint64_t *order;
    /** NULL: buckets of the reducer's own. Otherwise how many gradients each of `nbuckets` of the
     *  caller's has, n in all: see IN PLACE. (One whose gradients have no elements is none of
     *  trib_reducer_buckets.) Not with TRIB_REDUCER_VIEWS, TRIB_REDUCER_LEARN_ORDER or device_weight;
     *  bucket_bytes and first_bytes are ignored. Read by trib_reducer_create. */
    const uint64_t *buckets;
    uint64_t nbuckets; /**< of the caller's; 0 without `buckets` */
} trib_reducer_options;
#define TRIB_REDUCER_OPTIONS_INIT                                                                  \
    {(uint32_t)sizeof(trib_reducer_options), 0, 0, 0, NULL, NULL, NULL, NULL, 0}

/** Register `n` gradients of f16, bf16, f32 or f64, of any count, disjoint. All ranks call it;
 *  blocking. They compare counts, types and options: if one differs, all return TRIB_ERR_MISMATCH.
 *  If one rank's arguments are invalid it gets that error, and every other rank gets
 *  TRIB_ERR_MISMATCH; if one rank lacks memory, no rank gets a reducer. If a rank does not call it
 *  within the communicator's timeout_ms: TRIB_ERR_TIMEOUT, and the communicator is no longer usable.
 *  The call reads `gradients` before it returns; the memory of the gradients must stay where it is,
 *  and `comm` must outlive the reducer. `options` may be NULL. All memory is allocated here: buckets
 *  as large as all gradients, two sets with TRIB_REDUCER_TWINS, none in place (and see
 *  TRIB_REDUCER_LEARN_ORDER), and with options.sparse what trib_sparse_bytes says of each.
 *
 *  Where ranks have a process each, and some bucket is as large as calls that the kernels of PEERS serve better in
 *  symmetric memory, all buckets lie in such memory, and those do not reach NCCL.
 *  (Not with options.sparse, nor in place.) trib_memory counts it among peer_bytes, rounded up to 2 MiB; it stays
 *  for later reducers and sparse states until the communicator is destroyed. If a rank cannot map it, no rank gets a reducer. */
TRIB_API trib_status trib_reducer_create(trib_reducer **out, trib_comm *comm,
                                         const trib_tensor *gradients, size_t n,
                                         const trib_reducer_options *options);

/** Where gradient `i` lies, with TRIB_REDUCER_VIEWS: device memory, aligned to 16 bytes, 0 at first.
 *  NULL if it has no elements. Valid until the reducer is destroyed, or with
 *  TRIB_REDUCER_LEARN_ORDER until the first trib_reducer_finish. */
TRIB_API trib_status trib_reducer_view(void **out, const trib_reducer *reducer, size_t i);

/** The number of buckets; another one after TRIB_REDUCER_LEARN_ORDER filled them anew. */
TRIB_API uint64_t trib_reducer_buckets(const trib_reducer *reducer);

/** Gradient `i` is complete once what is queued on `stream` by now has run; leave it alone from then
 *  on until the finish. (Its bucket also waits for what is queued there until the bucket's last
 *  gradient is ready; the last bucket until the finish.) Once in a step for each gradient: TRIB_ERR_INVALID_USAGE otherwise. Streams of
 *  one step must live until its finish. Not inside a batch.
 *
 *  On nccl a CUDA graph may capture whole steps, from the first trib_reducer_ready to the finish, all
 *  streams of a step in the same capture (TRIB_ERR_INVALID_USAGE otherwise). The reducer's own stream
 *  takes part in it: until the capture has ended, no other step can be made. A replay repeats the
 *  step: the same gradients are ready, and the others count as 0; a weight is read anew;
 *  trib_reducer_outcome and trib_reducer_status tell of it. It uses the reducer's buckets and, with
 *  options.sparse, residuals and schedules as trib_sparse_allreduce says. Replays are not tracked:
 *  launch them on the stream of the other steps, or order them in another way; wait for them before
 *  trib_reducer_set_density (after which you capture anew), trib_reducer_export,
 *  trib_reducer_import and trib_reducer_destroy (after which none is launched). Refused with
 *  TRIB_ERR_UNSUPPORTED: the first step with TRIB_REDUCER_LEARN_ORDER (capture later ones), sparse
 *  algorithms that wait for the stream, TRIB_MATCH. */
TRIB_API trib_status trib_reducer_ready(trib_reducer *reducer, size_t i, trib_stream stream);

/** End the step: queue the buckets that are left, the last one at least, and make later work on
 *  `stream` wait for the averages. What is on `stream` by now runs before those buckets: finish on
 *  the stream of the backward pass, right behind it; with one bucket nothing is sent before. Earlier
 *  work on `stream`, and none on other streams but what trib_reducer_ready covered, has run before a
 *  gradient that is copied to a bucket is written; others are written from their trib_reducer_ready
 *  on, and those that were not ready as the copied ones. A step without a trib_reducer_ready is
 *  valid: zeros of this rank. The next step may begin at once. Waits for no device, but for the first
 *  step's with TRIB_REDUCER_LEARN_ORDER.
 *
 *  After a failure `stream` may not wait for the step, though what is queued of it still runs, and
 *  reads and writes gradients: use and free them once trib_reducer_wait has returned TRIB_OK. */
TRIB_API trib_status trib_reducer_finish(trib_reducer *reducer, trib_stream stream);

/** Wait until everything that steps have queued so far has run, applied or not: nothing uses the
 *  gradients then. Needed after a trib_reducer_finish that has failed; otherwise a wait for its stream
 *  will do. TRIB_ERR_TIMEOUT if something still runs after `timeout_ms` (TRIB_NO_TIMEOUT; with 0 it
 *  asks once), or if CUDA took no event at the end of a step, so that nobody knows: the communicator
 *  is as before, so wait again, or abort it. Also after the communicator has ended, whose end is no
 *  failure of this call. TRIB_ERR_INVALID_USAGE while a CUDA graph captures a step; replays are not
 *  waited for. */
TRIB_API trib_status trib_reducer_wait(trib_reducer *reducer, uint32_t timeout_ms);

/** A uint32_t in device memory, to be read on the stream of the finish: 1 after a step that was
 *  applied on this rank, 0 after one that was not. Borrowed. */
TRIB_API const uint32_t *trib_reducer_outcome(const trib_reducer *reducer);

/** TRIB_OK if the newest step that has run was applied, or none has run; TRIB_ERR_NON_FINITE if it
 *  was not on any rank, because a value or a weight was not finite (or a weight negative, or all of
 *  them 0); or trib_comm_status(). Never waits. */
TRIB_API trib_status trib_reducer_status(const trib_reducer *reducer);

/** Change the density of every bucket's state, as trib_sparse_set_density does. Only with
 *  options.sparse. All ranks call it; between steps; blocking. On failure the old density stays,
 *  unless the communicator has ended. */
TRIB_API trib_status trib_reducer_set_density(trib_reducer *reducer, double density);

/** Fill `*out` with the sums over the states of all buckets, from the steps completed so far; a step
 *  is a call of each. `count` includes what pads the gradients in their buckets; `algorithm` and
 *  `reason` are those of the first bucket, and `residual_norm` is -1 unless every bucket has computed
 *  its own. With TRIB_REDUCER_LEARN_ORDER the first step makes the states anew, and is not in the
 *  sums. Only with options.sparse. Never waits. */
TRIB_API trib_status trib_reducer_statistics(trib_sparse_statistics *out,
                                             const trib_reducer *reducer);

/** Bytes of an export: residuals of all gradients, and with momentum their velocities. 0 without
 *  options.sparse. */
TRIB_API uint64_t trib_reducer_export_bytes(const trib_reducer *reducer);

/** Write this rank's residuals and velocities to host memory, in the order in which the gradients
 *  were passed, whatever bucket they lie in. Between steps; blocks until queued steps have run or an
 *  abort has ended them; no deadline. Thresholds and schedules are not in it. */
TRIB_API trib_status trib_reducer_export(trib_reducer *reducer, void *out, size_t bytes);

/** Restore an export of a reducer of gradients of the same counts and types, of any bucket sizes,
 *  order, algorithm, density and number of ranks. TRIB_ERR_INVALID_ARGUMENT, with nothing changed,
 *  if `data` is no such export, or if it has velocities and this reducer has no momentum. Without
 *  velocities they become 0.
 *  `add` 0: all ranks call it, between steps; blocking. If one rank's call is invalid, the others
 *  return TRIB_ERR_MISMATCH. Thresholds and schedules begin anew.
 *  `add` 1: a local call. Adds to the existing residuals and velocities, as trib_sparse_import
 *  does. */
TRIB_API trib_status trib_reducer_import(trib_reducer *reducer, const void *data, size_t bytes,
                                         int32_t add);

/** Destroy the reducer. Waits for queued steps, at most as long as trib_comm_destroy; then returns
 *  TRIB_ERR_TIMEOUT: the reducer is gone all the same, and its memory, that of views included, is
 *  freed once they have run (that which other processes reach never). In the middle of a step: TRIB_ERR_INVALID_USAGE and nothing happens,
 *  unless the communicator has ended. NULL is allowed. */
TRIB_API trib_status trib_reducer_destroy(trib_reducer *reducer);

/* ---------------------------------------------------------------------------------------- batch */

/** Begin a batch: the following calls are checked and recorded; trib_batch_end queues them as one
 *  (ncclGroupStart and ncclGroupEnd). All use the same stream. Sends and receives of a batch run
 *  together; no call may depend on another's output. Batches do not nest. A CUDA graph captures all of
 *  a batch: if a call of it has scratch, and the capture begins or ends inside of the batch,
 *  TRIB_ERR_INVALID_USAGE. */
TRIB_API trib_status trib_batch_begin(trib_comm *comm);

/** Queue the recorded calls as one call of the backend. If a call of the batch failed, nothing is
 *  queued, and that call's status is returned. The batch ends in both cases. */
TRIB_API trib_status trib_batch_end(trib_comm *comm);

/** End the open batches of `n` communicators as one call of the backend: several communicators of
 *  one rank (of tensor and data parallelism, for example), or several ranks that one thread drives.
 *  Each communicator is given once, and all are of one backend. Each batch has a stream of its own.
 *  If any call of any batch failed, nothing is queued on any, and the status of the first is
 *  returned. All n batches end in all cases (none, if one of `comms` is NULL).
 *
 *  Calls of one communicator run in their order. Of two communicators that use one stream, the
 *  first in `comms` comes first on host: list those that several ranks share in the same order on
 *  all of them.
 *
 *  NCCL gets one group of all calls. If it fails, all n communicators end, because NCCL ends them
 *  together. If one of them is aborted meanwhile, that one's status is returned, and calls of the
 *  others may be queued; its abort is complete when this call returns, which may wait for ranks of
 *  the others (their first calls).
 *
 *  TRIB_MATCH compares the batches of a communicator if one of its ranks is here, which waits for
 *  the others, or if all are; otherwise TRIB_ERR_INVALID_USAGE. */
TRIB_API trib_status trib_batch_end_all(trib_comm *const *comms, size_t n);

/* ------------------------------------------------------------------------------------ log */

enum { TRIB_LOG_ERROR = 1, TRIB_LOG_WARN = 2, TRIB_LOG_INFO = 3, TRIB_LOG_DEBUG = 4 };

/** Receives one line, without a newline. Called from any thread; must not call Tributary. */
typedef void (*trib_log_fn)(void *context, int32_t level, const char *line);

/** Send messages of `level` and below to `function`; NULL, the initial state, disables the log. Any
 *  thread. */
TRIB_API trib_status trib_log_set(trib_log_fn function, void *context, int32_t level);

/* ----------------------------------------------------------------------------------------- dump
 *
 * The flight recorder keeps the newest 256 calls of each rank (unless TRIB_UNRECORDED). A dump is
 * a JSON file with those of every open communicator of the process: operation, count, type, state
 * (entered, queued, started, done, unknown), age and deadline of each call; status and detail. In a
 * burst of more than 64 calls up to 16 share one age, that of the first. The program tributary-blame
 * reads the dumps of several processes and says which rank is to blame for a hang, and why. Ranks
 * and calls also go to the log when a communicator ends. */

/** Write a dump to `path` now. TRIB_ERR_SYSTEM if the file cannot be written, or is a
 *  directory, pipe or device. Any thread. */
TRIB_API trib_status trib_dump(const char *path);

/** From now on write a dump whenever a communicator ends by a deadline, an abort or a failure: to
 *  PREFIX followed by "HOST-PROCESS-N.json", N counting from 1 to 16. NULL or "": none. Initially
 *  the value of TRIBUTARY_DUMP in the environment. A thread of the library writes the file; an exit
 *  waits for it, at most 2 s. Any thread. */
TRIB_API trib_status trib_dump_set(const char *prefix);

/* ---------------------------------------------------------------------------- memory and debug
 *
 * NVTX.  If TRIBUTARY_NVTX in the environment is set, and neither empty nor "0", when the first
 * communicator is created, and a profiler is attached (Nsight Systems), every call is an NVTX range
 * on its thread while it is handed to the backend: domain "tributary", name "trib_allreduce 1024
 * f32", payload count * element size (none for lists and batches), category the communicator, which
 * has a name. Otherwise a call pays two loads for it. The build needs NVTX's header, which the CUDA
 * toolkit brings; if it was not found, the log says so (TRIB_LOG_WARN). */

/** What the library has allocated for itself, in bytes: now, and the most at one time (`peak`).
 *  Not counted: what you allocate (trib_device_alloc), ordinary host memory, abort flags, and what
 *  NCCL and CUDA allocate. Memory that is being freed in the background counts no longer. */
typedef struct trib_memory {
    uint32_t size;                 /**< sizeof(trib_memory), set by the caller */
    uint32_t reserved;             /**< 0 */
    uint64_t workspace_bytes;      /**< scratch of communicators, on the device */
    uint64_t workspace_peak_bytes; /**< the most so far */
    uint64_t sparse_bytes;         /**< sparse states, on the device: residuals, velocities, ... */
    uint64_t sparse_peak_bytes;    /**< the most so far */
    uint64_t pinned_bytes;         /**< pinned host memory of workspaces and sparse states */
    uint64_t pinned_peak_bytes;    /**< the most so far */
    uint64_t peer_bytes; /**< on the device, where ranks of communicators reach each other: what
                                    *   PEERS says, from their creation to their end, symmetric
                                    *   memory, and packets of sparse states, former ones' too */
    uint64_t peer_peak_bytes; /**< the most so far */
} trib_memory;
#define TRIB_MEMORY_INIT {(uint32_t)sizeof(trib_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** Fill `*out` with what one rank's communicator holds, its sparse states included. */
TRIB_API trib_status trib_comm_memory(trib_memory *out, trib_comm *comm);

/** Fill `*out` with what all communicators of this process hold on `device`, including those that
 *  were destroyed while queued work still used their memory. Any thread. */
TRIB_API trib_status trib_device_memory(trib_memory *out, const trib_device *device);

/** The debug switch: 1 is on, 0 off. While it is on, the log tells at TRIB_LOG_INFO where things
 *  are: of each new communicator rank, size, device, process and host; of each new sparse state
 *  type, algorithm and bytes; of each block of memory that the library allocates or frees on a
 *  device bytes, address, and for which communicator, rank and sparse state. Dumps written
 *  meanwhile list all blocks. Nothing is logged per call. Initially on if TRIBUTARY_DEBUG in the
 *  environment is set, and neither empty nor "0". Any thread. */
TRIB_API trib_status trib_debug_set(int32_t on);

#ifdef __cplusplus
}
#endif

#endif /* TRIBUTARY_H */
