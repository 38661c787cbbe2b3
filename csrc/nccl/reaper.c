/* The reaper: threads that take turns at one queue.
 *
 * ncclCommAbort is not safe against calls that are inside NCCL on the same communicator. But within
 * an open group it only raises the flags that make those calls and the kernels come back, and it
 * frees when the group ends. So: open a group, abort every local rank, wait until no call is inside,
 * end the group. A group belongs to its thread, and its end may wait: for work queued before on the
 * user's streams, and for every CUDA graph that captured the communicator to be destroyed.
 *
 * Therefore one thread listens: it takes errands and raises flags at once, in a group that it keeps
 * open. Before it ends the group, another one listens in its place: one that came back, or a new
 * one. If there is none to be had it goes on listening, and everything stays in its group until
 * there is. So flags go up whatever else hangs, and whether or not a thread can be started.
 *
 * Only a few threads give back at a time, however many communicators come and go: the errands of
 * meanwhile stay with the one who listens. Should those few hang (a graph that lives, a kernel that
 * does not end), one more goes after each PATIENCE_MS. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/nccl/reaper.h"

#include <nccl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/thread.h"

enum {
    AT_A_TIME = 4,      /* threads that give back */
    PATIENCE_MS = 2000, /* with those that do */
    SPARE = 1,          /* threads that wait for their turn to listen */
    SHORT_NS = 50000,   /* between two looks at calls that have not come back, */
    LONG_NS = 1000000,  /* at the most */
    RETRY_NS = 50000000 /* until another try to find a thread */
};

static pthread_once_t once = PTHREAD_ONCE_INIT; /* guards the making of the condition */
static pthread_cond_t changed;                  /* anything below */
static bool usable;                             /* the condition, once made */

/* Guards all below. Held for a few instructions only: who aborts takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tri_nccl_errand *first, **end = &first; /* posted, not taken */
static uint32_t errands;                              /* posted, not ended */
static uint64_t ended;
static uint64_t missed = UINT64_MAX;                  /* `ended` when somebody last waited in vain */
static uint32_t held;
static uint32_t threads, idle, busy; /* all; those that wait for their turn; that give back */
static uint64_t newest;              /* when the newest of those began */
static bool listening;               /* one does, or is on its way to it */
static bool starting;                /* the first one */
static bool dismissed;

static void make_condition(void)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return;
    usable = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
             pthread_cond_init(&changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
}

/* What one thread has taken. */
struct batch {
    struct tri_nccl_errand *first, **end;
    bool grouped; /* a group is open, with `scope` entered if `entered` */
    bool entered;
    struct tri_nccl_scope scope;
};

/* Everything that is posted. The lock is held. */
static void take(struct batch *batch)
{
    if (first == NULL)
        return;
    *batch->end = first;
    batch->end = end;
    first = NULL;
    end = &first;
}

/* NCCL restores the current device around its work: let it be one that is used. */
static bool open_group(struct batch *batch, int32_t device)
{
    if (batch->grouped)
        return true;
    batch->grouped = ncclGroupStart() == ncclSuccess;
    if (batch->grouped)
        batch->entered = tri_nccl_enter(&batch->scope, device) == TRIB_OK;
    return batch->grouped;
}

static void close_group(struct batch *batch)
{
    if (!batch->grouped)
        return;
    const ncclResult_t result = ncclGroupEnd();
    if (batch->entered)
        tri_nccl_leave(&batch->scope);
    batch->grouped = false;
    if (result != ncclSuccess)
        tri_log(TRIB_LOG_ERROR, "giving back an aborted communicator: NCCL returned \"%s\"",
                ncclGetErrorString(result));
}

/* True if every call inside has come back. */
static bool prepare(struct batch *batch)
{
    bool all = true;
    for (struct tri_nccl_errand *errand = batch->first; errand != NULL; errand = errand->next) {
        if (!errand->prepared && errand->prepare != NULL)
            errand->prepared = open_group(batch, errand->device) && errand->prepare(errand);
        all = all && (errand->prepared || errand->prepare == NULL);
    }
    return all;
}

static void *reaper(void *unused);

/* Another thread, which will listen if nobody does. The lock is held, but not meanwhile. 0 or an
 * errno. */
static int start(void)
{
    threads++;
    pthread_mutex_unlock(&lock);
    const int error = tri_nccl_thread(TRI_NCCL_REAPERS, reaper, NULL);
    pthread_mutex_lock(&lock);
    if (error != 0)
        threads--;
    return error;
}

/* Another one listens from now on; false if there is none. The lock is held. */
static bool hand_over(void)
{
    if (busy >= AT_A_TIME && tri_now_ns() - newest < (uint64_t)PATIENCE_MS * 1000000u)
        return false;
    if (idle == 0 && start() != 0)
        return false;
    listening = false;
    busy++;
    newest = tri_now_ns();
    pthread_cond_broadcast(&changed);
    return true;
}

/* For a change, at most `ns`. The lock is held. */
static void wait_ns(uint64_t ns)
{
    const uint64_t at = tri_now_ns() + ns;
    const struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    (void)pthread_cond_timedwait(&changed, &lock, &until);
}

/* Take errands and raise their flags, until another one listens; false if there is to be none. The
 * lock is held, but not while flags are raised. */
static bool listen(struct batch *batch)
{
    for (uint64_t pause = SHORT_NS; !dismissed; pause = pause < LONG_NS ? pause * 2 : LONG_NS) {
        take(batch);
        if (batch->first == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        const bool prepared = prepare(batch);
        pthread_mutex_lock(&lock);
        if (hand_over())
            return true;
        if (first == NULL)
            wait_ns(prepared ? RETRY_NS : pause);
    }
    return false;
}

/* Calls inside come back within milliseconds. */
static uint32_t give_back(struct batch *batch)
{
    uint32_t n = 0;
    for (uint64_t pause = SHORT_NS; !prepare(batch); pause = pause < LONG_NS ? pause * 2 : LONG_NS)
        tri_nap_ns(pause);
    close_group(batch);
    while (batch->first != NULL) {
        struct tri_nccl_errand *errand = batch->first;
        struct tri_nccl_scope scope;
        batch->first = errand->next;
        const bool entered = tri_nccl_enter(&scope, errand->device) == TRIB_OK;
        (void)tri_nccl_relax(); /* the thread does nothing else */
        errand->finish(errand);
        if (entered)
            tri_nccl_leave(&scope);
        n++;
    }
    return n;
}

/* Until it is this thread's turn to listen; false if enough others wait for that. The lock is held.
 */
static bool await_turn(void)
{
    if (listening && idle >= SPARE)
        return false;
    idle++;
    while (listening && !dismissed)
        pthread_cond_wait(&changed, &lock);
    idle--;
    listening = listening || !dismissed;
    return !dismissed;
}

static void *reaper(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (await_turn()) {
        struct batch batch = {.first = NULL, .end = &batch.first};
        if (!listen(&batch)) {
            listening = false;
            break;
        }
        pthread_mutex_unlock(&lock);
        const uint32_t n = give_back(&batch);
        pthread_mutex_lock(&lock);
        busy--;
        errands -= n;
        ended += n;
        pthread_cond_broadcast(&changed);
    }
    threads--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return tri_nccl_thread_end(TRI_NCCL_REAPERS);
}

/* Those that were told to end are told to stay; if they are gone there is a new one. The lock is
 * held. 0 or an errno. */
static int keep(void)
{
    while (starting)
        pthread_cond_wait(&changed, &lock);
    dismissed = false;
    if (threads > 0)
        return 0;
    starting = true;
    const int error = start();
    starting = false;
    pthread_cond_broadcast(&changed);
    return error;
}

trib_status tri_nccl_reaper_hold(void)
{
    (void)pthread_once(&once, make_condition);
    if (!usable)
        return tri_fail(TRIB_ERR_SYSTEM, "no condition variable for what gives back communicators");
    pthread_mutex_lock(&lock);
    const int error = keep();
    held += error == 0;
    pthread_mutex_unlock(&lock);
    if (error == 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_SYSTEM,
                    "no thread for what aborts and gives back communicators: %s; without one no "
                    "communicator is made. Look at the limits of threads (ulimit -u, the cgroup's "
                    "pids.max) and of memory",
                    strerror(error));
}

void tri_nccl_reaper_let_go(void)
{
    pthread_mutex_lock(&lock);
    held--;
    pthread_mutex_unlock(&lock);
}

void tri_nccl_post(struct tri_nccl_errand *errand)
{
    (void)pthread_once(&once, make_condition);
    errand->next = NULL;
    errand->prepared = false;
    pthread_mutex_lock(&lock);
    *end = errand;
    end = &errand->next;
    errands++;
    if (held == 0)
        (void)keep();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Nothing ends until `deadline_ns`, or something has. The lock is held. */
static bool await_one(uint64_t deadline_ns)
{
    const uint64_t before = ended;
    while (ended == before && tri_now_ns() < deadline_ns)
        wait_ns(RETRY_NS);
    return ended != before;
}

void tri_nccl_await_errands(uint64_t deadline_ns)
{
    pthread_mutex_lock(&lock);
    while (errands > 0 && ended != missed && tri_now_ns() < deadline_ns) {
        const uint64_t soon = tri_deadline_ns(PATIENCE_MS);
        if (!await_one(soon < deadline_ns ? soon : deadline_ns) && soon < deadline_ns)
            missed = ended;
    }
    pthread_mutex_unlock(&lock);
}

uint32_t tri_nccl_errands(uint64_t *out_ended)
{
    pthread_mutex_lock(&lock);
    const uint32_t n = errands;
    *out_ended = ended;
    pthread_mutex_unlock(&lock);
    return n;
}

bool tri_nccl_reaper_dismiss(void)
{
    pthread_mutex_lock(&lock);
    if (held == 0 && errands == 0 && !starting) {
        dismissed = true;
        if (usable)
            pthread_cond_broadcast(&changed);
    }
    const bool going = dismissed;
    pthread_mutex_unlock(&lock);
    return going;
}
