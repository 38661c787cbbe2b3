/* Collectives among the ranks of one host. */
#include "csrc/core/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/lock.h"
#include "csrc/core/lifecycle.h"

struct tri_inside {
    struct trib_comm *comm; /* the split's; NULL: this rank is alone on its host */
    /* References: an abort may come from one while the other is being destroyed. */
    struct trib_abort *whole, *part;
    struct tri_abort_observer of_whole, of_part;
    int32_t map, host; /* how many maps came before this one; this rank's host in it */
    bool last;         /* as its rank closed, all others of the part in this process had before */
    bool settled;      /* its rank has closed, but for that */
    int32_t mates;
    int32_t mate[TRI_MAX_LISTS];    /* the ranks of this host, ascending, as the whole has them */
    uint8_t host_of[TRI_MAX_LISTS]; /* of each rank of the whole */
    struct tri_inside *next;        /* of this rank */
    struct tri_inside *after;       /* of those that wait for the end, of all ranks */
};

/* ---------------------------------------------------------------------- they stop together */

static int32_t index_of(const struct tri_inside *inside, int32_t rank)
{
    for (int32_t i = 0; i < inside->mates; i++)
        if (inside->mate[i] == rank)
            return i;
    return -1;
}

/* Relayed: the whole tells other processes, of all that were lost. */
static void stop_part(void *context, bool relayed)
{
    const struct tri_inside *inside = context;
    const char *why = "";
    int32_t lost[TRI_LOST_MAX], named = 0;
    (void)relayed;
    const trib_status status = tri_abort_why(inside->whole, &why);
    const int32_t n = tri_abort_lost(inside->whole, lost, TRI_LOST_MAX);
    for (int32_t i = 0; i < n; i++) {
        const int32_t index = index_of(inside, lost[i]);
        if (index >= 0)
            lost[named++] = index;
    }
    (void)tri_abort_raise_relayed(inside->part, status, why, lost, named);
}

/* "among ranks 1, 3 of one host: " */
static void print_mates(char *text, size_t bytes, const struct tri_inside *inside)
{
    enum { NAMED = 8 };
    size_t used = (size_t)snprintf(text, bytes, "among ranks");
    for (int32_t i = 0; i < inside->mates && i < NAMED; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s %d", i == 0 ? "" : ",",
                                 (int)inside->mate[i]);
    (void)snprintf(text + used, bytes - used,
                   "%s of one host: ", inside->mates > NAMED ? ", ..." : "");
}

static void stop_whole(void *context, bool relayed)
{
    const struct tri_inside *inside = context;
    char text[TRI_DETAIL_SIZE], who[128];
    const char *why = "";
    int32_t lost[TRI_LOST_MAX], named = 0;
    const trib_status status = tri_abort_why(inside->part, &why);
    const int32_t n = tri_abort_lost(inside->part, lost, TRI_LOST_MAX);
    for (int32_t i = 0; i < n; i++)
        if (lost[i] < inside->mates)
            lost[named++] = inside->mate[lost[i]];
    print_mates(who, sizeof who, inside);
    (void)snprintf(text, sizeof text, "%s%.*s", who, (int)(TRI_DETAIL_SIZE - sizeof who), why);
    if (relayed)
        (void)tri_abort_raise_relayed(inside->whole, status, text, lost, named);
    else
        (void)tri_abort_raise_lost(inside->whole, status, text, lost, named);
}

static bool tie(struct tri_inside *inside)
{
    if (!tri_abort_add_part(inside->whole, inside->comm->state))
        return false;
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
}

/* ------------------------------------------------------------------------------------- the end */

/* Those of ranks that have closed, while another rank of their communicator in this process has not. */
static struct tri_lock lock = TRI_LOCK_INIT;
static struct tri_inside *waiting;

/* In an order that is the same in all processes, and by which each communicator's come together. */
static bool comes_before(const struct tri_inside *a, const struct tri_inside *b)
{
    return a->map != b->map ? a->map < b->map : a->host < b->host;
}

static void insert(struct tri_inside **list, struct tri_inside *inside)
{
    while (*list != NULL && !comes_before(inside, *list))
        list = &(*list)->after;
    inside->after = *list;
    *list = inside;
}

static bool is_last(const struct tri_inside *inside)
{
    int32_t closed = 1;
    if (inside->comm == NULL)
        return true;
    for (const struct tri_inside *of = waiting; of != NULL; of = of->after)
        closed += of->part == inside->part;
    return closed == inside->comm->backend->transport->here(inside->comm->transport);
}

/* Add the rank's to those that wait. */
static void join(const struct trib_comm *comm)
{
    tri_lock(&lock);
    for (struct tri_inside *inside = comm->insides; inside != NULL; inside = inside->next) {
        inside->last = is_last(inside);
        inside->after = waiting;
        waiting = inside;
    }
    tri_unlock(&lock);
}

static trib_status first_failure(trib_status first, trib_status status)
{
    return first == TRIB_OK ? status : first;
}

/* Ranks that wait for this one are to hear that it has left. A close waits only in the last rank of the part. */
static trib_status leave(const struct trib_comm *comm)
{
    trib_status first = TRIB_OK;
    for (const struct tri_inside *inside = comm->insides; inside != NULL; inside = inside->next)
        if (!inside->last)
            first = first_failure(first, tri_comm_close(inside->comm, 0));
    return first;
}

/* Take all of the communicator out, and in order. The lock is held. */
static struct tri_inside *take_settled(const struct trib_abort *whole)
{
    struct tri_inside *all = NULL;
    struct tri_inside **link = &waiting;
    while (*link != NULL) {
        struct tri_inside *inside = *link;
        if (inside->whole != whole || !inside->settled) {
            link = &inside->after;
            continue;
        }
        *link = inside->after;
        insert(&all, inside);
    }
    return all;
}

/* The rank is done with its own. All of the communicator, if it is the last of its process to come here. Of one
 * that has been aborted no close waits, and a rank may have none of them. */
static struct tri_inside *settle(struct trib_comm *comm)
{
    const int32_t here = comm->backend->transport->here(comm->transport);
    const bool aborted = !tri_abort_live(comm->state);
    int32_t settled = 0;
    tri_lock(&lock);
    for (struct tri_inside *inside = comm->insides; inside != NULL; inside = inside->next)
        inside->settled = true;
    comm->insides = NULL; /* whoever takes them frees them */
    for (const struct tri_inside *of = waiting; of != NULL; of = of->after)
        settled += of->whole == comm->state && of->map == 0 && of->settled;
    struct tri_inside *all = aborted || settled == here ? take_settled(comm->state) : NULL;
    tri_unlock(&lock);
    return all;
}

static void discard(struct tri_inside *inside)
{
    if (inside->comm != NULL) {
        untie(inside);
        (void)tri_comm_destroy(inside->comm);
    }
    tri_abort_release(inside->whole);
    free(inside);
}

/* The whole has closed, so what its streams had to do is done, or it has been aborted. */
static trib_status close_insides(struct trib_comm *comm, uint64_t deadline_ns)
{
    join(comm);
    trib_status first = leave(comm);
    struct tri_inside *all = settle(comm);
    for (const struct tri_inside *inside = all; inside != NULL; inside = inside->after)
        if (inside->comm != NULL && inside->last)
            first = first_failure(first, tri_comm_close(inside->comm, tri_left_ms(deadline_ns)));
    while (all != NULL) {
        struct tri_inside *inside = all;
        all = inside->after;
        discard(inside);
    }
    return first;
}

/* ------------------------------------------------------------------------------- the beginning */

static bool is_one_host(const struct trib_comm *comm, const uint8_t *host_of)
{
    for (int32_t rank = 1; rank < comm->size; rank++)
        if (host_of[rank] != host_of[0])
            return false;
    return true;
}

bool tri_inside_exists(const struct trib_comm *comm, const uint8_t *host_of)
{
    return is_one_host(comm, host_of) ||
           (comm->backend->transport->submit == NULL && !comm->adopted);
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

static struct tri_inside *prepare(const struct trib_comm *comm, const uint8_t *host_of)
{
    struct tri_inside *inside = calloc(1, sizeof *inside);
    if (inside == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory");
        return NULL;
    }
    inside->whole = tri_abort_retain(comm->state);
    inside->map = comm->insides == NULL ? 0 : comm->insides->map + 1;
    inside->host = host_of[comm->rank];
    memcpy(inside->host_of, host_of, (size_t)comm->size);
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (host_of[rank] == inside->host)
            inside->mate[inside->mates++] = rank;
    return inside;
}

/* Every rank takes part in the split, also one that is alone on its host. The whole's recorder has the
 * calls, and its watchdog asks about its parts. */
static trib_status split(struct tri_inside *inside, struct trib_comm *comm)
{
    struct tri_settings settings = tri_settings_of(comm);
    const int32_t color = inside->mates == 1 ? TRIB_NO_COLOR : inside->host;
    settings.flags &= ~(uint32_t)(TRIB_MATCH | TRIB_COMPARED | TRIB_TIMED);
    settings.flags |= TRIB_UNRECORDED;
    TRI_TRY(tri_comm_split_as(&inside->comm, comm, color, comm->rank, &settings));
    if (inside->comm == NULL || tie(inside))
        return TRIB_OK;
    return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory");
}

/* The other ranks have theirs, or wait: the end of both comes before what is freed. */
static trib_status give_up(struct tri_inside *inside, struct trib_comm *comm, int operation,
                           trib_status status)
{
    const struct tri_detail_copy why = tri_detail_copy();
    comm->close_insides = close_insides; /* of the ranks that have theirs */
    (void)tri_fail(status, "rank %d has no communicator for the ranks of its host: %s",
                   (int)comm->rank, why.text);
    (void)tri_abort_raise(comm->state, status, tri_detail());
    if (inside != NULL && inside->comm != NULL) {
        (void)tri_abort_raise(inside->comm->state, status, tri_detail());
        (void)tri_comm_destroy(inside->comm);
    }
    if (inside != NULL)
        tri_abort_release(inside->whole);
    free(inside);
    return tri_comm_usable(comm, operation);
}

static trib_status make(struct trib_comm *comm, int operation, const uint8_t *host_of)
{
    struct tri_inside *inside = prepare(comm, host_of);
    const trib_status status = inside == NULL ? TRIB_ERR_OUT_OF_MEMORY : split(inside, comm);
    if (status != TRIB_OK)
        return give_up(inside, comm, operation, status);
    inside->next = comm->insides;
    comm->insides = inside;
    comm->close_insides = close_insides;
    return TRIB_OK;
}

trib_status tri_inside_open(struct tri_transport **out, struct trib_comm *comm, int operation,
                            const uint8_t *host_of)
{
    *out = NULL;
    if (!has_mates(comm, host_of))
        return TRIB_OK;
    if (is_one_host(comm, host_of)) {
        *out = comm->transport;
        return TRIB_OK;
    }
    const struct tri_inside *inside = find(comm, host_of);
    if (inside == NULL) {
        TRI_TRY(make(comm, operation, host_of));
        inside = comm->insides;
    }
    *out = inside->comm == NULL ? NULL : inside->comm->transport;
    return TRIB_OK;
}
