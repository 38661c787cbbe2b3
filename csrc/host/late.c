/* Late ranks: a rank that waits long for another one logs a warning. */
#include "csrc/host/late.h"

#include <inttypes.h>
#include <stdio.h>

#include "csrc/base/log.h"
#include "csrc/host/describe.h"
#include "csrc/host/leave.h"

static _Atomic uint64_t threshold_ns = 10000000000u;

void tri_host_late_set_threshold(uint64_t ns)
{
    atomic_store(&threshold_ns, ns);
}

void tri_host_late_wait(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                        void (*late)(void *context))
{
    if (tri_eventcount_wait_for(eventcount, holds, context, atomic_load(&threshold_ns)))
        return;
    late(context);
    (void)tri_eventcount_wait(eventcount, holds, context, 0);
}

void tri_host_late_log(const struct tri_transport *self, const struct tri_call *call,
                       uint64_t ranks, const char *done)
{
    char list[256] = "";
    size_t used = 0, n = 0;
    for (int32_t rank = 0; rank < self->local->size; rank++)
        if ((ranks & (uint64_t)1 << rank) != 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", n++ == 0 ? "" : ", ",
                                     (int)rank);
    if (n != 0) /* otherwise they have just done it */
        tri_log(TRIB_LOG_WARN, "%s %s %s not %s call %" PRIu64 " (%s) of rank %d for %g s",
                n == 1 ? "rank" : "ranks", list, n == 1 ? "has" : "have", done,
                tri_host_call_number(self), tri_describe(call).text, (int)self->rank,
                (double)atomic_load(&threshold_ns) / 1e9);
}
