/* When a stream's worker is called. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/host/patrol.h"

#include <pthread.h>
#include <time.h>

#include "csrc/base/thread.h"
#include "csrc/host/park.h"
#include "csrc/host/stream.h"

enum {
    ROUND_NS = 200000,
    QUIET_ROUNDS = 100, /* without work before the patrol sleeps */
    PUT_OFF = 64        /* a thread puts off no more streams than that */
};

/* The streams whose workers this thread has put off calling, the oldest first. They may be gone by
 * now: only for tri_stream_kick. */
static _Thread_local const void *put_off[PUT_OFF];
static _Thread_local int n_put_off;

static struct {
    pthread_once_t once;
    bool started; /* written once, under `once` */
    _Atomic bool asleep;
    _Atomic uint32_t seen; /* a stream was put off since the last round */
    struct tri_park bed;   /* for asleep */
} patrol = {.once = PTHREAD_ONCE_INIT};

static bool called_up(void *context)
{
    (void)context;
    return !atomic_load(&patrol.asleep);
}

static void *go_round(void *context)
{
    (void)context;
    const struct timespec pause = {0, ROUND_NS};
    for (int quiet = 0;; quiet++) {
        nanosleep(&pause, NULL);
        tri_stream_patrol();
        if (atomic_exchange(&patrol.seen, 0) != 0)
            quiet = 0;
        if (quiet < QUIET_ROUNDS)
            continue;
        atomic_store(&patrol.asleep, true);
        if (atomic_load(&patrol.seen) == 0)
            (void)tri_park_until(&patrol.bed, called_up, NULL, 0);
        atomic_store(&patrol.asleep, false);
        quiet = 0;
    }
    return NULL;
}

static void start_patrol(void)
{
    pthread_t thread;
    patrol.started = tri_thread_start(&thread, go_round, NULL) == 0;
    if (patrol.started)
        pthread_detach(thread);
}

/* Remember it for the time when this thread waits. False if it has too many to remember. */
static bool remember(const void *stream)
{
    for (int i = 0; i < n_put_off; i++)
        if (put_off[i] == stream)
            return true;
    if (n_put_off == PUT_OFF)
        return false;
    put_off[n_put_off++] = stream;
    return true;
}

/* Let the patrol look after the stream. False if there is no patrol. */
static bool put_off_call(const void *stream, struct tri_patrolled *patrolled)
{
    pthread_once(&patrol.once, start_patrol);
    if (!patrol.started || !remember(stream))
        return false;
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(&patrolled->rounds, &none, 1);
    atomic_store(&patrol.seen, 1);
    if (atomic_load(&patrol.asleep)) {
        atomic_store(&patrol.asleep, false);
        tri_park_wake(&patrol.bed);
    }
    return true;
}

bool tri_patrol_pushed(const void *stream, struct tri_patrolled *patrolled)
{
    return !atomic_load(&patrolled->awaited) || !put_off_call(stream, patrolled);
}

void tri_patrol_waiting(const void *stream, struct tri_patrolled *patrolled)
{
    for (int i = 0; i < n_put_off; i++)
        if (put_off[i] != stream)
            tri_stream_kick(put_off[i]);
    n_put_off = 0;
    atomic_store(&patrolled->rounds, 0);
}

void tri_patrol_awaited(struct tri_patrolled *patrolled)
{
    atomic_store(&patrolled->awaited, true);
}

bool tri_patrol_overdue(struct tri_patrolled *patrolled)
{
    const uint32_t rounds = atomic_load(&patrolled->rounds);
    if (rounds == 0)
        return false;
    if (rounds == 1) {
        uint32_t once = 1;
        (void)atomic_compare_exchange_strong(&patrolled->rounds, &once, 2);
        return false;
    }
    atomic_store(&patrolled->rounds, 0);
    atomic_store(&patrolled->awaited, false);
    return true;
}
