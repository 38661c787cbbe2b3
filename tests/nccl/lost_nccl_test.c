/* Two processes: what becomes of the communicator in the first when the second does
 * not make a call, makes another one, closes, exits or is stopped; and that a close which is early,
 * but in order, disturbs nobody. tests/processes does the same without GPUs; killed_nccl_test
 * kills. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "csrc/base/abort.h"
#include "tests/nccl/apart.h"

enum {
    CALL_MS = 500,
    LATER_MS = 100,
    CASE_MS = 60000,
    CLOSE_MS = 1000,
    LONG_AFTER_MS = 3000 /* of the deadline of a close */
};

enum lost { SILENT, DIFFERENT, CLOSES, EXITS, STOPPED, EARLY, LOST };
static const struct {
    const char *name;
    trib_status status;
    int deadline_ms;    /* until the other knows; 0: at once */
    const char *detail; /* what it says of rank 1, and then the number of a call; */
    int before;         /* so many before the one that waits */
} cases[LOST] = {
    [SILENT] = {"does not call", TRIB_ERR_TIMEOUT, CALL_MS, " has not made it: its newest is call ",
                1},
    [DIFFERENT] = {"makes another call", TRIB_ERR_TIMEOUT, CALL_MS, " makes another call: call ",
                   0},
    [CLOSES] = {"closes", TRIB_ERR_CLOSED, 0, " has closed after call ", 1},
    [EXITS] = {"exits", TRIB_ERR_CLOSED, 0, " has closed after call ", 1},
    [STOPPED] = {"is stopped", TRIB_ERR_TIMEOUT, CALL_MS, " does not answer", 0},
    [EARLY] = {"closes early, but in order", TRIB_OK, 0, "", 0},
};

struct run {
    struct apart apart;
    enum lost how;
    pid_t second;
    _Atomic int connected, noticed;
    double took_ms; /* until the first knew and its stream was free */
};

/* ------------------------------------------------------------------------------- the second one */

static void other_call(const struct apart_rank *rank)
{
    const trib_status status = apart_add(rank, APART_ELEMENTS);
    CHECK(status == TRIB_OK || status == TRIB_ERR_TIMEOUT);
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    CHECK_STATUS(trib_comm_status(rank->comm), TRIB_ERR_TIMEOUT);
}

static void be_lost(struct apart_rank *rank, struct run *run)
{
    const bool closes = run->how == CLOSES || run->how == EARLY;
    if (run->how == STOPPED)
        (void)kill(getpid(), SIGSTOP);
    if (run->how == EXITS)
        exit(0); /* NOLINT(concurrency-mt-unsafe): what the case is about */
    if (run->how == DIFFERENT)
        other_call(rank);
    if (closes)
        CHECK_OK(trib_comm_close(rank->comm, CLOSE_MS));
    children_meet(&run->noticed, 2);
    if (closes)
        CHECK_OK(trib_comm_destroy(rank->comm));
    else
        (void)trib_comm_destroy(rank->comm); /* it has failed, or will when it finalizes */
}

/* -------------------------------------------------------------------------------- the first one */

/* The number behind `words` in the newest detail; 0: they are not there. */
static long number_behind(const char *words)
{
    const char *const at = strstr(trib_last_detail(), words);
    return at == NULL ? 0 : strtol(at + strlen(words), NULL, 10);
}

/* Creating a communicator takes calls, too, so only the distance is known. */
static void check_numbers(const struct run *run)
{
    const long waits = number_behind(" in call "), other = number_behind(cases[run->how].detail);
    if (run->how != STOPPED)
        CHECK_MSG(waits > 1 && other == waits - cases[run->how].before, "%s", trib_last_detail());
}

static void check_end_of(const struct apart_rank *rank, const struct run *run)
{
    char who[64];
    int32_t lost = -1, n = 0;
    (void)snprintf(who, sizeof who, "rank 1 (process %ld on ", (long)run->second);
    CHECK_STATUS(trib_comm_status(rank->comm), cases[run->how].status);
    if (run->how != DIFFERENT) /* that one may have been the first to tell */
        CHECK_DETAIL(who);
    CHECK_DETAIL(cases[run->how].detail);
    check_numbers(run);
    CHECK_OK(trib_comm_lost(&n, rank->comm, &lost, 1));
    CHECK_MSG(run->how == DIFFERENT || (n == 1 && lost == 1), "%d lost, rank %d", n, lost);
}

static void notice(struct apart_rank *rank, struct run *run)
{
    const double start = check_now_ms();
    const trib_status status = apart_add(rank, 1);
    CHECK(status == TRIB_OK || status == cases[run->how].status);
    CHECK_STATUS(trib_comm_wait(rank->comm, rank->stream, TRIB_NO_TIMEOUT), cases[run->how].status);
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    run->took_ms = check_now_ms() - start;
    check_end_of(rank, run);
    CHECK_MSG(run->took_ms >= cases[run->how].deadline_ms, "%.1f ms", run->took_ms);
    apart_go_on(rank);
}

/* The other has closed long ago. */
static void go_unnoticed(struct apart_rank *rank, struct run *run)
{
    check_sleep_ms(LONG_AFTER_MS);
    CHECK_OK(trib_comm_status(rank->comm));
    CHECK_OK(trib_comm_close(rank->comm, CLOSE_MS));
    run->took_ms = 0;
}

static void process(int index, int n, void *argument)
{
    struct run *run = argument;
    struct apart_rank rank = {.comm = NULL};
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = CALL_MS;
    options.flags = TRIB_TIMED;
    if (index == 1)
        run->second = getpid();
    if (!apart_open(&rank, &run->apart, index, &options) || !CHECK_OK(apart_add(&rank, 1)) ||
        !CHECK(apart_sum(&rank, (float)index) == 1))
        return;
    children_meet(&run->connected, n);
    if (index == 1) {
        be_lost(&rank, run);
        return;
    }
    check_sleep_ms(20);
    if (run->how == EARLY)
        go_unnoticed(&rank, run);
    else
        notice(&rank, run);
    if (run->how == STOPPED)
        CHECK(kill(run->second, SIGKILL) == 0);
    else if (run->how != EXITS)
        children_meet(&run->noticed, n);
    apart_close(&rank);
}

static void one_is_lost(enum lost how, int gpus)
{
    struct child_end ends[2];
    struct run *run = children_share(sizeof *run);
    check_begin("nccl, 2 processes, of which one %s", cases[how].name);
    run->how = how;
    run->apart.gpus = gpus;
    children_run(ends, 2, CASE_MS, process, run);
    children_check_killed(ends, 2, how == STOPPED ? 1 : -1);
    /* Who is stopped does not answer, and is waited for before NCCL hears of the abort. */
    const double most = LATER_MS + (how == STOPPED ? TRI_HELD_MS : 0);
    const double late = run->took_ms - cases[how].deadline_ms;
    (void)printf("nccl, one %s: noticed after %.1f ms, deadline %d ", cases[how].name, run->took_ms,
                 cases[how].deadline_ms);
    CHECK_MSG(late <= most, "it was noticed %.1f ms late", late);
    check_end();
    children_unshare(run, sizeof *run);
}

int main(void)
{
    const int gpus = share_gpus();
    if (gpus == 0) {
        check_skip("nccl: there is no GPU");
        return check_finish("lost_nccl_test");
    }
    for (enum lost how = SILENT; how < LOST; how++)
        if (gpus < 2 && how == DIFFERENT)
            check_skip("nccl: between hosts NCCL itself reports calls that differ; 2 GPUs: %d",
                       gpus);
        else
            one_is_lost(how, gpus);
    return check_finish("lost_nccl_test");
}
