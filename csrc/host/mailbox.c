/* Sends and receives between the ranks of a clique.
 *
 * A sender hands its parcels to each receiver as a chain, in the order of its calls, by storing one
 * pointer; the receiver takes them off the front, copying straight from the sender's buffer. The
 * sender waits until all of them are taken, so its place in the receiver's mailbox is empty when it
 * posts the next chain: one pointer for each pair of ranks is all there is, without a lock.
 *
 * All sends of a batch are posted before the first receive waits. So a receive waits only until its
 * sender has come to the batch, in whatever order the receives are taken. What a rank sends itself
 * it receives in the same batch; core has seen to that. */
#include "csrc/host/mailbox.h"

#include <stdlib.h>

#include "csrc/base/status.h"
#include "csrc/base/types.h"
#include "csrc/host/absent.h"

/* One send; lives in the sender's call of tri_mailbox_exchange. */
struct tri_parcel {
    struct tri_parcel *next; /* for the same receiver */
    const struct tri_call *call;
};

enum { FEW_PARCELS = 16 };

struct count {
    size_t sends;
    size_t receives;
};

static struct count count_calls(const struct tri_call *calls, size_t n)
{
    struct count count = {0, 0};
    for (size_t i = 0; i < n; i++) {
        count.sends += calls[i].kind == TRI_SEND;
        count.receives += calls[i].kind == TRI_RECV;
    }
    return count;
}

/* Fill `parcels` with the sends and hand them over. */
static void post(struct tri_transport *self, struct tri_parcel *parcels, size_t sends,
                 const struct tri_call *calls, size_t n)
{
    struct tri_clique *clique = self->clique;
    struct tri_parcel *first[TRI_HOST_MAX_RANKS] = {NULL};
    struct tri_parcel **last[TRI_HOST_MAX_RANKS];
    for (int32_t rank = 0; rank < clique->size; rank++)
        last[rank] = &first[rank];
    for (size_t i = 0; i < n; i++) {
        if (calls[i].kind != TRI_SEND)
            continue;
        const int32_t peer = calls[i].peer;
        *parcels = (struct tri_parcel){NULL, &calls[i]};
        *last[peer] = parcels;
        last[peer] = &parcels->next;
        parcels++;
    }
    atomic_store(&self->unsent, (uint32_t)sends);
    for (int32_t rank = 0; rank < clique->size; rank++)
        if (first[rank] != NULL) {
            atomic_store(&clique->ranks[rank].parcels[self->rank], first[rank]);
            tri_eventcount_notify(&clique->ranks[rank].eventcount);
        }
}

static uint64_t bit(int32_t rank)
{
    return (uint64_t)1 << rank;
}

struct arrival {
    struct tri_transport *self;
    const struct tri_call *call;
};

/* Also if nothing will arrive: the clique was aborted, or the sender has left. */
static bool arrived_or_over(void *context)
{
    const struct arrival *arrival = context;
    const struct tri_transport *self = arrival->self;
    const int32_t from = arrival->call->peer;
    return atomic_load(&self->parcels[from]) != NULL || !tri_clique_live(self->clique) ||
           (tri_absent_left(self->clique) & bit(from)) != 0;
}

static void say_sender_is_late(void *context)
{
    const struct arrival *arrival = context;
    tri_absent_log(arrival->self, arrival->call, bit(arrival->call->peer), "come to");
}

static trib_status mismatch(const struct tri_call *sent, const struct tri_call *wanted,
                            int32_t rank)
{
    return tri_fail(TRIB_ERR_MISMATCH,
                    "rank %d sends %zu %s to rank %d, which receives %zu %s from it; both must "
                    "name the same count and type",
                    (int)wanted->peer, sent->count, trib_dtype_name(sent->dtype), (int)rank,
                    wanted->count, trib_dtype_name(wanted->dtype));
}

/* Wait for the next parcel of the peer and take it. */
static trib_status receive(struct tri_transport *self, const struct tri_call *call)
{
    struct tri_clique *clique = self->clique;
    struct tri_transport *sender = &clique->ranks[call->peer];
    struct arrival arrival = {self, call};
    tri_absent_wait(&self->eventcount, arrived_or_over, &arrival, say_sender_is_late);
    if (!tri_clique_touch_begin(self))
        return tri_clique_leave(self);
    struct tri_parcel *parcel = atomic_load(&self->parcels[call->peer]);
    if (parcel == NULL) {
        tri_clique_touch_end(self);
        tri_absent_stop(self, bit(call->peer), call);
        return tri_clique_leave(self);
    }
    const struct tri_call *sent = parcel->call;
    if (sent->count != call->count || sent->dtype != call->dtype) {
        const trib_status status = mismatch(sent, call, self->rank);
        tri_clique_touch_end(self);
        return tri_clique_fail(self, status);
    }
    if (!tri_clique_copy(clique, call->recv, sent->send,
                         call->count * trib_dtype_size(call->dtype))) {
        tri_clique_touch_end(self);
        return tri_clique_leave(self);
    }
    atomic_store(&self->parcels[call->peer], parcel->next);
    if (atomic_fetch_sub(&sender->unsent, 1) == 1) /* from here on the parcel may be gone */
        tri_eventcount_notify(&sender->eventcount);
    tri_clique_touch_end(self);
    return TRIB_OK;
}

/* The ranks that have not taken all that this one has posted. */
static uint64_t takers(const struct tri_transport *self)
{
    uint64_t takers = 0;
    for (int32_t rank = 0; rank < self->clique->size; rank++)
        if (atomic_load(&self->clique->ranks[rank].parcels[self->rank]) != NULL)
            takers |= bit(rank);
    return takers;
}

struct posting {
    struct tri_transport *self;
    const struct tri_call *call; /* the last of the sends */
};

/* Those of the takers that have left. */
static uint64_t gone_takers(const struct tri_transport *self)
{
    const uint64_t left = tri_absent_left(self->clique);
    return left == 0 ? 0 : left & takers(self);
}

/* Also if somebody will never take his. */
static bool sent_or_over(void *context)
{
    const struct tri_transport *self = ((const struct posting *)context)->self;
    return atomic_load(&self->unsent) == 0 || !tri_clique_live(self->clique) ||
           gone_takers(self) != 0;
}

static void say_takers_are_late(void *context)
{
    const struct posting *posting = context;
    tri_absent_log(posting->self, posting->call, takers(posting->self), "come to");
}

/* Wait until all that was posted has been taken. */
static trib_status deliver(struct tri_transport *self, const struct tri_call *last)
{
    struct posting posting = {self, last};
    tri_absent_wait(&self->eventcount, sent_or_over, &posting, say_takers_are_late);
    if (atomic_load(&self->unsent) == 0)
        return TRIB_OK;
    const uint64_t gone = gone_takers(self);
    if (gone != 0)
        tri_absent_stop(self, gone, last);
    return tri_clique_leave(self);
}

static trib_status exchange(struct tri_transport *self, struct tri_parcel *parcels,
                            const struct count *count, const struct tri_call *calls, size_t n)
{
    if (count->sends != 0)
        post(self, parcels, count->sends, calls, n);
    trib_status status = TRIB_OK;
    const struct tri_call *send = NULL;
    for (size_t i = 0; i < n && status == TRIB_OK; i++) {
        if (calls[i].kind == TRI_RECV)
            status = receive(self, &calls[i]);
        else if (calls[i].kind == TRI_SEND)
            send = &calls[i];
    }
    return status != TRIB_OK || send == NULL ? status : deliver(self, send);
}

trib_status tri_mailbox_exchange(struct tri_transport *self, const struct tri_call *calls,
                                 size_t n)
{
    struct tri_parcel few[FEW_PARCELS];
    const struct count count = count_calls(calls, n);
    if (count.sends + count.receives == 0)
        return TRIB_OK;
    if (count.sends <= FEW_PARCELS)
        return exchange(self, few, &count, calls, n);
    struct tri_parcel *many = calloc(count.sends, sizeof *many);
    if (many == NULL)
        return tri_clique_fail(self, tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for %zu sends",
                                              count.sends));
    const trib_status status = exchange(self, many, &count, calls, n);
    free(many);
    return status;
}
