/* Rendezvous: ranks wait for each other and become new communicators. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/rendezvous.h"

#include <pthread.h>
#include <stdio.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/host/leave.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void tri_rendezvous_lock(void)
{
    pthread_mutex_lock(&lock);
}

void tri_rendezvous_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------------------------- joining */

/* The ranks with the color of `first`, in their new order: by key, then by rank. */
static int32_t ranks_of_color(const struct tri_rendezvous *rendezvous, int32_t first,
                              int32_t *members)
{
    int32_t n = 0;
    for (int32_t rank = first; rank < rendezvous->size; rank++) {
        const struct tri_rendezvous_slot *slot = &rendezvous->slots[rank];
        if (slot->color != rendezvous->slots[first].color)
            continue;
        int32_t at = n++;
        for (; at > 0 && rendezvous->slots[members[at - 1]].key > slot->key; at--)
            members[at] = members[at - 1];
        members[at] = rank;
    }
    return n;
}

/* Create the communicator of `first`'s color. False when memory is short. */
static bool create_local(struct tri_rendezvous *rendezvous, int32_t first)
{
    int32_t members[TRI_HOST_MAX_RANKS];
    int32_t devices[TRI_HOST_MAX_RANKS] = {0};
    const int32_t n = ranks_of_color(rendezvous, first, members);
    for (int32_t i = 0; i < n; i++)
        devices[i] = rendezvous->slots[members[i]].device;
    struct tri_host_local *local = tri_host_local_create(devices, n);
    if (local == NULL)
        return false;
    for (int32_t i = 0; i < n; i++)
        rendezvous->slots[members[i]].out = &local->ranks[i];
    return true;
}

/* All ranks have joined: create the communicators, all or none. */
static void complete(struct tri_rendezvous *rendezvous)
{
    bool good = true;
    for (int32_t rank = 0; rank < rendezvous->size && good; rank++)
        if (rendezvous->slots[rank].color >= 0 && rendezvous->slots[rank].out == NULL)
            good = create_local(rendezvous, rank);
    for (int32_t rank = 0; rank < rendezvous->size; rank++) {
        struct tri_rendezvous_slot *slot = &rendezvous->slots[rank];
        if (!good && slot->out != NULL) {
            tri_host_local_release(slot->out->local);
            slot->out = NULL;
        }
        slot->status = good ? TRIB_OK : TRIB_ERR_OUT_OF_MEMORY;
        atomic_store(&slot->completed, true);
    }
    rendezvous->waiting = 0;
}

void tri_rendezvous_join(struct tri_rendezvous *rendezvous, int32_t rank, int32_t color,
                         int32_t key, int32_t device)
{
    struct tri_rendezvous_slot *slot = &rendezvous->slots[rank];
    slot->taken = true;
    slot->color = color;
    slot->key = key;
    slot->device = device;
    slot->out = NULL;
    atomic_store(&slot->completed, false);
    rendezvous->taken++;
    if (++rendezvous->waiting == rendezvous->size)
        complete(rendezvous);
}

/* ------------------------------------------------------------------------------------- waiting */

/* Stopped: the parent was aborted, or a rank has left it, so not all ranks will join. */
static bool completed_or_stopped(void *context)
{
    const struct tri_participant *self = context;
    const struct tri_transport *parent = self->parent;
    return atomic_load(&self->rendezvous->slots[self->rank].completed) ||
           (parent != NULL &&
            (!tri_host_local_live(parent->local) || tri_host_left_ranks(parent->local) != 0));
}

void tri_rendezvous_wait(const struct tri_participant *self)
{
    struct tri_participant waiting = *self;
    struct tri_eventcount *eventcount = &self->rendezvous->eventcount;
    tri_eventcount_notify(eventcount); /* this rank may have completed the others' slots */
    (void)tri_eventcount_wait(eventcount, completed_or_stopped, &waiting,
                              tri_deadline_ns(self->timeout_ms));
}

/* ----------------------------------------------------------------------------------- finishing */

/* "1, 3": the ranks that have not joined. */
static void list_missing(const struct tri_rendezvous *rendezvous, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t rank = 0; rank < rendezvous->size && used < bytes; rank++) {
        const struct tri_rendezvous_slot *slot = &rendezvous->slots[rank];
        if (!slot->taken || atomic_load(&slot->completed))
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", used == 0 ? "" : ", ",
                                     (int)rank);
    }
}

static void free_slot(struct tri_rendezvous *rendezvous, int32_t rank)
{
    rendezvous->slots[rank].taken = false;
    atomic_store(&rendezvous->slots[rank].completed, false);
    rendezvous->taken--;
}

/* Why a split of `parent` cannot complete; TRIB_OK: it can. */
static trib_status parent_status(const struct tri_transport *parent, uint64_t left)
{
    if (parent == NULL)
        return TRIB_OK;
    if (left != 0)
        tri_host_leave_abort(parent, left, NULL);
    return tri_abort_status(parent->local->abort);
}

static trib_status fail_wait(const struct tri_participant *self, uint64_t left, const char *missing)
{
    TRI_TRY(parent_status(self->parent, left));
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "%s: rank %d of %d waited %u ms; these ranks did not join: %s", self->operation,
                    (int)self->rank, (int)self->rendezvous->size, (unsigned)self->timeout_ms,
                    missing);
}

trib_status tri_rendezvous_finish(struct tri_transport **out, const struct tri_participant *self)
{
    struct tri_rendezvous *rendezvous = self->rendezvous;
    const struct tri_rendezvous_slot *slot = &rendezvous->slots[self->rank];
    const uint64_t left = self->parent == NULL ? 0 : tri_host_left_ranks(self->parent->local);
    if (!atomic_load(&slot->completed)) {
        char missing[256];
        list_missing(rendezvous, missing, sizeof missing); /* while this rank's slot is taken */
        free_slot(rendezvous, self->rank);
        rendezvous->waiting--;
        return fail_wait(self, left, missing);
    }
    free_slot(rendezvous, self->rank);
    *out = slot->out;
    if (slot->status != TRIB_OK)
        (void)tri_fail(slot->status, "%s: no memory for a communicator", self->operation);
    return slot->status;
}
