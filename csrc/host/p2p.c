/* Sends and receives between local ranks.
 *
 * A sender posts its messages for each receiver as a linked list, in the order of its calls, by
 * storing one pointer; the receiver removes them from the front and copies straight from the
 * sender's buffer. The sender waits until all messages are received, so the receiver's pointer for
 * it is NULL when it posts the next list. This takes one pointer for each pair of ranks, and no
 * lock.
 *
 * A rank posts all sends of a batch before its first receive waits. So a receive waits only until
 * its sender reaches the batch, whatever the order of the receives. core has checked that a batch
 * receives what it sends to its own rank. */
#include "csrc/host/p2p.h"

#include <stdlib.h>

#include "csrc/base/status.h"
#include "csrc/base/types.h"
#include "csrc/host/late.h"
#include "csrc/host/leave.h"

/* One send; lives in the sender's call of tri_host_p2p. */
struct tri_message {
    struct tri_message *next; /* to the same receiver */
    const struct tri_call *call;
};

enum { INLINE_MESSAGES = 16 }; /* more are allocated */

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

static uint64_t bit(int32_t rank)
{
    return (uint64_t)1 << rank;
}

/* ------------------------------------------------------------------------------------- sending */

/* Write the sends to `messages`, and link those of each receiver: first[receiver], or NULL. */
static void link_messages(struct tri_message **first, int32_t size, struct tri_message *messages,
                          const struct tri_call *calls, size_t n)
{
    struct tri_message **last[TRI_HOST_MAX_RANKS];
    for (int32_t rank = 0; rank < size; rank++)
        last[rank] = &first[rank];
    for (size_t i = 0; i < n; i++) {
        if (calls[i].kind != TRI_SEND)
            continue;
        const int32_t peer = calls[i].peer;
        *messages = (struct tri_message){.next = NULL, .call = &calls[i]};
        *last[peer] = messages;
        last[peer] = &messages->next;
        messages++;
    }
}

static void post(struct tri_transport *self, struct tri_message *messages, size_t sends,
                 const struct tri_call *calls, size_t n)
{
    struct tri_host_local *local = self->local;
    struct tri_message *first[TRI_HOST_MAX_RANKS] = {NULL};
    link_messages(first, local->size, messages, calls, n);
    atomic_store(&self->unreceived, (uint32_t)sends);
    for (int32_t rank = 0; rank < local->size; rank++)
        if (first[rank] != NULL) {
            atomic_store(&local->ranks[rank].messages[self->rank], first[rank]);
            tri_eventcount_notify(&local->ranks[rank].eventcount);
        }
}

/* The ranks that have not received all messages of this one. */
static uint64_t pending_receivers(const struct tri_transport *self)
{
    uint64_t ranks = 0;
    for (int32_t rank = 0; rank < self->local->size; rank++)
        if (atomic_load(&self->local->ranks[rank].messages[self->rank]) != NULL)
            ranks |= bit(rank);
    return ranks;
}

/* The pending receivers that have left. */
static uint64_t left_receivers(const struct tri_transport *self)
{
    const uint64_t left = tri_host_left_ranks(self->local);
    return left == 0 ? 0 : left & pending_receivers(self);
}

struct send_wait {
    struct tri_transport *self;
    const struct tri_call *call; /* the last of the sends */
};

/* Stopped: a receiver has left, or an abort. */
static bool received_or_stopped(void *context)
{
    const struct tri_transport *self = ((const struct send_wait *)context)->self;
    return atomic_load(&self->unreceived) == 0 || !tri_host_local_live(self->local) ||
           left_receivers(self) != 0;
}

static void log_late_receivers(void *context)
{
    const struct send_wait *wait = context;
    tri_host_late_log(wait->self, wait->call, pending_receivers(wait->self), "reached");
}

/* Wait until all posted messages are received. */
static trib_status wait_received(struct tri_transport *self, const struct tri_call *last)
{
    struct send_wait wait = {self, last};
    tri_host_late_wait(&self->eventcount, received_or_stopped, &wait, log_late_receivers);
    if (atomic_load(&self->unreceived) == 0)
        return TRIB_OK;
    const uint64_t left = left_receivers(self);
    if (left != 0)
        tri_host_leave_abort(self, left, last);
    return tri_host_local_finish_abort(self);
}

/* ----------------------------------------------------------------------------------- receiving */

struct receive_wait {
    struct tri_transport *self;
    const struct tri_call *call;
};

/* Stopped: the sender has left, or an abort. */
static bool posted_or_stopped(void *context)
{
    const struct receive_wait *wait = context;
    const struct tri_transport *self = wait->self;
    const int32_t from = wait->call->peer;
    return atomic_load(&self->messages[from]) != NULL || !tri_host_local_live(self->local) ||
           (tri_host_left_ranks(self->local) & bit(from)) != 0;
}

static void log_late_sender(void *context)
{
    const struct receive_wait *wait = context;
    tri_host_late_log(wait->self, wait->call, bit(wait->call->peer), "reached");
}

static trib_status check_same(const struct tri_call *sent, const struct tri_call *wanted,
                              int32_t rank)
{
    if (sent->count == wanted->count && sent->dtype == wanted->dtype)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_MISMATCH,
                    "rank %d sends %zu %s to rank %d, which receives %zu %s from it; both must "
                    "pass the same count and type",
                    (int)wanted->peer, sent->count, trib_dtype_name(sent->dtype), (int)rank,
                    wanted->count, trib_dtype_name(wanted->dtype));
}

/* Receive the peer's first message and remove it. TRIB_ERR_ABORTED if an abort interrupted it. */
static trib_status receive_first(struct tri_transport *self, const struct tri_call *call,
                                 const struct tri_message *message)
{
    struct tri_transport *sender = &self->local->ranks[call->peer];
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    TRI_TRY(check_same(message->call, call, self->rank));
    if (!tri_host_local_copy(self->local, call->recv, message->call->send, bytes))
        return TRIB_ERR_ABORTED;
    atomic_store(&self->messages[call->peer], message->next);
    if (atomic_fetch_sub(&sender->unreceived, 1) == 1) /* now the sender may free the message */
        tri_eventcount_notify(&sender->eventcount);
    return TRIB_OK;
}

static trib_status receive(struct tri_transport *self, const struct tri_call *call)
{
    struct receive_wait wait = {self, call};
    tri_host_late_wait(&self->eventcount, posted_or_stopped, &wait, log_late_sender);
    if (!tri_host_local_access_begin(self))
        return tri_host_local_finish_abort(self);
    const struct tri_message *message = atomic_load(&self->messages[call->peer]);
    const trib_status status = message == NULL ? TRIB_OK : receive_first(self, call, message);
    tri_host_local_access_end(self);
    if (message == NULL) {
        tri_host_leave_abort(self, bit(call->peer), call);
        return tri_host_local_finish_abort(self);
    }
    return status == TRIB_OK ? TRIB_OK : tri_host_local_fail(self, status);
}

/* ----------------------------------------------------------------------------------------- both */

static trib_status exchange(struct tri_transport *self, struct tri_message *messages, size_t sends,
                            const struct tri_call *calls, size_t n)
{
    const struct tri_call *last_send = NULL;
    if (sends != 0)
        post(self, messages, sends, calls, n);
    for (size_t i = 0; i < n; i++) {
        if (calls[i].kind == TRI_RECV)
            TRI_TRY(receive(self, &calls[i]));
        else if (calls[i].kind == TRI_SEND)
            last_send = &calls[i];
    }
    return last_send == NULL ? TRIB_OK : wait_received(self, last_send);
}

trib_status tri_host_p2p(struct tri_transport *self, const struct tri_call *calls, size_t n)
{
    struct tri_message few[INLINE_MESSAGES];
    const struct count count = count_calls(calls, n);
    if (count.sends + count.receives == 0)
        return TRIB_OK;
    if (count.sends <= INLINE_MESSAGES)
        return exchange(self, few, count.sends, calls, n);
    struct tri_message *many = calloc(count.sends, sizeof *many);
    if (many == NULL)
        return tri_host_local_fail(
            self, tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for %zu sends", count.sends));
    const trib_status status = exchange(self, many, count.sends, calls, n);
    free(many);
    return status;
}
