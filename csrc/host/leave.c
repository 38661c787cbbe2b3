/* Ranks that leave, and the abort that frees the ranks that wait for them. */
#include "csrc/host/leave.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "csrc/base/status.h"
#include "csrc/host/describe.h"
#include "csrc/host/ops.h"

static_assert(TRI_HOST_MAX_RANKS <= 64, "a bit for every rank");

void tri_host_leave_check(struct tri_transport *self)
{
    struct tri_host_local *local = self->local;
    const uint64_t bit = (uint64_t)1 << self->rank;
    if (!atomic_load(&self->closed) || atomic_load(&self->completed) != self->submitted)
        return;
    if ((atomic_fetch_or(&local->left, bit) & bit) == 0)
        tri_host_local_notify(local);
}

uint64_t tri_host_left_ranks(const struct tri_host_local *local)
{
    return atomic_load(&local->left);
}

uint64_t tri_host_call_number(const struct tri_transport *self)
{
    return atomic_load(&self->completed) + 1;
}

/* "rank 2 left after call 17 (barrier)". The rank has left, so its fields are final. */
static void describe_left(char *text, size_t bytes, const struct tri_transport *left)
{
    const int used =
        snprintf(text, bytes, "rank %d left after call %" PRIu64, (int)left->rank, left->submitted);
    if (left->last.transport != NULL)
        (void)snprintf(text + used, bytes - (size_t)used, " (%s)", tri_describe(&left->last).text);
}

/* The first rank of a set that is not empty. */
static int32_t first_rank(uint64_t ranks)
{
    int32_t rank = 0;
    while ((ranks & (uint64_t)1 << rank) == 0)
        rank++;
    return rank;
}

void tri_host_leave_abort(const struct tri_transport *self, uint64_t left,
                          const struct tri_call *call)
{
    const struct tri_host_local *local = self->local;
    int32_t lost[TRI_HOST_MAX_RANKS], n = 0;
    char reason[192];
    for (int32_t rank = 0; rank < local->size; rank++)
        if ((left & (uint64_t)1 << rank) != 0)
            lost[n++] = rank;
    describe_left(reason, sizeof reason, &local->ranks[first_rank(left)]);
    const trib_status status =
        call == NULL
            ? tri_fail(TRIB_ERR_CLOSED, "%s, and rank %d waits for it in trib_comm_split", reason,
                       (int)self->rank)
            : tri_fail(TRIB_ERR_CLOSED, "%s, and rank %d waits for it in call %" PRIu64 " (%s)",
                       reason, (int)self->rank, tri_host_call_number(self),
                       tri_describe(call).text);
    (void)tri_abort_raise_lost(local->abort, status, tri_detail(), lost, n);
}
