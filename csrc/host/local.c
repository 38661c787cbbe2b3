/* The local ranks of one communicator, and the state that they share. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/abort.h"
#include "csrc/base/clock.h"
#include "csrc/base/line.h"
#include "csrc/base/status.h"

void tri_host_local_notify(struct tri_host_local *local)
{
    tri_eventcount_notify(&local->eventcount);
    tri_eventcount_notify(&local->closing);
    tri_eventcount_notify(&local->split.eventcount);
    for (int32_t rank = 0; rank < local->size; rank++)
        tri_eventcount_notify(&local->ranks[rank].eventcount);
}

/* The abort hook. */
static void on_abort(void *context)
{
    struct tri_host_local *local = context;
    local->aborted_ns = tri_now_ns();
    tri_host_local_notify(local);
}

/* A submission that is taken up later sees the flag before it would wait. */
static bool interrupted(void *context, char *text, size_t bytes)
{
    const struct tri_host_local *local = context;
    if (tri_host_local_live(local)) /* the abort is not visible yet */
        return false;
    for (int32_t rank = 0; rank < local->size; rank++)
        if (atomic_load(&local->ranks[rank].running)) {
            (void)snprintf(text, bytes, "a call on the stream of rank %d", (int)rank);
            return false;
        }
    return true;
}

/* Once every rank has closed, only submissions that have not run keep this memory. After an abort
 * they run at once, unless something of the caller's runs before them on their stream. */
static bool parked(void *context, char *text, size_t bytes)
{
    const struct tri_host_local *local = context;
    int32_t rank = 0;
    if (atomic_load(&local->closed) != local->size || tri_host_local_pending(local, &rank) == 0)
        return false;
    const uint64_t ns = tri_now_ns() - local->aborted_ns;
    if (ns < (uint64_t)TRI_PARKED_AFTER_MS * 1000000u)
        return false;
    (void)snprintf(text, bytes, "earlier work on a stream of rank %d, for %.1f s", (int)rank,
                   (double)ns / 1e9);
    return true;
}

static const struct tri_abort_ending ending = {.interrupted = interrupted, .parked = parked};

/* All ranks have closed, and their submissions have run. */
static void free_symmetric(struct tri_transport *self)
{
    struct tri_symmetric *memory;
    while ((memory = tri_symmetric_pop(&self->symmetric)) != NULL) {
        (void)tri_host_free(self->device, memory->of[self->rank].here);
        free(memory);
    }
}

static void free_local(struct tri_host_local *local)
{
    for (int32_t rank = 0; rank < local->size; rank++)
        free_symmetric(&local->ranks[rank]);
    free(local->stage);
    free(local);
}

static void init_rank(struct tri_host_local *local, int32_t rank, int32_t device)
{
    struct tri_transport *self = &local->ranks[rank];
    self->local = local;
    self->rank = rank;
    self->device = device;
    for (int i = 0; i < 2; i++)
        self->staged[i] = local->stage + (size_t)(2 * rank + i) * TRI_STAGE_BYTES;
}

struct tri_host_local *tri_host_local_create(const int32_t *devices, int32_t size)
{
    const size_t n = (size_t)size;
    struct tri_host_local *local = tri_line_calloc(sizeof *local + n * sizeof local->ranks[0]);
    if (local == NULL)
        return NULL;
    local->size = size;
    atomic_store(&local->references, (uint32_t)size);
    local->split.size = size;
    local->stage = tri_line_calloc(2 * n * TRI_STAGE_BYTES);
    local->abort = tri_abort_create(&local->abort_flag, on_abort, local);
    if (local->stage == NULL || local->abort == NULL) {
        tri_abort_release(local->abort);
        free_local(local);
        return NULL;
    }
    tri_abort_set_ending(local->abort, &ending);
    for (int32_t rank = 0; rank < size; rank++)
        init_rank(local, rank, devices[rank]);
    return local;
}

void tri_host_local_retain(struct tri_host_local *local)
{
    atomic_fetch_add(&local->references, 1);
}

void tri_host_local_release(struct tri_host_local *local)
{
    if (atomic_fetch_sub(&local->references, 1) != 1)
        return;
    struct trib_abort *abort = local->abort;
    tri_abort_detach(abort);
    free_local(local);
    tri_abort_reclaimed(abort);
    tri_abort_release(abort);
}

uint64_t tri_host_local_pending(const struct tri_host_local *local, int32_t *out_rank)
{
    uint64_t sum = 0;
    for (int32_t rank = 0; rank < local->size; rank++) {
        const struct tri_transport *self = &local->ranks[rank];
        const uint64_t n = self->submitted - atomic_load(&self->completed);
        if (n != 0 && sum == 0)
            *out_rank = rank;
        sum += n;
    }
    return sum;
}

bool tri_host_local_live(const struct tri_host_local *local)
{
    return __atomic_load_n(&local->abort_flag, __ATOMIC_SEQ_CST) == 0;
}

bool tri_host_local_access_begin(struct tri_transport *self)
{
    atomic_store(&self->accessing, true);
    if (tri_host_local_live(self->local))
        return true;
    tri_host_local_access_end(self);
    return false;
}

void tri_host_local_access_end(struct tri_transport *self)
{
    atomic_store(&self->accessing, false);
    if (!tri_host_local_live(self->local))
        tri_eventcount_notify(&self->local->eventcount);
}

bool tri_host_local_copy(const struct tri_host_local *local, void *dst, const void *src,
                         size_t bytes)
{
    if (dst == src)
        return true;
    for (size_t at = 0; at < bytes; at += TRI_PIECE_BYTES) {
        const size_t left = bytes - at;
        if (!tri_host_local_live(local))
            return false;
        memcpy((char *)dst + at, (const char *)src + at,
               left < TRI_PIECE_BYTES ? left : TRI_PIECE_BYTES);
    }
    return true;
}

static bool no_rank_accesses(void *context)
{
    const struct tri_host_local *local = context;
    if (tri_host_local_live(local)) /* the abort is not visible yet: an access may still begin */
        return false;
    for (int32_t rank = 0; rank < local->size; rank++)
        if (atomic_load(&local->ranks[rank].accessing))
            return false;
    return true;
}

trib_status tri_host_local_finish_abort(struct tri_transport *self)
{
    (void)tri_eventcount_wait(&self->local->eventcount, no_rank_accesses, self->local, 0);
    return tri_abort_status(self->local->abort);
}

trib_status tri_host_local_fail(struct tri_transport *self, trib_status status)
{
    (void)tri_abort_raise(self->local->abort, status, tri_detail());
    return tri_host_local_finish_abort(self);
}
