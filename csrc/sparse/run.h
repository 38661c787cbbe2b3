/* One call of a sparse allreduce while it runs: what an algorithm works with.
 *
 * The order of every call:
 *   1. choose: accumulate, select ... write acc beside the residual (in place: acc is there), and
 *      with momentum the new velocity beside the old one;
 *   2. exchange, link.h: afterwards every rank has every rank's header;
 *   3. the result: tri_run_result. Detects sums that overflow the result's type;
 *   4. tri_run_decide: decides, once and on the stream, whether the call is applied. Until then
 *      nothing changes the residual, the thresholds, or in place the accumulator (so no select with
 *      `clear`), because a call that is not applied must leave them as they were;
 *   5. tri_run_update_residual: subtracts from the residual what was applied, unless select has,
 *      and with momentum masks it in the velocity.
 * Its caller (allreduce.c) then decays, computes the norm, and records, which clears the result of a
 * call that is not applied.
 *
 * On a stream-ordered backend the algorithm's run() queues, in the caller's thread. On a
 * host-executed backend it executes on the stream. Only runs use an algorithm's `own` memory, and
 * they never overlap. */
#ifndef TRI_SPARSE_RUN_H
#define TRI_SPARSE_RUN_H

#include "csrc/sparse/algorithm.h"

/* Words of entries, and bytes of everything. */
struct tri_volume {
    uint64_t words_sent, words_received, bytes_sent, bytes_received;
};

/* Scalars that a state keeps on the device. */
struct tri_scalars {
    uint32_t *current;  /* see struct tri_accumulator; NULL in place */
    uint32_t *velocity; /* the same of the velocity; NULL: the caller's, or none */
    uint32_t *decision, *outcome;
    uint32_t *overflow; /* of the result: 0 before each call */
    uint32_t *selected; /* entries that this rank chose in this call, and */
    uint32_t *applied;  /* how many of them the result contains; an algorithm may repoint both */
    uint32_t *fallbacks;
    uint32_t *zero;            /* is 0 */
    uint32_t *all;             /* is n */
    struct tri_header *header; /* this rank's, for algorithms that send it without entries */
};

enum { TRI_RUN_GROUP = 4 };

struct tri_run {
    const struct tri_sparse_params *params;
    const struct tri_backend *backend;
    const struct tri_sparse_kernels *kernels;
    struct tri_transport *transport;
    struct tri_transport *inside; /* of the ranks of this host, in their order; NULL: this rank is
                                   * alone there, or messages do (params->inside) */
    int32_t device;
    trib_stream stream;
    uint64_t step; /* how many calls precede this one since creation or reset */
    uint32_t signature;
    struct tri_accumulator acc;
    struct tri_accumulator velocity; /* with momentum: its acc is the gradient of the above */
    struct tri_scalars scalars;
    const uint32_t *abort_flag;
    void *scratch;                    /* for kernels */
    const struct tri_symmetric *near; /* the state's memory that other ranks read; NULL: none */

    /* The result: dense, or entries. */
    void *dense;
    uint32_t *index, *count;
    void *value;

    struct tri_volume volume; /* of this call; link.c counts */
    uint32_t fallbacks;       /* of this call: exact choices because of TRI_IDLE_CALLS */
    bool decided;             /* tri_run_decide has been queued */
    struct {                  /* collectives that the backend gets as one: tri_link_begin */
        bool open;
        size_t n;
        struct tri_call calls[TRI_RUN_GROUP];
    } group;
};

/* Small copies on the stream. Memory of a host-executed backend is copied at once, because a run
 * there executes on the stream.
 *
 * Host memory (read before this returns) or device memory to device memory. */
trib_status tri_run_put(struct tri_run *run, void *dst, const void *src, size_t bytes);
/* to->capacity entries. */
trib_status tri_run_put_entries(struct tri_run *run, const struct tri_entries *to,
                                const struct tri_entries *from);
/* Device memory to host memory: on a stream-ordered backend the only wait of a call. Fails after an
 * abort, which may leave garbage there. */
trib_status tri_run_fetch(struct tri_run *run, void *dst, const void *src, size_t bytes);

/* For a choice that is not made by tri_run_select or tri_run_accumulate: what it writes into its
 * header. */
struct tri_signing tri_run_signing(const struct tri_run *run, struct tri_header *header);

/* With momentum, not in place: the new velocity, if it is still to be made. Before every kernel that
 * makes acc, but for accumulate and select, which make it in the same pass. */
trib_status tri_run_make_velocity(struct tri_run *run);

/* kernels->accumulate; signs `header`, and counts infinities and NaNs in it. */
trib_status tri_run_accumulate(struct tri_run *run, struct tri_header *header);

/* kernels->select as most algorithms call it: makes acc, writes the k largest of all of it to
 * `out`, signs `header`, and counts infinities and NaNs in it. out->count is the header's or the
 * caller's. */
trib_status tri_run_select(struct tri_run *run, struct tri_header *header,
                           const struct tri_entries *out, bool clear);

/* True if select may clear. Not in place, where a call that is not applied must not change the
 * accumulator. */
bool tri_run_clears(const struct tri_run *run);

/* True if these headers, in host memory, let a call be applied: what tri_run_decide will find in
 * them. */
bool tri_run_consistent(const struct tri_run *run, const void *headers, size_t stride,
                        uint32_t capacity);

/* A number that a rank has sent, and that would become a length or an address on the host. */
struct tri_sent {
    int32_t rank;
    const char *what;
    int32_t bound; /* `what` is below this bound of regions; 0: in all */
    uint64_t found, least, most;
};
/* TRIB_OK if least <= found <= most, otherwise TRIB_ERR_MISMATCH, which the algorithm returns before
 * it uses the number: the communicator ends, and the call is not applied. */
trib_status tri_run_check(const struct tri_run *run, const struct tri_sent *sent);

/* Decide by the headers of all ranks (rank r's is at headers + r * stride) and by the result. Both
 * are the same on all ranks, and so is the decision. A header whose count is above `capacity` is a
 * mismatch; UINT32_MAX: the algorithm's headers have no count. */
trib_status tri_run_decide(struct tri_run *run, const void *headers, size_t stride,
                           uint32_t capacity);
/* The same by copies of headers whose packets, still read where they were made, must be of the same calls. */
trib_status tri_run_decide_near(struct tri_run *run, const struct tri_header *headers,
                                const struct tri_header *const *packets, uint32_t capacity);

/* Subtract applied entries from the residual, and mask them in the velocity: all, or those whose
 * index is in `among`. Counts them in scalars.applied. */
trib_status tri_run_update_residual(struct tri_run *run, const struct tri_entries *entries,
                                    const struct tri_entries *among);
/* After tri_run_decide, for algorithms that apply all of `chosen`, what this rank selected: count it
 * as selected and applied, mask it, and subtract it, unless select has `cleared` it from acc. */
trib_status tri_run_apply(struct tri_run *run, const struct tri_entries *chosen, bool cleared);

/* After tri_run_decide: with momentum, mask what another rank selected for this one, too. */
trib_status tri_run_mask(struct tri_run *run, const struct tri_entries *chosen);

/* Not in place, before anything else of the call: the residual becomes buffer 0, wherever the last
 * decision left it, and so acc is going to be buffer 1, where the host can say where it lies. */
trib_status tri_run_undo_swap(struct tri_run *run);

/* Add to the residual what the exchange dropped at indices in `among`, the result's. */
trib_status tri_run_restore_residual(struct tri_run *run, const struct tri_entries *dropped,
                                     const struct tri_entries *among);

/* These lists, all of them over [first, end), for kernels->merge and merge_dense. */
struct tri_merge tri_run_merge(const struct tri_run *run, const struct tri_entries *lists,
                               int32_t n, size_t first, size_t end);

/* Before the decision: the result becomes the sum of these lists, in this order. `merged` has
 * memory for their union; used only if the result is entries and n > 1; may be NULL if n is 1. */
trib_status tri_run_result(struct tri_run *run, const struct tri_entries *lists, int32_t n,
                           const struct tri_entries *merged);

/* The same from dense sums of type `dtype`, which may be the result's memory if that has it. */
trib_status tri_run_result_dense(struct tri_run *run, const void *sums, trib_dtype dtype);

/* The result's type, its divisor (the number of ranks for an average, or 1) and overflow, at
 * `data`. */
struct tri_result tri_run_result_at(const struct tri_run *run, void *data);

#endif
