/* The barrier at the start and at the end of a collective. */
#include "csrc/host/barrier.h"

#include "csrc/host/late.h"
#include "csrc/host/leave.h"

struct barrier {
    struct tri_transport *self;
    const struct tri_call *call;
    enum tri_barrier_at at;
    uint32_t phase; /* before this barrier */
};

static bool passed(void *context)
{
    const struct barrier *barrier = context;
    return atomic_load(&barrier->self->local->phase) != barrier->phase;
}

static bool passed_or_stopped(void *context)
{
    const struct barrier *barrier = context;
    const struct tri_host_local *local = barrier->self->local;
    return passed(context) || !tri_host_local_live(local) || tri_host_left_ranks(local) != 0;
}

/* The ranks that have reached fewer barriers than this one. */
static uint64_t behind(const struct tri_transport *self)
{
    const uint32_t barriers = atomic_load(&self->barriers);
    uint64_t ranks = 0;
    for (int32_t rank = 0; rank < self->local->size; rank++)
        if ((int32_t)(atomic_load(&self->local->ranks[rank].barriers) - barriers) < 0)
            ranks |= (uint64_t)1 << rank;
    return ranks;
}

/* One of the waiting ranks logs the late ones. */
static void log_late(void *context)
{
    const struct barrier *barrier = context;
    struct tri_transport *self = barrier->self;
    if (atomic_exchange(&self->local->late_logged, barrier->phase + 1) != barrier->phase + 1)
        tri_host_late_log(self, barrier->call, behind(self),
                          barrier->at == TRI_AT_START ? "reached" : "finished");
}

/* Returns true if this rank is the last one. */
static bool arrive(const struct barrier *barrier)
{
    struct tri_transport *self = barrier->self;
    struct tri_host_local *local = self->local;
    atomic_store_explicit(&self->barriers, atomic_load(&self->barriers) + 1, memory_order_release);
    if (atomic_fetch_add(&local->arrived, 1) + 1 != local->size)
        return false;
    atomic_store(&local->arrived, 0);
    atomic_store(&local->phase, barrier->phase + 1);
    tri_eventcount_notify(&local->eventcount);
    return true;
}

bool tri_host_barrier(struct tri_transport *self, const struct tri_call *call,
                      enum tri_barrier_at at)
{
    struct tri_host_local *local = self->local;
    struct barrier barrier = {self, call, at, atomic_load(&local->phase)};
    if (arrive(&barrier))
        return true;
    tri_host_late_wait(&local->eventcount, passed_or_stopped, &barrier, log_late);
    const uint64_t left = tri_host_left_ranks(local);
    if (atomic_load(&local->phase) != barrier.phase)
        return true;
    if (left != 0)
        tri_host_leave_abort(self, left, call);
    return false;
}

void tri_host_barrier_always(struct tri_transport *self, const struct tri_call *call)
{
    struct tri_host_local *local = self->local;
    struct barrier barrier = {self, call, TRI_AT_END, atomic_load(&local->phase)};
    if (!arrive(&barrier))
        tri_host_late_wait(&local->eventcount, passed, &barrier, log_late);
}
