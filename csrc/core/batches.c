/* Batches of several communicators, or of several ranks of one, that end as one call of the
 * backend: close -> match -> prepare all streams -> issue -> mark and settle. */
#include "csrc/core/batches.h"

#include "csrc/core/batch.h"
#include "csrc/core/issue.h"
#include "csrc/core/match.h"
#include "csrc/core/operation.h"

static trib_status check_set(struct trib_comm *const *comms, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (comms[i]->backend != comms[0]->backend)
            return tri_fail_call(comms[i], TRI_BATCH_END_ALL, TRIB_ERR_INVALID_ARGUMENT,
                                 "`comms[%zu]` is of backend %s and `comms[0]` of %s: end the "
                                 "batches of each backend by a call of their own",
                                 i, comms[i]->backend->name, comms[0]->backend->name);
        for (size_t before = 0; before < i; before++)
            if (comms[before] == comms[i])
                return tri_fail_call(comms[i], TRI_BATCH_END_ALL, TRIB_ERR_INVALID_ARGUMENT,
                                     "`comms[%zu]` and `comms[%zu]` are the same: give each "
                                     "communicator once",
                                     before, i);
    }
    return TRIB_OK;
}

/* All batches end, whatever `status` is. Returns the first failure. */
static trib_status close_all(struct trib_comm *const *comms, size_t n, trib_status status)
{
    struct tri_detail_copy detail = tri_detail_copy();
    for (size_t i = 0; i < n; i++) {
        const trib_status closed = tri_batch_close(comms[i]);
        if (status != TRIB_OK || closed == TRIB_OK)
            continue;
        status = closed;
        detail = tri_detail_copy();
    }
    return status == TRIB_OK ? TRIB_OK : tri_fail(status, "%s", detail.text);
}

/* How many ranks of comms[i]'s communicator are in the set. */
static int32_t ranks_here(struct trib_comm *const *comms, size_t n, size_t i)
{
    int32_t ranks = 0;
    for (size_t other = 0; other < n; other++)
        ranks += comms[other]->state == comms[i]->state;
    return ranks;
}

/* The first rank of comms[i]'s communicator in the set. */
static const struct trib_comm *first_of(struct trib_comm *const *comms, size_t i)
{
    size_t first = 0;
    while (comms[first]->state != comms[i]->state)
        first++;
    return comms[first];
}

/* All ranks of this communicator are in the set. */
static trib_status compare(const struct trib_comm *first, const struct trib_comm *comm)
{
    const struct tri_batch *a = &first->batch, *b = &comm->batch;
    if (a->collectives == b->collectives && a->signature == b->signature)
        return TRIB_OK;
    return tri_fail_call(comm, TRI_BATCH_END_ALL, TRIB_ERR_MISMATCH,
                         "the batch of this rank (%llu collectives, digest %08x) is not that of "
                         "rank %d (%llu collectives, digest %08x); nothing was queued",
                         (unsigned long long)b->collectives,
                         (unsigned)(b->signature ^ b->signature >> 32), first->rank,
                         (unsigned long long)a->collectives,
                         (unsigned)(a->signature ^ a->signature >> 32));
}

/* TRIB_MATCH waits for the other ranks, which one thread cannot do for two ranks of a communicator:
 * it compares them here, if it has all. */
static trib_status match(struct trib_comm *const *comms, size_t n, size_t i)
{
    struct trib_comm *comm = comms[i];
    const int32_t here = ranks_here(comms, n, i);
    if ((comm->flags & TRIB_MATCH) == 0)
        return TRIB_OK;
    if (here == 1)
        return tri_batch_match(comm);
    if (here == comm->size)
        return compare(first_of(comms, i), comm);
    return tri_fail_call(comm, TRI_BATCH_END_ALL, TRIB_ERR_INVALID_USAGE,
                         "the communicator has TRIB_MATCH, and %d of its %d ranks are in this "
                         "call: one thread can end the batches of one rank, or of all",
                         here, comm->size);
}

/* If one of several communicators does not match, settle ends those that did: their other ranks go
 * on. */
static trib_status match_all(struct trib_comm *const *comms, size_t n)
{
    for (size_t i = 0; i < n; i++)
        TRI_TRY(match(comms, n, i));
    return TRIB_OK;
}

/* Between close and settle. A batch that is empty takes no part. */
static trib_status queue_all(struct trib_comm *const *comms, size_t n)
{
    trib_status status = TRIB_OK;
    size_t prepared = 0;
    while (prepared < n && status == TRIB_OK) {
        status = tri_batch_prepare(comms[prepared]);
        prepared += status == TRIB_OK;
    }
    if (status == TRIB_OK)
        status = tri_issue_batches(comms, n);
    for (size_t i = 0; i < prepared; i++)
        status = tri_batch_mark(comms[i], status);
    return status;
}

trib_status tri_batches_end(struct trib_comm *const *comms, size_t n)
{
    trib_status status = close_all(comms, n, check_set(comms, n));
    if (status == TRIB_OK)
        status = match_all(comms, n);
    if (status == TRIB_OK)
        status = queue_all(comms, n);
    for (size_t i = 0; i < n; i++)
        status = tri_batch_settle(comms[i], status);
    return status;
}
