/* Collectives among the ranks of one host. */
#include "csrc/core/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/core/lifecycle.h"
#include "csrc/core/operation.h"

struct tri_inside {
    struct trib_comm *comm; /* the split's; NULL: this rank is alone on its host */
    /* References: an abort may come from one while the other is being destroyed. */
    struct trib_abort *whole, *part;
    struct tri_abort_observer of_whole, of_part;
    int32_t mates;
    int32_t mate[TRI_MAX_LISTS];    /* the ranks of this host, ascending, as the whole has them */
    uint8_t host_of[TRI_MAX_LISTS]; /* of each rank of the whole */
    struct tri_inside *next;
};

/* ---------------------------------------------------------------------- they stop together */

static void stop_part(void *context, bool relayed)
{
    const struct tri_inside *inside = context;
    const char *why = "";
    (void)relayed;
    const trib_status status = tri_abort_why(inside->whole, &why);
    (void)tri_abort_raise(inside->part, status, why);
}

static void stop_whole(void *context, bool relayed)
{
    const struct tri_inside *inside = context;
    char text[TRI_DETAIL_SIZE];
    const char *why = "";
    int32_t lost[TRI_LOST_MAX], named = 0;
    (void)relayed;
    const trib_status status = tri_abort_why(inside->part, &why);
    const int32_t n = tri_abort_lost(inside->part, lost, TRI_LOST_MAX);
    for (int32_t i = 0; i < n; i++)
        if (lost[i] < inside->mates)
            lost[named++] = inside->mate[lost[i]];
    (void)snprintf(text, sizeof text, "among the %d ranks of a host, from rank %d on: %.*s",
                   (int)inside->mates, (int)inside->mate[0], TRI_DETAIL_SIZE - 80, why);
    (void)tri_abort_raise_lost(inside->whole, status, text, lost, named);
}

static bool tie(struct tri_inside *inside, const struct trib_comm *comm)
{
    if (!tri_abort_add_part(comm->state, inside->comm->state))
        return false;
    inside->whole = tri_abort_retain(comm->state);
    inside->part = tri_abort_retain(inside->comm->state);
    inside->of_whole = (struct tri_abort_observer){.raised = stop_part, .context = inside};
    inside->of_part = (struct tri_abort_observer){.raised = stop_whole, .context = inside};
    tri_abort_observe(inside->whole, &inside->of_whole);
    tri_abort_observe(inside->part, &inside->of_part);
    return true;
}

static void untie(struct tri_inside *inside)
{
    tri_abort_unobserve(inside->part, &inside->of_part);
    tri_abort_unobserve(inside->whole, &inside->of_whole);
    tri_abort_release(inside->part);
    tri_abort_release(inside->whole);
}

/* --------------------------------------------------------------------------------- their life */

static bool is_one_host(const struct trib_comm *comm, const uint8_t *host_of)
{
    for (int32_t rank = 1; rank < comm->size; rank++)
        if (host_of[rank] != host_of[0])
            return false;
    return true;
}

bool tri_inside_exists(const struct trib_comm *comm, const uint8_t *host_of)
{
    return is_one_host(comm, host_of) || comm->backend->transport->submit == NULL;
}

/* Are there two ranks on any host? */
static bool has_mates(const struct trib_comm *comm, const uint8_t *host_of)
{
    bool seen[TRI_MAX_LISTS] = {false};
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (seen[host_of[rank]])
            return true;
        seen[host_of[rank]] = true;
    }
    return false;
}

static struct tri_inside *find(const struct trib_comm *comm, const uint8_t *host_of)
{
    struct tri_inside *inside = comm->insides;
    while (inside != NULL && memcmp(inside->host_of, host_of, (size_t)comm->size) != 0)
        inside = inside->next;
    return inside;
}

static void count_mates(struct tri_inside *inside, const struct trib_comm *comm)
{
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (inside->host_of[rank] == inside->host_of[comm->rank])
            inside->mate[inside->mates++] = rank;
}

static trib_status no_memory(const struct trib_comm *comm)
{
    return tri_fail_call(comm, TRI_SPLIT, TRIB_ERR_OUT_OF_MEMORY,
                         "no host memory for the communicator of its host");
}

/* Every rank takes part in the split, also one that is alone on its host. */
static trib_status split(struct tri_inside *inside, struct trib_comm *comm)
{
    const int32_t color = inside->mates == 1 ? TRIB_NO_COLOR : inside->host_of[comm->rank];
    TRI_TRY(tri_comm_split(&inside->comm, comm, color, comm->rank));
    if (inside->comm == NULL || tie(inside, comm))
        return TRIB_OK;
    (void)tri_comm_destroy(inside->comm);
    return no_memory(comm);
}

static trib_status make(struct tri_inside **out, struct trib_comm *comm, const uint8_t *host_of)
{
    struct tri_inside *inside = calloc(1, sizeof *inside);
    if (inside == NULL)
        return no_memory(comm);
    memcpy(inside->host_of, host_of, (size_t)comm->size);
    count_mates(inside, comm);
    const trib_status status = split(inside, comm);
    if (status != TRIB_OK) {
        free(inside);
        return status;
    }
    *out = inside;
    return TRIB_OK;
}

trib_status tri_inside_open(struct tri_transport **out, struct trib_comm *comm,
                            const uint8_t *host_of)
{
    *out = NULL;
    if (!has_mates(comm, host_of))
        return TRIB_OK;
    if (is_one_host(comm, host_of)) {
        *out = comm->transport;
        return TRIB_OK;
    }
    struct tri_inside *inside = find(comm, host_of);
    if (inside == NULL) {
        const trib_status status = make(&inside, comm, host_of);
        if (status != TRIB_OK) { /* the others have it, or wait */
            (void)tri_abort_raise(comm->state, status, tri_detail());
            return status;
        }
        inside->next = comm->insides;
        comm->insides = inside;
    }
    *out = inside->comm == NULL ? NULL : inside->comm->transport;
    return TRIB_OK;
}

trib_status tri_inside_close(struct trib_comm *comm, uint32_t timeout_ms)
{
    trib_status first = TRIB_OK;
    for (struct tri_inside *inside = comm->insides; inside != NULL; inside = inside->next) {
        const trib_status status =
            inside->comm == NULL ? TRIB_OK : tri_comm_close(inside->comm, timeout_ms);
        first = first == TRIB_OK ? status : first;
    }
    return first;
}

void tri_inside_destroy(struct trib_comm *comm)
{
    while (comm->insides != NULL) {
        struct tri_inside *inside = comm->insides;
        comm->insides = inside->next;
        if (inside->comm != NULL) {
            untie(inside);
            (void)tri_comm_destroy(inside->comm);
        }
        free(inside);
    }
}
