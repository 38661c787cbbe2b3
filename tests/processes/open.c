/* New transports: by id, as a group, and by a split. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "tests/processes/transport.h"

/* ------------------------------------------------------------------------------------------ ids */

/* The first bytes of an id; the rest are 0. */
struct fields {
    char magic[8];
    uint64_t run;
    int32_t number; /* of the place */
};

static const char magic[8] = {'T', 'R', 'I', 'B', 'P', 'R', 'O', 'C'};

static trib_id make_id(int32_t number)
{
    trib_id id;
    struct fields fields = {.run = place_run(), .number = number};
    memcpy(fields.magic, magic, sizeof magic);
    memset(&id, 0, sizeof id);
    memcpy(id.bytes, &fields, sizeof fields);
    return id;
}

trib_id processes_id(int which)
{
    return make_id(which);
}

static trib_status take_place(int32_t *out, const char *operation)
{
    if (place_run() == 0)
        return tri_fail(TRIB_ERR_INVALID_USAGE, "%s: only processes of processes_run have ranks",
                        operation);
    *out = place_take();
    return *out >= 0 ? TRIB_OK
                     : tri_fail(TRIB_ERR_OUT_OF_MEMORY,
                                "%s: the processes have had %d communicators and ids, all that "
                                "there is room for",
                                operation, PLACES);
}

trib_status processes_id_create(trib_id *out)
{
    int32_t number = -1;
    TRI_TRY(take_place(&number, "id_create"));
    *out = make_id(number);
    return TRIB_OK;
}

bool processes_id_is_mine(const trib_id *id)
{
    return memcmp(id->bytes, magic, sizeof magic) == 0;
}

/* -------------------------------------------------------------------- the ranks of this process */

/* Those of a new communicator, until each has taken its own. */
struct local {
    struct local *next;
    const struct place *place;
    int32_t here, taken;
    struct tri_transport *inner[PLACE_RANKS]; /* by rank, without those elsewhere */
};

/* Guards the two below, and each struct local. Nobody waits while holding it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct local *locals;
static struct tri_transport *transports;

static void *new_zeroed(size_t bytes)
{
    void *data = calloc(1, bytes);
    if (data == NULL)
        abort();
    return data;
}

/* How many ranks below `end` are in this process; their devices go to `out`, unless NULL. */
static int32_t count_here(const struct place *place, int32_t end, int32_t *out)
{
    int32_t n = 0;
    for (int32_t rank = 0; rank < end; rank++) {
        if (place->seats[rank].pid != getpid())
            continue;
        if (out != NULL)
            out[n] = place->seats[rank].device;
        n++;
    }
    return n;
}

/* All ranks have joined. Locked. */
static struct local *find_local(const struct place *place)
{
    int32_t devices[PLACE_RANKS] = {0};
    struct local *local = locals;
    while (local != NULL && local->place != place)
        local = local->next;
    if (local != NULL)
        return local;
    local = new_zeroed(sizeof *local);
    local->place = place;
    local->here = count_here(place, atomic_load(&place->size), devices);
    if (tri_backend_host.transport->open_group(local->inner, devices, local->here, NULL, 0) !=
        TRIB_OK)
        abort();
    local->next = locals;
    locals = local;
    return local;
}

/* Each rank has its transport. Locked. */
static void forget(struct local *local)
{
    struct local **at = &locals;
    while (*at != local)
        at = &(*at)->next;
    *at = local->next;
    free(local);
}

static struct tri_transport *new_transport(struct place *place, int32_t rank)
{
    const struct tri_transport_ops *host = tri_backend_host.transport;
    struct tri_transport *self = new_zeroed(sizeof *self);
    pthread_mutex_lock(&lock);
    struct local *local = find_local(place);
    self->inner = local->inner[count_here(place, rank, NULL)];
    self->here = local->here;
    if (++local->taken == local->here)
        forget(local);
    self->next = transports;
    transports = self;
    pthread_mutex_unlock(&lock);
    self->state = host->abort_state(self->inner);
    self->flag = host->abort_flag(self->inner);
    self->place = place;
    self->rank = rank;
    self->size = atomic_load(&place->size);
    self->device = place->seats[rank].device;
    return self;
}

/* ----------------------------------------------------------------------------------------- open */

static trib_status check_size(int32_t size)
{
    if (size <= PLACE_RANKS)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_UNSUPPORTED, "the processes backend has at most %d ranks, not %d",
                    PLACE_RANKS, (int)size);
}

trib_status processes_open(struct tri_transport **out, const trib_id *id, int32_t rank,
                           int32_t size, int32_t device, const struct tri_config *config,
                           uint32_t timeout_ms)
{
    (void)config;
    const struct joining self = {.operation = "comm_create",
                                 .rank = rank,
                                 .size = size,
                                 .device = device,
                                 .timeout_ms = timeout_ms,
                                 .deadline_ns = tri_deadline_ns(timeout_ms)};
    struct fields fields;
    *out = NULL;
    memcpy(&fields, id->bytes, sizeof fields);
    if (place_run() == 0 || fields.run != place_run() || place_of(fields.number) == NULL)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT, "comm_create: the id is not one of this run");
    TRI_TRY(check_size(size));
    TRI_TRY(place_join(place_of(fields.number), &self));
    *out = new_transport(place_of(fields.number), rank);
    return TRIB_OK;
}

trib_status processes_open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                                 const struct tri_config *config, uint32_t timeout_ms)
{
    (void)config;
    (void)timeout_ms;
    int32_t number = -1;
    TRI_TRY(check_size(size));
    TRI_TRY(take_place(&number, "group_create"));
    place_fill(place_of(number), devices, size);
    for (int32_t rank = 0; rank < size; rank++)
        out[rank] = new_transport(place_of(number), rank);
    return TRIB_OK;
}

/* ---------------------------------------------------------------------------------------- split */

static bool all_split(void *context)
{
    const struct tri_transport *self = context;
    for (int32_t rank = 0; rank < self->size; rank++)
        if (atomic_load(&self->place->seats[rank].splits) < self->splits)
            return false;
    return true;
}

/* The ranks of this one's color, by key and then by rank: *out_rank is this one among them. Returns
 * how many they are, and the lowest of them. */
static int32_t count_color(const struct tri_transport *self, int32_t *out_rank, int32_t *out_lowest)
{
    const struct seat *seats = self->place->seats;
    const int which = (int)(self->splits % 2);
    const int32_t color = seats[self->rank].wishes[which].color;
    const int32_t key = seats[self->rank].wishes[which].key;
    int32_t n = 0;
    *out_rank = 0;
    for (int32_t rank = self->size - 1; rank >= 0; rank--) {
        const int32_t other = seats[rank].wishes[which].key;
        if (seats[rank].wishes[which].color != color)
            continue;
        *out_lowest = rank;
        *out_rank += other < key || (other == key && rank < self->rank);
        n++;
    }
    return n;
}

/* The child's place: the first rank of the color that comes takes one, and puts its number, behind
 * that of the split, on the seat of the lowest. */
static trib_status child_place(struct place **out, const struct tri_transport *self, int32_t lowest)
{
    enum { BITS = 16 };
    _Atomic uint64_t *child = &self->place->seats[lowest].child;
    uint64_t seen = atomic_load(child);
    if (seen >> BITS != self->splits) {
        int32_t number = -1;
        TRI_TRY(take_place(&number, "comm_split"));
        const uint64_t mine = self->splits << BITS | (uint64_t)number;
        if (atomic_compare_exchange_strong(child, &seen, mine))
            seen = mine;
    }
    *out = place_of((int32_t)(seen & ((1u << BITS) - 1)));
    return TRIB_OK;
}

/* Wait for all ranks of the parent, then for those of the color. As on nccl, ranks that did not
 * split together cannot go on together: a failure ends the parent. */
static trib_status join_color(struct tri_transport **out, struct tri_transport *parent,
                              uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    struct joining self = {.operation = "comm_split",
                           .device = parent->device,
                           .timeout_ms = timeout_ms,
                           .deadline_ns = deadline,
                           .stop = parent->flag};
    struct place *place = NULL;
    int32_t lowest = 0;
    if (!place_wait(all_split, parent, parent->flag, deadline))
        return tri_fail(TRIB_ERR_TIMEOUT, "comm_split: rank %d of %d waited %u ms for the others",
                        (int)parent->rank, (int)parent->size, (unsigned)timeout_ms);
    if (parent->place->seats[parent->rank].wishes[parent->splits % 2].color < 0)
        return TRIB_OK;
    self.size = count_color(parent, &self.rank, &lowest);
    TRI_TRY(child_place(&place, parent, lowest));
    TRI_TRY(place_join(place, &self));
    *out = new_transport(place, self.rank);
    return TRIB_OK;
}

trib_status processes_split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                            int32_t key, const struct tri_config *config, uint32_t timeout_ms)
{
    (void)config;
    struct seat *seat = &parent->place->seats[parent->rank];
    *out = NULL;
    TRI_TRY(tri_abort_status(parent->state));
    parent->splits++;
    seat->wishes[parent->splits % 2].color = color;
    seat->wishes[parent->splits % 2].key = key;
    atomic_store(&seat->splits, parent->splits);
    const trib_status status = join_color(out, parent, timeout_ms);
    if (status == TRIB_OK)
        return TRIB_OK;
    (void)tri_abort_raise(parent->state, status, tri_detail());
    return tri_abort_status(parent->state);
}
