/* Where ranks meet to become a communicator: those with the same id, and those that split one. */
#ifndef TRI_HOST_RENDEZVOUS_H
#define TRI_HOST_RENDEZVOUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/host/host.h"
#include "csrc/host/eventcount.h"

/* A rank that has come. */
struct tri_seat {
    bool taken;
    int32_t color;
    int32_t key;
    int32_t device;
    _Atomic bool served;        /* the two below are there; true only while taken */
    struct tri_transport *out;  /* NULL for color -1, or on failure */
    trib_status status;
};

/* Ranks meet, the last to come makes the new communicators for all, each takes its own and goes. A
 * rank that loses patience goes and leaves no trace. Everything but `served` and the eventcount is
 * guarded by the one lock of rendezvous.c. */
struct tri_meeting {
    int32_t size;
    int32_t waiting; /* ranks that have come and were not served */
    int32_t present; /* ranks that have come and have not gone */
    struct tri_eventcount eventcount;
    struct tri_seat seats[TRI_HOST_MAX_RANKS];
};

void tri_meeting_init(struct tri_meeting *meeting, int32_t size);

#endif
