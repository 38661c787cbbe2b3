/* Tributary: collective communication for people who write deep-learning frameworks.
 * SPDX-License-Identifier: MIT */
#ifndef TRIBUTARY_H
#define TRIBUTARY_H

/** @file
 *  The whole C API, to be read from top to bottom.
 *
 *  THE MODEL
 *  ---------
 *  A *rank* is one participant. The ranks that work together form a communicator of `size` ranks;
 *  a `trib_comm` is one rank's end of it. A `trib_group` holds every rank of one process at once.
 *  A *backend* is how ranks talk and where their memory lives: on "nccl" a rank is a GPU, on "host"
 *  a rank is a thread of this process and its memory is ordinary memory. Code written for one runs
 *  on the other.
 *
 *  QUEUED CALLS.  A collective is queued on a stream and returns at once. Its buffers stay yours and
 *  must live, untouched, until the stream has passed that point. A stream is in order, two streams
 *  are not, events order them. All calls on one communicator run in the order in which they were
 *  made, whichever streams they name. Every rank makes the same calls in the same order.
 *
 *  THREADS.  A `const T *` may be shared between threads, a `T *` may not: use each communicator,
 *  group, stream and event from one thread at a time. Two exceptions, both said where they are
 *  declared: an abort handle may be used from any thread at any time, and the functions that take
 *  no object may be called from anywhere.
 *
 *  PROCESSES.  A child of fork has none of its parent's threads, and CUDA does not work there. Once a
 *  process has called trib_device_get, trib_comm_create or trib_group_create, every function that
 *  returns a status returns TRIB_ERR_INVALID_USAGE in its children, and does nothing, not even to
 *  `*out`. Fork before that, or start children with exec. (CUDA itself wants more: fork before
 *  anything asks for GPUs.)
 *
 *  SEVERAL COMMUNICATORS on the same devices are used in the same order on all ranks, as NCCL asks:
 *  on nccl the first call of a kind may wait, inside the call, until its peers make theirs, and
 *  calls on one device are issued one at a time. An abort ends such a wait.
 *
 *  ERRORS.  Every function that can fail returns a status. TRIB_OK is 0. The calling thread's last
 *  failure is explained by trib_last_detail(): which argument of which operation, on which rank and
 *  device, what was expected, what was found, what to do. A call that returns a status of the
 *  family "your mistake" has queued nothing and changed nothing. A status of the family "state" says
 *  that the communicator is over: what the call would have written is undefined (but see
 *  trib_allreduce_list). A failure that happens later, on the stream, is read with
 *  trib_comm_status(): after waiting for a stream, a result is good if and only if
 *  trib_comm_status() is TRIB_OK.
 *
 *  OWNERSHIP.  What comes back through the first parameter `out` is yours to destroy, with the
 *  destroy function of its type. What a function returns directly is borrowed. On failure `*out` is
 *  set to NULL.
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

/** One of the TRIB_OK / TRIB_ERR_ numbers below. Numbers are never changed or reused; a newer
 *  library may return one that this header does not list. */
typedef int32_t trib_status;

/** X(name, number, sentence). Families: 1-9 your mistake, 10-19 state of the communicator,
 *  20-29 resources, 30-39 the engine below, 90-99 ours. */
#define TRIB_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(ERR_INVALID_ARGUMENT, 1, "an argument is outside what the function accepts")                 \
    X(ERR_INVALID_BUFFER, 2, "a buffer is not memory that this rank may use in that way")          \
    X(ERR_INVALID_STREAM, 3, "a stream cannot be used with this rank's device")                    \
    X(ERR_INVALID_USAGE, 4, "the call is not allowed at this point")                               \
    X(ERR_UNSUPPORTED, 5, "this backend or build cannot do that")                                  \
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
#define TRIB_STATUS_ENUM_(name, number, sentence) TRIB_##name = number,
    TRIB_STATUS_MAP(TRIB_STATUS_ENUM_)
#undef TRIB_STATUS_ENUM_
};

/** "TRIB_ERR_ABORTED"; never NULL, also for numbers that this library does not know. This and the
 *  other names and sentences that take no object live for ever. */
TRIB_API const char *trib_status_name(trib_status status);

/** The sentence of TRIB_STATUS_MAP; never NULL. */
TRIB_API const char *trib_status_message(trib_status status);

/** The calling thread's last failure in words; "" before the first. Valid until this thread's next
 *  failing call. A call that succeeds leaves it as it was. */
TRIB_API const char *trib_last_detail(void);

/* --------------------------------------------------------------------------------------- types */

/** Element type. 0 is not one. */
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

/** Bytes of one element; 0 for a number that is no type. */
TRIB_API size_t trib_dtype_size(trib_dtype dtype);

/** "f32"; "?" for a number that is no type. */
TRIB_API const char *trib_dtype_name(trib_dtype dtype);

/** Reduction. 0 is not one. Integers wrap. TRIB_AVG is the sum divided by the number of ranks,
 *  rounded towards zero for integers (floats on nccl: every summand is multiplied by the rounded
 *  reciprocal first, as NCCL does it, which differs in the last bits). MIN and MAX with a NaN among the inputs give NaN or a number:
 *  do not rely on either. */
typedef int32_t trib_op;
enum { TRIB_SUM = 1, TRIB_PROD = 2, TRIB_MIN = 3, TRIB_MAX = 4, TRIB_AVG = 5 };

/** "sum"; "?" for a number that is no reduction. */
TRIB_API const char *trib_op_name(trib_op op);

/** A queue of work on one device: a `cudaStream_t` on nccl (yours, or from trib_stream_create), a
 *  host stream on host (only from trib_stream_create). NULL is the device's default stream (on nccl
 *  the legacy default stream). `cudaStreamPerThread` is refused. */
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

/** Number of backends in this build. */
TRIB_API int32_t trib_backend_count(void);

/** Name of backend `index`, best first; NULL beyond the last. The names live for ever. */
TRIB_API const char *trib_backend_name(int32_t index);

/** Version of the engine below a backend: of the NCCL that is loaded (22809 for 2.28.9), of
 *  Tributary for host. Makes no CUDA context. TRIB_ERR_UNKNOWN_NAME. */
TRIB_API trib_status trib_backend_version(uint32_t *out, const char *backend);

/** Number of devices that a backend can use now: GPUs for nccl (0 without a driver), 64 for host.
 *  Makes no CUDA context. */
TRIB_API trib_status trib_backend_devices(int32_t *out, const char *backend);

/* ------------------------------------------------------- devices, memory, streams, events
 *
 * Frameworks that bring their own tensors and streams need none of this on GPUs. It is here so that
 * the same program runs on every backend, and because host streams must come from somewhere. */

/** Where a rank's memory and streams live: device `ordinal` of a backend. */
typedef struct trib_device trib_device;

/** Device `ordinal` of `backend` (NULL: the first backend that has such a device). `*out` is
 *  borrowed: it lives for ever, every thread may share it, asking again gives the same pointer.
 *  TRIB_ERR_UNKNOWN_NAME, TRIB_ERR_NO_DEVICE. */
TRIB_API trib_status trib_device_get(trib_device **out, const char *backend, int32_t ordinal);

/** Name of the device's backend. */
TRIB_API const char *trib_device_backend(const trib_device *device);

/** The device's ordinal. */
TRIB_API int32_t trib_device_ordinal(const trib_device *device);

/** `bytes` bytes of this device's memory, aligned to 256; 0 bytes give a unique pointer. Blocking.
 *  Host memory of any origin may be used on host; memory from here is checked more strictly: for
 *  its range and its device. */
TRIB_API trib_status trib_device_alloc(void **out, trib_device *device, size_t bytes);

/** Give back memory of trib_device_alloc. NULL is allowed. No queued work may still use it. */
TRIB_API trib_status trib_device_free(trib_device *device, void *data);

/** Queue a copy of `bytes` bytes on `stream`. Each side may be host memory or memory of `device`.
 *  Host memory must stay untouched until the stream has passed this point. On nccl, host memory that
 *  is not pinned makes the call itself wait for the stream, and CUDA lets no other thread allocate
 *  meanwhile: wait for a collective before its result is copied to such memory. */
TRIB_API trib_status trib_device_copy(trib_device *device, void *dst, const void *src,
                                      size_t bytes, trib_stream stream);

/** A new stream of `device`. */
TRIB_API trib_status trib_stream_create(trib_stream *out, trib_device *device);

/** Wait until everything queued so far has run. Says nothing about success: ask trib_comm_status().
 *  On host, the waiting thread may itself run what is queued. Any thread.
 *
 *  Of a wait, or a question, for a stream or an event that fails, TRIB_ERR_CUDA means that the device
 *  has failed, and runs nothing any more. Any other failure says nothing about what is queued, which
 *  may still run and use its buffers: CUDA refuses to answer (TRIB_ERR_INVALID_USAGE) for a stream that
 *  is being captured, while another thread captures, and inside a function that a stream calls. */
TRIB_API trib_status trib_stream_wait(trib_device *device, trib_stream stream);

/** `*out` = 1 if everything queued has run, else 0. Never waits. Any thread. */
TRIB_API trib_status trib_stream_query(int32_t *out, trib_device *device, trib_stream stream);

/** Later work on `stream` waits for what `event` recorded last (for nothing, if it never did). */
TRIB_API trib_status trib_stream_wait_event(trib_device *device, trib_event event,
                                            trib_stream stream);

/** Queue a call of `function(argument)`. It must not call Tributary functions that wait. On nccl it
 *  must call no CUDA function either. */
TRIB_API trib_status trib_stream_submit(trib_device *device, void (*function)(void *argument),
                                        void *argument, trib_stream stream);

/** Wait for the stream, then give it back. NULL is allowed. */
TRIB_API trib_status trib_stream_destroy(trib_device *device, trib_stream stream);

/** A new event of `device`, which takes times. */
TRIB_API trib_status trib_event_create(trib_event *out, trib_device *device);

/** Remember this point of `stream`. */
TRIB_API trib_status trib_event_record(trib_device *device, trib_event event, trib_stream stream);

/** Wait until the stream has passed the point recorded last. Any thread. */
TRIB_API trib_status trib_event_wait(trib_device *device, trib_event event);

/** `*out` = 1 if the stream has passed the point recorded last, else 0. Any thread. */
TRIB_API trib_status trib_event_query(int32_t *out, trib_device *device, trib_event event);

/** Milliseconds between two events that have both been passed. */
TRIB_API trib_status trib_event_elapsed(float *out_ms, trib_device *device, trib_event start,
                                        trib_event end);

/** Give an event back. NULL is allowed. */
TRIB_API trib_status trib_event_destroy(trib_device *device, trib_event event);

/* ------------------------------------------------------------------------------------- options */

enum {
    /** Skip the checks of buffers and streams (their memory, device and range). What the arguments
     *  say by themselves is still checked. */
    TRIB_UNCHECKED = 1u << 0,
    /** Debug mode: before each collective every rank compares operation, count, type, reduction and
     *  root with all others, and all of them return TRIB_ERR_MISMATCH if one differs, instead of
     *  waiting for ever; if a rank does not come, or its stream not to this call, within timeout_ms of
     *  the call: TRIB_ERR_TIMEOUT, and the communicator is over. So it is if a rank cannot queue what
     *  all have agreed on. Sends and receives take no part in it, nor do the counts of alltoallv. Calls
     *  then wait for each other, so give every rank a thread of its own, and cannot be captured in a
     *  CUDA graph. */
    TRIB_MATCH = 1u << 1,
    /** Calls that differ never touch memory that is not theirs. On host they never do: every call is
     *  compared on the stream before memory is touched. On nccl this is TRIB_MATCH: NCCL compares
     *  nothing, and a rank may write as far as its own count goes into a peer's buffer. */
    TRIB_COMPARED = 1u << 2
};

/** How a communicator or group is made. Start from TRIB_OPTIONS_INIT; zero is the default of every
 *  field. Every rank passes the same. */
typedef struct trib_options {
    uint32_t size;             /**< sizeof(trib_options) */
    uint32_t flags;            /**< TRIB_UNCHECKED | TRIB_MATCH | TRIB_COMPARED */
    const char *backend;       /**< NULL: what the id says; for a group the first that has the devices */
    uint32_t timeout_ms;       /**< deadline for meeting the other ranks: in create and split; in
                                *   trib_sparse_create, set and import (`add` 0), calls still queued
                                *   included; with TRIB_MATCH (on nccl TRIB_COMPARED, too) in each call,
                                *   from when it is made: what the stream has to run before it counts,
                                *   so allow for any rank's earlier work. 0 is 300,000 */
    uint32_t close_timeout_ms; /**< how long destroy waits for work still queued; 0 is 5,000 */
} trib_options;
#define TRIB_OPTIONS_INIT {(uint32_t)sizeof(trib_options), 0, NULL, 0, 0}

/* --------------------------------------------------------------------------------------- abort */

/** Stops a communicator from anywhere. Counted: it outlives the communicator if need be. */
typedef struct trib_abort trib_abort;

/** Another reference to the same handle. Any thread. */
TRIB_API trib_status trib_abort_clone(trib_abort **out, trib_abort *handle);

/** Abort every rank of the communicator in this process. Returns at once, frees nothing and never
 *  waits for a device. From then on every call on those ranks returns TRIB_ERR_ABORTED, and streams
 *  that were waiting inside a collective come free, with garbage in its outputs (except lists, see
 *  trib_allreduce_list). Ranks in other processes have to be aborted there. `reason` (NULL allowed)
 *  is copied into the detail of those errors; the first one stays. Any thread, any number of times,
 *  also after the communicator is gone.
 *
 *  On nccl, ranks connect in their first call of a kind. Memory of connections that an abort leaves
 *  half made, up to some 300 MB a GPU, stays until the process ends (NCCL 2.28). With
 *  NCCL_RUNTIME_CONNECT=0 in the environment they connect when the communicator is made instead, and
 *  an abort leaves nothing. */
TRIB_API trib_status trib_abort_raise(trib_abort *handle, const char *reason);

/** 1 once the communicator has been aborted or has failed, else 0. Any thread. */
TRIB_API int32_t trib_abort_raised(const trib_abort *handle);

/** TRIB_OK, or why the communicator is over, with the detail: for a watchdog of your own. Errors that
 *  NCCL has found meanwhile on any rank of this process are asked for, and end the communicator, as
 *  with trib_comm_status; what only CUDA knows (a kernel's fault) is not, for that might wait for a
 *  device. Never waits; costs an atomic load once the communicator is over, and well below a
 *  microsecond a rank before. Any thread at any time, also after the communicator is gone: then it
 *  says what was the last of it (TRIB_OK for one that was closed in good order). */
TRIB_API trib_status trib_abort_status(trib_abort *handle);

/** Give one reference back. NULL is allowed. Aborts nothing. */
TRIB_API void trib_abort_release(trib_abort *handle);

/* --------------------------------------------------------------------------------------- group */

/** Every rank of a communicator whose ranks all live in this process. One thread drives them all. */
typedef struct trib_group trib_group;
/** One rank of a communicator. */
typedef struct trib_comm trib_comm;

/** A group of `size` ranks; rank i is on `devices[i]` (NULL: device i). Devices are distinct.
 *  Blocking. Up to 64 ranks on host. `options` may be NULL. */
TRIB_API trib_status trib_group_create(trib_group **out, const int32_t *devices, int32_t size,
                                       const trib_options *options);

/** Number of ranks. */
TRIB_API int32_t trib_group_size(const trib_group *group);

/** Device of rank `rank`; -1 if there is no such rank. */
TRIB_API int32_t trib_group_device(const trib_group *group, int32_t rank);

/** Name of the backend. */
TRIB_API const char *trib_group_backend(const trib_group *group);

/** trib_allreduce on every rank: buffers and stream of rank i are `send[i]`, `recv[i]`,
 *  `streams[i]`. `streams` NULL: every device's default stream. Nothing is queued on any rank
 *  unless the arguments of all are valid. */
TRIB_API trib_status trib_group_allreduce(trib_group *group, const void *const *send,
                                          void *const *recv, size_t count, trib_dtype dtype,
                                          trib_op op, const trib_stream *streams);

/** trib_broadcast on every rank, in the form of trib_group_allreduce. */
TRIB_API trib_status trib_group_broadcast(trib_group *group, const void *const *send,
                                          void *const *recv, size_t count, trib_dtype dtype,
                                          int32_t root, const trib_stream *streams);

/** trib_allreduce_list on every rank: rank i's list is `tensors[i]`, each of `n` tensors. */
TRIB_API trib_status trib_group_allreduce_list(trib_group *group,
                                               const trib_tensor *const *tensors, size_t n,
                                               trib_op op, const trib_stream *streams);

/** trib_broadcast_list on every rank, in the form of trib_group_allreduce_list. */
TRIB_API trib_status trib_group_broadcast_list(trib_group *group,
                                               const trib_tensor *const *tensors, size_t n,
                                               int32_t root, const trib_stream *streams);

/** A handle that aborts all ranks. */
TRIB_API trib_status trib_group_abort_handle(trib_abort **out, trib_group *group);

/** TRIB_OK, or why the group is no longer usable. */
TRIB_API trib_status trib_group_status(trib_group *group);

/** Turn the group into its communicators, for one thread each: `out[i]` becomes rank i. Consumes the
 *  group: on success it is gone; on failure it is as before. */
TRIB_API trib_status trib_group_split(trib_comm **out, trib_group *group);

/** Destroy every rank as trib_comm_destroy does, with trib_quiesce to wait for what it leaves to the
 *  background. NULL is allowed. */
TRIB_API trib_status trib_group_destroy(trib_group *group);

/* ------------------------------------------------------------------------ life of a communicator */

/** What ranks that want to meet have in common: made once, sent to the others as bytes. On nccl it
 *  holds exactly an ncclUniqueId. */
typedef struct trib_id {
    uint8_t bytes[128];
} trib_id;

/** A new id for `backend` (NULL: the first backend that has a device). */
TRIB_API trib_status trib_id_create(trib_id *out, const char *backend);

/** Rank `rank` of `size`, on device `device`, of the communicator that `id` names. Blocking: returns
 *  when all ranks have come, or with TRIB_ERR_TIMEOUT. On host all ranks are threads of this
 *  process. An id serves once. `options` may be NULL.
 *
 *  On nccl this, as everything that makes a communicator, first waits for what earlier ones leave to
 *  the background (trib_quiesce), at most half of its deadline, and 2 s if nothing goes on there:
 *  CUDA keeps a lock while memory is given back on a busy device, and a call of another thread that
 *  needs it, even one that destroys an event, would wait until that device is idle. */
TRIB_API trib_status trib_comm_create(trib_comm **out, const trib_id *id, int32_t rank,
                                      int32_t size, int32_t device, const trib_options *options);

/** This rank's number, 0 .. size-1. */
TRIB_API int32_t trib_comm_rank(const trib_comm *comm);
/** Number of ranks. */
TRIB_API int32_t trib_comm_size(const trib_comm *comm);
/** This rank's device. */
TRIB_API int32_t trib_comm_device(const trib_comm *comm);
/** Name of the backend. */
TRIB_API const char *trib_comm_backend(const trib_comm *comm);

/** With this colour a rank takes part in trib_comm_split and gets no communicator. */
#define TRIB_NO_COLOR (-1)

/** New communicators: ranks with the same `color` (0 or more) come together, in the order of `key`,
 *  then of rank. A call of all ranks; blocking, with the deadline of the options. The new ones do
 *  not depend on the old one. `*out` is NULL for TRIB_NO_COLOR. If a rank does not come
 *  (TRIB_ERR_TIMEOUT), `comm` is lost as well on nccl, and stays usable on host. */
TRIB_API trib_status trib_comm_split(trib_comm **out, trib_comm *comm, int32_t color, int32_t key);

/** A handle that aborts this communicator. */
TRIB_API trib_status trib_comm_abort_handle(trib_abort **out, trib_comm *comm);

/** TRIB_OK, or why the communicator is no longer usable: TRIB_ERR_ABORTED, TRIB_ERR_CLOSED (this rank
 *  has closed, or was waiting for one that did), or the status of what failed on a stream, with its
 *  detail (a mistake found there is named here only: calls after it return TRIB_ERR_ABORTED). Never
 *  waits. */
TRIB_API trib_status trib_comm_status(trib_comm *comm);

/** What a rank has done so far. */
typedef struct trib_counters {
    uint32_t size;            /**< sizeof(trib_counters), set by the caller */
    uint32_t reserved;        /**< 0 */
    uint64_t calls;           /**< collectives queued, each list or batch member once */
    uint64_t bytes;           /**< bytes of this rank's send side in those calls: of its tensors. What
                               *   moves for them is another number: 2(P-1)/P times as much for an
                               *   allreduce; of a sparse call, trib_sparse_statistics tells it */
    uint64_t engine_calls;    /**< calls handed to the backend for them */
    uint64_t workspace_bytes; /**< scratch memory held */
    uint64_t lists_queued;    /**< list and weighted-average calls queued */
    uint64_t lists_committed; /**< of those, how many have written their tensors on this rank */
    uint64_t lists_refused;   /**< of those, weighted averages that have written nothing because a
                               *   rank's weight was not valid: the same number on every rank */
} trib_counters;
#define TRIB_COUNTERS_INIT {(uint32_t)sizeof(trib_counters), 0, 0, 0, 0, 0, 0, 0, 0}

/** Fill `*out`. `lists_committed` and `lists_refused` are exact once the stream has been waited for;
 *  the first tells, after an abort, whether the last list was written on this rank. Also after an
 *  abort. */
TRIB_API trib_status trib_comm_counters(trib_counters *out, trib_comm *comm);

/** Wait until everything queued on this communicator has run on all ranks of this process; then
 *  release what the engine holds, in the background. Ranks of one process may close one after the
 *  other: the last one does the waiting. If `timeout_ms` passes first, the communicator is aborted
 *  and TRIB_ERR_TIMEOUT returned. Later calls return TRIB_ERR_CLOSED; trib_comm_destroy is still to
 *  be called.
 *
 *  A rank that has closed, or destroyed, has left once all that it queued has run. Ranks of this
 *  process that have made equally many calls are not disturbed. One that has made more, and so waits
 *  for the rank that left, ends the communicator for all that stay: their streams come free, status
 *  and later calls are TRIB_ERR_CLOSED with the reason ("rank 2 left after call 17"), a split that
 *  waits returns it, and lists and sparse states are as after an abort. The close of the last rank
 *  returns it, too. (nccl counts calls when they are queued: if a peer has queued more when a rank
 *  closes, the communicator ends then, with what that rank had queued, and its close returns it.) */
TRIB_API trib_status trib_comm_close(trib_comm *comm, uint32_t timeout_ms);

/** Close with the options' deadline unless that was done, then free. Never blocks for ever: what is
 *  still stuck is aborted and reclaimed in the background, and TRIB_ERR_TIMEOUT returned; `comm` is
 *  gone all the same. What the engine holds is given back in the background in any case: see
 *  trib_quiesce. NULL is allowed. */
TRIB_API trib_status trib_comm_destroy(trib_comm *comm);

/** Wait until all background work of the library has ended: everything that communicators which were
 *  aborted, closed or destroyed have held is given back, and if none is left, the threads that do it
 *  have ended. TRIB_ERR_TIMEOUT if `timeout_ms` passes first; the detail counts what is left. Any
 *  thread. Call it before cudaDeviceReset, which would take CUDA away under that work, and before a
 *  program leaves by _exit. (A process that exits waits for such work by itself as long as it goes
 *  on, but at most 3 s for each communicator.) Threads that serve host streams and watch deadlines
 *  stay: the shared library is therefore never unloaded, and what links the static one must not be. */
TRIB_API trib_status trib_quiesce(uint32_t timeout_ms);

/* ---------------------------------------------------------------------------------- collectives
 *
 * All are queued. All ranks pass the same counts, type, reduction and root unless it is said
 * otherwise. Reductions on host are made in rank order, so every rank gets the same bits; on nccl
 * every rank gets the same bits too, in NCCL's order. Pointers are aligned to their element.
 * `send` and `recv` are the same place (where "in place" is defined) or do not overlap.
 * A count of 0 is allowed, and pointers are then not looked at. Statuses worth handling:
 * TRIB_ERR_ABORTED, TRIB_ERR_INVALID_BUFFER.
 *
 * On nccl they may be captured into a CUDA graph, but for those that use the communicator's workspace,
 * which eager calls use, too: the barrier, an alltoall in place, a factor on the device with a type
 * other than f32, every call with TRIB_MATCH, and lists. On a stream that is being captured these are
 * TRIB_ERR_UNSUPPORTED. */

/** `recv` = reduction of every rank's `send`. In place: recv == send. */
TRIB_API trib_status trib_allreduce(trib_comm *comm, const void *send, void *recv, size_t count,
                                    trib_dtype dtype, trib_op op, trib_stream stream);

enum {
    /** `factor` counts. */
    TRIB_CALL_FACTOR = 1u << 0
};

/** What a single call may want, each rank for itself unless it is said otherwise. Start from
 *  TRIB_CALL_OPTIONS_INIT; zero is the default of every field. Read during the call. It will grow: a
 *  library that knows less of it takes a larger one if what it does not know is 0. */
typedef struct trib_call_options {
    uint32_t size;              /**< sizeof(trib_call_options) */
    uint32_t flags;             /**< TRIB_CALL_FACTOR */
    double factor;              /**< with TRIB_CALL_FACTOR: this rank's factor; any number */
    const float *device_factor; /**< if not NULL, the factor is the float that lies there, in device
                                 *   memory, when the stream comes to the call; `factor` is then not
                                 *   looked at. As a buffer of the call, and not inside `recv` */
} trib_call_options;
#define TRIB_CALL_OPTIONS_INIT {(uint32_t)sizeof(trib_call_options), 0, 0.0, NULL}

/** trib_allreduce with what `options` ask for; NULL is trib_allreduce.
 *
 *  With factors, `recv` = sum over the ranks of factor_i * (`send` of rank i). All ranks have one or
 *  none has; their values may differ, be negative, or 0: then a number contributes 0, and an infinity
 *  or a NaN a NaN. The factor is rounded to `dtype` first. Products of f16 and bf16 are rounded to
 *  `dtype` on nccl (it is NCCL's pre-multiplied sum) and kept as f32 on host. For TRIB_SUM alone (an
 *  average divides the factor by the number of ranks) and f16, bf16, f32, f64; anything else is
 *  TRIB_ERR_UNSUPPORTED. Allowed in a batch. */
TRIB_API trib_status trib_allreduce_with(trib_comm *comm, const void *send, void *recv,
                                         size_t count, trib_dtype dtype, trib_op op,
                                         const trib_call_options *options, trib_stream stream);

/** `recv` on every rank = `send` of `root`; only there is `send` looked at. In place: recv == send. */
TRIB_API trib_status trib_broadcast(trib_comm *comm, const void *send, void *recv, size_t count,
                                    trib_dtype dtype, int32_t root, trib_stream stream);

/** `recv` of `root` = reduction of every rank's `send`; elsewhere `recv` is not looked at. In place
 *  on the root: recv == send. */
TRIB_API trib_status trib_reduce(trib_comm *comm, const void *send, void *recv, size_t count,
                                 trib_dtype dtype, trib_op op, int32_t root, trib_stream stream);

/** `recv` holds `size * count` elements: block i is `send` of rank i. In place: send is block `rank`
 *  of recv. */
TRIB_API trib_status trib_allgather(trib_comm *comm, const void *send, void *recv, size_t count,
                                    trib_dtype dtype, trib_stream stream);

/** `send` holds `size * count` elements; `recv` = reduction of every rank's block `rank`. In place:
 *  recv is block `rank` of send. */
TRIB_API trib_status trib_reduce_scatter(trib_comm *comm, const void *send, void *recv,
                                         size_t count, trib_dtype dtype, trib_op op,
                                         trib_stream stream);

/** Both hold `size * count` elements: block i of `recv` is block `rank` of rank i's `send`. In place:
 *  recv == send; that takes scratch memory of the communicator as large as `send`, and a copy. Each
 *  rank chooses for itself. */
TRIB_API trib_status trib_alltoall(trib_comm *comm, const void *send, void *recv, size_t count,
                                   trib_dtype dtype, trib_stream stream);

/** Block i of the root's `recv` (`size * count` elements) = `send` of rank i. In place on the root:
 *  send is block `root` of recv. */
TRIB_API trib_status trib_gather(trib_comm *comm, const void *send, void *recv, size_t count,
                                 trib_dtype dtype, int32_t root, trib_stream stream);

/** `recv` of rank i = block i of the root's `send` (`size * count` elements). In place on the root:
 *  recv is block `root` of send. */
TRIB_API trib_status trib_scatter(trib_comm *comm, const void *send, void *recv, size_t count,
                                  trib_dtype dtype, int32_t root, trib_stream stream);

/** Send to rank `peer`, which calls trib_recv with the same count and type. The stream waits for
 *  it; put a send and a recv that depend on each other into one batch. A rank may send to itself
 *  inside a batch. */
TRIB_API trib_status trib_send(trib_comm *comm, const void *send, size_t count, trib_dtype dtype,
                               int32_t peer, trib_stream stream);

/** Receive from rank `peer` what it sends with trib_send. */
TRIB_API trib_status trib_recv(trib_comm *comm, void *recv, size_t count, trib_dtype dtype,
                               int32_t peer, trib_stream stream);

/** Later work on `stream` runs when every rank's stream has come to its barrier. */
TRIB_API trib_status trib_barrier(trib_comm *comm, trib_stream stream);

/** allgather with a count a rank: rank i sends `counts[i]` elements, which land at element
 *  `offsets[i]` of every rank's `recv`. `counts` and `offsets` (`size` entries each, the same on all
 *  ranks) are read during the call. In place: send == recv + offsets[rank]. */
TRIB_API trib_status trib_allgatherv(trib_comm *comm, const void *send, void *recv,
                                     const size_t *counts, const size_t *offsets,
                                     trib_dtype dtype, trib_stream stream);

/** alltoall with counts: `send_counts[i]` elements at `send_offsets[i]` go to rank i,
 *  `recv_counts[i]` elements from rank i land at `recv_offsets[i]`. What one rank sends another is
 *  what that one receives. The arrays (`size` entries each) are read during the call. Not in
 *  place. */
TRIB_API trib_status trib_alltoallv(trib_comm *comm, const void *send, const size_t *send_counts,
                                    const size_t *send_offsets, void *recv,
                                    const size_t *recv_counts, const size_t *recv_offsets,
                                    trib_dtype dtype, trib_stream stream);

/* ---------------------------------------------------------------------------------------- lists */

/** Allreduce `n` tensors in place: they are packed into one buffer of each element type, reduced in
 *  one collective and spread back, by one kernel each. The spreading is all or nothing on each
 *  rank: an aborted or failed call leaves every tensor bit for bit as it was (and
 *  trib_counters.lists_committed says which it was), so it can be tried again without a snapshot.
 *  `tensors` is read during the call; order, counts and types are the same on all ranks. Tensors
 *  must not overlap. Not inside a batch, nor on a stream that is being captured into a CUDA graph
 *  (TRIB_ERR_UNSUPPORTED). */
TRIB_API trib_status trib_allreduce_list(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                         trib_op op, trib_stream stream);

/** trib_allreduce_list with what `options` ask for, as trib_allreduce_with; NULL is
 *  trib_allreduce_list. With a factor all tensors are of f16, bf16, f32 or f64. */
TRIB_API trib_status trib_allreduce_list_with(trib_comm *comm, const trib_tensor *tensors,
                                              size_t n, trib_op op,
                                              const trib_call_options *options,
                                              trib_stream stream);

/** Broadcast `n` tensors of `root` in place, in the way of trib_allreduce_list. */
TRIB_API trib_status trib_broadcast_list(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                         int32_t root, trib_stream stream);

/** Replace `n` tensors, in place, by their weighted average over the ranks:
 *  sum(w_i * x_i) / sum(w_i), in the way of trib_allreduce_list.
 *
 *  This rank's weight is `weight`, or, if `device_weight` is not NULL, the float that lies there in
 *  device memory when the stream comes to this call. Weights are finite and not negative. A rank of
 *  weight 0 contributes nothing (its values, NaN included, are not looked at) and receives the
 *  average like the others. If the weights add up to 0, every tensor stays as it was.
 *
 *  A weight that is not valid (negative, infinite, NaN), from the host or from the device, on any
 *  rank, and weights whose sum f32 cannot hold (f64 for tensors of f64 alone), are no failure of the call: this rank alone would
 *  return, and the others wait for it. Every rank's call is queued and returns TRIB_OK, no rank
 *  writes a tensor, and afterwards every rank can tell: `device_total` is NaN, and
 *  trib_counters.lists_refused has grown by 1. The communicator stays usable.
 *
 *  `device_total` (device memory, may be NULL) receives the sum of the weights: a number above 0 if
 *  the tensors were written, 0 or NaN if not. No host wait, one collective a type. Types f16, bf16,
 *  f32 (summed in f32) and f64. */
TRIB_API trib_status trib_weighted_average(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                           float weight, const float *device_weight,
                                           float *device_total, trib_stream stream);

/* ---------------------------------------------------------------------------- sparse allreduce
 *
 * Instead of a whole gradient, each call sends its k largest entries and keeps the rest as a
 * *residual*, which is added to the next gradient (error feedback), so nothing is ever lost:
 *
 *     acc      = gradient + decay * residual
 *     result   = the sum (or average) over the ranks of what was chosen of their acc
 *     residual = acc, less what of it is in the result
 *
 * The sum of acc over all ranks is the result (before division) plus the sum of all residuals, to the
 * bit where the sums themselves are exact. All ranks get the same bits, in every run.
 *
 * NUMBERS THAT ARE NOT FINITE.  If any rank's acc holds an infinity or a NaN, no rank's call delivers:
 * the result is 0 everywhere, the residual is as before, trib_sparse_status() is TRIB_ERR_NON_FINITE
 * and the word of trib_sparse_outcome() is 0. Of the statistics only `calls` and `calls_non_finite`
 * change. The communicator stays usable. An aborted or failed call leaves the residual as it was, too.
 * The same happens, with every algorithm, if all acc are finite but a value of the result (a sum or an
 * average, or a sum on the way to it) is not: two f16 gradients of 60000 add up to more than f16 holds.
 * The detail of trib_sparse_status() tells which. A lower loss scale helps where the gradients are too
 * large; residuals, which are f32 for 16-bit gradients, may by themselves add up to more than the
 * gradient's type holds, and do so in each call until the result is an average or is made in f32.
 *
 * ALGORITHMS, by name.  n: elements, P: ranks; words a rank and call.
 *   "auto"             chooses one of the below by count, density, ranks and link; see `reason`
 *   "dense"            all of acc; 2n(P-1)/P
 *   "topka"            exact top-k of each rank, one allgather; 2k(P-1)
 *   "topka2"           the same, then the top-k of the sum; 2k(P-1)
 *   "topkaopt"         topka with a threshold that is reused for 32 calls; 2k(P-1) when it is made,
 *                      about as much later on, but up to 2(4k + 1024)(P-1) while residuals grow, as
 *                      they do in the first 32 calls
 *   "topksa"           split by regions, reduced by owners, gathered; 4k(P-1)/P .. (2k+n)(P-1)/P
 *   "gtopk"            binomial tree of top-k; 4k log2 P
 *   "oktopk"           balanced regions, global top-k; about 6k(P-1)/P; with constants, lists of up to
 *                      4k + 1024 entries instead of k while residuals grow: in the first 32 calls, in
 *                      the first 128 with "bert", which raises no threshold within a call
 *   "gaussiank"        threshold from mean and deviation; about 2k(P-1)
 *   "gaussiankconcat"  the same in one message
 *   "gaussianksa"      topksa that never becomes dense
 *   "srs"              top-k/P of each of P blocks, recursive; 4k(P-1)/P
 *   "shared"           one rank, in turn, chooses the indices for all; k + 2k(P-1)/P
 *   "chunked"          top-k of each chunk, 16-bit indices, one allgather; 1.5k(P-1)
 * LARGEST.  By magnitude, among equal ones the lower index first; so what is chosen is the same in every
 * run. Zeros are never chosen: there may be fewer than k entries. ("dense" sends all, zeros too.)
 *
 * Words are entries alone. What else goes between ranks is counted as bytes (trib_sparse_statistics): a
 * header of 64 bytes a rank, what fills a packet (header and entries) up to a multiple of 64 bytes, and
 * oktopk's histograms, about 40 KB that are added up in every call, however small k is.
 * csrc/sparse/algorithms/NAME.c or csrc/sparse/published/NAME.c explains each at its top, with its source.
 * With k = n (density 1) all of acc is sent, whatever the name: then "dense" runs, which the statistics
 * say, with its words and no wait, and nothing is rounded for the wire. Where a threshold is used again or estimated (topkaopt, gaussiank,
 * gaussiankconcat, oktopk with constants) and nothing has been above it in 4 calls in a row, the next call
 * chooses exactly: `fallbacks` counts it. */

/** One tensor's sparse allreduce on one rank: residual, thresholds, counters and scratch memory. */
typedef struct trib_sparse trib_sparse;

enum {
    /** The result is the sum divided by the number of ranks. */
    TRIB_SPARSE_AVERAGE = 1u << 0,
    /** The result is a list of indices and values: trib_sparse_allreduce_entries. */
    TRIB_SPARSE_ENTRIES = 1u << 1,
    /** `gradient` of each call is the accumulator itself: gradients are added into it, and after the
     *  call it holds the residual, to which the next gradient is added. Reads and writes 4 bytes an
     *  element instead of 12. Types f32 and f64. The residual is then decayed after the call. An
     *  infinity or a NaN that was added stays there: nothing is delivered until the caller mends it. */
    TRIB_SPARSE_IN_PLACE = 1u << 2,
    /** `k` of the options counts, 0 included, not `density`. */
    TRIB_SPARSE_USE_K = 1u << 3,
    /** The result, or its values, are f32 for gradients of f16 and bf16: sums as they were made, so that
     *  nothing is lost by rounding them, and none is too large. `result` may not be `gradient` then. Of
     *  f32 it changes nothing; not for f64. */
    TRIB_SPARSE_F32_RESULT = 1u << 4
};

/** How a sparse allreduce is made. Start from TRIB_SPARSE_OPTIONS_INIT; zero is the default of every
 *  field. Every rank passes the same. */
typedef struct trib_sparse_options {
    uint32_t size;         /**< sizeof(trib_sparse_options) */
    uint32_t flags;        /**< TRIB_SPARSE_... */
    const char *algorithm; /**< NULL: "auto" */
    double density;        /**< k = count * density rounded down, at least 1; 0 is 0.01, at most 1 */
    uint64_t k;            /**< with TRIB_SPARSE_USE_K; more than count is count */
    double decay;          /**< of the residual; 0 is 1; above 0, at most 1 */
    trib_dtype wire;       /**< of chosen values: 0 as the residual, or TRIB_BF16 (not for f64): then
                            *   what rounding takes away stays in the residual. Where only sums travel
                            *   (dense, shared) there is nothing to round */
    uint32_t chunk;        /**< chunked: elements, a power of two up to 65,536; 0 is 4,096 */
    const char *constants; /**< of the published code: "vgg", "lstm" or "bert". oktopk: NULL is the
                            *   exact mode. gaussiank, gaussiankconcat: NULL is "vgg" */
    uint32_t norm_every;   /**< measure the residual's norm in every so many-th call, which reads the
                            *   residual once more; 0: never */
    uint32_t reserved;     /**< 0 */
} trib_sparse_options;
#define TRIB_SPARSE_OPTIONS_INIT                                                                   \
    {(uint32_t)sizeof(trib_sparse_options), 0, NULL, 0.0, 0, 0.0, 0, 0, NULL, 0, 0}

/** Number of algorithms in this build, "auto" included. */
TRIB_API int32_t trib_sparse_algorithm_count(void);
/** Name of algorithm `index`; NULL beyond the last. The names live for ever. */
TRIB_API const char *trib_sparse_algorithm_name(int32_t index);

/** Bytes of device memory that trib_sparse_create would hold: residuals (two of `count` elements,
 *  none in place) and scratch. Asks nobody; so "auto" is answered as if all ranks were on one host,
 *  until a first state of the communicator has been made. */
TRIB_API trib_status trib_sparse_bytes(uint64_t *out, const trib_comm *comm, size_t count,
                                       trib_dtype dtype, const trib_sparse_options *options);

/** The state for a tensor of `count` elements (at most 2^32 - 1) of `dtype`: f16, bf16 and f32, whose
 *  residual and sums are f32, or f64. The residual is 0. A call of all ranks; blocking: they compare
 *  count, type and what the options come to (a density and a k that give the same k are the same), and
 *  all return TRIB_ERR_MISMATCH if one differs; so do the others if a rank is refused what it passes
 *  (which it is told). If one lacks memory no rank gets a state. If one does not come within the
 *  communicator's timeout_ms: TRIB_ERR_TIMEOUT, and the communicator is over. `options` may be NULL.
 *  `comm` must outlive the state. All memory is allocated here. */
TRIB_API trib_status trib_sparse_create(trib_sparse **out, trib_comm *comm, size_t count,
                                        trib_dtype dtype, const trib_sparse_options *options);

/** Another k from the next call on: `density` as in the options. Residual and statistics stay. A call
 *  of all ranks, blocking and compared as in trib_sparse_create; may allocate. On failure the old k
 *  stays. Waits for calls still queued, within timeout_ms. A CUDA graph that was captured before refers
 *  to memory that may be gone: capture again. "auto" chooses anew. */
TRIB_API trib_status trib_sparse_set_density(trib_sparse *sparse, double density);
/** The same with a number of entries. */
TRIB_API trib_status trib_sparse_set_k(trib_sparse *sparse, uint64_t k);

/** Queue one sparse allreduce. `gradient` holds `count` elements; in place it is the accumulator.
 *  `result` (count elements) is written once, 0 where nothing was chosen; it may be `gradient`
 *  unless in place. Its type is dtype, or f32 with TRIB_SPARSE_F32_RESULT. Sums that it has no number for
 *  are rounded once. Algorithms whose messages have no
 *  fixed size (topkaopt, topksa, oktopk, gaussian...) wait for the stream inside the call on nccl;
 *  the others do not, and may be captured in a CUDA graph (in which the schedule stands still: the
 *  leader of shared, norm_every). Not inside a batch. Calls of one state on different streams run one
 *  after the other, but of a replayed graph the state knows nothing: wait for it before calls outside
 *  of it, also before export, import, set and destroy. */
TRIB_API trib_status trib_sparse_allreduce(trib_sparse *sparse, void *gradient, void *result,
                                           trib_stream stream);

/** The same with TRIB_SPARSE_ENTRIES: `*count` (device memory) entries with ascending `index` and
 *  their `value` (of the result's type). Both arrays have room for trib_sparse_capacity() elements; what lies
 *  beyond `*count` is undefined. */
TRIB_API trib_status trib_sparse_allreduce_entries(trib_sparse *sparse, void *gradient,
                                                   uint32_t *index, void *value, uint32_t *count,
                                                   trib_stream stream);

/** The most entries that a call can have as its result, now. */
TRIB_API uint64_t trib_sparse_capacity(const trib_sparse *sparse);

/** The k that was asked for, by options or since, at most count. (trib_sparse_statistics has what the
 *  algorithm makes of it.) */
TRIB_API uint64_t trib_sparse_k(const trib_sparse *sparse);

/** TRIB_OK if the last call that has ended delivered (or none has); TRIB_ERR_NON_FINITE;
 *  TRIB_ERR_MISMATCH if the ranks' calls were not of the same state; or what trib_comm_status() says.
 *  Never waits. Calls that differ more may wait for each other for ever: states whose messages differ in
 *  length, on host also a call that sends from rank to rank (gtopk) on one rank and a collective (a dense
 *  call) on another. TRIB_MATCH tells those. */
TRIB_API trib_status trib_sparse_status(trib_sparse *sparse);

/** A word in device memory: 1 after a call that delivered, 0 after one that did not. Borrowed. */
TRIB_API const uint32_t *trib_sparse_outcome(const trib_sparse *sparse);

/** What a state has done on this rank. Words are 4 bytes of entries, the last one of a message counted
 *  whole; bytes are all that was sent. All ranks together receive as many of both as they send.
 *  A broadcast counts as if it were a chain, an allreduce and an allgather as rings. */
typedef struct trib_sparse_statistics {
    uint32_t size;             /**< sizeof(trib_sparse_statistics), set by the caller */
    uint32_t reserved;         /**< 0 */
    const char *algorithm;     /**< which one runs */
    const char *reason;        /**< why it runs; "" if it was asked for. Lives as the state */
    uint64_t count, k;         /**< elements; entries to choose in a call (dense: all; srs: of P blocks,
                                *   each of which gives k / P, rounded down, at least 1; chunked: of all
                                *   chunks, each of which gives its part of k, rounded, at least 1, and
                                *   no more than it has) */
    uint64_t calls;            /**< ended */
    uint64_t calls_delivered;  /**< of those */
    uint64_t calls_non_finite; /**< of those: acc or the result was not finite */
    uint64_t selected;         /**< entries that this rank chose in the last call that delivered */
    uint64_t delivered;        /**< of those, part of the result */
    uint64_t total_selected;   /**< over all calls that delivered, as all below */
    uint64_t total_delivered;
    uint64_t words_sent, words_received;
    uint64_t bytes_sent, bytes_received;
    uint64_t fallbacks;        /**< selections so far whose first guess missed (slower, not different), or
                                *   that were exact after calls in which nothing was chosen */
    double residual_norm;      /**< when last measured; -1: never */
} trib_sparse_statistics;
#define TRIB_SPARSE_STATISTICS_INIT                                                                \
    {(uint32_t)sizeof(trib_sparse_statistics),                                                     \
     0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0}

/** Fill `*out` with what has ended so far. Never waits. */
TRIB_API trib_status trib_sparse_statistics_get(trib_sparse_statistics *out, trib_sparse *sparse);

/** Queue a copy of this rank's residual, as the calls queued before leave it: `count` elements of f32
 *  (of f64 where the state is) to `out`, in device memory. A call of this rank alone. In place
 *  TRIB_ERR_INVALID_USAGE: the residual is the caller's accumulator. */
TRIB_API trib_status trib_sparse_residual(trib_sparse *sparse, void *out, trib_stream stream);

/** Bytes of an export. */
TRIB_API uint64_t trib_sparse_export_bytes(const trib_sparse *sparse);

/** Write what a later import needs (residual, thresholds, schedule) to host memory. Blocking, as a wait
 *  for the stream is: without a deadline, and what an abort frees, calls still queued. In place
 *  there is no residual in it: it is the caller's. The schedule counts the calls that this rank has
 *  queued, also those that were not finite or were aborted. */
TRIB_API trib_status trib_sparse_export(trib_sparse *sparse, void *out, size_t bytes,
                                        trib_stream stream);

/** Take over an export of a state of the same count and residual type, of any algorithm, k and number
 *  of ranks. Blocking. TRIB_ERR_INVALID_ARGUMENT for anything that is not such an export, and nothing is
 *  changed.
 *  `add` 0: a call of all ranks, as trib_sparse_create is: if one of them is refused, the others return
 *  TRIB_ERR_MISMATCH. Thresholds and schedule come with it if algorithm, k, chunk and number of ranks are
 *  the same on all ranks, and begin anew on all if not. The schedule goes on with the smallest of the
 *  ranks', for after an abort not all may have queued as many calls.
 *  `add` 1: a call of this rank alone. The residual is added to the one that is there, so that the
 *  residuals of ranks that are gone can be given to those that stay; thresholds and schedule stay. It
 *  blocks as trib_sparse_export does. */
TRIB_API trib_status trib_sparse_import(trib_sparse *sparse, const void *data, size_t bytes,
                                        int32_t add, trib_stream stream);

/** Queue: residual, thresholds and schedule as new. Statistics stay. In place the accumulator is the
 *  caller's to zero. Every rank does it at the same point. */
TRIB_API trib_status trib_sparse_reset(trib_sparse *sparse, trib_stream stream);

/** Free it. Waits, at most as long as trib_comm_destroy, for calls still queued; after that
 *  TRIB_ERR_TIMEOUT: the state is gone all the same, its memory is freed when they have run. NULL is
 *  allowed. */
TRIB_API trib_status trib_sparse_destroy(trib_sparse *sparse);

/* ---------------------------------------------------------------------------------------- batch */

/** Begin a batch: calls that follow are checked and remembered, and trib_batch_end queues them all
 *  as one. All use the same stream. Sends and receives of a batch run together. Their buffers may
 *  not depend on each other. Batches do not nest. */
TRIB_API trib_status trib_batch_begin(trib_comm *comm);

/** Queue what the batch remembers, as one call to the engine. If a call inside it failed, nothing is
 *  queued and that call's status is returned. Either way the batch is over. */
TRIB_API trib_status trib_batch_end(trib_comm *comm);

/* ------------------------------------------------------------------------------------ log */

enum { TRIB_LOG_ERROR = 1, TRIB_LOG_WARN = 2, TRIB_LOG_INFO = 3, TRIB_LOG_DEBUG = 4 };

/** Receives one line without a line end. Called from any thread; must not call Tributary. */
typedef void (*trib_log_fn)(void *context, int32_t level, const char *line);

/** Send messages of `level` and below to `function`; NULL switches the log off, as it is at the
 *  start. Any thread. */
TRIB_API trib_status trib_log_set(trib_log_fn function, void *context, int32_t level);

#ifdef __cplusplus
}
#endif

#endif /* TRIBUTARY_H */
