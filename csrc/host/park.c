/* Waiting for what another thread will do: spin for a moment, then sleep. */
#define _GNU_SOURCE
#include "csrc/host/park.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "csrc/base/clock.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

enum {
    GLANCES = 40,           /* looks before the clock is asked: about a microsecond */
    LOOKS_A_TIME = 16,      /* between two looks at the clock */
    SPIN_NS = 50000,        /* a sleep and a wake on another CPU cost about as much */
    LONG_YIELD_NS = 200000, /* a yield that takes longer has cost more than it can save */
    SULK_NS = 20000000      /* no yields for so long after a long one */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* CPUs that this process may use: those of its first thread, for a rank's own thread may be bound
 * to a single one. */
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

static bool look(tri_ready ready, void *context, int times)
{
    for (int i = 0; i < times; i++) {
        if (ready(context))
            return true;
        relax();
    }
    return false;
}

/* Give the CPU to other threads until `end`, looking in between. That is much cheaper than sleeping
 * if the others are ranks which wait too, and much dearer if they compute: then a whole slice of
 * theirs goes by. Whoever sees that tells all threads to sleep instead for a while. */
static bool yield_until(uint64_t end, tri_ready ready, void *context)
{
    static _Atomic uint64_t sulk_end;
    uint64_t now = tri_now_ns();
    if (now < atomic_load_explicit(&sulk_end, memory_order_relaxed))
        return false;
    while (now < end) {
        const uint64_t before = now;
        (void)sched_yield();
        now = tri_now_ns();
        if (now - before > LONG_YIELD_NS)
            atomic_store_explicit(&sulk_end, now + SULK_NS, memory_order_relaxed);
        if (ready(context))
            return true;
    }
    return false;
}

static bool spin_until(uint64_t end, tri_ready ready, void *context)
{
    while (tri_now_ns() < end)
        if (look(ready, context, LOOKS_A_TIME))
            return true;
    return false;
}

/* Look for a moment. Of all CPUs one is left free of spinning: whoever finds the others taken gives
 * its own away between looks. So 2 ranks on 2 CPUs meet without a system call, and more ranks than
 * CPUs pass the CPUs on among themselves instead of sleeping and waking each other. */
static bool look_for_a_moment(tri_ready ready, void *context)
{
    static _Atomic int spinning;
    if (look(ready, context, cpus() == 1 ? 1 : GLANCES))
        return true;
    const bool spins =
        atomic_fetch_add_explicit(&spinning, 1, memory_order_relaxed) < cpus() - 1;
    const uint64_t end = tri_now_ns() + SPIN_NS;
    const bool found = spins ? spin_until(end, ready, context) : yield_until(end, ready, context);
    atomic_fetch_sub_explicit(&spinning, 1, memory_order_relaxed);
    return found;
}

#ifdef __linux__

/* Sleep while *word is `value`, until a wake or the deadline. May return early. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    struct timespec at = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
                  deadline_ns == 0 ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#else

/* Guards no data: a sleeper holds it from its look at the word until it sleeps, a waker takes it
 * after the word has changed, so no wake falls between the two. One for all parks of the process:
 * a wake too many makes a sleeper look again, nothing else. */
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rise = PTHREAD_COND_INITIALIZER;

static void sleep_on(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    const uint64_t now = tri_now_ns();
    uint64_t wait = deadline_ns == 0 ? 1000000000u : deadline_ns <= now ? 0 : deadline_ns - now;
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    wait = (wait > 1000000000u ? 1000000000u : wait) + (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(wait / 1000000000u);
    at.tv_nsec = (long)(wait % 1000000000u);
    pthread_mutex_lock(&bed);
    if (atomic_load(word) == value)
        (void)pthread_cond_timedwait(&rise, &bed, &at);
    pthread_mutex_unlock(&bed);
}

static void wake_all(_Atomic uint32_t *word)
{
    (void)word;
    pthread_mutex_lock(&bed);
    pthread_cond_broadcast(&rise);
    pthread_mutex_unlock(&bed);
}

#endif

static bool sleep_until(struct tri_park *park, tri_ready ready, void *context,
                        uint64_t deadline_ns)
{
    bool found;
    atomic_fetch_add(&park->waiters, 1);
    for (;;) {
        const uint32_t epoch = atomic_load(&park->epoch);
        found = ready(context);
        if (found || (deadline_ns != 0 && tri_now_ns() >= deadline_ns))
            break;
        sleep_on(&park->epoch, epoch, deadline_ns);
    }
    atomic_fetch_sub(&park->waiters, 1);
    return found;
}

bool tri_park_until(struct tri_park *park, tri_ready ready, void *context, uint64_t deadline_ns)
{
    return look_for_a_moment(ready, context) || sleep_until(park, ready, context, deadline_ns);
}

bool tri_park_for(struct tri_park *park, tri_ready ready, void *context, uint64_t ns)
{
    return look_for_a_moment(ready, context) ||
           sleep_until(park, ready, context, tri_now_ns() + ns);
}

void tri_park_wake(struct tri_park *park)
{
    if (atomic_load(&park->waiters) == 0)
        return;
    atomic_fetch_add(&park->epoch, 1);
    wake_all(&park->epoch);
}
