/* One call of a sparse allreduce while it runs: what an algorithm works with.
 *
 * The order of every call:
 *   1. choose: accumulate, select ... : acc is made beside the residual (in place: it is there);
 *   2. exchange, link.h: ends with every rank's header known to every rank;
 *   3. the result: tri_run_result. A sum that its type does not hold is noticed here;
 *   4. tri_run_decide: decides, once and on the stream, whether the call is applied. Nothing before it
 *      changes what an unapplied call must leave alone: the residual, thresholds kept, in place
 *      the accumulator (so no select with `clear`);
 *   5. settle: takes out of the residual what has been applied and still stands in it.
 * The caller (allreduce.c) then makes the result of an unapplied call 0, decays, measures and records.
 *
 * On a stream-ordered backend run() runs in the caller's thread and queues. On a host-executed backend
 * it runs on the stream. `own` memory of an algorithm is touched by runs only, which never overlap. */
#ifndef TRI_SPARSE_RUN_H
#define TRI_SPARSE_RUN_H

#include "csrc/sparse/algorithm.h"

/* Words of entries, and bytes of everything. */
struct tri_volume {
    uint64_t words_sent, words_received, bytes_sent, bytes_received;
};

/* Scalars that a state keeps on the device. */
struct tri_scalars {
    uint32_t *current; /* see struct tri_accumulator; NULL in place */
    uint32_t *decision, *outcome;
    uint32_t *overflow; /* of the result: 0 before each call */
    uint32_t
        *selected; /* entries that this rank has chosen in this call: written by the algorithm, */
    uint32_t *applied; /* and how many of them are in the result. Either may be pointed elsewhere */
    uint32_t *fallbacks;
    uint32_t *zero;            /* is 0 */
    uint32_t *all;             /* is n */
    struct tri_header *header; /* this rank's, for algorithms whose header travels by itself */
};

enum { TRI_RUN_GROUP = 4 };

struct tri_run {
    const struct tri_sparse_params *params;
    const struct tri_backend *backend;
    const struct tri_sparse_kernels *kernels;
    struct tri_transport *transport;
    int32_t device;
    trib_stream stream;
    uint64_t step; /* calls queued before this one since creation or reset */
    uint32_t signature;
    struct tri_accumulator acc;
    struct tri_scalars scalars;
    const uint32_t *abort_flag;
    void *scratch; /* for kernels */

    /* The result: dense, or entries. */
    void *dense;
    uint32_t *index, *count;
    void *value;

    struct tri_volume volume; /* of this call; link.c counts */
    uint32_t fallbacks; /* of this call: choices that are exact since nothing was chosen for long */
    struct {            /* collectives that go to the backend as one: tri_link_begin */
        bool open;
        size_t n;
        struct tri_call calls[TRI_RUN_GROUP];
    } group;
};

/* Put the signature into a header. tri_run_select and tri_run_accumulate do it for theirs; whoever
 * makes a header in another way calls this. (scalars.header has it already.) */
trib_status tri_run_sign(struct tri_run *run, struct tri_header *header);

/* kernels->accumulate, the non-finite counted in `header`. */
trib_status tri_run_accumulate(struct tri_run *run, struct tri_header *header);

/* kernels->select with what all algorithms have in common filled in: the k largest of all of acc,
 * acc made on the way, the non-finite counted in `header`, whose count the entries share (out->count
 * is that of the header, or of the caller's own). */
trib_status tri_run_select(struct tri_run *run, struct tri_header *header,
                           const struct tri_entries *out, bool clear);

/* True if select may clear: not in place, where an unapplied call must leave the accumulator. */
bool tri_run_clears(const struct tri_run *run);

/* Decide by the headers of all ranks (rank r's is at headers + r * stride), and by the result: it is the
 * same on all ranks, and so is what is decided. */
trib_status tri_run_decide(struct tri_run *run, const void *headers, size_t stride);

/* Take applied entries out of the residual: all of them, or those that are in `among`. Counts
 * scalars.applied. */
trib_status tri_run_update_residual(struct tri_run *run, const struct tri_entries *entries,
                                    const struct tri_entries *among);
/* Give back to the residual what was dropped on the way at indices that were applied. */
trib_status tri_run_restore_residual(struct tri_run *run, const struct tri_entries *dropped,
                                     const struct tri_entries *among);

/* Before the commit: the result is the sum of these lists, in this order. `merged`: room for their
 * union, used only if the result is entries and n > 1; may be NULL if n is 1. */
trib_status tri_run_result(struct tri_run *run, const struct tri_entries *lists, int32_t n,
                           const struct tri_entries *merged);

/* The same, of dense sums of acc's type; they may lie where the result goes. */
trib_status tri_run_result_dense(struct tri_run *run, const void *sums);

/* What the sum is divided by. */
double tri_run_divisor(const struct tri_run *run);

#endif
