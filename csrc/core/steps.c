/* Steps that the ranks of a communicator take together. */
#include "csrc/core/steps.h"

#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/descriptor.h"
#include "csrc/core/remote.h"
#include "csrc/core/remote_ask.h"
#include "csrc/core/wait.h"

_Static_assert(sizeof(struct tri_vote) <= TRI_STAGED_BYTES, "one small allgather takes it");

/* ------------------------------------------------------------------------------------------ life */

trib_status tri_steps_begin(struct tri_steps *out, const struct tri_making *making)
{
    const struct trib_comm *comm = making->comm;
    const size_t size = (size_t)comm->size;
    *out = (struct tri_steps){.making = making};
    if (comm->remote != NULL)
        tri_remote_want_fds(comm->remote, true);
    out->votes = calloc(size, sizeof *out->votes);
    out->fds = malloc(size * sizeof *out->fds);
    if (out->votes == NULL || out->fds == NULL)
        return tri_fail_call(comm, making->operation, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory for the votes of %zu ranks", size);
    for (size_t rank = 0; rank < size; rank++)
        out->fds[rank] = -1;
    return TRIB_OK;
}

void tri_steps_end(struct tri_steps *steps)
{
    const struct trib_comm *comm = steps->making->comm;
    if (comm->remote != NULL)
        tri_remote_want_fds(comm->remote, false);
    free(steps->votes);
    free(steps->fds);
}

/* ----------------------------------------------------------------------------------------- votes */

static int32_t first_failed(const struct tri_steps *steps)
{
    const int32_t size = steps->making->comm->size;
    int32_t rank = 0;
    while (rank < size && steps->votes[rank].status == TRIB_OK)
        rank++;
    return rank;
}

static trib_status fail_for(const struct tri_steps *steps)
{
    const struct trib_comm *comm = steps->making->comm;
    struct tri_remote_rank of;
    const trib_status status = steps->votes[steps->failed].status;
    if (comm->remote == NULL)
        return tri_fail(status, "another rank could not: rank %d (%s)", (int)steps->failed,
                        trib_status_name(status));
    tri_remote_look(comm->remote, steps->failed, &of);
    return tri_fail(status, "another rank could not: %s; its log says why", of.who.text);
}

trib_status tri_steps_vote(struct tri_steps *steps, trib_status own)
{
    const struct tri_vote vote = {.status = own, .said = steps->said};
    const struct tri_detail_copy why = tri_detail_copy();
    steps->failed = -1;
    steps->making->comm->votes++;
    TRI_TRY(tri_making_allgather(steps->making, &vote, sizeof vote, steps->votes));
    steps->failed = first_failed(steps);
    if (own != TRIB_OK)
        return tri_fail(own, "%s", why.text);
    return steps->failed == steps->making->comm->size ? TRIB_OK : fail_for(steps);
}

/* ----------------------------------------------------------------------------------- descriptors
 *
 * The tag of one is the number of the vote that ends its step, so what was sent in a step that failed is not
 * taken for what the next one sends. */

trib_status tri_steps_send_fd(const struct tri_steps *steps, int fd)
{
    const struct trib_comm *comm = steps->making->comm;
    trib_status status = TRIB_OK;
    for (int32_t rank = 0; rank < comm->size && fd >= 0 && status == TRIB_OK; rank++)
        if (rank != comm->rank)
            status = tri_remote_send_fd(comm->remote, rank, fd, comm->votes + 1);
    tri_descriptor_close(&fd);
    return status;
}

/* It is on its way. What ends the communicator, a death or an abort, ends the wait as well. Looks at the
 * rank before the descriptor, because that comes before the rank's end. */
static trib_status await_fd(struct tri_steps *steps, int32_t rank, uint64_t deadline_ns)
{
    const struct trib_comm *comm = steps->making->comm;
    const uint64_t begin_ns = tri_now_ns();
    struct tri_remote_rank of;
    while (tri_abort_live(comm->state)) {
        tri_remote_look(comm->remote, rank, &of);
        steps->fds[rank] = tri_remote_take_fd(comm->remote, rank, comm->votes);
        if (steps->fds[rank] >= 0)
            return TRIB_OK;
        if (of.state != TRI_REMOTE_PRESENT)
            return tri_fail(TRIB_ERR_CLOSED,
                            "%s has ended or closed, and its memory has not come; look for why in "
                            "its log",
                            of.who.text);
        if (tri_now_ns() >= deadline_ns)
            return tri_fail(TRIB_ERR_TIMEOUT,
                            "the memory of %s has not come; look at its log, check the limits on "
                            "open files (ulimit -n), or pass a longer timeout_ms",
                            of.who.text);
        tri_wait_nap(begin_ns, deadline_ns);
    }
    return tri_abort_status(comm->state);
}

trib_status tri_steps_take_fds(struct tri_steps *steps)
{
    const struct trib_comm *comm = steps->making->comm;
    const uint64_t deadline_ns = tri_making_patience(steps->making);
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank)
            TRI_TRY(await_fd(steps, rank, deadline_ns));
    return TRIB_OK;
}

void tri_steps_close_fds(struct tri_steps *steps)
{
    for (int32_t rank = 0; rank < steps->making->comm->size; rank++)
        tri_descriptor_close(&steps->fds[rank]);
}
