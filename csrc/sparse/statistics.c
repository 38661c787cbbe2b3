/* What a state tells without stopping its stream: the tally that each call's last step writes. */
#include "csrc/sparse/statistics.h"

#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/core/validate.h"

enum { PATIENCE_MS = 1000 };

/* A copy of the tally as it was between two calls. The writer makes `version` odd, writes, makes it
 * even again; a copy counts if `version` was even and the same before and after. Words are read one by
 * one, atomically, for the writer may be at it. That takes it a moment; a device that was lost just
 * then never ends, and then the copy is what there is. */
static struct tri_tally read_tally(const struct tri_tally *tally)
{
    enum { PARTS = sizeof *tally / sizeof(uint32_t) };
    const uint32_t *from = (const uint32_t *)(const void *)tally;
    const uint64_t deadline = tri_deadline_ns(PATIENCE_MS);
    uint32_t parts[PARTS], before, after;
    struct tri_tally copy;
    do {
        before = __atomic_load_n(&tally->version, __ATOMIC_ACQUIRE);
        for (size_t i = 0; i < PARTS; i++)
            parts[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE); /* none after `after` */
        after = __atomic_load_n(&tally->version, __ATOMIC_RELAXED);
    } while ((before != after || before % 2 != 0) && tri_now_ns() < deadline);
    memcpy(&copy, parts, sizeof copy);
    return copy;
}

trib_status tri_sparse_status(struct trib_sparse *sparse)
{
    const trib_status status = tri_comm_status(sparse->comm);
    if (status != TRIB_OK)
        return status;
    switch (read_tally(sparse->tally).outcome) {
    case TRI_OUTCOME_NON_FINITE:
        return tri_fail_call(sparse->comm, TRI_SPARSE_STATUS, TRIB_ERR_NON_FINITE,
                             "a rank's gradient or residual held an infinity or a NaN in the last "
                             "call; no rank's residual was changed: lower the loss scale, and go "
                             "on with the next gradient");
    case TRI_OUTCOME_OVERFLOW:
        return tri_fail_call(
            sparse->comm, TRI_SPARSE_STATUS, TRIB_ERR_NON_FINITE,
            "in the last call every rank's gradient and residual were finite, but %s "
            "does not hold all of the result; no rank's residual was changed: lower "
            "the loss scale, or make the state with TRIB_SPARSE_AVERAGE%s",
            trib_dtype_name(sparse->params.result),
            sparse->params.result == sparse->params.acc ? "" : " or TRIB_SPARSE_F32_RESULT");
    case TRI_OUTCOME_MISMATCH:
        return tri_fail_call(sparse->comm, TRI_SPARSE_STATUS, TRIB_ERR_MISMATCH,
                             "the ranks' last calls were not of the same state; no rank's "
                             "residual was changed: call the states in the same order on all "
                             "ranks");
    default:
        return TRIB_OK;
    }
}

void tri_sparse_statistics(trib_sparse_statistics *out, const struct trib_sparse *sparse)
{
    const struct tri_tally tally = read_tally(sparse->tally);
    const struct tri_algorithm *algorithm = sparse->algorithm;
    *out = (trib_sparse_statistics){
        .size = out->size,
        .algorithm = algorithm->name,
        .reason = sparse->reason,
        .count = sparse->params.count,
        .k = algorithm->k == NULL ? sparse->params.k : algorithm->k(&sparse->params),
        .calls = tally.ended,
        .calls_applied = tally.applied_calls,
        .calls_non_finite = tally.non_finite_calls,
        .selected = tally.selected,
        .applied = tally.applied,
        .total_selected = tally.total_selected,
        .total_applied = tally.total_applied,
        .words_sent = tally.words_sent,
        .words_received = tally.words_received,
        .bytes_sent = tally.bytes_sent,
        .bytes_received = tally.bytes_received,
        .fallbacks = tally.fallbacks + tally.exact_fallbacks,
        .residual_norm = tally.norm,
    };
}
