/* A clique: the ranks of one communicator, and what they share. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/clique.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/abort.h"
#include "csrc/base/status.h"
#include "csrc/host/absent.h"

static void *take_lines(size_t bytes)
{
    const size_t whole = (bytes + TRI_LINE - 1) / TRI_LINE * TRI_LINE;
    void *data = aligned_alloc(TRI_LINE, whole);
    if (data != NULL)
        memset(data, 0, whole);
    return data;
}

void tri_clique_wake(struct tri_clique *clique)
{
    tri_eventcount_notify(&clique->eventcount);
    tri_eventcount_notify(&clique->closing);
    tri_eventcount_notify(&clique->split.eventcount);
    for (int32_t rank = 0; rank < clique->size; rank++)
        tri_eventcount_notify(&clique->ranks[rank].eventcount);
}

/* The abort hook. */
static void wake(void *context)
{
    tri_clique_wake(context);
}

static void free_clique(struct tri_clique *clique)
{
    free(clique->stage);
    free(clique);
}

struct tri_clique *tri_clique_create(const int32_t *devices, int32_t size)
{
    const size_t n = (size_t)size;
    struct tri_clique *clique = take_lines(sizeof *clique + n * sizeof clique->ranks[0]);
    if (clique == NULL)
        return NULL;
    clique->size = size;
    atomic_store(&clique->references, (uint32_t)size);
    tri_meeting_init(&clique->split, size);
    clique->stage = take_lines(2 * n * TRI_STAGE_BYTES);
    clique->abort = tri_abort_create(&clique->word, wake, clique);
    if (clique->stage == NULL || clique->abort == NULL) {
        tri_abort_release(clique->abort);
        free_clique(clique);
        return NULL;
    }
    for (int32_t rank = 0; rank < size; rank++) {
        struct tri_transport *self = &clique->ranks[rank];
        self->clique = clique;
        self->rank = rank;
        self->device = devices[rank];
        for (int turn = 0; turn < 2; turn++)
            self->staged[turn] = clique->stage + (size_t)(2 * rank + turn) * TRI_STAGE_BYTES;
    }
    return clique;
}

void tri_clique_retain(struct tri_clique *clique)
{
    atomic_fetch_add(&clique->references, 1);
}

void tri_clique_release(struct tri_clique *clique)
{
    if (atomic_fetch_sub(&clique->references, 1) != 1)
        return;
    tri_abort_detach(clique->abort);
    tri_abort_release(clique->abort);
    free_clique(clique);
}

bool tri_clique_live(const struct tri_clique *clique)
{
    return __atomic_load_n(&clique->word, __ATOMIC_SEQ_CST) == 0;
}

struct barrier {
    struct tri_transport *self;
    const struct tri_call *call;
    enum tri_end end;
    uint32_t phase;
};

static bool barrier_over(void *context)
{
    const struct barrier *barrier = context;
    const struct tri_clique *clique = barrier->self->clique;
    return atomic_load(&clique->phase) != barrier->phase || !tri_clique_live(clique) ||
           tri_absent_left(clique) != 0;
}

/* The ranks that have come to fewer barriers than this one. */
static uint64_t missing(const struct tri_transport *self)
{
    const uint32_t barriers = atomic_load(&self->barriers);
    uint64_t missing = 0;
    for (int32_t rank = 0; rank < self->clique->size; rank++)
        if ((int32_t)(atomic_load(&self->clique->ranks[rank].barriers) - barriers) < 0)
            missing |= (uint64_t)1 << rank;
    return missing;
}

/* Of all that wait, one says it. */
static void late(void *context)
{
    const struct barrier *barrier = context;
    struct tri_transport *self = barrier->self;
    if (atomic_exchange(&self->clique->late, barrier->phase + 1) != barrier->phase + 1)
        tri_absent_log(self, barrier->call, missing(self),
                       barrier->end == TRI_BEGINS ? "come to" : "finished");
}

bool tri_clique_barrier(struct tri_transport *self, const struct tri_call *call, enum tri_end end)
{
    struct tri_clique *clique = self->clique;
    struct barrier barrier = {self, call, end, atomic_load(&clique->phase)};
    atomic_store_explicit(&self->barriers, atomic_load(&self->barriers) + 1, memory_order_release);
    if (atomic_fetch_add(&clique->arrived, 1) + 1 == clique->size) {
        atomic_store(&clique->arrived, 0);
        atomic_store(&clique->phase, barrier.phase + 1);
        tri_eventcount_notify(&clique->eventcount);
        return true;
    }
    tri_absent_wait(&clique->eventcount, barrier_over, &barrier, late);
    const uint64_t gone = tri_absent_left(clique);
    if (atomic_load(&clique->phase) != barrier.phase)
        return true;
    if (gone != 0)
        tri_absent_stop(self, gone, call);
    return false;
}

bool tri_clique_touch_begin(struct tri_transport *self)
{
    atomic_store(&self->touching, true);
    if (tri_clique_live(self->clique))
        return true;
    tri_clique_touch_end(self);
    return false;
}

void tri_clique_touch_end(struct tri_transport *self)
{
    atomic_store(&self->touching, false);
    if (!tri_clique_live(self->clique))
        tri_eventcount_notify(&self->clique->eventcount);
}

bool tri_clique_copy(const struct tri_clique *clique, void *dst, const void *src, size_t bytes)
{
    if (dst == src)
        return true;
    for (size_t at = 0; at < bytes; at += TRI_PIECE_BYTES) {
        const size_t left = bytes - at;
        if (!tri_clique_live(clique))
            return false;
        memcpy((char *)dst + at, (const char *)src + at,
               left < TRI_PIECE_BYTES ? left : TRI_PIECE_BYTES);
    }
    return true;
}

static bool nobody_touches(void *context)
{
    const struct tri_clique *clique = context;
    if (tri_clique_live(clique)) /* the abort is under way: no rank is kept from touching yet */
        return false;
    for (int32_t rank = 0; rank < clique->size; rank++)
        if (atomic_load(&clique->ranks[rank].touching))
            return false;
    return true;
}

trib_status tri_clique_leave(struct tri_transport *self)
{
    (void)tri_eventcount_wait(&self->clique->eventcount, nobody_touches, self->clique, 0);
    return tri_abort_status(self->clique->abort);
}

trib_status tri_clique_fail(struct tri_transport *self, trib_status status)
{
    (void)tri_abort_raise(self->clique->abort, status, tri_detail());
    return tri_clique_leave(self);
}
