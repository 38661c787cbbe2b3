/* Where the ranks of one communicator meet, in memory that their processes share. */
#define _POSIX_C_SOURCE 200809L
#include "tests/processes/place.h"

#include <string.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/base/text.h"

enum { FIRST_LOOKS = 200, NAP_NS = 20000, LONGEST_NAP_NS = 200000 };

/* Of one run. */
struct arena {
    uint64_t run;
    _Atomic int32_t taken; /* places */
    _Atomic int pids[CHILDREN_MAX];
    _Atomic int met[PROCESSES_MEETINGS];
    struct place places[PLACES];
};

static struct arena *arena; /* mapped before the fork, at the same address in all processes */

/* -------------------------------------------------------------------------------------- one run */

struct work {
    void (*body)(int index, int n, void *argument);
    void *argument;
};

static void run_process(int index, int n, void *argument)
{
    const struct work *work = argument;
    atomic_store(&arena->pids[index], (int)getpid());
    work->body(index, n, work->argument);
}

void processes_begin(void)
{
    arena = children_share(sizeof *arena);
    arena->run = tri_now_ns() | 1;
    atomic_store(&arena->taken, PROCESSES_IDS); /* the first are those of processes_id */
}

void processes_run(struct child_end *out, int n, int deadline_ms,
                   void (*body)(int index, int n, void *argument), void *argument)
{
    struct work work = {body, argument};
    processes_begin();
    children_run(out, n, deadline_ms, run_process, &work);
    children_unshare(arena, sizeof *arena);
    arena = NULL;
}

void processes_check_killed(int killed, int n, int deadline_ms,
                            void (*body)(int index, int n, void *argument), void *argument)
{
    struct child_end ends[CHILDREN_MAX];
    processes_run(ends, n, deadline_ms, body, argument);
    children_check_killed(ends, n, killed);
}

void processes_check(int n, int deadline_ms, void (*body)(int index, int n, void *argument),
                     void *argument)
{
    processes_check_killed(-1, n, deadline_ms, body, argument);
}

pid_t processes_pid(int index)
{
    while (atomic_load(&arena->pids[index]) == 0)
        check_sleep_ms(1);
    return atomic_load(&arena->pids[index]);
}

void processes_meet(int meeting, int n)
{
    children_meet(&arena->met[meeting], n);
}

uint64_t place_run(void)
{
    return arena == NULL ? 0 : arena->run;
}

int32_t place_take(void)
{
    const int32_t number = atomic_fetch_add(&arena->taken, 1);
    return number < PLACES ? number : -1;
}

struct place *place_of(int32_t number)
{
    return number >= 0 && number < PLACES ? &arena->places[number] : NULL;
}

/* ---------------------------------------------------------------------------------------- waits */

bool place_wait(bool (*holds)(void *context), void *context, const uint32_t *stop,
                uint64_t deadline_ns)
{
    uint64_t nap = NAP_NS;
    for (int looks = 0;; looks++) {
        if (holds(context))
            return true;
        if (stop != NULL && __atomic_load_n(stop, __ATOMIC_SEQ_CST) != 0)
            return false;
        if (looks < FIRST_LOOKS)
            continue;
        if (deadline_ns != 0 && tri_now_ns() >= deadline_ns)
            return false;
        tri_nap_ns(nap);
        nap = nap < LONGEST_NAP_NS ? 2 * nap : nap;
    }
}

/* -------------------------------------------------------------------------------------- joining */

/* The gate: bit `rank` says that the rank's seat is taken, bit 8 + rank that its data is written,
 * and bit 16 that all ranks have joined. One word, so that a rank whose time is up either gives its
 * seat back or sees that all are there. */
_Static_assert(PLACE_RANKS == 8, "the bits of the gate");
enum { READY = 8, COMPLETE = 1u << 16 };

static uint32_t bit(int32_t rank)
{
    return 1u << rank;
}

static bool is_complete(void *context)
{
    const struct place *place = context;
    return (atomic_load(&place->gate) & COMPLETE) != 0;
}

static trib_status take_seat(struct place *place, const struct joining *self)
{
    int32_t size = 0;
    if (!atomic_compare_exchange_strong(&place->size, &size, self->size) && size != self->size)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: rank %d passes size %d, earlier ranks passed %d", self->operation,
                        (int)self->rank, (int)self->size, (int)size);
    if ((atomic_fetch_or(&place->gate, bit(self->rank)) & bit(self->rank)) != 0)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: rank %d has joined already; every rank of an id joins once",
                        self->operation, (int)self->rank);
    return TRIB_OK;
}

/* The rank's data is written. */
static void become_ready(struct place *place, const struct joining *self)
{
    const uint32_t all = (bit(self->size) - 1) << READY;
    uint32_t seen = atomic_load(&place->gate), next;
    do {
        next = seen | bit(self->rank) << READY;
        next |= (next & all) == all ? COMPLETE : 0;
    } while (!atomic_compare_exchange_weak(&place->gate, &seen, next));
}

/* False if meanwhile all ranks have joined. Otherwise *out_missing becomes those that have not. */
static bool give_seat_back(struct place *place, const struct joining *self, uint32_t *out_missing)
{
    const uint32_t mine = bit(self->rank) | bit(self->rank) << READY;
    uint32_t seen = atomic_load(&place->gate);
    do
        if ((seen & COMPLETE) != 0)
            return false;
    while (!atomic_compare_exchange_weak(&place->gate, &seen, seen & ~mine));
    *out_missing = ~(seen >> READY) & (bit(self->size) - 1);
    return true;
}

static trib_status fail_join(const struct joining *self, uint32_t missing)
{
    char list[64] = "";
    struct tri_text text = {.data = list, .room = sizeof list};
    if (self->stop != NULL && __atomic_load_n(self->stop, __ATOMIC_SEQ_CST) != 0)
        return TRIB_ERR_ABORTED;
    for (int32_t rank = 0; rank < self->size; rank++)
        if ((missing & bit(rank)) != 0)
            tri_text_add(&text, "%s%d", text.used == 0 ? "" : ", ", (int)rank);
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "%s: rank %d of %d waited %u ms; these ranks did not join: %s", self->operation,
                    (int)self->rank, (int)self->size, (unsigned)self->timeout_ms, list);
}

trib_status place_join(struct place *place, const struct joining *self)
{
    struct seat *seat = &place->seats[self->rank];
    uint32_t missing = 0;
    TRI_TRY(take_seat(place, self));
    seat->pid = getpid();
    seat->device = self->device;
    become_ready(place, self);
    return place_wait(is_complete, place, self->stop, self->deadline_ns) ||
                   !give_seat_back(place, self, &missing)
               ? TRIB_OK
               : fail_join(self, missing);
}

void place_fill(struct place *place, const int32_t *devices, int32_t size)
{
    for (int32_t rank = 0; rank < size; rank++) {
        place->seats[rank].pid = getpid();
        place->seats[rank].device = devices[rank];
    }
    atomic_store(&place->size, size);
    atomic_store(&place->gate, COMPLETE);
}
