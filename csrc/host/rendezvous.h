/* Rendezvous: ranks wait for each other and become new communicators. Their shared state,
 * struct tri_rendezvous, is in local.h. */
#ifndef TRI_HOST_RENDEZVOUS_H
#define TRI_HOST_RENDEZVOUS_H

#include <stdint.h>

#include "csrc/host/local.h"

/* A rank that has joined. */
struct tri_participant {
    struct tri_rendezvous *rendezvous;
    int32_t rank;
    const struct tri_transport *parent; /* of a split, whose abort ends the wait; else NULL */
    const char *operation;
    uint32_t timeout_ms;
};

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
