/* How the ranks of a new communicator get to know those in other processes: two small allgathers
 * exchange their addresses, and after they have connected, a third one says whether all could. */
#include "csrc/core/introduce.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/log.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote.h"
#include "csrc/core/watchdog.h"

enum { HALVES = 2 };
#define HALF (sizeof(struct tri_peer_address) / HALVES)

_Static_assert(sizeof(struct tri_peer_address) % HALVES == 0, "an address is two halves");
_Static_assert(HALF <= TRI_STAGED_BYTES, "one small allgather takes half of an address");

/* The introduction of one rank. */
struct introduction {
    struct trib_comm *comm;
    int32_t size; /* its ranks */
    const struct tri_making *making;
    struct tri_peer_address *all; /* [size] */
    unsigned char *halves;        /* [size][HALF] */
    struct tri_remote *remote;    /* NULL: this rank goes without */
};

static trib_status exchange_addresses(const struct introduction *self,
                                      const struct tri_peer_address *own)
{
    for (size_t half = 0; half < HALVES; half++) {
        TRI_TRY(tri_making_allgather(self->making, (const unsigned char *)own + half * HALF, HALF,
                                     self->halves));
        for (int32_t rank = 0; rank < self->size; rank++)
            memcpy((unsigned char *)&self->all[rank] + half * HALF,
                   self->halves + (size_t)rank * HALF, HALF);
    }
    return TRIB_OK;
}

static void go_without(const struct introduction *self, const char *why)
{
    tri_log(TRIB_LOG_WARN,
            "trib_%s on rank %d: the ranks have no side channel, and hear neither of deaths nor of "
            "aborts in other processes: %s",
            tri_operations[self->making->operation].name, (int)self->comm->rank, why);
}

/* An address is never all zeros, but what an abort elsewhere leaves of an allgather may be. */
static trib_status check_sent(const struct introduction *self)
{
    static const struct tri_peer_address nothing;
    for (int32_t rank = 0; rank < self->size; rank++)
        if (memcmp(&self->all[rank], &nothing, sizeof nothing) == 0)
            return tri_fail_call(self->comm, self->making->operation, TRIB_ERR_ABORTED,
                                 "rank %d has sent no address: it has been aborted meanwhile",
                                 (int)rank);
    return TRIB_OK;
}

/* Can every rank be reached? */
static bool all_reachable(const struct introduction *self)
{
    bool all = true;
    for (int32_t rank = 0; rank < self->size; rank++)
        all = all && (self->all[rank].unix_length > 0 || self->all[rank].tcp_count > 0);
    return all;
}

static trib_status connect(const struct introduction *self)
{
    const trib_status status =
        tri_remote_connect(self->remote, self->all, tri_making_patience(self->making));
    if (status != TRIB_OK)
        go_without(self, tri_detail());
    return status;
}

/* Could all connect? If not, no rank keeps its channels. Zeros are no word: an allgather that an abort has ended
 * elsewhere may bring them. */
static trib_status connect_all(struct introduction *self)
{
    static const uint32_t could = 0x5a, could_not = 0xa5;
    const trib_status own = connect(self);
    const uint32_t *word = own == TRIB_OK ? &could : &could_not;
    bool all = true;
    TRI_TRY(tri_making_allgather(self->making, word, sizeof *word, self->halves));
    for (size_t i = 0; i < (size_t)self->size; i++)
        all = all && memcmp(self->halves + i * sizeof could, &could, sizeof could) == 0;
    if (all) {
        self->comm->remote = self->remote;
        self->remote = NULL;
    } else if (own == TRIB_OK) {
        go_without(self, "another rank could not connect; its log says why");
    }
    return TRIB_OK;
}

static trib_status introduce(struct introduction *self)
{
    struct trib_comm *comm = self->comm;
    struct tri_peer_address own;
    const bool wanted = (comm->flags & TRIB_NO_SIDE_CHANNEL) == 0;
    if (wanted && tri_remote_create(&self->remote, comm, &own, tri_watchdog_wake) != TRIB_OK)
        go_without(self, tri_detail());
    if (self->remote == NULL)
        tri_peer_address_fill(&own, comm->rank, comm->size);
    TRI_TRY(exchange_addresses(self, &own));
    TRI_TRY(check_sent(self));
    if (all_reachable(self))
        return connect_all(self);
    if (self->remote != NULL)
        go_without(self, "another rank has none (TRIB_NO_SIDE_CHANNEL), or its log says why");
    return TRIB_OK;
}

static trib_status prepare(struct introduction *self)
{
    const size_t size = (size_t)self->size;
    self->all = calloc(size, sizeof *self->all);
    self->halves = calloc(size, HALF);
    if (self->all == NULL || self->halves == NULL)
        return tri_fail_call(self->comm, self->making->operation, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory for the addresses of %zu ranks", size);
    return TRIB_OK;
}

trib_status tri_introduce(const struct tri_making *making)
{
    struct introduction self = {.comm = making->comm, .size = making->comm->size, .making = making};
    trib_status status = prepare(&self);
    if (status == TRIB_OK)
        status = introduce(&self);
    if (status != TRIB_OK) /* before its channels close: the others hear why over them */
        tri_making_fail(making, status);
    tri_remote_close(self.remote);
    free(self.all);
    free(self.halves);
    return status;
}
