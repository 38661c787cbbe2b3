/* Seam 1: how ranks talk, and where bytes live.
 *
 * A backend is one constant of struct tri_backend, in a folder of its own, and one row in
 * backends.c. It includes this file, base/ and kernels/kernels.h, never core/, lists/, sparse/ or
 * another backend. It gets what it needs as arguments and never calls upward: no recursive entry,
 * no lock held upward.
 *
 * There are two kinds of backend:
 *  - stream-ordered (nccl): `submit` is NULL. `collective` and the kernels queue their work on
 *    call.stream and return.
 *  - host-executed (host): `submit` puts a function on a stream. The stream runs it later, in the
 *    order of the transport's submissions; it calls `collective` and the kernels, which do the work
 *    before they return. Code above the seam is the same for both: see core/issue.h.
 *
 * Before it calls a member, core checks every argument as far as it can without asking the device.
 * Each member's contract is beside it. A member that fails returns a status and sets the detail
 * with tri_fail. */
#ifndef TRI_BACKEND_H
#define TRI_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "csrc/base/symmetric.h"
#include "kernels/kernels.h"
#include "tributary.h"

/* The kinds of call. A backend must have allreduce, broadcast, reduce, allgather, reduce_scatter,
 * send and recv. Core composes the barrier of an allreduce, and alltoall of messages, where they are not in
 * `native`. */
enum tri_kind {
    TRI_ALLREDUCE,
    TRI_BROADCAST,
    TRI_REDUCE,
    TRI_ALLGATHER,
    TRI_REDUCE_SCATTER,
    TRI_SEND,
    TRI_RECV,
    TRI_BARRIER,  /* no buffers */
    TRI_ALLTOALL, /* never in place */
    TRI_KINDS
};

struct tri_transport; /* one rank of one communicator; each backend defines its own */

/* One rank's part in one collective. Plain data that anybody may copy. A field means what the
 * public function's argument of that name means. */
struct tri_call {
    enum tri_kind kind;
    struct tri_transport *transport;
    const void *send;
    void *recv;
    size_t count;
    trib_dtype dtype;
    trib_op op; /* allreduce, reduce, reduce_scatter */
    /* AUTO; of kinds with options also SYMMETRIC, or what `refuses` has not refused. Of SYMMETRIC what peers
     * access, and of WINDOW both buffers, are in `list` of tri_symmetric_ops. */
    trib_variant variant;
    int32_t peer;  /* the root, or the rank to send to or receive from */
    bool scaled;   /* allreduce of floats with TRIB_SUM: multiply by this rank's factor, rounded to
                   * dtype. All ranks have a factor, or none has */
    bool unstaged; /* core has asked `stages` */
    trib_stream stream;
    struct tri_factor factor;
    void
        *room; /* device memory for one element of dtype, which the call owns until it has run; NULL
                 * unless factor.device is set and dtype is not f32 */
    /* The elements, as pack_kept would put them to send, which is recv: only if `packs_itself` has said so. Without a
     * table they are at send. */
    struct tri_packing packing;
};

/* Faults of a buffer or stream. */
enum tri_fault {
    TRI_FAULT_NONE,
    TRI_FAULT_NOT_DEVICE_MEMORY, /* host memory where device memory is needed */
    TRI_FAULT_OTHER_DEVICE,      /* `found` is the device it belongs to */
    TRI_FAULT_TOO_SHORT,         /* `found` is the number of bytes from the pointer to the end */
    TRI_FAULT_UNKNOWN_STREAM     /* not a stream of this backend */
};

/* Memory and streams of devices. Core has checked the ordinal `device` against `count`. No member
 * but push_device and pop_device changes the thread's current device. Any thread. */
struct tri_device_ops {
    /* Usable devices; 0 without a driver. Cheap after the first time. Makes no CUDA context. */
    int32_t (*count)(void);
    /* The version of the backend's library. Makes no CUDA context. */
    trib_status (*version)(uint32_t *out);

    /* Blocking. Aligned to 256 bytes. */
    trib_status (*alloc)(int32_t device, void **out, size_t bytes);
    trib_status (*free)(int32_t device, void *data);
    /* Free memory that nothing uses. Never waits. NULL: use free. */
    void (*free_later)(int32_t device, void *data);
    /* Zeroed pinned memory that host threads and every device of the backend read and write; copies
     * from it are asynchronous. At most 128 bytes. */
    trib_status (*alloc_pinned)(void **out, size_t bytes);
    void (*free_pinned)(void *data);
    /* Queued. Either side may be host memory. */
    trib_status (*copy)(int32_t device, void *dst, const void *src, size_t bytes,
                        trib_stream stream);
    /* Copy to host memory and wait: the one call that waits for device data. */
    trib_status (*fetch)(int32_t device, void *dst, const void *src, size_t bytes,
                         trib_stream stream);

    /* May a kernel of `device` touch [data, data + bytes)? bytes > 0. Hot: no lock that a blocked
     * thread can hold, well under 200 ns. `*found` is 0 before the call; enum tri_fault says what a
     * fault writes there. Without a fault it may become the number of valid bytes from `data`
     * on. */
    enum tri_fault (*check_buffer)(int32_t device, const void *data, size_t bytes, size_t *found);
    /* Is `stream` a stream of `device`? NULL is. Hot. */
    enum tri_fault (*check_stream)(int32_t device, trib_stream stream, size_t *found);

    /* Optional, both or neither: make `device` the thread's current one, as the kernel table needs
     * before it queues anything; pop restores the device that push left in *previous. */
    trib_status (*push_device)(int32_t device, uintptr_t *previous);
    void (*pop_device)(uintptr_t previous);

    trib_status (*stream_create)(int32_t device, trib_stream *out);
    trib_status (*stream_wait)(int32_t device, trib_stream stream);
    trib_status (*stream_query)(int32_t device, trib_stream stream, bool *out_done);
    trib_status (*stream_wait_event)(int32_t device, trib_event event, trib_stream stream);
    trib_status (*stream_submit)(int32_t device, void (*function)(void *), void *argument,
                                 trib_stream stream);
    trib_status (*stream_destroy)(int32_t device, trib_stream stream);

    /* Both or neither: NULL where there are no graphs. capturing: the number of the capture that the
     * stream is in, the same for all streams of one capture; 0: none. keep: `gone(argument)` runs
     * once the graph that captures the stream, and every copy and every executable graph made from
     * it, has been destroyed and has run; on a thread that must make no CUDA call. After a failure,
     * at once. */
    uint64_t (*capturing)(int32_t device, trib_stream stream);
    trib_status (*keep)(int32_t device, trib_stream stream, void (*gone)(void *argument),
                        void *argument);

    trib_status (*event_create)(int32_t device, trib_event *out);
    trib_status (*event_record)(int32_t device, trib_event event, trib_stream stream);
    trib_status (*event_wait)(int32_t device, trib_event event);
    trib_status (*event_query)(int32_t device, trib_event event, bool *out_done);
    trib_status (*event_elapsed)(int32_t device, trib_event start, trib_event end, float *out_ms);
    trib_status (*event_destroy)(int32_t device, trib_event event);
};

/* How far the calls issued on a transport have got, as far as is known. They are numbered from 1, in
 * the order in which core issues them. */
struct tri_progress {
    uint64_t started; /* no call after this one has started; UINT64_MAX: unknown */
    uint64_t ended;   /* every call up to this one has ended, well or not */
    uint64_t marked;  /* the end of every call up to this one will be noticed; that of a later one
                       * only once another call is marked */
    uint64_t bound;   /* while `ended` is below `marked`: of the calls after `ended` up to this one,
                       * at least one is not known to have ended */
};

/* When tri_transport_ops.mark is called. */
enum tri_mark {
    TRI_MARK_BEFORE, /* call `number` is about to be queued */
    TRI_MARK_AFTER,  /* the call announced last has been queued; not if that got no mark */
    TRI_MARK_NOW     /* everything queued on `stream` belongs to calls up to `number` */
};

/* What a new communicator tells the backend's library of itself; 0 and "" are the library's defaults.
 * Checked, and a backend may ignore it. Plain data that anybody may copy. */
struct tri_config {
    uint32_t min_ctas, max_ctas;
    trib_cta_policy cta_policy;
    uint64_t peer_bytes;       /* for kernels between GPUs, on each rank's device; 0: none */
    bool windows, unabortable; /* TRIB_WINDOWS, TRIB_WINDOWS_UNABORTABLE */
    char network[TRIB_NAME_MAX + 1], name[TRIB_NAME_MAX + 1];
};

/* A communicator of the library below that the caller keeps. */
struct tri_adoptee {
    void *handle;
    int32_t rank, size, device;
};

/* What a rank tells the others after a step. Plain bytes to whoever hands it on. */
struct tri_words {
    uint64_t words[8];
};

/* How the ranks of one host, each in a process of its own, come to reach each other's memory. core/share.c
 * takes every step on all ranks before the next one on any, in this order, on the thread that makes the
 * communicator, before its owner has it. A step that fails says why and leaves the communicator usable;
 * then drop follows on all ranks. Each step but `use` may meet an abort, and fails then. */
struct tri_share_ops {
    int32_t max_ranks; /* for more there is nothing */
    /* What this rank has. Fails if it takes no part. */
    trib_status (*offer)(struct tri_transport *transport, struct tri_words *out);
    /* Allocate, by the offers of all ranks, and export: *out_fd becomes the caller's; -1 after a failure. */
    trib_status (*allocate)(struct tri_transport *transport, const struct tri_words *all,
                            int *out_fd);
    /* Map what the others have exported: fds[rank], the own one -1. They stay the caller's. */
    trib_status (*map)(struct tri_transport *transport, const int *fds);
    /* Exchange something with all ranks, and wait for it, no longer than a few seconds. */
    trib_status (*try)(struct tri_transport *transport);
    /* All ranks have succeeded: from the next call on, which is the same on all of them, use it. */
    void (*use)(struct tri_transport *transport);
    /* Free what the steps have made. */
    void (*drop)(struct tri_transport *transport);
};

/* How the ranks of a communicator come to have symmetric memory. core/symmetric.c takes every step on all
 * ranks before the next one on any, and is registered in the in-flight count meanwhile; after one that
 * failed on some rank, release follows on all. Its owner's thread. */
struct tri_symmetric_ops {
    /* Why is there none? NULL: there is. The same on all ranks; for people. */
    const char *(*refuses)(struct tri_transport *transport);
    /* From how many bytes on do kernels better read where it lies what a peer has made in such memory, than that a
     * collective brings it? SIZE_MAX, or NULL: never. The same on all ranks. */
    size_t (*near_from)(const struct tri_transport *transport);
    /* Does the backend serve an allreduce of so many elements in such memory, and less well elsewhere? NULL: none. The
     * same on all ranks. */
    bool (*serves)(struct tri_transport *transport, size_t count, trib_dtype dtype);
    /* Bytes that the backend wants to have for itself, in an allocation of its own, once ranks of several processes have
     * made what they share. The same on all ranks. NULL: none. */
    size_t (*wants)(struct tri_transport *transport);
    /* Then: may this rank have it? After a failure on some rank settle_wanted follows at once. */
    trib_status (*begin_wanted)(struct tri_transport *transport);
    /* Allocate memory->bytes on this rank's device, aligned to 256: `here` of this rank. If ranks are in
     * other processes, export it: *out_fd becomes the caller's; otherwise, and after a failure, it is -1. */
    trib_status (*alloc)(struct tri_transport *transport, struct tri_symmetric *memory,
                         int *out_fd);
    /* Map what ranks in other processes have exported, fds[rank], each in a process of its own: `here` of
     * all of them. The descriptors stay the caller's. NULL: there are no other processes. */
    trib_status (*map)(struct tri_transport *transport, struct tri_symmetric *memory,
                       const int *fds);
    /* Try what was wanted. Then settle says whether all that has succeeded on all ranks: if so, it is the
     * backend's; otherwise it is released, NULL if it was never made. Nothing is wanted any more. */
    trib_status (*try_wanted)(struct tri_transport *transport, struct tri_symmetric *memory);
    void (*settle_wanted)(struct tri_transport *transport, struct tri_symmetric *memory,
                          bool by_all);
    /* Free it, as far as it was made. Nothing uses it, on any rank. */
    void (*release)(struct tri_transport *transport, struct tri_symmetric *memory);
    /* Those of this rank: its owner's. What is in the list when all of its ranks in this process have been
     * destroyed, the backend releases once their calls have ended, or never. An abort releases nothing. */
    struct tri_symmetric **(*list)(struct tri_transport *transport);
    /* What core has queued for this rank behind its calls may still use it: release nothing of the list, ever.
     * NULL: the backend waits for that, too. */
    void (*keep)(struct tri_transport *transport);
};

/* Communication of ranks. One thread at a time uses a transport, except in "any thread" members. */
struct tri_transport_ops {
    /* Make a new id. */
    trib_status (*id_create)(trib_id *out);
    /* Is this an id of this backend? At most one backend may say no to everything it did not make;
     * see backends.c. */
    bool (*id_is_mine)(const trib_id *id);

    /* Join. Blocks until all `size` ranks of `id` have joined or `timeout_ms` has passed. Here and
     * in the next two members `config` NULL: zeroes. */
    trib_status (*open)(struct tri_transport **out, const trib_id *id, int32_t rank, int32_t size,
                        int32_t device, const struct tri_config *config, uint32_t timeout_ms);
    /* Open all ranks of a new communicator from one thread: out[0..size). All or none. */
    trib_status (*open_group)(struct tri_transport **out, const int32_t *devices, int32_t size,
                              const struct tri_config *config, uint32_t timeout_ms);
    /* Collective over `parent`, blocking; color -1 gives *out = NULL. The child shares nothing with
     * its parent. */
    trib_status (*split)(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                         int32_t key, const struct tri_config *config, uint32_t timeout_ms);
    /* Both or neither. inspect: what is `handle`, and may it be used? Never waits. adopt: join the
     * ranks of that communicator, which stays the caller's; as open. It is never ended here, so an
     * abort interrupts nothing that was queued on it, and close waits for nothing. `*id`, rank 0's,
     * becomes that of all ranks. */
    trib_status (*inspect)(struct tri_adoptee *out, void *handle);
    trib_status (*adopt)(struct tri_transport **out, trib_id *id, const struct tri_adoptee *of,
                         const struct tri_config *config, uint32_t timeout_ms);
    int32_t (*rank)(const struct tri_transport *transport);
    int32_t (*size)(const struct tri_transport *transport);
    /* How many ranks of this communicator are, or were, in this process. */
    int32_t (*here)(struct tri_transport *transport);
    /* NULL: processes share no memory. */
    const struct tri_share_ops *share;
    const struct tri_symmetric_ops *symmetric;
    /* Behind a vote, on all ranks at once: register what is in the list of `symmetric`, a caller's, with the
     * backend's library, if that is wanted. Waits for the others until an abort. A failure raises the state, and
     * the memory stays in the list. NULL: there is no such library. */
    trib_status (*open_window)(struct tri_transport *transport, struct tri_symmetric *memory);
    /* The reverse, on all ranks, before it is released while the communicator lives. Core ends that if it
     * fails. */
    trib_status (*close_window)(struct tri_transport *transport, struct tri_symmetric *memory);
    /* Bytes of this rank's device by which other ranks reach it. They change by share.use and by the steps of
     * symmetric memory alone. NULL: 0. */
    uint64_t (*peer_bytes)(const struct tri_transport *transport);
    /* What of the backend's TRIB_CAN_... this communicator cannot, for core does not know it. It changes when
     * peer_bytes does. NULL: nothing. */
    uint32_t (*lacks)(const struct tri_transport *transport);

    /* The state that all ranks of this communicator in this process share; borrowed, and the same
     * pointer while the transport lives. The backend raises it when a collective fails for good. */
    struct trib_abort *(*abort_state)(struct tri_transport *transport);
    /* The abort flag of that state, which kernels read. */
    const uint32_t *(*abort_flag)(struct tri_transport *transport);

    /* Host-executed backends only, NULL otherwise: queue `function(copy of argument)` on `stream`.
     * All submissions of one transport run one after the other, in the order of the calls, on
     * whatever streams. The copy has `bytes` bytes, aligned to 16. After an abort the function
     * still runs, and its collectives fail. */
    trib_status (*submit)(struct tri_transport *transport, void (*function)(void *argument),
                          const void *argument, size_t bytes, trib_stream stream);

    /* Execute (host-executed) or queue (stream-ordered) `n` calls as one. Host-executed: all calls
     * are of one transport, and the caller was registered in its in-flight count when it submitted
     * this function. Stream-ordered: the caller is registered in the count of every transport
     * named; the calls may be of several transports, each of several ranks, and then NCCL gets one
     * group call. Sends and receives progress together, and those of a rank with itself come in pairs;
     * other calls run in order. Never leaves a group open. A failure raises the states of all
     * transports named, unless none of the calls was queued. The calls of one transport are
     * adjacent. */
    trib_status (*collective)(const struct tri_call *calls, size_t n);

    /* Host-executed backends only; NULL: core packs a list into buckets, and unpacks it. Execute `n`
     * allreduces of one transport, or broadcasts, on tensors where they lie, in
     * place: those of calls[i] are the slices [first[i], first[i + 1]), and calls[i].count is that of
     * the bucket that they would fill; send and recv mean nothing. The arguments stay valid during
     * the call. TRIB_OK: every rank writes, or has written, all of its tensors, and this one has; an
     * abort no longer counts. Otherwise no rank writes anything. */
    trib_status (*collective_list)(const struct tri_call *calls, size_t n,
                                   const struct tri_slice *slices, const size_t *first);

    /* Four bytes of this rank's device, of any value, that calls may read and write for as long as they run: for a
     * barrier. NULL, or the member is: none, and core takes scratch. */
    void *(*word)(const struct tri_transport *transport);

    /* NULL: a call has no variant but AUTO and SYMMETRIC. Why can call.variant, another one, not serve the
     * allreduce? NULL: it can. For people; and the same on all ranks whose calls are the same. */
    const char *(*refuses)(const struct tri_call *call);

    /* Would the backend rather pack the elements of this allreduce, which is in place and the only call of its
     * transport at a time, itself, out of a table of slices? Each rank may do as it likes. NULL: never. */
    bool (*packs_itself)(const struct tri_call *call);

    /* Which buffer of this rank's, "send" or "recv", that its peers are to access would go through memory of the
     * backend, for they cannot? NULL: none. The call is the caller's: of an alltoall in place, for which core
     * sends a copy, that copy is meant. The member is NULL where there never is one. */
    const char *(*stages)(const struct tri_call *call);

    /* Stream-ordered backends only, NULL otherwise: note the start and the end of a call for
     * `progress`. Core has few calls of a burst marked. Returns false if there is no mark: on a
     * stream in capture, which runs nothing, or because CUDA refuses it. The caller is registered in
     * the in-flight count. */
    bool (*mark)(struct tri_transport *transport, uint64_t number, trib_stream stream,
                 enum tri_mark when);
    /* Any thread, while the transport lives; never waits. A stream-ordered backend answers as of its
     * last look, and asks a thread of its own to look again. */
    void (*progress)(struct tri_transport *transport, struct tri_progress *out);

    /* How many calls had a buffer of this rank's that others could not reach where it lies; the owner's. NULL:
     * none. */
    uint64_t (*staged)(const struct tri_transport *transport);
    /* Raise the state if the backend's library reports an asynchronous error. Never waits. NULL: it
     * reports none. */
    void (*poll)(struct tri_transport *transport);
    /* A call of this communicator was late: log what the backend's library knows about that. Posts,
     * never waits. NULL: it knows nothing. */
    void (*diagnose)(struct tri_transport *transport);

    /* This rank makes no more calls. The last rank of this process waits until all queued work has
     * run, at most `timeout_ms`, and frees what the backend's library holds; if that is too short,
     * it raises the state with TRIB_ERR_TIMEOUT and frees in the background. It does not wait for
     * an aborted communicator. Core calls it once, before destroy. */
    trib_status (*close)(struct tri_transport *transport, uint32_t timeout_ms);
    /* Free the transport itself. After close. Never waits. */
    void (*destroy)(struct tri_transport *transport);
};

/* About how fast a backend is inside one host, for code that chooses between algorithms. copy:
 * bytes per second that one device reads and writes. select: the same while it selects the largest
 * entries. bandwidth: bytes per second that a rank sends while it receives as many. latency:
 * seconds of one collective or a few kernels of any size. */
struct tri_speed {
    double copy, select, bandwidth, latency;
};

struct tri_backend {
    const char *name;
    /* Wait for the backend's background work, at most until `deadline_ns`. Returns how much is
     * left: resources still to free, and calls that were given up; `*graphs` grows by the live CUDA
     * graphs for which that waits. NULL: there is no background work. Any thread. */
    uint32_t (*quiesce)(uint64_t deadline_ns, uint32_t *graphs);
    /* TRIB_CAN_... of the loaded library. Any thread; makes no CUDA context. */
    uint32_t (*capabilities)(void);
    int32_t max_ranks; /* of a communicator */
    uint32_t native;   /* bit 1 << kind for each enum tri_kind that `collective` takes */
    bool compares; /* `collective` touches no memory before it has seen all ranks make that call */
    const struct tri_device_ops *device;
    const struct tri_transport_ops *transport;
    const struct tri_kernels *kernels;
    struct tri_speed speed;
};

/* The table of compiled-in backends, best first, NULL at the end (backends.c). */
extern const struct tri_backend *const tri_backends[];

/* The backend of that name, or NULL. */
const struct tri_backend *tri_backend_find(const char *name);

#endif
