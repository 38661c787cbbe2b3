/* topkaopt: topka with a threshold that is used again.
 *
 * Problem. An exact top-k has to find its threshold. Here that is done in one call of 32; the
 * others take what lies above the threshold found then.
 *
 * Paper. The "TopkAopt" of Ok-Topk's published code (Li and Hoefler, PPoPP 2022), whose thresholds
 * are reused because those of successive calls are close.
 *
 *   1. acc = gradient + residual. A rank that has no threshold above 0, or above whose threshold
 *      nothing has lain in the last TRI_IDLE_CALLS calls, or any rank in every 32nd call, chooses
 *      the k largest, exactly, and remembers the smallest magnitude among them. Otherwise it
 *      chooses all that lie above its threshold; if they are more than 4k + 1024, the largest.
 *   2. One small allgather of the headers, which hold the numbers of entries. Fetched.
 *   3. All entries to all ranks. A rank may have none.
 *   4. The result is the sum of the lists in rank order, or its average.
 *   5. The decision; the residual loses what was chosen (in separate mode in step 1 already); the
 *      smallest magnitude of an exact choice becomes the threshold.
 *
 * Each rank has a threshold of its own, and no other rank sees whether it chooses exactly.
 *
 * Cost: rank r sends 2 k_r (P-1) words and receives twice the sum of the others' k; 2k(P-1) in
 * exact calls, at most 2 (4k + 1024)(P-1). That most is what the 31 calls after the first one send:
 * its threshold was made of gradients alone, and residuals rise above it soon and in crowds. Of
 * normal gradients (n = 100,000, k = 1,000) k_r is 3k and 2.5k in the next two rounds of 32 calls,
 * and 2k in the fourth. One wait for the stream.
 *
 * Invariant. As in topka: every entry that was chosen is in the result and has left the residual of
 * its rank; nothing else moved. A call that is not applied leaves the threshold as it was.
 *
 * Different from the published code, where reuse calls a function without two of its arguments in
 * two of three variants and fails; where k_r has no limit, and the buffers do not grow with it;
 * where an empty choice of one rank returns too few values; where a threshold that has become too
 * high applies nothing until the next 32nd call. */
#include <string.h>

#include "csrc/sparse/published/counted.h"

enum { EXACT_EVERY = 32 };

struct persistent_host {
    uint32_t known; /* there is a threshold above 0, as far as the host has seen: see keep */
    struct tri_idle idle;
};

struct topkaopt {
    struct tri_counted counted;
    struct tri_entries gathered;
    void *threshold; /* of acc's type, kept from call to call */
    struct persistent_host persistent;
};

static void lay_out(void *memory, struct tri_arena *arena, const struct tri_sparse_params *params)
{
    struct topkaopt *own = memory;
    tri_counted_lay_out(&own->counted, arena, params);
    own->gathered = tri_arena_entries(arena, tri_counted_entries(params), params->wire);
    own->threshold = tri_arena_take(arena, sizeof(double));
}

static bool is_exact(struct tri_run *run, const struct topkaopt *own)
{
    if (!own->persistent.known || run->step % EXACT_EVERY == 0)
        return true;
    run->fallbacks = tri_idle_too_long(&own->persistent.idle);
    return run->fallbacks != 0;
}

/* The value that is fetched: the threshold in use, or the one that an exact choice makes. */
static trib_status choose(struct tri_run *run, struct topkaopt *own, bool exact)
{
    const struct tri_sparse_params *params = run->params;
    struct tri_header *header = tri_counted_header(&own->counted, run);
    void *value = tri_counted_value(&own->counted, run);
    const struct tri_selection selection = {
        .count = params->count,
        .k = exact ? params->k : tri_limit(params),
        .threshold = exact ? NULL : value,
        .accumulate = !params->in_place,
        .clear = tri_run_clears(run),
        .signing = tri_run_signing(run, header),
        .kth = exact ? value : NULL,
        .fallbacks = run->scalars.fallbacks,
    };
    if (!exact)
        TRI_TRY(tri_run_put(run, value, own->threshold, trib_dtype_size(params->acc)));
    return run->kernels->select(&run->acc, &selection, &own->counted.chosen, run->scratch,
                                run->stream);
}

/* After the decision. Only the device knows whether the call is applied, because the result may
 * overflow. If it is not, and there was no threshold before, there is still none (0) although
 * `known` is set. Then everything that is not 0 lies above it in the next call, which chooses at
 * most tri_limit of it and shows the host that the threshold is 0. */
static trib_status keep(struct tri_run *run, struct topkaopt *own)
{
    return run->kernels->adjust_threshold(own->threshold, tri_counted_value(&own->counted, run),
                                          run->params->acc, run->scalars.zero, NULL,
                                          run->scalars.decision, run->stream);
}

static trib_status topkaopt_run(struct tri_run *run, void *memory)
{
    static const double none = 0;
    struct topkaopt *own = memory;
    const bool exact = is_exact(run, own);
    double found = 0;
    if (!own->persistent.known)
        TRI_TRY(tri_run_put(run, own->threshold, &none, sizeof none));
    TRI_TRY(choose(run, own, exact));
    TRI_TRY(tri_counted_fetch(run, &own->counted, &found));
    TRI_TRY(tri_counted_gather(run, &own->counted, &own->gathered, tri_run_clears(run)));
    if (!own->counted.consistent)
        return TRIB_OK;
    own->persistent.known = found > 0;
    tri_idle_count(&own->persistent.idle, own->counted.counts[run->params->rank]);
    return exact ? keep(run, own) : TRIB_OK;
}

static struct tri_persistent persistent(void *memory)
{
    struct topkaopt *own = memory;
    return (struct tri_persistent){.device = own->threshold,
                                   .host = &own->persistent,
                                   .device_bytes = sizeof(double),
                                   .host_bytes = sizeof own->persistent};
}

static bool valid(const void *device, const void *host, const struct tri_sparse_params *params)
{
    struct persistent_host saved;
    memcpy(&saved, host, sizeof saved);
    return saved.known <= 1 && tri_valid_idle(&saved.idle) &&
           (saved.known == 0 || tri_valid_threshold(device, params));
}

const struct tri_algorithm tri_sparse_topkaopt = {
    .name = "topkaopt",
    .waits = true,
    .own_bytes = sizeof(struct topkaopt),
    .lay_out = lay_out,
    .entries = tri_counted_entries,
    .capacity = tri_counted_capacity,
    .run = topkaopt_run,
    .persistent = persistent,
    .valid = valid,
};
