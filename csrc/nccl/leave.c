/* Ranks that leave.
 *
 * A caller counts its call, then checks whether a rank has left; a leaving rank sets its mark, then
 * checks the counts of the others. Both are sequentially consistent: of a call and a leave at the
 * same time, at least one sees the other. So a call beyond those of the leaving rank is either
 * refused before NCCL gets it, or seen by the leaving rank, which aborts the local ranks. Calls up
 * to that number are unaffected. */
#include "csrc/nccl/leave.h"

#include <stdatomic.h>

static void add_to_count(const struct tri_call *call, int change)
{
    struct tri_transport *transport = call->transport;
    _Atomic uint64_t *counter = call->kind == TRI_SEND   ? &transport->p2p[call->peer].sent
                                : call->kind == TRI_RECV ? &transport->p2p[call->peer].received
                                                         : &transport->calls;
    (void)atomic_fetch_add(counter, (uint64_t)change);
}

/* made_more_calls, for messages between the two; the leaver left after call `after`. */
static bool made_more_messages(const struct tri_transport *rank, const struct tri_transport *leaver,
                               unsigned long long after)
{
    const struct tri_nccl_p2p_counts *mine = &rank->p2p[leaver->rank];
    const struct tri_nccl_p2p_counts *its = &leaver->p2p[rank->rank];
    const unsigned long long sent = atomic_load(&mine->sent), got = atomic_load(&its->received);
    const unsigned long long wanted = atomic_load(&mine->received), gave = atomic_load(&its->sent);
    if (sent > got)
        (void)tri_fail(TRIB_ERR_CLOSED,
                       "rank %d left after call %llu, with %llu messages received from rank %d, "
                       "which sends number %llu",
                       (int)leaver->rank, after, got, (int)rank->rank, sent);
    else if (wanted > gave)
        (void)tri_fail(TRIB_ERR_CLOSED,
                       "rank %d left after call %llu, with %llu messages sent to rank %d, which "
                       "receives number %llu",
                       (int)leaver->rank, after, gave, (int)rank->rank, wanted);
    return sent > got || wanted > gave;
}

/* Returns true, with the detail set, if `rank` has made calls that `leaver` has not made and will
 * not make. */
static bool made_more_calls(const struct tri_transport *rank, const struct tri_transport *leaver)
{
    const uint64_t calls = atomic_load(&leaver->calls), own = atomic_load(&rank->calls);
    const unsigned long long after = (unsigned long long)calls;
    if (own > calls) {
        (void)tri_fail(TRIB_ERR_CLOSED,
                       "rank %d left after call %llu, and rank %d has made call %llu",
                       (int)leaver->rank, after, (int)rank->rank, (unsigned long long)own);
        return true;
    }
    if (rank->p2p == NULL || leaver->p2p == NULL) /* not open yet: no calls */
        return false;
    return made_more_messages(rank, leaver, after);
}

/* Some rank has left: refuse a call that it will not match. */
static trib_status check_left(const struct tri_transport *transport)
{
    struct tri_nccl_local *local = transport->local;
    int32_t lost = -1;
    pthread_mutex_lock(&local->lock);
    for (const struct tri_transport *leaver = local->ranks; leaver != NULL && lost < 0;
         leaver = leaver->next)
        if (leaver->left && leaver != transport && made_more_calls(transport, leaver))
            lost = leaver->rank;
    pthread_mutex_unlock(&local->lock);
    if (lost < 0)
        return TRIB_OK;
    (void)tri_abort_raise_lost(local->state, TRIB_ERR_CLOSED, tri_detail(), &lost, 1);
    return tri_abort_status(local->state);
}

static trib_status check_if_left(const struct tri_transport *transport)
{
    return atomic_load(&transport->local->left) ? check_left(transport) : TRIB_OK;
}

trib_status tri_nccl_count_calls(const struct tri_call *calls, size_t n)
{
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < n; i++)
        add_to_count(&calls[i], 1);
    for (size_t i = 0; i < n && status == TRIB_OK; i++)
        status = check_if_left(calls[i].transport);
    return status;
}

void tri_nccl_uncount_calls(const struct tri_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_to_count(&calls[i], -1);
}

trib_status tri_nccl_count_split(struct tri_transport *transport)
{
    (void)atomic_fetch_add(&transport->calls, 1);
    return check_if_left(transport);
}

bool tri_nccl_mark_left(struct tri_transport *transport)
{
    struct tri_nccl_local *local = transport->local;
    bool matched = true;
    transport->left = true;
    atomic_store(&local->left, true);
    for (const struct tri_transport *rank = local->ranks; rank != NULL && matched;
         rank = rank->next)
        matched = rank == transport || !made_more_calls(rank, transport);
    return matched;
}
