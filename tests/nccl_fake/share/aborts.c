/* A rank is aborted before a step, or in the middle of it: every rank drops what it has made, also when the
 * abort has freed the rest by then. */
#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/fixture.h"

enum { RANKS = 3, HURRY = 10 };

static const char *const names[SHARE_STEPS] = {"offer", "allocate", "map", "try", "use"};

/* As core does it when it hears of an abort of another rank. */
static void stop_all(const struct share_ranks *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++)
        share_stop(ranks, rank);
}

/* What the abort of one rank frees is free. */
static void await_one_less(void)
{
    const double until = check_now_ms() + SHARE_PLENTY_MS;
    while (fake_communicators() == RANKS && check_now_ms() < until)
        check_sleep_ms(1);
    CHECK(fake_communicators() == RANKS - 1);
}

/* From this step on; the first steps that it takes may not notice. */
static void go_on(struct share_ranks *ranks, enum share_step step)
{
    bool good = true;
    for (int at = (int)step; at < SHARE_USE && good; at++)
        good = share_take(ranks, (enum share_step)at);
    CHECK_MSG(!good, "no step notices the abort");
    CHECK(ranks->statuses[0] != TRIB_OK);
    share_drop(ranks);
    CHECK(share_has_memory(ranks, false));
}

static void before(enum share_step step, bool freed)
{
    struct share_ranks ranks;
    share_begin("an abort before a step");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks)) {
        const int made = fake_mappings();
        fake_hurry(HURRY);
        if (step > SHARE_OFFER)
            CHECK(share_take_up_to(&ranks, (enum share_step)(step - 1)));
        share_stop(&ranks, 0);
        if (freed)
            await_one_less();
        go_on(&ranks, step);
        CHECK_MSG(fake_mappings() == made, "an abort before %s leaves mappings", names[step]);
        stop_all(&ranks);
    }
    share_close(&ranks);
    share_end();
}

/* The rank frees its part, and the others use theirs until they hear of it. */
static void before_use(bool freed)
{
    struct share_ranks ranks;
    share_begin("an abort before what is shared is used");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks) && CHECK(share_take_up_to(&ranks, SHARE_TRY))) {
        const int all = fake_mappings();
        share_stop(&ranks, 0);
        if (freed)
            await_one_less();
        CHECK(share_take(&ranks, SHARE_USE));
        CHECK_MSG(fake_mappings() == all / RANKS * (RANKS - 1), "%d mappings", fake_mappings());
        for (int rank = 1; rank < RANKS; rank++)
            CHECK_OK(share_call(&ranks, rank, TRI_ALLREDUCE, SHARE_N, ranks.streams[rank]));
        CHECK(!share_is_done(&ranks, 1));
        stop_all(&ranks);
    }
    share_close(&ranks);
    share_end();
}

/* ----------------------------------------------------------------------------- in the middle of it */

/* One thread takes the step of all ranks, the other one stops one of them. */
struct middle {
    struct share_ranks *ranks;
    enum share_step step;
    long launches;
};

static bool has_begun(const struct middle *middle)
{
    return middle->step == SHARE_TRY
               ? fake_push_launches() - middle->launches == 2 * ((long)RANKS - 1)
               : fake_waiting(FAKE_MAPPING) == RANKS;
}

static void take_or_stop(int which, int size, void *argument)
{
    const struct middle *middle = argument;
    const double until = check_now_ms() + SHARE_PLENTY_MS;
    (void)size;
    if (which == 0) {
        (void)share_take(middle->ranks, middle->step);
        return;
    }
    while (!has_begun(middle) && check_now_ms() < until)
        check_sleep_ms(1);
    CHECK(has_begun(middle));
    share_stop(middle->ranks, 0);
    check_sleep_ms(50); /* for whatever does not wait for the step */
    CHECK_MSG(fake_communicators() == RANKS, "an abort amid %s frees what it uses",
              names[middle->step]);
    fake_hold(FAKE_MAPPING, false);
}

/* Ranks wait for the driver, or for a rank that does not come. */
static void amid(enum share_step step)
{
    struct share_ranks ranks;
    struct middle middle = {&ranks, step, 0};
    share_begin("an abort in the middle of a step");
    share_prepare(&ranks, RANKS);
    ranks.threads = true;
    if (share_open(&ranks) && CHECK(share_take_up_to(&ranks, (enum share_step)(step - 1)))) {
        ranks.absent[RANKS - 1] = step == SHARE_TRY;
        fake_hurry(2); /* the others try for longer than this takes */
        middle.launches = fake_push_launches();
        fake_hold(FAKE_MAPPING, step != SHARE_TRY);
        check_ranks(2, take_or_stop, &middle);
        share_drop(&ranks);
        CHECK_MSG(fake_mappings() == 0, "an abort amid %s leaves mappings", names[step]);
        stop_all(&ranks);
    }
    share_close(&ranks);
    share_end();
}

void share_aborts(void)
{
    for (int freed = 0; freed < 2; freed++) {
        for (int step = SHARE_OFFER; step < SHARE_USE; step++)
            before((enum share_step)step, freed != 0);
        before_use(freed != 0);
    }
    amid(SHARE_ALLOCATE);
    amid(SHARE_MAP);
    amid(SHARE_TRY);
}
