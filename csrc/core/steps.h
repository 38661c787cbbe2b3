/* Steps that the ranks of a communicator take together: after each, a small allgather says whether all
 * could, and brings what each has to say. */
#ifndef TRI_CORE_STEPS_H
#define TRI_CORE_STEPS_H

#include <stdint.h>

#include "csrc/core/making.h"

/* What a rank says after a step. */
struct tri_vote {
    trib_status status;
    uint32_t reserved;
    struct tri_words said;
};

/* The part of one rank. */
struct tri_steps {
    const struct tri_making *making;
    struct tri_words said;  /* goes with this rank's next vote */
    struct tri_vote *votes; /* [size], of the last step */
    int *fds;               /* [size]; -1: none */
    int32_t failed;         /* the first rank that could not take it, or the size */
};

/* Others may send descriptors once this rank has voted. After a failure only end. */
trib_status tri_steps_begin(struct tri_steps *out, const struct tri_making *making);
void tri_steps_end(struct tri_steps *steps);

/* Vote for the step that this rank has taken, with `own`. TRIB_OK if all could. Otherwise steps->failed is
 * below the size, and it is this rank's own status, with its detail, or that of the first rank that could
 * not, with a detail that names it. If the communicator has ended, steps->failed is -1. */
trib_status tri_steps_vote(struct tri_steps *steps, trib_status own);

/* For steps of ranks that are each in a process of its own, on one host. Send `fd` to all, who take it in the
 * next step, and close it; -1: there is none. */
trib_status tri_steps_send_fd(const struct tri_steps *steps, int fd);
/* Wait for what all others have sent in the last step: steps->fds. What ends the communicator ends the wait
 * as well. */
trib_status tri_steps_take_fds(struct tri_steps *steps);
void tri_steps_close_fds(struct tri_steps *steps);

#endif
