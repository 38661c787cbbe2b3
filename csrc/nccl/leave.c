/* Ranks that leave.
 *
 * A rank counts a call, then looks whether anybody has left; who leaves says so, then looks at the
 * counts of the others. Both in sequentially consistent order: of a call and a leaving at the same
 * time, one sees the other. So a call beyond what the leaver made is either refused before NCCL
 * sees it, or known to the leaver, who stops the clique. Calls up to there disturb nobody. */
#include "csrc/nccl/leave.h"

#include <stdatomic.h>

static void add(const struct tri_call *call, int change)
{
    struct tri_transport *transport = call->transport;
    _Atomic uint64_t *counter = call->kind == TRI_SEND   ? &transport->mail[call->peer].sent
                                : call->kind == TRI_RECV ? &transport->mail[call->peer].received
                                                         : &transport->calls;
    (void)atomic_fetch_add(counter, (uint64_t)change);
}

/* Has `rank` made calls that `leaver` has not, and will not make? Then the detail says so. */
static bool more(const struct tri_transport *rank, const struct tri_transport *leaver)
{
    const uint64_t calls = atomic_load(&leaver->calls), own = atomic_load(&rank->calls);
    const unsigned long long after = (unsigned long long)calls;
    if (own > calls) {
        (void)tri_fail(TRIB_ERR_CLOSED, "rank %d left after call %llu, and rank %d has made call %llu",
                       (int)leaver->rank, after, (int)rank->rank, (unsigned long long)own);
        return true;
    }
    if (rank->mail == NULL || leaver->mail == NULL) /* not open yet: no calls */
        return false;
    const struct tri_nccl_mail *mine = &rank->mail[leaver->rank];
    const struct tri_nccl_mail *its = &leaver->mail[rank->rank];
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

/* Somebody has left. */
static trib_status look(const struct tri_transport *transport)
{
    struct tri_nccl_clique *clique = transport->clique;
    bool beyond = false;
    pthread_mutex_lock(&clique->lock);
    for (const struct tri_transport *leaver = clique->ranks; leaver != NULL && !beyond;
         leaver = leaver->next)
        beyond = leaver->left && leaver != transport && more(transport, leaver);
    pthread_mutex_unlock(&clique->lock);
    return beyond ? tri_nccl_stop(clique, TRIB_ERR_CLOSED) : TRIB_OK;
}

static trib_status look_if_left(const struct tri_transport *transport)
{
    return atomic_load(&transport->clique->left) ? look(transport) : TRIB_OK;
}

trib_status tri_nccl_note_calls(const struct tri_call *calls, size_t n)
{
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < n; i++)
        add(&calls[i], 1);
    for (size_t i = 0; i < n && status == TRIB_OK; i++)
        status = look_if_left(calls[i].transport);
    return status;
}

void tri_nccl_unnote_calls(const struct tri_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(&calls[i], -1);
}

trib_status tri_nccl_note_split(struct tri_transport *transport)
{
    (void)atomic_fetch_add(&transport->calls, 1);
    return look_if_left(transport);
}

bool tri_nccl_leave_even(struct tri_transport *transport)
{
    struct tri_nccl_clique *clique = transport->clique;
    bool even = true;
    transport->left = true;
    atomic_store(&clique->left, true);
    for (const struct tri_transport *rank = clique->ranks; rank != NULL && even; rank = rank->next)
        even = rank == transport || !more(rank, transport);
    return even;
}
