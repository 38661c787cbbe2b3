/* Scenario 29: one of two processes, one GPU each, is killed in mid-allreduce, over each path that
 * NCCL has inside a host. The survivor's stream is free and its communicator has ended within
 * LATE_MS, with a detail that names the dead rank; with the side channel switched off, within the
 * call's deadline and LATE_MS. It then goes on alone on the same device.
 *
 *   TRIB_TEST_KILLS   of each path; 10 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/children.h"
#include "tests/team.h"

enum {
    ELEMENTS = 16 << 20, /* 64 MiB: an allreduce takes about a millisecond */
    AHEAD = 20,          /* allreduces in the queue when the process dies */
    CALL_MS = 1000,
    LATE_MS = 100,
    CASE_MS = 120000
};

/* A path of NCCL, by its environment. */
static const struct path {
    const char *name;
    const char *variables[3][2];
} paths[] = {
    {"P2P", {{NULL, NULL}}},
    {"shared memory", {{"NCCL_P2P_DISABLE", "1"}}},
    {"sockets", {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_NET", "Socket"}}},
};

/* What the processes of one run share. */
struct run {
    const struct path *path;
    uint32_t flags; /* of the communicator */
    trib_id id;
    pid_t dead;
    _Atomic int made, connected;
    double killed_ms; /* when; check_now_ms */
    double took_ms;   /* until the survivor knew and its stream was free */
};

struct rank {
    trib_device *device;
    trib_stream stream;
    trib_comm *comm;
    void *data;
};

static bool open_rank(struct rank *rank, struct run *run, int index)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = CALL_MS;
    options.flags = run->flags | TRIB_TIMED;
    for (int i = 0; i < 3 && run->path->variables[i][0] != NULL; i++)
        (void)setenv(run->path->variables[i][0], run->path->variables[i][1], 1);
    if (index == 0)
        CHECK_OK(trib_id_create(&run->id, "nccl"));
    children_meet(&run->made, 2);
    return CHECK_OK(trib_device_get(&rank->device, "nccl", index)) &&
           CHECK_OK(trib_stream_create(&rank->stream, rank->device)) &&
           CHECK_OK(trib_device_alloc(&rank->data, rank->device, ELEMENTS * sizeof(float))) &&
           CHECK_OK(trib_comm_create(&rank->comm, &run->id, index, 2, index, &options));
}

static trib_status add(const struct rank *rank)
{
    return trib_allreduce(rank->comm, rank->data, rank->data, ELEMENTS, TRIB_F32, TRIB_SUM,
                          rank->stream);
}

/* Dies while its calls run. */
static void be_killed(const struct rank *rank, struct run *run)
{
    for (int i = 0; i < AHEAD; i++)
        CHECK_OK(add(rank));
    check_sleep_ms(getpid() % 5);
    run->killed_ms = check_now_ms();
    (void)kill(getpid(), SIGKILL);
}

static void check_end_of(const struct rank *rank, const struct run *run)
{
    char who[64];
    int32_t lost = -1, n = 0;
    const bool told = (run->flags & TRIB_NO_SIDE_CHANNEL) == 0;
    (void)snprintf(who, sizeof who, "rank 1 (process %ld on ", (long)run->dead);
    CHECK_STATUS(trib_comm_status(rank->comm), told ? TRIB_ERR_CLOSED : TRIB_ERR_TIMEOUT);
    CHECK_DETAIL(told ? who : "rank 0 (device 0) has waited for 1.");
    CHECK_OK(trib_comm_lost(&n, rank->comm, &lost, 1));
    CHECK_MSG(!told || (n == 1 && lost == 1), "%d lost, rank %d", n, lost);
}

/* Alone, on the same device. */
static void go_on(struct rank *rank, const struct run *run)
{
    const int32_t dead = 1;
    const float two = 2;
    float found = 0;
    trib_comm *alone = NULL;
    if ((run->flags & TRIB_NO_SIDE_CHANNEL) != 0) {
        CHECK_STATUS(trib_comm_shrink(&alone, rank->comm, &dead, 1, 0), TRIB_ERR_UNSUPPORTED);
        return;
    }
    if (!CHECK_OK(trib_comm_shrink(&alone, rank->comm, &dead, 1, 0)))
        return;
    CHECK_OK(trib_comm_destroy(rank->comm));
    rank->comm = alone;
    CHECK_OK(trib_device_copy(rank->device, rank->data, &two, sizeof two, rank->stream));
    CHECK_OK(add(rank));
    CHECK_OK(trib_device_copy(rank->device, &found, rank->data, sizeof found, rank->stream));
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    CHECK_OK(trib_comm_status(alone));
    CHECK_MSG(found == two, "%g", (double)found);
}

static void survive(struct rank *rank, struct run *run)
{
    trib_status status = TRIB_OK;
    while (status == TRIB_OK) {
        status = add(rank);
        if (status == TRIB_OK)
            status = trib_comm_wait(rank->comm, rank->stream, TRIB_NO_TIMEOUT);
    }
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    run->took_ms = check_now_ms() - run->killed_ms;
    check_end_of(rank, run);
    go_on(rank, run);
    CHECK_OK(trib_comm_destroy(rank->comm));
    CHECK_OK(trib_device_free(rank->device, rank->data));
    CHECK_OK(trib_stream_destroy(rank->device, rank->stream));
}

static void process(int index, int n, void *argument)
{
    struct run *run = argument;
    struct rank rank = {.comm = NULL};
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
static double kill_once(const struct path *path, uint32_t flags)
{
    struct child_end ends[2];
    struct run *run = children_share(sizeof *run);
    run->path = path;
    run->flags = flags;
    children_run(ends, 2, CASE_MS, process, run);
    children_check(&ends[0], 0);
    CHECK_MSG(ends[1].signal == SIGKILL && !ends[1].late, "the process to die ended with %d",
              ends[1].code);
    const double took = run->took_ms;
    children_unshare(run, sizeof *run);
    return took;
}

static void kill_often(const struct path *path, uint32_t flags, int kills)
{
    const bool told = (flags & TRIB_NO_SIDE_CHANNEL) == 0;
    const double bound = told ? LATE_MS : CALL_MS + LATE_MS;
    double worst = 0;
    check_begin("killed over %s%s", path->name, told ? "" : ", no side channel");
    for (int i = 0; i < kills && !check_failed(); i++) {
        const double took = kill_once(path, flags);
        worst = took > worst ? took : worst;
    }
    (void)printf(
        " 29  peer process killed over %-14s %-16s nccl %3d runs, worst %8.2f ms, bound %.0f\n",
        path->name, told ? "side channel" : "deadline alone", kills, worst, bound);
    CHECK_MSG(worst <= bound, "the survivor took %.2f ms", worst);
    check_end();
}

static void count_devices(int index, int n, void *argument)
{
    (void)index;
    (void)n;
    *(int *)argument = team_limit("nccl");
}

int main(void)
{
    struct child_end end;
    const char *text = getenv("TRIB_TEST_KILLS");
    const int kills = text == NULL ? 10 : (int)strtol(text, NULL, 10);
    int *devices = children_share(sizeof *devices);
    children_run(&end, 1, CASE_MS, count_devices, devices); /* this process must not use CUDA */
    if (*devices < 2) {
        check_skip("nccl: a peer needs 2 GPUs: there are %d", *devices);
        return check_finish("killed_nccl_test");
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        kill_often(&paths[i], 0, kills);
        kill_often(&paths[i], TRIB_NO_SIDE_CHANNEL, kills < 3 ? kills : 3);
    }
    return check_finish("killed_nccl_test");
}
