/* One rank of one communicator. Its beginning and end: lifecycle.h. */
#ifndef TRI_CORE_COMMUNICATOR_H
#define TRI_CORE_COMMUNICATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/base/abort.h"
#include "csrc/base/status.h"
#include "csrc/core/captures.h"
#include "csrc/core/recorder.h"
#include "csrc/core/workspace.h"

/* A device copy that a batch makes before its calls. */
struct tri_copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* Recorded calls that are not yet issued: those of a batch, or the parts of one call (a batch of
 * one). See batch.h. */
struct tri_batch {
    struct tri_call *calls; /* grown, never shrunk */
    size_t n, capacity;
    size_t ncopies;             /* of `copies` */
    size_t scratch;             /* bytes of the workspace in use */
    bool open;                  /* between trib_batch_begin and trib_batch_end */
    bool uses_workspace;        /* at least one call does, or has scratch of a graph */
    int operation;              /* of the newest member */
    uint64_t capture;           /* by which that scratch is owned; 0: it is the workspace's */
    trib_stream stream;         /* of every member */
    struct tri_recorded record; /* of the batch so far */
    uint64_t members;           /* public calls */
    uint64_t bytes;             /* of their send sides */
    /* Not of every call. */
    struct tri_copy *copies; /* grown, never shrunk */
    size_t copies_capacity;
    uint64_t collectives;         /* members that are calls of all ranks */
    uint64_t signature;           /* digest of those, for TRIB_MATCH */
    trib_status status;           /* of the first member that failed */
    char detail[TRI_DETAIL_SIZE]; /* of that member */
};

enum { TRI_CALL_TIMEOUT_MS = 600000 }; /* the default */

struct tri_inside;
struct tri_last_list;
struct tri_remote;

/* How fast the ranks reach each other, the slowest of them: the seconds of a small collective, and
 * the bytes per second that a rank sends while it receives as many; on several hosts those that a
 * host does, for all of its ranks. */
struct tri_measured {
    double latency, bandwidth;
};

struct trib_comm {
    /* What every call uses comes first, up to the middle of the batch: NCCL leaves little of it in
     * the first cache, so each line costs. */
    const struct tri_backend *backend;
    struct tri_transport *transport;
    struct trib_abort *state; /* a reference */
    int32_t rank, size, device;
    uint32_t flags;           /* of trib_options */
    uint32_t call_timeout_ms; /* of the calls to come */
    bool timed;               /* mark each of them */
    bool closed;
    bool agreed;                   /* all ranks make the current call: see tri_match_done */
    struct tri_recorder *recorder; /* NULL with TRIB_UNRECORDED */
    uint64_t calls, bytes, backend_calls, lists_queued; /* trib_counters */
    struct tri_batch batch;
    trib_id id;        /* of this one, or of that from which it was split; 0 if it has none */
    uint64_t identity; /* equal on all ranks, and on no other communicator but by chance */
    uint32_t splits;   /* of this one so far, the same on all ranks */
    uint32_t timeout_ms, close_timeout_ms;
    struct tri_config config;
    bool adopted;     /* over a communicator that the caller keeps, if it has several ranks */
    uint64_t shrinks; /* see struct tri_attendee: attempts */
    struct tri_owner *owner; /* of its memory: a reference */
    struct tri_workspace workspace;
    struct tri_captures *captures;       /* NULL before the first captured scratch */
    struct tri_signature *signatures;    /* of all ranks, see match.c; NULL without TRIB_MATCH */
    _Atomic(struct tri_remote *) remote; /* NULL: all ranks are here, or there is no side channel;
                                            set while the watchdog looks */
    trib_event waited;                   /* see wait.c; NULL before the first wait */
    trib_stream waited_stream;           /* where that was recorded */
    uint64_t waited_ns;                  /* waits for it have been late since then; 0: none has */
    uint64_t match_sequence;
    uint32_t sparse_states;         /* states created so far, the same on all ranks */
    uint64_t votes;                 /* of steps.h, so far, likewise */
    uint64_t symmetric_made;        /* allocations of symmetric memory so far, likewise */
    int32_t hosts;                  /* number of hosts of the ranks; 0: not known yet */
    uint8_t host_of[TRI_MAX_LISTS]; /* the host of each rank, where that is known */
    struct tri_inside *insides;     /* those made so far, likewise (inside.h) */
    /* When this closes, after its own transport. NULL: none was made. */
    trib_status (*close_insides)(struct trib_comm *comm, uint64_t deadline_ns);
    struct tri_measured measured; /* once, then the same for ever; bandwidth 0: not yet */
    void *scratch;                /* see tri_comm_scratch */
    size_t scratch_bytes;
    struct tri_last_list *last_list; /* see lists/last.h; NULL before the first list */
};

/* tri_fail, and the detail begins with operation, rank and device. */
trib_status tri_fail_call(const struct trib_comm *comm, int operation, trib_status status,
                          const char *format, ...) __attribute__((cold, format(printf, 4, 5)));
#ifdef __clang_analyzer__
#  define tri_fail_call(comm, operation, status, ...)                                              \
      (tri_fail_call(comm, operation, status, __VA_ARGS__), (status))
#endif

/* Is `status` a caller's mistake (1 to 9)? */
bool tri_is_mistake(trib_status status);

/* The public functions of these names; the pointers are not NULL. */
trib_status tri_comm_status(struct trib_comm *comm);
void tri_comm_counters(trib_counters *out, struct trib_comm *comm);
void tri_comm_set_call_timeout(struct trib_comm *comm, uint32_t timeout_ms, bool timed);

/* `identity` and, in quotes, the name, if it has one: for the log and profiles. */
struct tri_comm_label {
    char text[TRIB_NAME_MAX + 24];
};
struct tri_comm_label tri_comm_label(const struct trib_comm *comm);

/* TRIB_OK, TRIB_ERR_CLOSED or the state's status; the detail names `operation` unless that is
 * TRI_NO_OPERATION. If a mistake ended the communicator, returns TRIB_ERR_ABORTED with the mistake
 * in the detail, because this call did not make it. Hot. */
trib_status tri_comm_usable(const struct trib_comm *comm, int operation);

/* Count the memory that the backend says it holds for the ranks to reach each other. */
void tri_comm_count_peers(const struct trib_comm *comm);

/* tri_workspace_reserve for the communicator's own workspace. */
trib_status tri_comm_reserve(struct trib_comm *comm, size_t bytes);

/* `bytes` bytes of host memory, valid until the next such call; NULL if memory is short. For what
 * one call builds. */
void *tri_comm_scratch(struct trib_comm *comm, size_t bytes);

#endif
