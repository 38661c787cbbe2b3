/* A step that fails on some ranks, whatever in it fails: all drop what they have made, and NCCL serves
 * them. */
#include <stdint.h>

#include "csrc/nccl/order.h"
#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/fixture.h"

enum { RANKS = 3, HURRY = 10 };

/* Nothing fails any more. */
static void work_again(void)
{
    fake_fail_mapping(-1);
    fake_fail_push(-1);
    fake_fail_blocks(-1);
    fake_allow_events(-1);
    fake_fail_wait(0);
    fake_push_as(FAKE_PUSH_WORKS);
    fake_hurry(1);
}

/* A communicator of ranks of which some have failed. */
static void check_dropped(struct share_ranks *ranks, int mappings)
{
    work_again();
    CHECK_MSG(fake_mappings() == mappings, "step %d leaves %d mappings", (int)ranks->step,
              fake_mappings() - mappings);
    CHECK(share_has_memory(ranks, false));
    (void)share_counts(ranks, -1, -1);
    share_call_nccl(ranks, SHARE_N);
    CHECK(share_counts(ranks, RANKS, 0));
}

/* The steps while something fails, as `fail` has it: number `n` of its kind. Returns whether they
 * failed. */
static bool try_with(void (*fail)(int n), int n, enum share_step *out_step)
{
    struct share_ranks ranks;
    const int mappings = fake_mappings();
    bool failed = false;
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks)) {
        fail(n);
        failed = !share(&ranks);
        *out_step = ranks.step;
        CHECK_MSG(!failed || share_failed(&ranks, "") >= 1, "nobody has failed");
        if (failed)
            check_dropped(&ranks, mappings);
        work_again();
    }
    share_close(&ranks);
    return failed;
}

/* Each rank makes memory by five calls, and maps that of each other one by four. */
static void mappings(void)
{
    enum { OWN = RANKS * 5, ALL = OWN + RANKS * (RANKS - 1) * 4 };
    enum share_step step = SHARE_OFFER;
    int n = 0;
    share_begin("each call that makes or maps memory fails");
    for (; try_with(fake_fail_mapping, n, &step); n++)
        CHECK_MSG(step == (n < OWN ? SHARE_ALLOCATE : SHARE_MAP), "call %d fails in step %d", n,
                  (int)step);
    CHECK_MSG(n == ALL, "%d calls fail", n);
    share_end();
}

/* Each of `all` failures, as `fail` has them, ends the steps in that one. */
static void walk(const char *name, void (*fail)(int n), enum share_step where, int all)
{
    enum share_step step = SHARE_OFFER;
    int n = 0;
    share_begin(name);
    for (; try_with(fail, n, &step); n++)
        CHECK_MSG(step == where, "failure %d is one of step %d", n, (int)step);
    CHECK_MSG(n == all, "there are %d failures", n);
    share_end();
}

/* A rank's own memory. */
static void blocks(void)
{
    walk("no memory", fake_fail_blocks, SHARE_ALLOCATE, RANKS);
}

static void events(void)
{
    walk("no events", fake_allow_events, SHARE_TRY, (1 + TRI_NCCL_CAPTURES) * RANKS);
}

/* Whoever has started waits for those that have not, no longer than a trial may take. */
static void fail_launch(int n)
{
    fake_fail_push(n);
    fake_hurry(HURRY);
}

static void launches(void)
{
    enum share_step step = SHARE_OFFER;
    share_begin("launches of the trial that fail");
    for (int n = 0; n < 2 * RANKS; n++)
        CHECK(try_with(fail_launch, n, &step) && step == SHARE_TRY);
    share_end();
}

/* The driver does not say that scratch is empty, which has been exported by then. */
static void fail_waits(int n)
{
    (void)n;
    fake_fail_wait((int)cudaErrorUnknown);
}

static void waits(void)
{
    enum share_step step = SHARE_OFFER;
    share_begin("scratch that may not be empty");
    CHECK(try_with(fail_waits, 0, &step) && step == SHARE_ALLOCATE);
    share_end();
}

/* `failing` ranks find out that it does not work. */
static void tried(enum fake_pushing how, int failing, const char *words)
{
    struct share_ranks ranks;
    const int made = fake_mappings();
    share_begin("what a device writes to another does not arrive");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks)) {
        fake_push_as(how);
        CHECK(!share(&ranks) && ranks.step == SHARE_TRY);
        CHECK_MSG(share_failed(&ranks, words) == failing, "%d ranks fail",
                  share_failed(&ranks, words));
        check_dropped(&ranks, made);
    }
    share_close(&ranks);
    share_end();
}

/* One rank does not reach another in the last lane of the trial: that one alone finds out, and all drop. */
static void lost_parts(void)
{
    for (int from = 0; from < RANKS; from++)
        for (int to = 0; to < RANKS; to++) {
            if (from == to)
                continue;
            fake_lose_part(from, to, 1);
            tried(FAKE_PUSH_LOSES_PART, 1, "does not arrive");
        }
}

/* It has died, or waits elsewhere: the others do not wait for it for ever. */
static void missing(enum share_step step)
{
    struct share_ranks ranks;
    const int made = fake_mappings();
    share_begin("a rank that does not come to a step");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks)) {
        fake_hurry(HURRY);
        if (step > SHARE_OFFER)
            CHECK(share_take_up_to(&ranks, (enum share_step)(step - 1)));
        ranks.absent[1] = true;
        const double begun = check_now_ms();
        CHECK(!share_take(&ranks, step));
        CHECK_MSG(check_now_ms() - begun < SHARE_PLENTY_MS, "step %d waits for it", (int)step);
        CHECK_MSG(share_failed(&ranks, "") == (step == SHARE_TRY ? RANKS : 1), "%d ranks fail",
                  share_failed(&ranks, ""));
        share_drop(&ranks);
        check_dropped(&ranks, made);
    }
    share_close(&ranks);
    share_end();
}

/* What arrives is no memory, or none arrives. */
static void descriptors(void)
{
    struct share_ranks ranks;
    const int made = fake_mappings();
    int fds[RANKS] = {-1, -1, -1};
    share_begin("descriptors of something else");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks) && CHECK(share_take_up_to(&ranks, SHARE_ALLOCATE))) {
        CHECK_STATUS(transports()->share->map(ranks.of[0], fds), TRIB_ERR_UNSUPPORTED);
        fds[0] = fds[2] = 0; /* the standard input */
        CHECK_STATUS(transports()->share->map(ranks.of[1], fds), TRIB_ERR_UNSUPPORTED);
        share_drop(&ranks);
        check_dropped(&ranks, made);
    }
    share_close(&ranks);
    share_end();
}

void share_failures(void)
{
    mappings();
    blocks();
    events();
    launches();
    waits();
    tried(FAKE_PUSH_LOSES, RANKS, "does not arrive");
    tried(FAKE_PUSH_GARBLES, 1, "does not arrive");
    lost_parts();
    for (int step = SHARE_OFFER; step < SHARE_USE; step++)
        missing((enum share_step)step);
    descriptors();
}
