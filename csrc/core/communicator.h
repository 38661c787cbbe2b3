/* One rank of one communicator. How it begins and ends: lifecycle.h. */
#ifndef TRI_CORE_COMMUNICATOR_H
#define TRI_CORE_COMMUNICATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/base/abort.h"
#include "csrc/base/status.h"
#include "csrc/core/workspace.h"

/* A copy on the device that a batch makes before its calls. */
struct tri_copy {
    void *to;
    const void *from;
    size_t bytes;
};

/* Calls that are checked and not yet queued: those of a batch, or the parts of one call on its way
 * (a batch of one). See batch.h. */
struct tri_batch {
    struct tri_call *calls; /* grown, never shrunk */
    size_t n, capacity;
    struct tri_copy *copies; /* in the same way */
    size_t ncopies, copies_capacity;
    size_t scratch;               /* bytes of the workspace that the calls use */
    bool open;                    /* between trib_batch_begin and trib_batch_end */
    bool uses_workspace;          /* one of the calls does */
    trib_stream stream;           /* of all members */
    int operation;                /* of the newest */
    uint64_t members;             /* public calls */
    uint64_t bytes;               /* of their send sides */
    uint64_t collectives;         /* of the members, those that all ranks make; */
    uint64_t signature;           /* their digest, for TRIB_MATCH */
    trib_status status;           /* of the first member that failed, */
    char detail[TRI_DETAIL_SIZE]; /* and its words */
};

struct trib_comm {
    const struct tri_backend *backend;
    struct tri_transport *transport;
    struct trib_abort *state; /* a reference */
    int32_t rank, size, device;
    uint32_t flags; /* of trib_options */
    uint32_t timeout_ms, close_timeout_ms;
    bool closed;
    struct tri_batch batch;
    struct tri_workspace workspace;
    struct tri_signature *signatures; /* match.c: of all ranks; NULL without TRIB_MATCH */
    uint64_t match_sequence;
    bool agreed;            /* on the call that is being made: see tri_match_done */
    uint32_t sparse_states; /* that all ranks have agreed on so far */
    int32_t hosts;          /* that the ranks are on; 0: not asked yet */
    void *scratch;          /* see tri_comm_scratch */
    size_t scratch_bytes;
    uint64_t calls, bytes, backend_calls, lists_queued; /* trib_counters */
};

/* tri_fail, and the detail begins with operation, rank and device. */
trib_status tri_fail_call(const struct trib_comm *comm, int operation, trib_status status,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
#ifdef __clang_analyzer__
#  define tri_fail_call(comm, operation, status, ...)                                              \
      (tri_fail_call(comm, operation, status, __VA_ARGS__), (status))
#endif

/* Is `status` one of a caller's mistakes? */
bool tri_is_mistake(trib_status status);

/* The functions of the header of the same name; the pointers are not NULL. */
trib_status tri_comm_status(struct trib_comm *comm);
void tri_comm_counters(trib_counters *out, struct trib_comm *comm);

/* TRIB_OK, TRIB_ERR_CLOSED or the state's status, told to the caller of `operation` (of none in
 * particular: TRI_NO_OPERATION). A state that a mistake has ended is TRIB_ERR_ABORTED to it, with
 * the mistake in the detail: this call is not the one that made it. Hot. */
trib_status tri_comm_usable(const struct trib_comm *comm, int operation);

/* `bytes` of host memory that belong to the communicator until the next such call; NULL when memory
 * is short. For descriptions that are built during one call. */
void *tri_comm_scratch(struct trib_comm *comm, size_t bytes);

#endif
