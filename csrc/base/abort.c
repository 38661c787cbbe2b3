/* The state that all ranks of one communicator in this process share. */
#include "csrc/base/abort.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/line.h"
#include "csrc/base/meeting.h"
#include "csrc/base/stopped.h"

enum { LIVE = 0, STOPPING = 1, STOPPED = 2 };

/* Threads register in different cache lines, so that ranks that call all the time do not wait for
 * each other's line. A thread keeps its counter. */
enum { COUNTERS = 16 };

struct counter {
    _Alignas(TRI_LINE) _Atomic uint32_t in_flight;
};

/* Constant once it is in the list. */
struct part {
    struct trib_abort *state; /* a reference */
    struct part *next;
};

struct trib_abort {
    struct counter counters[COUNTERS];
    _Atomic uint32_t references;
    /* LIVE -> STOPPING by compare-and-swap, then -> STOPPED once status, detail and lost ranks are
     * written. A reader first sees STOPPED with acquire, so they need no lock. */
    _Atomic int phase;
    trib_status status;
    char detail[TRI_DETAIL_SIZE];
    int32_t lost[TRI_LOST_MAX], n_lost;
    bool relayed;
    _Atomic uint64_t told_ns; /* when the hook and the observers had been called; 0: not yet */
    _Atomic uint32_t holders;
    _Atomic uint64_t deferred_ns;
    /* The last release gives `owned` to `give`; NULL: nothing to give. */
    uint32_t *owned;
    void (*give)(void *flag);
    _Atomic bool kept;
    _Atomic bool reclaimed;
    /* Guards the fields below: raise, ask and state use them, detach clears those up to `context`.
     * Held while a hook or an observer runs, so that neither detach nor unobserve returns under a
     * running one. */
    pthread_mutex_t lock;
    uint32_t *flag;
    tri_abort_hook hook;
    tri_abort_poll poll;
    const struct tri_abort_ending *ending;
    void *context;
    struct tri_abort_observer *observers;
    struct part *parts;
    bool told;                  /* the hook has been called, and the observers are */
    bool interrupted;           /* no call is in flight, and no stream waits; for ever */
    struct tri_meeting meeting; /* has a lock of its own */
};

struct trib_abort *tri_abort_create(uint32_t *flag, tri_abort_hook hook, void *context)
{
    struct trib_abort *state = tri_line_calloc(sizeof *state);
    if (state == NULL)
        return NULL;
    if (pthread_mutex_init(&state->lock, NULL) != 0) {
        free(state);
        return NULL;
    }
    if (!tri_meeting_init(&state->meeting)) {
        pthread_mutex_destroy(&state->lock);
        free(state);
        return NULL;
    }
    atomic_init(&state->references, 1);
    state->flag = flag;
    state->hook = hook;
    state->context = context;
    return state;
}

void tri_abort_set_poll(struct trib_abort *state, tri_abort_poll poll)
{
    state->poll = poll;
}

void tri_abort_set_ending(struct trib_abort *state, const struct tri_abort_ending *ending)
{
    state->ending = ending;
}

void tri_abort_own_flag(struct trib_abort *state, void (*give)(void *flag))
{
    state->owned = state->flag;
    state->give = give;
}

/* Not under the lock: a part's observers, which hold the part's, may be about to stop the state. Parts stay as long
 * as the state; for one that is added later add_part does it. */
void tri_abort_keep_flag(struct trib_abort *state)
{
    pthread_mutex_lock(&state->lock);
    atomic_store_explicit(&state->kept, true, memory_order_relaxed);
    const struct part *part = state->parts;
    pthread_mutex_unlock(&state->lock);
    for (; part != NULL; part = part->next)
        tri_abort_keep_flag(part->state);
}

struct trib_abort *tri_abort_retain(struct trib_abort *state)
{
    atomic_fetch_add_explicit(&state->references, 1, memory_order_relaxed);
    return state;
}

void tri_abort_release(struct trib_abort *state)
{
    if (state == NULL ||
        atomic_fetch_sub_explicit(&state->references, 1, memory_order_acq_rel) != 1)
        return;
    if (state->owned != NULL && !atomic_load_explicit(&state->kept, memory_order_relaxed))
        state->give(state->owned);
    while (state->parts != NULL) {
        struct part *part = state->parts;
        state->parts = part->next;
        tri_abort_release(part->state);
        free(part);
    }
    tri_meeting_destroy(&state->meeting);
    pthread_mutex_destroy(&state->lock);
    free(state);
}

/* Has it stopped? Then everything about it is written. */
static bool stopped(const struct trib_abort *state)
{
    int phase = atomic_load_explicit(&state->phase, memory_order_acquire);
    while (phase == STOPPING) /* a few stores away, on a thread that is not waiting */
        phase = atomic_load_explicit(&state->phase, memory_order_acquire);
    return phase == STOPPED;
}

/* The lock is held. */
static void set_flag(const struct trib_abort *state, uint32_t value)
{
    if (state->flag != NULL)
        /* Sequentially consistent: a waiter announces itself, reads the flag, and sleeps. The hook
         * wakes announced waiters, and must not look for them before the flag is set. */
        __atomic_store_n(state->flag, value, __ATOMIC_SEQ_CST);
}

void tri_abort_detach(struct trib_abort *state)
{
    pthread_mutex_lock(&state->lock);
    if (stopped(state)) /* a graph may read it for long, and nobody else sets it any more */
        set_flag(state, TRI_STOPPED);
    state->flag = NULL;
    state->hook = NULL;
    state->poll = NULL;
    state->ending = NULL;
    state->context = NULL;
    pthread_mutex_unlock(&state->lock);
}

/* The lock is held. */
static void raise_flag(const struct trib_abort *state)
{
    const bool held = atomic_load_explicit(&state->holders, memory_order_acquire) != 0;
    set_flag(state, held ? TRI_STOPPED_HERE : TRI_STOPPED);
}

/* Set the flag, and call the hook and the observers, once for the state. */
static void tell(struct trib_abort *state)
{
    pthread_mutex_lock(&state->lock);
    raise_flag(state);
    if (state->hook != NULL)
        state->hook(state->context);
    state->told = true;
    for (struct tri_abort_observer *observer = state->observers; observer != NULL;
         observer = observer->next)
        observer->raised(observer->context, state->relayed);
    atomic_store_explicit(&state->told_ns, tri_now_ns(), memory_order_release);
    pthread_mutex_unlock(&state->lock);
}

static bool stop(struct trib_abort *state, trib_status status, const char *detail,
                 const int32_t *lost, int32_t n, bool relayed)
{
    int expected = LIVE;
    /* Sequentially consistent, as is register: of a thread that registers and one that raises, one
     * sees the other. */
    if (!atomic_compare_exchange_strong(&state->phase, &expected, STOPPING))
        return false;
    state->status = status;
    state->relayed = relayed;
    (void)snprintf(state->detail, sizeof state->detail, "%s", detail == NULL ? "" : detail);
    for (state->n_lost = 0; state->n_lost < n && state->n_lost < TRI_LOST_MAX; state->n_lost++)
        state->lost[state->n_lost] = lost[state->n_lost];
    atomic_store_explicit(&state->phase, STOPPED, memory_order_release);
    tell(state);
    return true;
}

bool tri_abort_raise(struct trib_abort *state, trib_status status, const char *detail)
{
    return stop(state, status, detail, NULL, 0, false);
}

bool tri_abort_raise_lost(struct trib_abort *state, trib_status status, const char *detail,
                          const int32_t *lost, int32_t n)
{
    return stop(state, status, detail, lost, n, false);
}

bool tri_abort_raise_relayed(struct trib_abort *state, trib_status status, const char *detail,
                             const int32_t *lost, int32_t n)
{
    return stop(state, status, detail, lost, n, true);
}

void tri_abort_observe(struct trib_abort *state, struct tri_abort_observer *observer)
{
    pthread_mutex_lock(&state->lock);
    observer->next = state->observers;
    state->observers = observer;
    if (state->told)
        observer->raised(observer->context, state->relayed);
    pthread_mutex_unlock(&state->lock);
}

/* An observer that leaves between the stop and what the thread that stopped it tells would never
 * hear of it. */
void tri_abort_unobserve(struct trib_abort *state, struct tri_abort_observer *observer)
{
    pthread_mutex_lock(&state->lock);
    struct tri_abort_observer **link = &state->observers;
    while (*link != NULL && *link != observer)
        link = &(*link)->next;
    if (*link != NULL) {
        *link = observer->next;
        if (!state->told && stopped(state)) {
            raise_flag(state); /* what the observer tells others is true then */
            observer->raised(observer->context, state->relayed);
        }
    }
    pthread_mutex_unlock(&state->lock);
}

void tri_abort_await_told(const struct trib_abort *state)
{
    enum { NAP_NS = 1000 };
    while (atomic_load_explicit(&state->told_ns, memory_order_acquire) == 0)
        tri_nap_ns(NAP_NS);
}

static bool has_part(const struct trib_abort *state, const struct trib_abort *part)
{
    const struct part *known = state->parts;
    while (known != NULL && known->state != part)
        known = known->next;
    return known != NULL;
}

bool tri_abort_add_part(struct trib_abort *state, struct trib_abort *part)
{
    struct part *added = malloc(sizeof *added);
    if (added == NULL)
        return false;
    pthread_mutex_lock(&state->lock);
    if (has_part(state, part)) {
        free(added);
    } else {
        *added = (struct part){tri_abort_retain(part), state->parts};
        state->parts = added;
    }
    const bool kept = atomic_load_explicit(&state->kept, memory_order_relaxed);
    pthread_mutex_unlock(&state->lock);
    if (kept)
        tri_abort_keep_flag(part);
    return true;
}

void tri_abort_hold(struct trib_abort *state)
{
    atomic_fetch_add_explicit(&state->holders, 1, memory_order_relaxed);
}

void tri_abort_let_go(struct trib_abort *state)
{
    atomic_fetch_sub_explicit(&state->holders, 1, memory_order_release);
}

bool tri_abort_may_interrupt(const struct trib_abort *state)
{
    const uint64_t told_ns = atomic_load_explicit(&state->told_ns, memory_order_acquire);
    return atomic_load_explicit(&state->holders, memory_order_acquire) == 0 || !stopped(state) ||
           (told_ns != 0 && tri_now_ns() >= told_ns + TRI_HELD_MS * 1000000u);
}

void tri_abort_release_streams(struct trib_abort *state)
{
    pthread_mutex_lock(&state->lock);
    if (state->told)
        set_flag(state, TRI_STOPPED);
    pthread_mutex_unlock(&state->lock);
}

void tri_abort_defer(struct trib_abort *state, uint64_t until_ns)
{
    uint64_t before = atomic_load_explicit(&state->deferred_ns, memory_order_relaxed);
    while (before < until_ns &&
           !atomic_compare_exchange_weak_explicit(&state->deferred_ns, &before, until_ns,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
}

uint64_t tri_abort_deferred(const struct trib_abort *state)
{
    return atomic_load_explicit(&state->deferred_ns, memory_order_relaxed);
}

bool tri_abort_live(const struct trib_abort *state)
{
    return atomic_load_explicit(&state->phase, memory_order_acquire) == LIVE;
}

trib_status tri_abort_why(const struct trib_abort *state, const char **out)
{
    if (!stopped(state))
        return TRIB_OK;
    *out = state->detail;
    return state->status;
}

trib_status tri_abort_status(const struct trib_abort *state)
{
    const char *why = NULL;
    const trib_status status = tri_abort_why(state, &why);
    return status == TRIB_OK ? TRIB_OK : tri_fail(status, "%s", why);
}

int32_t tri_abort_lost(const struct trib_abort *state, int32_t *out, int32_t capacity)
{
    const int32_t n = stopped(state) ? state->n_lost : 0;
    for (int32_t i = 0; i < n && i < capacity; i++)
        out[i] = state->lost[i];
    return n;
}

struct tri_meeting *tri_abort_meeting(struct trib_abort *state)
{
    return &state->meeting;
}

trib_status tri_abort_ask(struct trib_abort *state)
{
    trib_status found = TRIB_OK;
    const struct part *parts = NULL;
    if (tri_abort_live(state)) {
        pthread_mutex_lock(&state->lock);
        if (state->poll != NULL)
            found = state->poll(state->context);
        parts = state->parts;
        pthread_mutex_unlock(&state->lock);
    }
    if (found != TRIB_OK)
        (void)tri_abort_raise(state, found, tri_detail());
    for (; parts != NULL; parts = parts->next)
        (void)tri_abort_ask(parts->state); /* what it finds stops both */
    return tri_abort_status(state);
}

void tri_abort_reclaimed(struct trib_abort *state)
{
    atomic_store_explicit(&state->reclaimed, true, memory_order_release);
}

/* Has everything been interrupted? The lock is held, and the phase is not LIVE: a thread that
 * registers from now on does so in vain. */
static bool interrupted(struct trib_abort *state, char *text, size_t bytes)
{
    if (state->interrupted)
        return true;
    const uint32_t n = tri_abort_in_flight(state);
    if (!tri_abort_may_interrupt(state))
        (void)snprintf(text, bytes, "ranks of other processes, which have not stopped yet");
    else if (n != 0)
        (void)snprintf(text, bytes, "%u call%s in flight", (unsigned)n,
                       n == 1 ? " that is" : "s that are");
    else
        state->interrupted =
            state->ending == NULL || state->ending->interrupted(state->context, text, bytes);
    return state->interrupted;
}

/* Without its parts; the lock is held. */
static trib_comm_state own_state(struct trib_abort *state, char *text, size_t bytes)
{
    if (atomic_load_explicit(&state->reclaimed, memory_order_acquire))
        return TRIB_COMM_RECLAIMED;
    /* Sequentially consistent, as in raise and register. */
    if (atomic_load(&state->phase) == LIVE)
        return TRIB_COMM_LIVE;
    if (!interrupted(state, text, bytes))
        return TRIB_COMM_ABORTING;
    return state->ending != NULL && state->ending->parked(state->context, text, bytes)
               ? TRIB_COMM_PARKED
               : TRIB_COMM_ABORTED;
}

/* How far an end has come, least first. */
static int how_far(trib_comm_state state)
{
    static const int order[] = {[TRIB_COMM_LIVE] = 0,
                                [TRIB_COMM_ABORTING] = 1,
                                [TRIB_COMM_PARKED] = 2,
                                [TRIB_COMM_ABORTED] = 3,
                                [TRIB_COMM_RECLAIMED] = 4};
    return order[state];
}

/* The least of `found` and what is said of each part. Without the lock: a thread that has stopped a part
 * holds that one's, and may want this one. A part that has not been told yet is about to be. */
static trib_comm_state with_parts(const struct trib_abort *state, const struct part *parts,
                                  trib_comm_state found, char *text, size_t bytes)
{
    for (const struct part *part = parts; part != NULL; part = part->next) {
        char why[TRI_DETAIL_SIZE];
        trib_comm_state its = tri_abort_state(part->state, why, sizeof why);
        if (its == TRIB_COMM_LIVE && atomic_load(&state->phase) != LIVE)
            its = TRIB_COMM_ABORTING;
        if (how_far(its) < how_far(found)) {
            found = its;
            (void)snprintf(text, bytes, "%s", why);
        }
    }
    return found;
}

trib_comm_state tri_abort_state(struct trib_abort *state, char *text, size_t bytes)
{
    if (bytes > 0)
        text[0] = '\0';
    pthread_mutex_lock(&state->lock);
    const trib_comm_state found = own_state(state, text, bytes);
    const struct part *const parts = state->parts; /* each lives as long as the state */
    pthread_mutex_unlock(&state->lock);
    return found == TRIB_COMM_LIVE ? found : with_parts(state, parts, found, text, bytes);
}

/* This thread's counter. */
static _Atomic uint32_t *counter(struct trib_abort *state)
{
    static _Atomic uint32_t threads;
    static _Thread_local uint32_t mine; /* 0: not given yet */
    if (mine == 0)
        mine = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % COUNTERS;
    return &state->counters[mine - 1].in_flight;
}

bool tri_abort_register(struct trib_abort *state)
{
    _Atomic uint32_t *in_flight = counter(state);
    atomic_fetch_add(in_flight, 1);
    if (atomic_load(&state->phase) == LIVE)
        return true;
    atomic_fetch_sub(in_flight, 1);
    return false;
}

void tri_abort_unregister(struct trib_abort *state)
{
    atomic_fetch_sub_explicit(counter(state), 1, memory_order_release);
}

uint32_t tri_abort_in_flight(const struct trib_abort *state)
{
    uint32_t in_flight = 0;
    for (int i = 0; i < COUNTERS; i++)
        in_flight += atomic_load(&state->counters[i].in_flight);
    return in_flight;
}
