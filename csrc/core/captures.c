/* The memory of calls that graphs have captured. */
#include "csrc/core/captures.h"

#include <stdlib.h>

#include "csrc/base/lock.h"
#include "csrc/base/status.h"

/* The captured calls of one communicator that have memory. Their graphs may outlive it. */
struct tri_captures {
    struct tri_lock lock; /* guards the rest. Held during no call of a backend */
    uint32_t references;  /* the communicator's, and one for each call */
    struct captured *first;
    struct tri_list_counts gone; /* of calls whose graphs are gone */
};

/* What one captured call owns. */
struct captured {
    struct tri_captures *of;
    struct captured *next, **before;
    struct tri_block *block, *cell; /* the cell: struct tri_list_counts */
    struct trib_abort *state;       /* replays read its abort flag */
};

/* Made at the first use; NULL without memory. */
static struct tri_captures *reach(struct tri_captures **captures)
{
    if (*captures == NULL && (*captures = calloc(1, sizeof **captures)) != NULL) {
        tri_lock_init(&(*captures)->lock);
        (*captures)->references = 1;
    }
    return *captures;
}

void tri_captures_release(struct tri_captures *captures)
{
    if (captures == NULL)
        return;
    tri_lock(&captures->lock);
    const bool last = --captures->references == 0;
    tri_unlock(&captures->lock);
    if (last)
        free(captures);
}

static struct tri_list_counts counts_of(const struct tri_block *cell)
{
    const struct tri_list_counts *counts = cell->data;
    return (struct tri_list_counts){.committed =
                                        __atomic_load_n(&counts->committed, __ATOMIC_ACQUIRE),
                                    .refused = __atomic_load_n(&counts->refused, __ATOMIC_ACQUIRE)};
}

static void add_counts(struct tri_list_counts *sum, struct tri_list_counts counts)
{
    sum->committed += counts.committed;
    sum->refused += counts.refused;
}

static void enlist(struct captured *call, struct tri_captures *captures)
{
    tri_lock(&captures->lock);
    captures->references++;
    call->of = captures;
    call->next = captures->first;
    call->before = &captures->first;
    if (call->next != NULL)
        call->next->before = &call->next;
    captures->first = call;
    tri_unlock(&captures->lock);
}

/* The graph is gone, on a thread of CUDA's. Frees without a call of CUDA's: see tri_memory_free. */
static void drop(void *argument)
{
    struct captured *call = argument;
    struct tri_captures *captures = call->of;
    tri_lock(&captures->lock);
    *call->before = call->next;
    if (call->next != NULL)
        call->next->before = call->before;
    add_counts(&captures->gone, counts_of(call->cell));
    tri_unlock(&captures->lock);
    tri_memory_free(call->block);
    tri_memory_free(call->cell);
    tri_abort_release(call->state);
    tri_captures_release(captures);
    free(call);
}

static trib_status allocate(struct captured *call, struct tri_owner *owner, size_t bytes)
{
    TRI_TRY(tri_memory_alloc(&call->block, owner, TRI_NO_STATE, bytes));
    const trib_status status =
        tri_memory_alloc_pinned(&call->cell, owner, TRI_NO_STATE, sizeof(struct tri_list_counts));
    if (status != TRIB_OK)
        tri_memory_free(call->block);
    return status;
}

trib_status tri_captures_alloc(char **out, struct tri_list_counts **out_counts,
                               const struct tri_capturing *of, size_t bytes)
{
    const struct tri_device_ops *device = of->owner->backend->device;
    struct tri_captures *captures = reach(of->captures);
    struct captured *call = calloc(1, sizeof *call);
    if (captures == NULL || call == NULL) {
        free(call);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to describe a captured call");
    }
    const trib_status status = allocate(call, of->owner, bytes);
    if (status != TRIB_OK) {
        free(call);
        return status;
    }
    call->state = tri_abort_retain(of->state);
    enlist(call, captures);
    *out = call->block->data;
    *out_counts = call->cell->data;
    return device->keep(of->owner->device, of->stream, drop, call);
}

struct tri_list_counts tri_captures_lists(struct tri_captures *captures)
{
    struct tri_list_counts sum = {.committed = 0};
    if (captures == NULL)
        return sum;
    tri_lock(&captures->lock);
    sum = captures->gone;
    for (const struct captured *call = captures->first; call != NULL; call = call->next)
        add_counts(&sum, counts_of(call->cell));
    tri_unlock(&captures->lock);
    return sum;
}
