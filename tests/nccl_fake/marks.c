/* What marks tell of calls whose events complete one after the other. */
#include "tests/nccl_fake/marks.h"

#include <pthread.h>
#include <stdatomic.h>

#include "csrc/nccl/marks.h"
#include "csrc/nccl/prober.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fixture.h"

/* A rank's marks and its stream, and how many events it has recorded. */
struct marked {
    struct tri_nccl_marks marks;
    trib_stream stream;
    long events;
};

static bool record(struct marked *marked, uint64_t number, enum tri_mark when)
{
    return tri_nccl_marks_record(&marked->marks, number, marked->stream, when);
}

static void call(struct marked *marked, uint64_t number)
{
    CHECK(record(marked, number, TRI_MARK_BEFORE) && record(marked, number, TRI_MARK_AFTER));
    marked->events += 2;
}

/* What is known once the prober has looked. */
static void is(struct marked *marked, uint64_t started, uint64_t ended, uint64_t last,
               uint64_t bound)
{
    struct tri_progress found;
    tri_nccl_marks_probe(&marked->marks);
    CHECK(tri_nccl_marks_read(&marked->marks, &found) == (ended == last));
    CHECK_MSG(found.started == started && found.ended == ended && found.marked == last &&
                  found.bound == bound,
              "started %lld, ended %lld, marked %lld, bound %lld; expected %lld, %lld, %lld, %lld",
              (long long)found.started, (long long)found.ended, (long long)found.marked,
              (long long)found.bound, (long long)started, (long long)ended, (long long)last,
              (long long)bound);
}

static void one_by_one(struct marked *marked)
{
    is(marked, UINT64_MAX, 0, 0, 0);
    call(marked, 1);
    is(marked, 0, 0, 1, 1);
    fake_pass_events(1);
    is(marked, UINT64_MAX, 0, 1, 1);
    call(marked, 2);
    fake_pass_events(2);
    is(marked, 1, 1, 2, 2);
    fake_pass_events(marked->events);
    is(marked, UINT64_MAX, 2, 2, 2);
}

/* Those before a marked one may have started, and no longer be known. */
static void some_unmarked(struct marked *marked)
{
    call(marked, 1);
    call(marked, 4);
    is(marked, 0, 0, 4, 1);
    fake_pass_events(2);
    is(marked, UINT64_MAX, 1, 4, 4);
    fake_pass_events(marked->events);
    is(marked, UINT64_MAX, 4, 4, 4);
}

/* A call too many moves the newest mark. */
static void full_ring(struct marked *marked)
{
    enum { FULL = TRI_NCCL_MARKS, MORE = FULL + 3 };
    for (uint64_t number = 1; number <= MORE; number++)
        call(marked, number);
    is(marked, 0, 0, MORE, 1);
    fake_pass_events(2);
    is(marked, 1, 1, MORE, 2);
    fake_pass_events(2 * (FULL - 1));
    is(marked, UINT64_MAX, FULL - 1, MORE, MORE);
    fake_pass_events(marked->events);
    is(marked, UINT64_MAX, MORE, MORE, MORE);
    call(marked, MORE + 1);
    is(marked, MORE, MORE, MORE + 1, MORE + 1);
}

/* The mark of a wait has nothing in front, where a call's had something. */
static void behind_calls_only(struct marked *marked)
{
    enum { FULL = TRI_NCCL_MARKS };
    for (uint64_t number = 1; number <= FULL; number++)
        call(marked, number);
    fake_pass_events(marked->events);
    is(marked, UINT64_MAX, FULL, FULL, FULL);
    for (uint64_t number = FULL + 1; number <= FULL + 3; number++) {
        CHECK(record(marked, number, TRI_MARK_NOW));
        is(marked, UINT64_MAX, FULL, number, FULL + 1);
    }
    fake_pass_events(marked->events + 2);
    is(marked, UINT64_MAX, FULL + 2, FULL + 3, FULL + 3);
}

/* What could not be recorded marks nothing. */
static void refused(struct marked *marked)
{
    call(marked, 1);
    fake_fail_record(true);
    CHECK(record(marked, 2, TRI_MARK_BEFORE) && !record(marked, 2, TRI_MARK_AFTER));
    CHECK(!record(marked, 2, TRI_MARK_NOW));
    fake_fail_record(false);
    is(marked, 0, 0, 1, 1);
    fake_pass_events(marked->events);
    is(marked, UINT64_MAX, 1, 1, 1);
    fake_fail_record(true);
    CHECK(record(marked, 2, TRI_MARK_BEFORE));
    fake_fail_record(false);
    CHECK(record(marked, 2, TRI_MARK_AFTER)); /* its start is not known */
    is(marked, UINT64_MAX, 1, 2, 2);
    struct fake_graph *graph = fake_capture_begin(marked->stream);
    CHECK(!record(marked, 3, TRI_MARK_BEFORE));
    fake_capture_end(marked->stream);
    fake_graph_destroy(graph);
    is(marked, UINT64_MAX, 1, 2, 2);
}

static atomic_bool removed;

static void *remove_it(void *marks)
{
    tri_nccl_prober_remove(marks);
    atomic_store(&removed, true);
    return NULL;
}

/* What is probed is freed once it has been removed. */
static void removed_meanwhile(struct marked *marked)
{
    enum { A_WHILE_MS = 50 };
    pthread_t thread;
    atomic_store(&removed, false);
    call(marked, 1);
    CHECK_OK(tri_nccl_prober_add(&marked->marks));
    fake_hold(FAKE_PROBE, true);
    tri_nccl_prober_ask();
    while (fake_waiting(FAKE_PROBE) == 0)
        check_sleep_ms(1);
    const bool begun = CHECK(pthread_create(&thread, NULL, remove_it, &marked->marks) == 0);
    check_sleep_ms(A_WHILE_MS);
    CHECK(!atomic_load(&removed));
    fake_hold(FAKE_PROBE, false);
    CHECK(begun && pthread_join(thread, NULL) == 0);
}

static void run(const char *name, void (*body)(struct marked *marked))
{
    struct marked marked = {.events = 0};
    check_begin("nccl over a fake: %s", name);
    tri_nccl_marks_init(&marked.marks, 3);
    if (CHECK_OK(devices()->stream_create(3, &marked.stream))) {
        fake_pass_events(0);
        body(&marked);
        fake_pass_events(-1);
        tri_nccl_marks_free(&marked.marks);
        CHECK_OK(devices()->stream_destroy(3, marked.stream));
    }
    check_end();
}

void marks(void)
{
    run("marked calls, one by one", one_by_one);
    run("calls between marks", some_unmarked);
    run("more calls than marks", full_ring);
    run("marks behind calls only", behind_calls_only);
    run("marks that cannot be recorded", refused);
    run("marks that are removed while they are probed", removed_meanwhile);
}
