/* The background threads: leader and followers, over one queue of jobs.
 *
 * ncclCommAbort is not safe against calls in flight on the same communicator. But within an open
 * group it only raises the flags that make those calls and the kernels return, and frees when the
 * group ends. So: open a group, abort every local rank, wait until no call is in flight, end the
 * group. A group belongs to its thread, and its end may wait for work queued before on the user's
 * streams. It would also wait for the destruction of every CUDA graph that captured a call of the
 * communicator. A job that has such graphs is parked instead: its thread keeps the group open until
 * the last one is gone.
 *
 * Therefore one thread leads: it takes jobs and raises their flags as soon as they may, in a group that it
 * keeps open. Before it ends the group, it promotes a follower: an idle thread, or a new one. If
 * there is none it goes on leading, and its group stays open until there is. So flags go up
 * whatever else hangs, and whether or not a thread can be started.
 *
 * Only a few threads finish jobs at a time, however many communicators are made and closed: the
 * leader keeps the jobs posted meanwhile. If those few hang (a kernel that does not end), one more
 * may start after each STALL_MS. Threads with parked jobs, or with one whose group may never end, do not
 * count, unless there are many. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/nccl/background.h"

#include <nccl.h>
#include <pthread.h>
#include <time.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/thread.h"

enum {
    MAX_WORKERS = 4,          /* threads that finish jobs */
    STALL_MS = 2000,          /* without progress, until one more may */
    MAX_FOLLOWERS = 1,        /* idle threads that wait to lead */
    MAX_PARKED = 16,          /* threads that may wait for ever and do not count as workers */
    BACKOFF_MIN_NS = 50000,   /* first pause between two rounds of prepare, */
    BACKOFF_MAX_NS = 1000000, /* and the longest */
    RETRY_NS = 50000000,      /* until the next attempt to start a thread */
    PARKED_NS = 1000000000    /* until a parked job is looked at, should no graph wake its thread */
};

static pthread_once_t once = PTHREAD_ONCE_INIT; /* guards the creation of the condition */
static pthread_cond_t changed;                  /* any variable below */
static bool usable;                             /* the condition exists */

/* Guards all variables below. Held for a few instructions only, because an abort takes it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tri_nccl_job *first, **end = &first; /* posted, not taken */
static uint32_t unfinished;                        /* posted, not ended */
static uint64_t ended;
static uint64_t stalled_at = UINT64_MAX; /* `ended` when a wait last gave up */
static uint32_t references;
static uint32_t threads, followers, workers; /* all; idle, waiting to lead; finishing jobs */
static uint64_t newest_worker_ns;            /* when the newest worker began */
static uint32_t excused;                     /* threads that may wait for ever, not in `workers` */
static uint32_t parked_jobs, parked_graphs;  /* and for how many graphs those wait */
static bool has_leader;                      /* a thread leads, or has been promoted */
static bool starting;                        /* the first thread */
static bool stopping;

static void make_condition(void)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return;
    usable = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
             pthread_cond_init(&changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
}

/* The jobs that one thread has taken. */
struct taken {
    struct tri_nccl_job *first, **end;
    bool grouped; /* a group is open, and if `pushed`, `guard` is */
    bool pushed;
    bool excused; /* not among `workers` */
    struct tri_nccl_device_guard guard;
};

static uint32_t graphs_of(const struct tri_nccl_job *job)
{
    return job->graphs == NULL ? 0 : job->graphs(job);
}

/* What keeps the job parked: graphs, or calls. */
static uint32_t holds_of(const struct tri_nccl_job *job)
{
    return graphs_of(job) + (job->calls == NULL ? 0 : job->calls(job));
}

static bool is_alone(const struct tri_nccl_job *job)
{
    return job->alone || holds_of(job) != 0;
}

/* Take every posted job; but a job that is to be parked, or may hang, by itself, because what one thread has
 * taken ends together. If something was taken before, nobody could be promoted, and flags go up
 * whatever they wait for. The lock is held. */
static void take_posted(struct taken *taken)
{
    const bool none = taken->first == NULL;
    while (first != NULL) {
        if (none && taken->first != NULL && (is_alone(taken->first) || is_alone(first)))
            return;
        *taken->end = first;
        taken->end = &first->next;
        first = first->next;
        *taken->end = NULL;
        if (first == NULL)
            end = &first;
    }
}

/* NCCL restores the current device around its work, so make one current that is in use. */
static bool open_group(struct taken *taken, int32_t device)
{
    if (taken->grouped)
        return true;
    taken->grouped = ncclGroupStart() == ncclSuccess;
    if (taken->grouped)
        taken->pushed = tri_nccl_push_device(&taken->guard, device) == TRIB_OK;
    return taken->grouped;
}

/* Its thread does not count as one that finishes jobs, unless there are many such. The lock is held, as for the
 * reverse. */
static void excuse(struct taken *taken)
{
    if (taken->excused || excused >= MAX_PARKED)
        return;
    taken->excused = true;
    workers--;
    excused++;
}

static void end_excuse(struct taken *taken)
{
    workers += taken->excused;
    excused -= taken->excused;
    taken->excused = false;
}

static void close_group(struct taken *taken)
{
    if (!taken->grouped)
        return;
    const ncclResult_t result = ncclGroupEnd();
    if (taken->pushed)
        tri_nccl_pop_device(&taken->guard);
    taken->grouped = false;
    if (result != ncclSuccess)
        tri_log(TRIB_LOG_ERROR, "freeing an aborted communicator: NCCL returned \"%s\"",
                ncclGetErrorString(result));
}

/* Returns true if no call is in flight on any of them. */
static bool prepare_jobs(struct taken *taken)
{
    bool all = true;
    for (struct tri_nccl_job *job = taken->first; job != NULL; job = job->next) {
        if (!job->prepared && job->prepare != NULL)
            job->prepared = open_group(taken, job->device) && job->prepare(job);
        if (job->prepared && atomic_load(&job->prepared_ns) == 0)
            atomic_store(&job->prepared_ns, tri_now_ns());
        all = all && (job->prepared || job->prepare == NULL);
    }
    return all;
}

static void *background_thread(void *unused);

/* Start another thread, which leads if no thread does. Releases the lock, which the caller holds,
 * meanwhile. Returns 0 or an errno. */
static int start(void)
{
    threads++;
    pthread_mutex_unlock(&lock);
    const int error = tri_nccl_thread(TRI_NCCL_BACKGROUND, background_thread, NULL);
    pthread_mutex_lock(&lock);
    if (error != 0)
        threads--;
    return error;
}

/* Promote a follower to leader; false if there is none, or if enough threads finish jobs already.
 * The lock is held. */
static bool promote_follower(void)
{
    if (workers >= MAX_WORKERS && tri_now_ns() - newest_worker_ns < (uint64_t)STALL_MS * 1000000u)
        return false;
    if (followers == 0 && start() != 0)
        return false;
    has_leader = false;
    workers++;
    newest_worker_ns = tri_now_ns();
    pthread_cond_broadcast(&changed);
    return true;
}

/* Wait at most `ns` for a change. The lock is held. */
static void wait_ns(uint64_t ns)
{
    const uint64_t at = tri_now_ns() + ns;
    const struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    (void)pthread_cond_timedwait(&changed, &lock, &until);
}

/* Take jobs and raise their flags, until a follower is promoted; false if the threads are to end.
 * Releases the lock, which the caller holds, while it raises flags. */
static bool lead(struct taken *taken)
{
    for (uint64_t pause = BACKOFF_MIN_NS; !stopping;
         pause = pause < BACKOFF_MAX_NS ? pause * 2 : BACKOFF_MAX_NS) {
        take_posted(taken);
        if (taken->first == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        const bool prepared = prepare_jobs(taken);
        pthread_mutex_lock(&lock);
        if (promote_follower())
            return true;
        if (first == NULL)
            wait_ns(prepared ? RETRY_NS : pause);
    }
    return false;
}

/* The number of jobs that were taken, of the graphs for which they wait, and of all that they wait
 * for. */
static uint32_t count_taken(const struct taken *taken, uint32_t *out_graphs, uint32_t *out_holds)
{
    uint32_t n = 0;
    *out_graphs = *out_holds = 0;
    for (const struct tri_nccl_job *job = taken->first; job != NULL; job = job->next) {
        *out_graphs += graphs_of(job);
        *out_holds += holds_of(job);
        n++;
    }
    return n;
}

/* Park until no graph lives for which the group's end would wait, and no call is inside. */
static void await_holds(struct taken *taken)
{
    uint32_t graphs = 0, holds = 0;
    pthread_mutex_lock(&lock);
    const uint32_t jobs = count_taken(taken, &graphs, &holds);
    if (holds != 0) {
        excuse(taken);
        parked_jobs += jobs;
        pthread_cond_broadcast(&changed);
        while (holds != 0) {
            parked_graphs += graphs;
            wait_ns(PARKED_NS);
            parked_graphs -= graphs;
            (void)count_taken(taken, &graphs, &holds);
        }
        parked_jobs -= jobs;
        if (!taken->first->alone)
            end_excuse(taken);
    }
    pthread_mutex_unlock(&lock);
}

static void settle_jobs(const struct taken *taken)
{
    uint32_t longest_ms = 0;
    for (struct tri_nccl_job *job = taken->first; job != NULL; job = job->next) {
        atomic_store(&job->freeing_ns, tri_now_ns());
        const uint32_t ms = job->settle == NULL ? 0 : job->settle(job);
        longest_ms = ms > longest_ms ? ms : longest_ms;
    }
    tri_nap_ns((uint64_t)longest_ms * 1000000u);
}

/* The end of the group of a job that is alone may never come. */
static void excuse_alone(struct taken *taken)
{
    pthread_mutex_lock(&lock);
    if (taken->first->alone) {
        excuse(taken);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

/* Calls in flight return within milliseconds, once other processes have heard of the abort. */
static uint32_t finish_jobs(struct taken *taken)
{
    uint32_t n = 0;
    excuse_alone(taken);
    for (uint64_t pause = BACKOFF_MIN_NS; !prepare_jobs(taken);
         pause = pause < BACKOFF_MAX_NS ? pause * 2 : BACKOFF_MAX_NS)
        tri_nap_ns(pause);
    await_holds(taken);
    settle_jobs(taken);
    close_group(taken);
    while (taken->first != NULL) {
        struct tri_nccl_job *job = taken->first;
        struct tri_nccl_device_guard guard;
        taken->first = job->next;
        const bool pushed = tri_nccl_push_device(&guard, job->device) == TRIB_OK;
        (void)tri_nccl_relax_capture(); /* for good: the thread makes no other CUDA calls */
        job->finish(job);
        if (pushed)
            tri_nccl_pop_device(&guard);
        n++;
    }
    return n;
}

/* Wait to become the leader; false if enough followers wait already, or the threads are to end. The
 * lock is held. */
static bool await_leadership(void)
{
    if (has_leader && followers >= MAX_FOLLOWERS)
        return false;
    followers++;
    while (has_leader && !stopping)
        pthread_cond_wait(&changed, &lock);
    followers--;
    has_leader = has_leader || !stopping;
    return !stopping;
}

static void *background_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (await_leadership()) {
        struct taken taken = {.first = NULL, .end = &taken.first};
        if (!lead(&taken)) {
            has_leader = false;
            break;
        }
        pthread_mutex_unlock(&lock);
        const uint32_t n = finish_jobs(&taken);
        pthread_mutex_lock(&lock);
        end_excuse(&taken);
        workers--;
        unfinished -= n;
        ended += n;
        pthread_cond_broadcast(&changed);
    }
    threads--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return tri_nccl_thread_end(TRI_NCCL_BACKGROUND);
}

/* Keep the threads that were asked to end, or start one if all have ended. The lock is held.
 * Returns 0 or an errno. */
static int ensure_thread(void)
{
    while (starting)
        pthread_cond_wait(&changed, &lock);
    stopping = false;
    if (threads > 0)
        return 0;
    starting = true;
    const int error = start();
    starting = false;
    pthread_cond_broadcast(&changed);
    return error;
}

trib_status tri_nccl_background_retain(void)
{
    (void)pthread_once(&once, make_condition);
    if (!usable)
        return tri_fail(TRIB_ERR_SYSTEM, "no condition variable for the background threads");
    pthread_mutex_lock(&lock);
    const int error = ensure_thread();
    references += error == 0;
    pthread_mutex_unlock(&lock);
    if (error == 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_SYSTEM,
                    "no thread for aborting and freeing communicators: %s; without one, no "
                    "communicator is created. Check the limits on threads (ulimit -u, the cgroup's "
                    "pids.max) and on memory",
                    tri_error_text(error).text);
}

void tri_nccl_background_release(void)
{
    pthread_mutex_lock(&lock);
    references--;
    pthread_mutex_unlock(&lock);
}

void tri_nccl_post_job(struct tri_nccl_job *job)
{
    (void)pthread_once(&once, make_condition);
    job->next = NULL;
    job->prepared = false;
    atomic_store(&job->prepared_ns, 0);
    atomic_store(&job->freeing_ns, 0);
    pthread_mutex_lock(&lock);
    *end = job;
    end = &job->next;
    unfinished++;
    if (references == 0)
        (void)ensure_thread();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void tri_nccl_wake_jobs(void)
{
    pthread_mutex_lock(&lock);
    if (parked_jobs > 0)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Wait until a job ends, or all are parked; false if none has by `deadline_ns`. The lock is
 * held. */
static bool await_next_end(uint64_t deadline_ns)
{
    const uint64_t before = ended;
    while (ended == before && unfinished > parked_jobs && tri_now_ns() < deadline_ns)
        wait_ns(RETRY_NS);
    return ended != before || unfinished == parked_jobs;
}

void tri_nccl_await_jobs(uint64_t deadline_ns)
{
    pthread_mutex_lock(&lock);
    while (unfinished > parked_jobs && ended != stalled_at && tri_now_ns() < deadline_ns) {
        const uint64_t soon = tri_deadline_ns(STALL_MS);
        if (!await_next_end(soon < deadline_ns ? soon : deadline_ns) && soon < deadline_ns)
            stalled_at = ended;
    }
    pthread_mutex_unlock(&lock);
}

uint32_t tri_nccl_jobs(uint64_t *out_ended)
{
    pthread_mutex_lock(&lock);
    const uint32_t n = unfinished;
    *out_ended = ended;
    pthread_mutex_unlock(&lock);
    return n;
}

uint32_t tri_nccl_jobs_graphs(void)
{
    pthread_mutex_lock(&lock);
    const uint32_t n = parked_graphs;
    pthread_mutex_unlock(&lock);
    return n;
}

bool tri_nccl_background_stop(void)
{
    pthread_mutex_lock(&lock);
    if (references == 0 && unfinished == 0 && !starting) {
        stopping = true;
        if (usable)
            pthread_cond_broadcast(&changed);
    }
    const bool going = stopping;
    pthread_mutex_unlock(&lock);
    return going;
}
