/* Which calls read the clock and are marked, and what a record says of its time. The clock is the
 * test's. */
#include "csrc/core/recorder.h"

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
    tri_recorder_enter(recorder, &record, timed);
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
    return check_finish("recorder_test");
}
