/* A state's counters, which each call writes at its end; read without waiting for the stream. */
#include "csrc/sparse/statistics.h"

#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/core/validate.h"

enum { TIMEOUT_MS = 1000 };

/* The published counters of one call. They are read in atomic parts because record may be writing,
 * which takes it a moment, and again until the check is theirs. A device lost at that moment never
 * finishes; then this returns what there is. */
static struct tri_counters read_counters(const struct tri_counters *published)
{
    const uint64_t *from = (const uint64_t *)(const void *)published;
    const uint64_t deadline = tri_deadline_ns(TIMEOUT_MS);
    uint64_t words[TRI_COUNTERS_WORDS], now;
    struct tri_counters copy;
    do {
        now = tri_now_ns();
        for (size_t i = 0; i < TRI_COUNTERS_WORDS; i++)
            words[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        memcpy(&copy, words, sizeof copy);
    } while (tri_counters_check(&copy) != copy.check && now < deadline);
    return copy;
}

trib_status tri_sparse_status(struct trib_sparse *sparse)
{
    TRI_TRY(tri_comm_status(sparse->comm));
    switch (read_counters(sparse->published).outcome) {
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
    const struct tri_counters counters = read_counters(sparse->published);
    const struct tri_algorithm *algorithm = sparse->algorithm;
    *out = (trib_sparse_statistics){
        .size = out->size,
        .algorithm = algorithm->name,
        .reason = sparse->reason,
        .count = sparse->params.count,
        .k = algorithm->k == NULL ? sparse->params.k : algorithm->k(&sparse->params),
        .calls = counters.ended,
        .calls_applied = counters.applied_calls,
        .calls_non_finite = counters.non_finite_calls,
        .selected = counters.selected,
        .applied = counters.applied,
        .total_selected = counters.total_selected,
        .total_applied = counters.total_applied,
        .words_sent = counters.words_sent,
        .words_received = counters.words_received,
        .bytes_sent = counters.bytes_sent,
        .bytes_received = counters.bytes_received,
        .fallbacks = counters.fallbacks + counters.exact_fallbacks,
        .residual_norm = counters.norm,
    };
}
