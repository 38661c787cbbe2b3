/* An eventcount: spin for a moment, then sleep until a notify. */
#define _GNU_SOURCE
#include "csrc/host/eventcount.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "csrc/base/clock.h"

#ifdef __linux__
#  include <linux/futex.h>
#  include <sys/syscall.h>
#endif

enum {
    FIRST_POLLS = 40,           /* polls before the first clock read: about a microsecond */
    POLLS_PER_CLOCK = 16,       /* polls between two clock reads */
    SPIN_NS = 50000,            /* about the cost of a sleep and a wakeup on another CPU */
    LONG_YIELD_NS = 200000,     /* a longer yield costs more than it can save */
    YIELD_BACKOFF_NS = 20000000 /* no thread yields for this long after a long yield */
};

static void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* The number of CPUs in the affinity mask of the process's first thread: the calling thread may be
 * bound to a single CPU. */
static int cpus(void)
{
    static _Atomic int known;
    int n = atomic_load_explicit(&known, memory_order_relaxed);
    if (n != 0)
        return n;
    n = (int)sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(getpid(), sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
#endif
    n = n < 1 ? 1 : n;
    atomic_store_explicit(&known, n, memory_order_relaxed);
    return n;
}

static bool spin(tri_predicate holds, void *context, int polls)
{
    for (int i = 0; i < polls; i++) {
        if (holds(context))
            return true;
        cpu_pause();
    }
    return false;
}

/* Yield the CPU until `end`, polling in between. Yielding is much cheaper than sleeping if the
 * other threads are waiting ranks, and much more expensive if they compute: each yield then costs a
 * time slice. After such a long yield all threads sleep instead for YIELD_BACKOFF_NS. */
static bool yield_until(uint64_t end, tri_predicate holds, void *context)
{
    static _Atomic uint64_t backoff_end;
    uint64_t now = tri_now_ns();
    if (now < atomic_load_explicit(&backoff_end, memory_order_relaxed))
        return false;
    while (now < end) {
        const uint64_t before = now;
        (void)sched_yield();
        now = tri_now_ns();
        if (now - before > LONG_YIELD_NS)
            atomic_store_explicit(&backoff_end, now + YIELD_BACKOFF_NS, memory_order_relaxed);
        if (holds(context))
            return true;
    }
    return false;
}

static bool spin_until(uint64_t end, tri_predicate holds, void *context)
{
    while (tri_now_ns() < end)
        if (spin(holds, context, POLLS_PER_CLOCK))
            return true;
    return false;
}

/* Spin, or yield if all CPUs but one have a spinning thread. So 2 ranks on 2 CPUs synchronize
 * without a system call, and more ranks than CPUs hand the CPUs on instead of sleeping and waking
 * each other. */
static bool spin_or_yield(tri_predicate holds, void *context)
{
    static _Atomic int spinning;
    if (spin(holds, context, cpus() == 1 ? 1 : FIRST_POLLS))
        return true;
    const bool spins = atomic_fetch_add_explicit(&spinning, 1, memory_order_relaxed) < cpus() - 1;
    const uint64_t end = tri_now_ns() + SPIN_NS;
    const bool found = spins ? spin_until(end, holds, context) : yield_until(end, holds, context);
    atomic_fetch_sub_explicit(&spinning, 1, memory_order_relaxed);
    return found;
}

#ifdef __linux__

/* Sleep while *word is `value`, until a wakeup or the deadline. May return early. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    struct timespec at = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, deadline_ns == 0 ? NULL : &at,
                  NULL, FUTEX_BITSET_MATCH_ANY);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#else

/* Guards no data. A waiter holds it from its load of the word until it sleeps, and a notifier takes
 * it after it has changed the word, so no wakeup falls between the two. All eventcounts of the
 * process share one: a spurious wakeup only makes a waiter poll again. */
static pthread_mutex_t futex_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t futex_woken = PTHREAD_COND_INITIALIZER;

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    const uint64_t now = tri_now_ns();
    uint64_t wait = deadline_ns == 0 ? 1000000000u : deadline_ns <= now ? 0 : deadline_ns - now;
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    wait = (wait > 1000000000u ? 1000000000u : wait) + (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(wait / 1000000000u);
    at.tv_nsec = (long)(wait % 1000000000u);
    pthread_mutex_lock(&futex_lock);
    if (atomic_load(word) == value)
        (void)pthread_cond_timedwait(&futex_woken, &futex_lock, &at);
    pthread_mutex_unlock(&futex_lock);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)word;
    pthread_mutex_lock(&futex_lock);
    pthread_cond_broadcast(&futex_woken);
    pthread_mutex_unlock(&futex_lock);
}

#endif

static bool sleep_until(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                        uint64_t deadline_ns)
{
    bool found;
    atomic_fetch_add(&eventcount->waiters, 1);
    for (;;) {
        const uint32_t epoch = atomic_load(&eventcount->epoch);
        found = holds(context);
        if (found || (deadline_ns != 0 && tri_now_ns() >= deadline_ns))
            break;
        futex_wait(&eventcount->epoch, epoch, deadline_ns);
    }
    atomic_fetch_sub(&eventcount->waiters, 1);
    return found;
}

bool tri_eventcount_wait(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                         uint64_t deadline_ns)
{
    return spin_or_yield(holds, context) || sleep_until(eventcount, holds, context, deadline_ns);
}

bool tri_eventcount_wait_for(struct tri_eventcount *eventcount, tri_predicate holds, void *context,
                             uint64_t ns)
{
    return spin_or_yield(holds, context) ||
           sleep_until(eventcount, holds, context, tri_now_ns() + ns);
}

void tri_eventcount_notify(struct tri_eventcount *eventcount)
{
    if (atomic_load(&eventcount->waiters) == 0)
        return;
    atomic_fetch_add(&eventcount->epoch, 1);
    futex_wake_all(&eventcount->epoch);
}
