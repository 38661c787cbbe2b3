/* Which calls read the clock and are marked, and what a record says of its time. The clock is the
 * test's. */
#include "csrc/core/recorder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/check.h"

enum { US = 1000, MS = 1000 * US };

static uint64_t clock_ns = 1000 * MS;
static int reads;

uint64_t __wrap_tri_now_ns(void);
uint64_t __wrap_tri_now_ns(void)
{
    reads++;
    return clock_ns;
}

/* One call, `apart_ns` after the one before. Returns whether it was marked. */
static bool call_after(struct tri_recorder *recorder, uint64_t apart_ns, bool timed)
{
    const struct tri_recorded record = {.count = 4, .peer = -1, .all_ranks = true};
    clock_ns += apart_ns;
    tri_recorder_enter(recorder, &record, NULL, 1, timed);
    const bool marked = tri_recorder_marks(recorder);
    tri_recorder_leave(recorder, true);
    return marked;
}

/* Returns how many were marked; the clock was read `expected` times. */
static int calls_after(struct tri_recorder *recorder, int n, uint64_t apart_ns, int expected)
{
    int marked = 0;
    reads = 0;
    for (int i = 0; i < n; i++)
        marked += call_after(recorder, apart_ns, false);
    CHECK_MSG(reads == expected, "%d calls: the clock was read %d times", n, reads);
    return marked;
}

static struct tri_recorded newest(const struct tri_recorder *recorder)
{
    struct tri_recorded call = {.number = 0};
    CHECK(tri_recorder_newest(recorder, &call));
    return call;
}

static void few_calls(struct tri_recorder *recorder)
{
    CHECK(call_after(recorder, 0, false)); /* the first one */
    CHECK(newest(recorder).exact && newest(recorder).entered_ns == clock_ns);
    CHECK(!call_after(recorder, 10 * US, false)); /* follows closely */
    CHECK(newest(recorder).exact && newest(recorder).entered_ns == clock_ns);
    CHECK(call_after(recorder, 60 * US, false));
    CHECK(calls_after(recorder, 20, 60 * US, 20) == 20);
}

/* Closely: 64 in all, and then every 16th. Marks: one a millisecond. */
static void burst(struct tri_recorder *recorder)
{
    (void)call_after(recorder, 0, false);
    tri_pace_look(&recorder->pace);
    CHECK(calls_after(recorder, 64, 1 * US, 64) == 0);
    CHECK(calls_after(recorder, 15, 1 * US, 0) == 0);
    struct tri_recorded call = newest(recorder);
    CHECK(!call.exact && call.entered_ns == clock_ns - 15 * US && call.all_ranks);
    CHECK(calls_after(recorder, 1, 1 * US, 1) == 0);
    CHECK(newest(recorder).exact && newest(recorder).entered_ns == clock_ns);
    const int marked = calls_after(recorder, 16000, 1 * US, 1000);
    CHECK_MSG(marked >= 15 && marked <= 16, "%d marks in 16 ms", marked);
    tri_pace_look(&recorder->pace);
    (void)calls_after(recorder, 70, 1 * US, 64);
}

/* No longer closely: noticed when the clock is read next. */
static void after_the_burst(struct tri_recorder *recorder)
{
    (void)calls_after(recorder, 64 + 4, 1 * US, 64);
    CHECK(!call_after(recorder, 100 * MS, false));
    CHECK(!newest(recorder).exact && newest(recorder).entered_ns == clock_ns - 4 * US - 100 * MS);
    CHECK(calls_after(recorder, 11, 60 * US, 1) == 1);
    CHECK(calls_after(recorder, 20, 60 * US, 20) == 20);
    (void)calls_after(recorder, 1 + 15, 1 * US, 1);
    tri_pace_look(&recorder->pace); /* or at once, if the watchdog has looked */
    CHECK(call_after(recorder, 100 * MS, false) && newest(recorder).exact);
}

static void timed(struct tri_recorder *recorder)
{
    for (int i = 0; i < 200; i++) {
        CHECK(call_after(recorder, 1 * US, true));
        CHECK(newest(recorder).exact && newest(recorder).entered_ns == clock_ns);
    }
}

/* It gives its numbers back. */
static void refused(struct tri_recorder *recorder)
{
    const struct tri_recorded record = {.count = 4, .peer = -1, .all_ranks = true};
    for (int i = 0; i < 2; i++) {
        tri_recorder_enter(recorder, &record, NULL, 1, false);
        CHECK(newest(recorder).number == 1 && newest(recorder).collective == 1);
        tri_recorder_leave(recorder, false);
    }
    (void)call_after(recorder, 0, false);
    (void)call_after(recorder, 0, false);
    CHECK(newest(recorder).number == 2 && newest(recorder).collective == 2);
}

/* A call whose mark failed leaves the time of the last one behind it: the next that may is marked. */
static void unmarked(struct tri_recorder *recorder)
{
    CHECK(call_after(recorder, 0, false));
    tri_recorder_unmark(recorder);
    CHECK(call_after(recorder, 10 * US, false));
    CHECK(!call_after(recorder, 10 * US, false));
}

static atomic_bool over;

/* Calls of which every word says the number. */
static void *make_calls(void *argument)
{
    struct tri_recorder *recorder = argument;
    for (uint64_t number = 1; !atomic_load(&over); number++) {
        const struct tri_recorded record = {
            .count = number, .peer = (int32_t)(number % 1000), .all_ranks = true};
        const trib_stream stream = (trib_stream)(uintptr_t)number;
        tri_recorder_enter(recorder, &record, stream, (uint32_t)number, false);
        tri_recorder_leave(recorder, true);
    }
    return NULL;
}

/* The oldest one is about to be replaced. */
static void read_while_replaced(struct tri_recorder *recorder)
{
    enum { READS = 2000000 };
    pthread_t thread;
    atomic_store(&over, false);
    if (!CHECK(pthread_create(&thread, NULL, make_calls, recorder) == 0))
        return;
    for (int i = 0; i < READS && !check_failed(); i++) {
        struct tri_recorded call;
        const uint64_t entered = atomic_load(&recorder->entered);
        const uint64_t oldest = entered < TRI_RECORDS ? 1 : entered - TRI_RECORDS + 1;
        if (!tri_recorder_read(recorder, oldest, &call))
            continue;
        CHECK(call.number == oldest && call.collective == oldest && call.count == oldest);
        CHECK(call.stream == oldest && call.timeout_ms == (uint32_t)oldest &&
              call.peer == (int32_t)(oldest % 1000));
    }
    atomic_store(&over, true);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void run(const char *name, void (*body)(struct tri_recorder *recorder))
{
    struct tri_recorder *recorder = tri_recorder_create(NULL);
    check_begin("%s", name);
    if (CHECK(recorder != NULL))
        body(recorder);
    free(recorder);
    check_end();
}

int main(void)
{
    run("few calls each read the clock", few_calls);
    run("calls of a burst share it", burst);
    run("calls after a burst", after_the_burst);
    run("timed calls", timed);
    run("a refused call", refused);
    run("a call that could not be marked", unmarked);
    run("a record is read while it is replaced", read_while_replaced);
    return check_finish("recorder_test");
}
