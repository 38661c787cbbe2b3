/* Rendezvous: ranks wait for each other and become new communicators. */
#ifndef TRI_HOST_RENDEZVOUS_H
#define TRI_HOST_RENDEZVOUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/host/eventcount.h"
#include "csrc/host/host.h"

/* One rank's arguments and result. */
struct tri_rendezvous_slot {
    bool taken;
    int32_t color;
    int32_t key;
    int32_t device;
    _Atomic bool completed;    /* `out` and `status` are set; true only while taken */
    struct tri_transport *out; /* NULL for color -1, or on failure */
    trib_status status;
};

/* `size` ranks join; the last one creates the new communicators, and each rank takes its own
 * transport. A rank whose wait fails gives its slot back. The lock guards all fields but
 * `completed` and the eventcount. */
struct tri_rendezvous {
    int32_t size;
    int32_t waiting;                  /* slots taken and not completed */
    int32_t taken;                    /* slots taken */
    struct tri_eventcount eventcount; /* for completed */
    struct tri_rendezvous_slot slots[TRI_HOST_MAX_RANKS];
};

/* A rank that has joined. */
struct tri_participant {
    struct tri_rendezvous *rendezvous;
    int32_t rank;
    const struct tri_transport *parent; /* of a split, whose abort ends the wait; else NULL */
    const char *operation;
    uint32_t timeout_ms;
};

void tri_rendezvous_init(struct tri_rendezvous *rendezvous, int32_t size);

/* The lock of all rendezvous, and of open.c's list of them. No thread waits while it holds it. */
void tri_rendezvous_lock(void);
void tri_rendezvous_unlock(void);

/* Take the slot of `rank`, which is free. The last rank completes all slots. Locked. */
void tri_rendezvous_join(struct tri_rendezvous *rendezvous, int32_t rank, int32_t color,
                         int32_t key, int32_t device);

/* Wait until the slot is completed or will not be. Not locked. */
void tri_rendezvous_wait(const struct tri_participant *self);

/* Give the slot back and return its result. Locked. */
trib_status tri_rendezvous_finish(struct tri_transport **out, const struct tri_participant *self);

#endif
