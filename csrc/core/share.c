/* How the ranks of a new communicator come to reach each other's memory across processes: they take
 * the steps of struct tri_share_ops one by one (steps.h). What they export travels as file descriptors
 * over the side channel. */
#include "csrc/core/share.h"

#include <stdlib.h>

#include "csrc/base/log.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote.h"
#include "csrc/core/steps.h"

/* The part of one rank. */
struct sharing {
    struct trib_comm *comm;
    const struct tri_share_ops *ops;
    struct tri_steps steps;
    struct tri_words *offers; /* [size] */
};

/* ----------------------------------------------------------------------------------------- steps */

static trib_status offer(struct sharing *self)
{
    return self->ops->offer(self->comm->transport, &self->steps.said);
}

/* By the votes of the first step. It sends at once, not when all ranks have allocated: one that cannot send
 * says so with this step, and nobody waits for what it would have sent. */
static trib_status allocate(struct sharing *self)
{
    int fd = -1;
    for (int32_t rank = 0; rank < self->comm->size; rank++)
        self->offers[rank] = self->steps.votes[rank].said;
    TRI_TRY(self->ops->allocate(self->comm->transport, self->offers, &fd));
    return tri_steps_send_fd(&self->steps, fd);
}

static trib_status map(struct sharing *self)
{
    trib_status status = tri_steps_take_fds(&self->steps);
    if (status == TRIB_OK)
        status = self->ops->map(self->comm->transport, self->steps.fds);
    tri_steps_close_fds(&self->steps);
    return status;
}

static trib_status try(struct sharing *self)
{
    return self->ops->try(self->comm->transport);
}

/* ------------------------------------------------------------------------------------- agreement */

static void go_without(const struct sharing *self)
{
    const struct trib_comm *comm = self->comm;
    tri_log(TRIB_LOG_INFO,
            "trib_%s on rank %d: the ranks share no memory across processes, and the library of "
            "backend \"%s\" alone moves their data: %s",
            tri_operations[self->steps.making->operation].name, (int)comm->rank,
            comm->backend->name, tri_detail());
}

/* Fails if the communicator has ended. */
static trib_status share(struct sharing *self)
{
    static trib_status (*const steps[])(struct sharing *) = {offer, allocate, map, try};
    struct tri_transport *transport = self->comm->transport;
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && status == TRIB_OK; i++)
        status = tri_steps_vote(&self->steps, steps[i](self));
    if (status == TRIB_OK) {
        self->ops->use(transport);
        tri_comm_count_peers(self->comm);
        return TRIB_OK;
    }
    const bool ended = self->steps.failed < 0;
    if (!ended)
        go_without(self);
    self->ops->drop(transport);
    return ended ? status : TRIB_OK;
}

/* ------------------------------------------------------------------------------------------ life */

static trib_status begin(struct sharing *self, const struct tri_making *making)
{
    TRI_TRY(tri_steps_begin(&self->steps, making));
    self->offers = calloc((size_t)self->comm->size, sizeof *self->offers);
    if (self->offers != NULL)
        return TRIB_OK;
    return tri_fail_call(self->comm, making->operation, TRIB_ERR_OUT_OF_MEMORY,
                         "no memory to share that of %d ranks", (int)self->comm->size);
}

/* The same on all ranks: they have a side channel, or none has, and know the same of it. */
static bool is_possible(const struct trib_comm *comm)
{
    const struct tri_share_ops *ops = comm->backend->transport->share;
    return comm->remote != NULL && ops != NULL && comm->size <= ops->max_ranks &&
           tri_remote_is_one_host(comm->remote);
}

trib_status tri_share(const struct tri_making *making)
{
    struct trib_comm *comm = making->comm;
    struct sharing self = {.comm = comm, .ops = comm->backend->transport->share};
    if (!is_possible(comm))
        return TRIB_OK;
    trib_status status = begin(&self, making);
    if (status == TRIB_OK)
        status = share(&self);
    if (status != TRIB_OK)
        tri_making_fail(making, status);
    tri_steps_end(&self.steps);
    free(self.offers);
    return status;
}
