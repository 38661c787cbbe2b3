/* Ranks that others wait for and that are not there. */
#include "csrc/host/absent.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "csrc/base/log.h"
#include "csrc/base/status.h"
#include "csrc/host/describe.h"
#include "csrc/host/host.h"

static_assert(TRI_HOST_MAX_RANKS <= 64, "a bit for every rank");

static _Atomic uint64_t patience_ns = 10000000000u;

/* --------------------------------------------------------------------------------------- leaving */

void tri_absent_check(struct tri_transport *self)
{
    struct tri_clique *clique = self->clique;
    const uint64_t me = (uint64_t)1 << self->rank;
    if (!atomic_load(&self->closed) || atomic_load(&self->served) != self->issued)
        return;
    if ((atomic_fetch_or(&clique->left, me) & me) == 0)
        tri_clique_wake(clique);
}

uint64_t tri_absent_left(const struct tri_clique *clique)
{
    return atomic_load(&clique->left);
}

/* "rank 2 left after call 17 (barrier)"; it has left, so what it wrote stays. */
static void tell_left(char *text, size_t bytes, const struct tri_transport *gone)
{
    const int used = snprintf(text, bytes, "rank %d left after call %" PRIu64, (int)gone->rank,
                              gone->issued);
    if (gone->last.transport != NULL)
        (void)snprintf(text + used, bytes - (size_t)used, " (%s)", tri_describe(&gone->last).text);
}

/* The number of the submission that this rank runs. */
static uint64_t current(const struct tri_transport *self)
{
    return atomic_load(&self->served) + 1;
}

void tri_absent_stop(const struct tri_transport *self, uint64_t gone, const struct tri_call *call)
{
    const struct tri_clique *clique = self->clique;
    char left[192];
    int32_t rank = 0;
    while ((gone & (uint64_t)1 << rank) == 0)
        rank++;
    tell_left(left, sizeof left, &clique->ranks[rank]);
    const trib_status status =
        call == NULL ? tri_fail(TRIB_ERR_CLOSED, "%s, and rank %d waits for it in trib_comm_split",
                                left, (int)self->rank)
                     : tri_fail(TRIB_ERR_CLOSED, "%s, and rank %d waits for it in call %" PRIu64
                                                 " (%s)",
                                left, (int)self->rank, current(self), tri_describe(call).text);
    (void)tri_abort_raise(clique->abort, status, tri_detail());
}

/* --------------------------------------------------------------------------------------- waiting */

void tri_absent_set_patience(uint64_t ns)
{
    atomic_store(&patience_ns, ns);
}

void tri_absent_wait(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                     void (*late)(void *context))
{
    if (tri_eventcount_wait_for(eventcount, holds, context, atomic_load(&patience_ns)))
        return;
    late(context);
    (void)tri_eventcount_wait(eventcount, holds, context, 0);
}

void tri_absent_log(const struct tri_transport *self, const struct tri_call *call,
                    uint64_t missing, const char *done)
{
    char ranks[256] = "";
    size_t used = 0, n = 0;
    for (int32_t rank = 0; rank < self->clique->size; rank++)
        if ((missing & (uint64_t)1 << rank) != 0)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%d",
                                     n++ == 0 ? "" : ", ", (int)rank);
    if (n != 0) /* otherwise they have just done it */
        tri_log(TRIB_LOG_WARN, "%s %s %s not %s call %" PRIu64 " (%s) of rank %d for %g s",
                n == 1 ? "rank" : "ranks", ranks, n == 1 ? "has" : "have", done, current(self),
                tri_describe(call).text, (int)self->rank,
                (double)atomic_load(&patience_ns) / 1e9);
}
