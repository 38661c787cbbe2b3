/* Seam 1: how ranks talk, and where bytes live.
 *
 * A backend is one constant of struct tri_backend, in a folder of its own, and one row in
 * backends.c. It includes this file, base/ and kernels/kernels.h, never core/, lists/ or another
 * backend: it is handed what it needs and never calls upward (no recursive entry, no lock held
 * upward).
 *
 * Two kinds of backend:
 *  - queueing (nccl): `submit` is NULL. `collective` and the kernels queue their work on
 *    call.stream and return.
 *  - running (host): `submit` puts a function on a stream; it runs there later, in the order in
 *    which the transport's submissions were made, and calls `collective` and the kernels, which do
 *    the work before they return. Code above the seam is the same for both: see core/issue.h.
 *
 * What core has checked before it calls here: every argument of every call, as far as it can be known
 * without asking the device. What a member may do is said beside it. A member that fails returns a
 * status and sets the detail with tri_fail. */
#ifndef TRI_BACKEND_H
#define TRI_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "kernels/kernels.h"
#include "tributary.h"

/* What ranks can do together. Kinds that a backend has not in `native` are composed by core out of
 * send and recv (and the barrier out of allreduce). allreduce, broadcast, reduce, allgather,
 * reduce_scatter, send and recv are required. */
enum tri_kind {
    TRI_ALLREDUCE,
    TRI_BROADCAST,
    TRI_REDUCE,
    TRI_ALLGATHER,
    TRI_REDUCE_SCATTER,
    TRI_SEND,
    TRI_RECV,
    TRI_BARRIER, /* no buffers */
    TRI_KINDS
};

struct tri_transport; /* one rank of one communicator; each backend defines its own */

/* One rank's part in one collective. Plain data: copied freely. The meaning of the fields is that of
 * the public function of the same name. */
struct tri_call {
    enum tri_kind kind;
    struct tri_transport *transport;
    const void *send;
    void *recv;
    size_t count;
    trib_dtype dtype;
    trib_op op;   /* allreduce, reduce, reduce_scatter */
    int32_t peer; /* the root, or whom to send to or receive from */
    bool scaled;  /* allreduce of floats with TRIB_SUM: by this rank's factor, which is rounded to
                   * dtype; with one on all ranks or on none */
    trib_stream stream;
    struct tri_factor factor;
    void *room; /* on the device, for one element of dtype, the call's own until it has run; NULL
                 * unless factor.device is there and dtype is not f32 */
};

/* What may be wrong with a buffer or stream. */
enum tri_fault {
    TRI_FAULT_NONE,
    TRI_FAULT_NOT_DEVICE_MEMORY, /* host memory where device memory is needed */
    TRI_FAULT_OTHER_DEVICE,      /* `found` is the device it belongs to */
    TRI_FAULT_TOO_SHORT,         /* `found` is the number of bytes from the pointer to the end */
    TRI_FAULT_UNKNOWN_STREAM     /* not a stream of this backend */
};

/* Where bytes live. `device` is an ordinal that core has checked against `count`. All of them keep
 * the thread's current device. Any thread. */
struct tri_device_ops {
    /* Usable devices; 0 without a driver. Cheap after the first time. Makes no CUDA context. */
    int32_t (*count)(void);
    /* The engine's version. Makes no CUDA context. */
    trib_status (*version)(uint32_t *out);

    /* Blocking. Aligned to 256 bytes. */
    trib_status (*alloc)(int32_t device, void **out, size_t bytes);
    trib_status (*free)(int32_t device, void *data);
    /* Give back memory that nothing uses. Never waits. NULL: free. */
    void (*free_later)(int32_t device, void *data);
    /* Zeroed memory that host threads and every device of the backend can read and write; copies from it
     * are queued truly. At most 128 bytes. */
    trib_status (*alloc_shared)(void **out, size_t bytes);
    void (*free_shared)(void *data);
    /* Queued. Either side may be host memory. */
    trib_status (*copy)(int32_t device, void *dst, const void *src, size_t bytes,
                        trib_stream stream);
    /* The one call that waits for device data: copy to host memory, wait for it. */
    trib_status (*fetch)(int32_t device, void *dst, const void *src, size_t bytes,
                         trib_stream stream);

    /* May a kernel of `device` touch [data, data + bytes)? bytes > 0. Hot: no lock that a blocked
     * thread can hold, well under 200 ns. `found`, 0 before the call, as enum tri_fault says; when
     * nothing is wrong it may become the number of bytes from `data` on that are good. */
    enum tri_fault (*check_buffer)(int32_t device, const void *data, size_t bytes, size_t *found);
    /* Is `stream` a stream of `device`? NULL is. Hot. */
    enum tri_fault (*check_stream)(int32_t device, trib_stream stream, size_t *found);

    /* Optional, both or neither: make `device` the thread's current one, which the kernel table needs
     * before it may queue anything; leave puts back what enter left in *previous. */
    trib_status (*enter)(int32_t device, uintptr_t *previous);
    void (*leave)(uintptr_t previous);

    trib_status (*stream_create)(int32_t device, trib_stream *out);
    trib_status (*stream_wait)(int32_t device, trib_stream stream);
    trib_status (*stream_query)(int32_t device, trib_stream stream, bool *out_done);
    trib_status (*stream_wait_event)(int32_t device, trib_event event, trib_stream stream);
    trib_status (*stream_submit)(int32_t device, void (*function)(void *), void *argument,
                                 trib_stream stream);
    trib_status (*stream_destroy)(int32_t device, trib_stream stream);

    /* Is the stream being captured into a graph? NULL: there are no graphs. */
    bool (*capturing)(int32_t device, trib_stream stream);

    trib_status (*event_create)(int32_t device, trib_event *out);
    trib_status (*event_record)(int32_t device, trib_event event, trib_stream stream);
    trib_status (*event_wait)(int32_t device, trib_event event);
    trib_status (*event_query)(int32_t device, trib_event event, bool *out_done);
    trib_status (*event_elapsed)(int32_t device, trib_event start, trib_event end, float *out_ms);
    trib_status (*event_destroy)(int32_t device, trib_event event);
};

/* How ranks talk. A transport is used by one thread at a time, except where "any thread" is said. */
struct tri_transport_ops {
    /* A fresh id. */
    trib_status (*id_create)(trib_id *out);
    /* Is this an id of this backend? At most one backend may say no to everything it did not make;
     * see backends.c. */
    bool (*id_is_mine)(const trib_id *id);

    /* Join. Blocking, until all `size` ranks of `id` are there or `timeout_ms` has passed. */
    trib_status (*open)(struct tri_transport **out, const trib_id *id, int32_t rank, int32_t size,
                        int32_t device, uint32_t timeout_ms);
    /* All ranks of a new communicator at once, from one thread: out[0..size). All or none. */
    trib_status (*open_group)(struct tri_transport **out, const int32_t *devices, int32_t size,
                              uint32_t timeout_ms);
    /* Collective over `parent`, blocking; color -1 gives *out = NULL. The child shares nothing. */
    trib_status (*split)(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                         int32_t key, uint32_t timeout_ms);
    int32_t (*rank)(const struct tri_transport *transport);
    int32_t (*size)(const struct tri_transport *transport);

    /* The state shared by all ranks of this communicator in this process; borrowed, and the same
     * pointer for as long as the transport lives. The backend raises it itself when a collective
     * fails for good. */
    struct trib_abort *(*abort_state)(struct tri_transport *transport);
    /* The word of that state, readable by kernels. */
    const uint32_t *(*abort_word)(struct tri_transport *transport);

    /* Running backends only, NULL otherwise: queue `function(argument copy)` on `stream`. All
     * submissions of one transport run one after the other, in the order of the calls, whatever
     * their streams. Copies `bytes` bytes of `argument`, which are aligned to 16 for the function.
     * After an abort the function still runs, and its collectives fail. */
    trib_status (*submit)(struct tri_transport *transport, void (*function)(void *argument),
                          const void *argument, size_t bytes, trib_stream stream);

    /* Do (running) or queue (queueing) `n` calls as one. Running: all calls are of one transport, and
     * the gate was held when the function that calls was submitted. Queueing: the caller holds the
     * gate of every transport named; they may be of several transports of
     * one group, and then the engine sees one group call. Sends and receives among them progress
     * together, and those of a rank with itself come in pairs; the rest run in order. Never leaves a group open. On failure the state is raised,
     * unless nothing was handed to the engine. */
    trib_status (*collective)(const struct tri_call *calls, size_t n);

    /* What went wrong on the stream since, if anything (asynchronous errors of the engine): raises
     * the state. Never waits. NULL: nothing of the kind. */
    void (*poll)(struct tri_transport *transport);

    /* This rank will make no more calls. When it is the last rank of this process, waits until what
     * is queued has run everywhere, at most `timeout_ms`, and releases the engine; late: raises the
     * state with TRIB_ERR_TIMEOUT and reclaims in the background. An aborted communicator is not
     * waited for. Called once, before destroy. */
    trib_status (*close)(struct tri_transport *transport, uint32_t timeout_ms);
    /* Free the transport itself. After close. Never waits. */
    void (*destroy)(struct tri_transport *transport);
};

/* About how fast a backend is inside one host, for who must choose between ways of doing a thing:
 * bytes a second that one device reads and writes; those that it reads and writes while the largest
 * entries are chosen; bytes a second that a rank sends while it receives as many; seconds that one
 * collective or a few kernels take whatever their size. */
struct tri_speed {
    double copy, select, link, latency;
};

struct tri_backend {
    const char *name;
    /* Wait until nothing of it works in the background any more, at most until `deadline_ns`. How
     * many things are left: what is being given back, and calls that were given up. NULL: it does
     * nothing in the background. Any thread. */
    uint32_t (*quiesce)(uint64_t deadline_ns);
    uint32_t native; /* bit 1 << kind for each enum tri_kind that `collective` takes */
    bool compares;   /* `collective` touches no memory before it has seen all ranks make one call */
    const struct tri_device_ops *device;
    const struct tri_transport_ops *transport;
    const struct tri_kernels *kernels;
    struct tri_speed speed;
};

/* The table of compiled-in backends, best first, NULL at the end (backends.c). */
extern const struct tri_backend *const tri_backends[];

/* By name; NULL if there is none. */
const struct tri_backend *tri_backend_find(const char *name);

#endif
