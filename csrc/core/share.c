/* How the ranks of a new communicator come to reach each other's memory across processes: they take
 * the steps of struct tri_share_ops one by one, and after each a small allgather says whether all
 * could. What they export travels as file descriptors over the side channel. */
#include "csrc/core/share.h"

#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/descriptor.h"
#include "csrc/base/log.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote.h"
#include "csrc/core/wait.h"

/* What a rank says after each step. */
struct vote {
    trib_status status;
    uint32_t reserved;
    struct tri_share_offer offer;
};
_Static_assert(sizeof(struct vote) <= TRI_STAGED_BYTES, "one small allgather takes it");

/* The part of one rank. */
struct sharing {
    struct trib_comm *comm;
    const struct tri_share_ops *ops;
    const struct tri_making *making;
    struct tri_share_offer offer;
    struct vote *votes;             /* [size], of the last step */
    struct tri_share_offer *offers; /* [size] */
    int *fds;                       /* [size]; -1: none */
};

/* ----------------------------------------------------------------------------------------- steps */

static trib_status offer(struct sharing *self)
{
    return self->ops->offer(self->comm->transport, &self->offer);
}

static trib_status send_to_all(const struct sharing *self, int fd)
{
    const struct trib_comm *comm = self->comm;
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank)
            TRI_TRY(tri_remote_send_fd(comm->remote, rank, fd));
    return TRIB_OK;
}

/* By the votes of the first step. It sends at once, not when all ranks have allocated: one that cannot send
 * says so with this step, and nobody waits for what it would have sent. */
static trib_status allocate(struct sharing *self)
{
    int fd = -1;
    for (int32_t rank = 0; rank < self->comm->size; rank++)
        self->offers[rank] = self->votes[rank].offer;
    TRI_TRY(self->ops->allocate(self->comm->transport, self->offers, &fd));
    const trib_status status = send_to_all(self, fd);
    tri_descriptor_close(&fd);
    return status;
}

/* It is on its way. What ends the communicator, a death or an abort, ends the wait as well. Looks at the
 * rank before the descriptor, because that comes before the rank's end. */
static trib_status await_fd(struct sharing *self, int32_t rank, uint64_t deadline_ns)
{
    const struct trib_comm *comm = self->comm;
    const uint64_t begin_ns = tri_now_ns();
    struct tri_remote_rank of;
    while (tri_abort_live(comm->state)) {
        tri_remote_look(comm->remote, rank, &of);
        self->fds[rank] = tri_remote_take_fd(comm->remote, rank);
        if (self->fds[rank] >= 0)
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

static trib_status take_fds(struct sharing *self)
{
    const uint64_t deadline_ns = tri_making_patience(self->making);
    for (int32_t rank = 0; rank < self->comm->size; rank++)
        if (rank != self->comm->rank)
            TRI_TRY(await_fd(self, rank, deadline_ns));
    return TRIB_OK;
}

static trib_status map(struct sharing *self)
{
    trib_status status = take_fds(self);
    if (status == TRIB_OK)
        status = self->ops->map(self->comm->transport, self->fds);
    for (int32_t rank = 0; rank < self->comm->size; rank++)
        tri_descriptor_close(&self->fds[rank]);
    return status;
}

static trib_status try(struct sharing *self)
{
    return self->ops->try(self->comm->transport);
}

/* ------------------------------------------------------------------------------------- agreement */

static void go_without(const struct sharing *self, const char *why)
{
    const struct trib_comm *comm = self->comm;
    tri_log(TRIB_LOG_INFO,
            "trib_%s on rank %d: the ranks share no memory across processes, and the library of "
            "backend \"%s\" alone moves their data: %s",
            tri_operations[self->making->operation].name, (int)comm->rank, comm->backend->name,
            why);
}

/* The first one that could not take the last step, or the size. */
static int32_t first_failed(const struct sharing *self)
{
    int32_t rank = 0;
    while (rank < self->comm->size && self->votes[rank].status == TRIB_OK)
        rank++;
    return rank;
}

static void go_without_another(const struct sharing *self, int32_t failed)
{
    struct tri_remote_rank of;
    char why[sizeof of.who + 64];
    tri_remote_look(self->comm->remote, failed, &of);
    (void)snprintf(why, sizeof why, "another rank could not: %s; its log says why", of.who.text);
    go_without(self, why);
}

/* Take a step; *out_all: could all ranks? Fails if the communicator has ended. */
static trib_status take(struct sharing *self, trib_status (*step)(struct sharing *), bool *out_all)
{
    struct vote own = {.status = step(self)};
    const struct tri_detail_copy why = tri_detail_copy();
    own.offer = self->offer;
    TRI_TRY(tri_making_allgather(self->making, &own, sizeof own, self->votes));
    const int32_t failed = first_failed(self);
    *out_all = failed == self->comm->size;
    if (own.status != TRIB_OK)
        go_without(self, why.text);
    else if (!*out_all)
        go_without_another(self, failed);
    return TRIB_OK;
}

static trib_status share(struct sharing *self)
{
    static trib_status (*const steps[])(struct sharing *) = {offer, allocate, map, try};
    struct tri_transport *transport = self->comm->transport;
    trib_status status = TRIB_OK;
    bool all = true;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && all && status == TRIB_OK; i++)
        status = take(self, steps[i], &all);
    if (!all || status != TRIB_OK) {
        self->ops->drop(transport);
        return status;
    }
    self->ops->use(transport);
    tri_comm_count_peers(self->comm);
    return TRIB_OK;
}

/* ------------------------------------------------------------------------------------------ life */

static trib_status begin(struct sharing *self)
{
    const size_t size = (size_t)self->comm->size;
    tri_remote_want_fds(self->comm->remote, true); /* others may send once it has voted */
    self->votes = calloc(size, sizeof *self->votes);
    self->offers = calloc(size, sizeof *self->offers);
    self->fds = malloc(size * sizeof *self->fds);
    if (self->votes == NULL || self->offers == NULL || self->fds == NULL)
        return tri_fail_call(self->comm, self->making->operation, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to share that of %zu ranks", size);
    for (size_t rank = 0; rank < size; rank++)
        self->fds[rank] = -1;
    return TRIB_OK;
}

static void end(struct sharing *self)
{
    tri_remote_want_fds(self->comm->remote, false);
    free(self->votes);
    free(self->offers);
    free(self->fds);
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
    struct sharing self = {.comm = comm, .ops = comm->backend->transport->share, .making = making};
    if (!is_possible(comm))
        return TRIB_OK;
    trib_status status = begin(&self);
    if (status == TRIB_OK)
        status = share(&self);
    if (status != TRIB_OK)
        tri_making_fail(making, status);
    end(&self);
    return status;
}
