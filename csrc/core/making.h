/* What the ranks of a communicator make together, itself or symmetric memory of it: how they tell each other
 * what they have and whether they could, in time. */
#ifndef TRI_CORE_MAKING_H
#define TRI_CORE_MAKING_H

#include <stddef.h>
#include <stdint.h>

#include "csrc/core/communicator.h"

struct tri_making {
    struct trib_comm *comm;
    int operation; /* that makes it, */
    uint64_t deadline_ns;
    trib_stream stream; /* the operation's own: the default one may wait for the caller's work */
};

/* If it fails, the communicator ends, as by tri_making_fail. */
trib_status tri_making_begin(struct tri_making *out, struct trib_comm *comm, int operation,
                             uint64_t deadline_ns);
/* After begin, whatever that returned. */
void tri_making_end(struct tri_making *making);

/* This rank fails with `status`, and its detail is why: the communicator ends, for the other ranks wait
 * for this one. */
void tri_making_fail(const struct tri_making *making, trib_status status);

/* tri_small_allgather, until `deadline_ns` at most. A call's deadline does not end it: another rank
 * may still be at what comes before. */
trib_status tri_making_allgather(const struct tri_making *making, const void *own, size_t bytes,
                                 void *all);

/* When to give up what waits for another rank: after half of the time that is left, 10 s at most. Then
 * there is some left to tell the others that this rank could not. */
uint64_t tri_making_patience(const struct tri_making *making);

#endif
