/* Scenario 29: one of two processes is killed in mid-allreduce, over each path that NCCL has inside a
 * host; if they share a GPU, over sockets. The survivor's stream is free and its communicator has ended within
 * LATE_MS, with a detail that names the dead rank; with the side channel switched off, within the
 * call's deadline and LATE_MS, or earlier where NCCL sees a connection close. It then goes on alone
 * on the same device.
 *
 *   TRIB_TEST_KILLS   of each path; 10 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/nccl/apart.h"

enum {
    AHEAD = 20, /* allreduces in the queue when the process dies */
    CALL_MS = 1000,
    LATE_MS = 100,
    CASE_MS = 120000
};

/* What the processes of one run share. */
struct run {
    const struct apart_path *path;
    uint32_t flags; /* of the communicator */
    struct apart apart;
    pid_t dead;
    _Atomic int connected;
    double killed_ms; /* when; check_now_ms */
    double took_ms;   /* until the survivor knew and its stream was free */
};

static bool open_rank(struct apart_rank *rank, struct run *run, int index)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = CALL_MS;
    options.flags = run->flags | TRIB_TIMED;
    apart_take(run->path);
    return apart_open(rank, &run->apart, index, &options);
}

static trib_status add(const struct apart_rank *rank)
{
    return apart_add(rank, APART_ELEMENTS);
}

/* Dies while its calls run. */
static void be_killed(const struct apart_rank *rank, struct run *run)
{
    for (int i = 0; i < AHEAD; i++)
        CHECK_OK(add(rank));
    check_sleep_ms(getpid() % 5);
    run->killed_ms = check_now_ms();
    (void)kill(getpid(), SIGKILL);
}

static bool is_told(const struct run *run)
{
    return (run->flags & TRIB_NO_SIDE_CHANNEL) == 0;
}

/* By the side channel. */
static void check_named(const struct apart_rank *rank, const struct run *run)
{
    char who[64];
    int32_t lost = -1, n = 0;
    (void)snprintf(who, sizeof who, "rank 1 (process %ld on ", (long)run->dead);
    CHECK_STATUS(trib_comm_status(rank->comm), TRIB_ERR_CLOSED);
    CHECK_DETAIL(who);
    CHECK_DETAIL(" was killed by signal 9 (SIGKILL)");
    CHECK_OK(trib_comm_lost(&n, rank->comm, &lost, 1));
    CHECK_MSG(n == 1 && lost == 1, "%d lost, rank %d", n, lost);
}

/* By the deadline, or by NCCL. */
static void check_noticed(const struct apart_rank *rank, const struct run *run)
{
    const int32_t dead = 1;
    int32_t lost = -1, n = 0;
    trib_comm *alone = NULL;
    const trib_status status = trib_comm_status(rank->comm);
    if (run->path->sockets && status == TRIB_ERR_NCCL) {
        CHECK_DETAIL("rank 0 (device 0 of nccl)");
    } else {
        CHECK_STATUS(status, TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 0 (device 0) has waited for 1.");
    }
    CHECK_OK(trib_comm_lost(&n, rank->comm, &lost, 1));
    CHECK_STATUS(trib_comm_shrink(&alone, rank->comm, &dead, 1, 0), TRIB_ERR_UNSUPPORTED);
}

static void survive(struct apart_rank *rank, struct run *run)
{
    trib_status status = TRIB_OK;
    while (status == TRIB_OK) {
        status = add(rank);
        if (status == TRIB_OK)
            status = trib_comm_wait(rank->comm, rank->stream, TRIB_NO_TIMEOUT);
    }
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    run->took_ms = check_now_ms() - run->killed_ms;
    if (is_told(run)) {
        check_named(rank, run);
        apart_go_on(rank);
    } else {
        check_noticed(rank, run);
    }
    apart_close(rank);
}

static void process(int index, int n, void *argument)
{
    struct run *run = argument;
    struct apart_rank rank = {.comm = NULL};
    if (index == 1)
        run->dead = getpid();
    if (!open_rank(&rank, run, index) || !CHECK_OK(add(&rank)) ||
        !CHECK_OK(trib_stream_wait(rank.device, rank.stream)))
        return;
    children_meet(&run->connected, n);
    if (index == 1)
        be_killed(&rank, run);
    else
        survive(&rank, run);
}

/* How long the survivor took. */
static double kill_once(const struct apart_path *path, uint32_t flags, int gpus)
{
    struct child_end ends[2];
    struct run *run = children_share(sizeof *run);
    run->path = path;
    run->flags = flags;
    run->apart.gpus = gpus;
    children_run(ends, 2, CASE_MS, process, run);
    children_check_killed(ends, 2, 1);
    const double took = run->took_ms;
    children_unshare(run, sizeof *run);
    return took;
}

static void kill_often(const struct apart_path *path, uint32_t flags, int kills, int gpus)
{
    const bool told = (flags & TRIB_NO_SIDE_CHANNEL) == 0;
    const double bound = told ? LATE_MS : CALL_MS + LATE_MS;
    double worst = 0;
    check_begin("killed over %s%s", path->name, told ? "" : ", no side channel");
    for (int i = 0; i < kills && !check_failed(); i++) {
        const double took = kill_once(path, flags, gpus);
        worst = took > worst ? took : worst;
    }
    (void)printf(
        " 29  peer process killed over %-14s %-16s nccl %3d runs, worst %8.2f ms, bound %.0f\n",
        path->name, told ? "side channel" : "deadline alone", kills, worst, bound);
    CHECK_MSG(worst <= bound, "the survivor took %.2f ms", worst);
    check_end();
}

int main(void)
{
    const char *text = getenv("TRIB_TEST_KILLS");
    const int kills = text == NULL ? 10 : (int)strtol(text, NULL, 10);
    const int gpus = share_gpus();
    if (gpus == 0) {
        check_skip("nccl: there is no GPU");
        return check_finish("killed_nccl_test");
    }
    for (size_t i = 0; i < APART_PATHS; i++) {
        if (gpus < 2 && !apart_paths[i].sockets) {
            check_skip("nccl: %s needs 2 GPUs: there is 1", apart_paths[i].name);
            continue;
        }
        kill_often(&apart_paths[i], 0, kills, gpus);
        kill_often(&apart_paths[i], TRIB_NO_SIDE_CHANNEL, kills < 3 ? kills : 3, gpus);
    }
    return check_finish("killed_nccl_test");
}
