/* Calls of a rank keep their order whatever streams they name. */
#include "csrc/nccl/device.h"
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { RANKS = 2, LARGE = 1 << 20 };

static trib_stream new_stream(const struct push_ranks *ranks, int rank)
{
    trib_stream stream = NULL;
    CHECK_OK(trib_stream_create(&stream, ranks->devices[rank]));
    return stream;
}

/* One stream needs no wait, another one waits for the stream before. */
static void waits(void)
{
    struct push_ranks ranks;
    push_begin("one stream, then another");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        const trib_stream other = new_stream(&ranks, 0);
        CHECK(push_works(&ranks));
        const long before = fake_event_waits();
        CHECK(push_works(&ranks) && push_works(&ranks));
        CHECK_MSG(fake_event_waits() == before, "one stream waits for itself");
        push_sum_on(&ranks, 0, other);
        CHECK(fake_after(other) == ranks.streams[0] && fake_event_waits() == before + 1);
        push_sum_on(&ranks, 0, other);
        CHECK(fake_event_waits() == before + 1);
        push_sum_on(&ranks, 0, ranks.streams[0]);
        CHECK(fake_after(ranks.streams[0]) == other && fake_event_waits() == before + 2);
        for (int call = 0; call < 3; call++)
            push_sum_on(&ranks, 1, ranks.streams[1]);
        CHECK_OK(trib_stream_destroy(ranks.devices[0], other));
        push_close(&ranks);
    }
    push_end();
}

/* The first call cannot run yet: the second, on another stream, does not run before it. */
static void held_back(void)
{
    struct push_ranks ranks;
    struct fake_held held;
    push_begin("a call behind one that is held");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        const trib_stream other = new_stream(&ranks, 0);
        push_fill(&ranks, TRIB_F32, PUSH_N);
        fake_hold_stream(&held, ranks.streams[0]);
        push_sum_on(&ranks, 0, ranks.streams[0]);
        push_sum_on(&ranks, 0, other);
        for (int call = 0; call < 2; call++)
            push_sum_on(&ranks, 1, ranks.streams[1]);
        CHECK(push_counts(&ranks, 0, 0));
        fake_release_stream(&held);
        CHECK_OK(trib_stream_wait(ranks.devices[0], other));
        CHECK_OK(trib_stream_wait(ranks.devices[1], ranks.streams[1]));
        CHECK(push_counts(&ranks, 0, 2));
        for (int rank = 0; rank < RANKS; rank++)
            CHECK(push_holds(&ranks, rank, TRIB_F32, PUSH_N, RANKS));
        CHECK_OK(trib_stream_destroy(ranks.devices[0], other));
        push_close(&ranks);
    }
    push_end();
}

static void large_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    (void)size;
    CHECK_OK(push_sum(ranks, rank, LARGE, TRIB_F32));
}

/* Calls of NCCL's have a place in that order, too. */
static void after_nccl(void)
{
    struct push_ranks ranks;
    push_begin("a call behind one of NCCL's, on another stream");
    if (push_open(&ranks, RANKS, (size_t)LARGE * 4, NULL)) {
        const trib_stream other = new_stream(&ranks, 0);
        push_each(&ranks, large_rank);
        push_sum_on(&ranks, 0, other);
        push_sum_on(&ranks, 1, ranks.streams[1]);
        CHECK(push_counts(&ranks, RANKS, 1) && fake_after(other) == ranks.streams[0]);
        push_each(&ranks, large_rank);
        CHECK(fake_after(ranks.streams[0]) == other);
        CHECK_OK(trib_stream_wait(ranks.devices[0], other));
        CHECK_OK(trib_stream_destroy(ranks.devices[0], other));
        push_close(&ranks);
    }
    push_end();
}

/* The next stream has the address of one that was destroyed, but not its number. */
static void same_address(void)
{
    struct push_ranks ranks;
    push_begin("a stream with the address of another");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        CHECK(push_works(&ranks));
        const trib_stream before = ranks.streams[0];
        CHECK_OK(trib_stream_destroy(ranks.devices[0], before));
        ranks.streams[0] = new_stream(&ranks, 0);
        CHECK_MSG(ranks.streams[0] == before, "the fake has another address");
        const long waits_before = fake_event_waits();
        CHECK(push_works(&ranks));
        CHECK(fake_event_waits() == waits_before + 1);
        push_close(&ranks);
    }
    push_end();
}

/* Nobody can tell streams apart: each call waits for the one before, be it of the same stream. */
static void no_numbers(void)
{
    struct push_ranks ranks;
    push_begin("streams without numbers");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        const struct tri_nccl_driver driver = tri_nccl_driver;
        tri_nccl_driver.stream_id = NULL;
        CHECK(push_works(&ranks));
        const long before = fake_event_waits();
        CHECK(push_works(&ranks));
        CHECK(fake_event_waits() == before + RANKS);
        tri_nccl_driver = driver;
        CHECK(push_works(&ranks)); /* the call before had no number */
        CHECK(fake_event_waits() == before + 2 * RANKS);
        CHECK(push_works(&ranks));
        CHECK(fake_event_waits() == before + 2 * RANKS);
        push_close(&ranks);
    }
    push_end();
}

/* The driver numbers it as the current context's, but it is one stream. */
static void default_stream(void)
{
    struct push_ranks ranks;
    push_begin("the default stream");
    if (push_open(&ranks, RANKS, PUSH_N * 4, NULL)) {
        push_sum_on(&ranks, 0, NULL);
        const long before = fake_event_waits();
        push_sum_on(&ranks, 0, NULL);
        CHECK(fake_event_waits() == before);
        push_sum_on(&ranks, 0, ranks.streams[0]);
        CHECK(fake_event_waits() == before + 1 && !push_is_done(&ranks, 0));
        for (int call = 0; call < 3; call++)
            push_sum_on(&ranks, 1, ranks.streams[1]);
        CHECK(push_is_done(&ranks, 0) && push_counts(&ranks, 0, 3));
        push_close(&ranks);
    }
    push_end();
}

void push_streams(void)
{
    waits();
    held_back();
    after_nccl();
    same_address();
    no_numbers();
    default_stream();
}
