/* Where ranks meet to become a communicator. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/rendezvous.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/host/absent.h"
#include "csrc/host/clique.h"
#include "csrc/host/host.h"
#include "csrc/host/id.h"

/* Guards all meetings and the list of those that have an id. Nobody waits under it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------------------------ meetings */

void tri_meeting_init(struct tri_meeting *meeting, int32_t size)
{
    memset(meeting, 0, sizeof *meeting);
    meeting->size = size;
}

/* The ranks with the colour of `first`, in their new order: by key, then by rank. */
static int32_t gather_color(const struct tri_meeting *meeting, int32_t first, int32_t *members)
{
    int32_t n = 0;
    for (int32_t rank = first; rank < meeting->size; rank++) {
        const struct tri_seat *seat = &meeting->seats[rank];
        if (seat->color != meeting->seats[first].color)
            continue;
        int32_t at = n++;
        for (; at > 0 && meeting->seats[members[at - 1]].key > seat->key; at--)
            members[at] = members[at - 1];
        members[at] = rank;
    }
    return n;
}

/* Make the communicator of `first`'s colour. False when memory is short. */
static bool make_clique(struct tri_meeting *meeting, int32_t first)
{
    int32_t members[TRI_HOST_MAX_RANKS];
    int32_t devices[TRI_HOST_MAX_RANKS] = {0};
    const int32_t n = gather_color(meeting, first, members);
    for (int32_t i = 0; i < n; i++)
        devices[i] = meeting->seats[members[i]].device;
    struct tri_clique *clique = tri_clique_create(devices, n);
    if (clique == NULL)
        return false;
    for (int32_t i = 0; i < n; i++)
        meeting->seats[members[i]].out = &clique->ranks[i];
    return true;
}

/* All ranks are there: serve them. */
static void serve(struct tri_meeting *meeting)
{
    bool good = true;
    for (int32_t rank = 0; rank < meeting->size && good; rank++)
        if (meeting->seats[rank].color >= 0 && meeting->seats[rank].out == NULL)
            good = make_clique(meeting, rank);
    for (int32_t rank = 0; rank < meeting->size; rank++) {
        struct tri_seat *seat = &meeting->seats[rank];
        if (!good && seat->out != NULL) {
            tri_clique_release(seat->out->clique);
            seat->out = NULL;
        }
        seat->status = good ? TRIB_OK : TRIB_ERR_OUT_OF_MEMORY;
        atomic_store(&seat->served, true);
    }
    meeting->waiting = 0;
}

/* "1, 3": the ranks that have not come. */
static void list_missing(const struct tri_meeting *meeting, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t rank = 0; rank < meeting->size && used < bytes; rank++)
        if (!meeting->seats[rank].taken || atomic_load(&meeting->seats[rank].served))
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", used == 0 ? "" : ", ",
                                     (int)rank);
}

/* Take the seat of `rank`, which is free; the last to come serves all. The lock is held. */
static void come(struct tri_meeting *meeting, int32_t rank, int32_t color, int32_t key,
                 int32_t device)
{
    struct tri_seat *seat = &meeting->seats[rank];
    seat->taken = true;
    seat->color = color;
    seat->key = key;
    seat->device = device;
    seat->out = NULL;
    atomic_store(&seat->served, false);
    meeting->present++;
    if (++meeting->waiting == meeting->size)
        serve(meeting);
}

struct patience {
    struct tri_seat *seat;
    const struct tri_transport *parent; /* NULL: nothing that could end before */
};

/* Also if not all will come: the parent was aborted, or a rank has left it. */
static bool served_or_over(void *context)
{
    const struct patience *patience = context;
    const struct tri_transport *parent = patience->parent;
    return atomic_load(&patience->seat->served) ||
           (parent != NULL &&
            (!tri_clique_live(parent->clique) || tri_absent_left(parent->clique) != 0));
}

/* Wait to be served. The lock is not held. */
static void wait_for_ranks(struct tri_meeting *meeting, int32_t rank,
                           const struct tri_transport *parent, uint32_t timeout_ms)
{
    struct patience patience = {&meeting->seats[rank], parent};
    tri_eventcount_notify(&meeting->eventcount); /* the last to come has served the others */
    (void)tri_eventcount_wait(&meeting->eventcount, served_or_over, &patience,
                         tri_deadline_ns(timeout_ms));
}

/* Why no more ranks will come to split `parent`; TRIB_OK: there is no reason. */
static trib_status parent_over(const struct tri_transport *parent, uint64_t gone)
{
    if (parent == NULL)
        return TRIB_OK;
    if (gone != 0)
        tri_absent_stop(parent, gone, NULL);
    return tri_abort_status(parent->clique->abort);
}

/* Leave the seat, served or not. The lock is held. */
static trib_status go(struct tri_transport **out, struct tri_meeting *meeting, int32_t rank,
                      const struct tri_transport *parent, const char *operation,
                      uint32_t timeout_ms)
{
    struct tri_seat *seat = &meeting->seats[rank];
    const uint64_t gone = parent == NULL ? 0 : tri_absent_left(parent->clique);
    const bool served = atomic_load(&seat->served);
    char missing[256];
    if (!served) /* while this rank's seat is taken */
        list_missing(meeting, missing, sizeof missing);
    seat->taken = false;
    atomic_store(&seat->served, false);
    meeting->present--;
    if (served) {
        *out = seat->out;
        if (seat->status != TRIB_OK)
            (void)tri_fail(seat->status, "%s: no memory for a communicator", operation);
        return seat->status;
    }
    meeting->waiting--;
    const trib_status over = parent_over(parent, gone);
    if (over != TRIB_OK)
        return over;
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "%s: rank %d of %d waited %u ms, and these ranks did not come: %s", operation,
                    (int)rank, (int)meeting->size, (unsigned)timeout_ms, missing);
}

/* ---------------------------------------------------------------------------------- by an id */

struct hall {
    struct hall *next;
    trib_id id;
    struct tri_meeting meeting;
};

static struct hall *halls; /* those where ranks wait */

/* The hall of the id; a new one if nobody waits there. NULL when memory is short. */
static struct hall *find_hall(const trib_id *id, int32_t size)
{
    for (struct hall *hall = halls; hall != NULL; hall = hall->next)
        if (memcmp(&hall->id, id, sizeof *id) == 0)
            return hall;
    struct hall *hall = malloc(sizeof *hall);
    if (hall == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "comm_create: no memory to meet the other ranks");
        return NULL;
    }
    hall->id = *id;
    tri_meeting_init(&hall->meeting, size);
    hall->next = halls;
    halls = hall;
    return hall;
}

/* No rank that comes later finds it. */
static void close_hall(struct hall *hall)
{
    for (struct hall **at = &halls; *at != NULL; at = &(*at)->next)
        if (*at == hall) {
            *at = hall->next;
            return;
        }
}

static trib_status check_seat(const struct tri_meeting *meeting, int32_t rank, int32_t size,
                              int32_t device)
{
    if (meeting->size != size)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: rank %d says size %d, the ranks that came before say %d",
                        (int)rank, (int)size, (int)meeting->size);
    if (meeting->seats[rank].taken)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "comm_create: rank %d has come already; every rank of an id comes once",
                        (int)rank);
    for (int32_t other = 0; other < size; other++)
        if (meeting->seats[other].taken && meeting->seats[other].device == device)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "comm_create: rank %d names device %d, which rank %d has; give every "
                            "rank a device of its own",
                            (int)rank, (int)device, (int)other);
    return TRIB_OK;
}

/* Find the hall and take a seat. The lock is held. */
static trib_status enter_hall(struct hall **out, const trib_id *id, int32_t rank, int32_t size,
                              int32_t device)
{
    trib_status status = tri_id_check(id);
    if (status != TRIB_OK)
        return status;
    struct hall *hall = find_hall(id, size);
    if (hall == NULL)
        return TRIB_ERR_OUT_OF_MEMORY;
    status = check_seat(&hall->meeting, rank, size, device);
    if (status != TRIB_OK)
        return status;
    come(&hall->meeting, rank, 0, rank, device);
    if (hall->meeting.waiting == 0) {
        close_hall(hall);
        tri_id_consume(id);
    }
    *out = hall;
    return TRIB_OK;
}

static trib_status check_size(int32_t size)
{
    if (size <= TRI_HOST_MAX_RANKS)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_UNSUPPORTED,
                    "the host backend takes at most %d ranks, not %d; use fewer",
                    TRI_HOST_MAX_RANKS, (int)size);
}

trib_status tri_host_open(struct tri_transport **out, const trib_id *id, int32_t rank,
                          int32_t size, int32_t device, uint32_t timeout_ms)
{
    struct hall *hall = NULL;
    *out = NULL;
    trib_status status = check_size(size);
    if (status != TRIB_OK)
        return status;
    pthread_mutex_lock(&lock);
    status = enter_hall(&hall, id, rank, size, device);
    pthread_mutex_unlock(&lock);
    if (status != TRIB_OK)
        return status;
    wait_for_ranks(&hall->meeting, rank, NULL, timeout_ms);
    pthread_mutex_lock(&lock);
    status = go(out, &hall->meeting, rank, NULL, "comm_create", timeout_ms);
    const bool last = hall->meeting.present == 0;
    if (last)
        close_hall(hall);
    pthread_mutex_unlock(&lock);
    if (last)
        free(hall);
    return status;
}

trib_status tri_host_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                uint32_t timeout_ms)
{
    (void)timeout_ms; /* nobody to wait for */
    trib_status status = check_size(size);
    if (status != TRIB_OK)
        return status;
    struct tri_clique *clique = tri_clique_create(devices, size);
    if (clique == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "group_create: no memory for %d ranks", (int)size);
    for (int32_t rank = 0; rank < size; rank++)
        out[rank] = &clique->ranks[rank];
    return TRIB_OK;
}

/* ----------------------------------------------------------------------------------- by a split */

trib_status tri_host_split(struct tri_transport **out, struct tri_transport *parent,
                           int32_t color, int32_t key, uint32_t timeout_ms)
{
    struct tri_clique *clique = parent->clique;
    struct tri_meeting *meeting = &clique->split;
    *out = NULL;
    if (!tri_clique_live(clique))
        return tri_abort_status(clique->abort);
    pthread_mutex_lock(&lock);
    come(meeting, parent->rank, color, key, parent->device);
    pthread_mutex_unlock(&lock);
    wait_for_ranks(meeting, parent->rank, parent, timeout_ms);
    pthread_mutex_lock(&lock);
    const trib_status status =
        go(out, meeting, parent->rank, parent, "comm_split", timeout_ms);
    pthread_mutex_unlock(&lock);
    return status;
}
