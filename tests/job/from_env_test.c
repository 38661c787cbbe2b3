/* A communicator of the processes that a launcher has started, over the backend "processes". */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/processes/member.h"

enum { SHORT_MS = 1000 };

static void set(const char *name, int value)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", value);
    CHECK(setenv(name, text, 1) == 0);
}

/* As srun starts them, two on each of two hosts, as far as local ranks say. */
static void set_slurm(int rank, int n)
{
    set("SLURM_PROCID", rank);
    set("SLURM_STEP_NUM_TASKS", n);
    set("SLURM_LOCALID", rank % 2);
    set("SLURM_JOB_ID", (int)processes_pid(0));
    set("SLURM_STEP_ID", 0);
    CHECK(setenv("SLURM_STEP_NODELIST", "127.0.0.[1-2]", 1) == 0);
}

static void check_sum(struct member *m)
{
    float one = 1;
    const int32_t device = trib_comm_device(m->comm);
    if (!CHECK_OK(trib_device_get(&m->device, "processes", device)) ||
        !CHECK_OK(trib_stream_create(&m->stream, m->device)))
        return;
    member_call(m, &one);
    member_wait(m);
    CHECK_MSG(one == (float)m->size, "%g", (double)one);
    member_end(m);
}

/* `argument`: to each process its launcher shows one device alone. */
static void job(int index, int n, void *argument)
{
    struct member m = {.rank = index, .size = n};
    trib_options options = TRIB_OPTIONS_INIT;
    if (argument != NULL)
        processes_devices(1);
    options.name = "launched";
    set_slurm(index, n);
    if (!CHECK_OK(trib_comm_from_env(&m.comm, &options)))
        return;
    CHECK(trib_comm_rank(m.comm) == index && trib_comm_size(m.comm) == n);
    CHECK(trib_comm_device(m.comm) == (argument == NULL ? index % 2 : 0));
    CHECK(strcmp(trib_comm_name(m.comm), "launched") == 0);
    CHECK(strcmp(trib_comm_backend(m.comm), "processes") == 0);
    check_sum(&m);
}

/* Rank 2 does not come; the deadline is that of the options. */
static void late(int index, int n, void *argument)
{
    trib_comm *comm = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    const double start = check_now_ms();
    (void)argument;
    options.timeout_ms = SHORT_MS;
    set_slurm(index, n + 1);
    CHECK_STATUS(trib_comm_from_env(&comm, &options), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 2 of 3 did not come to rank 0 at 127.0.0.1");
    CHECK(comm == NULL && check_now_ms() - start < 5 * SHORT_MS);
}

/* Each process sees two devices, and process 2 is the third on its host: it says so at once, and the
 * others hear who did not come. */
static void one_too_many(int index, int n, void *argument)
{
    trib_comm *comm = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    const double start = check_now_ms();
    (void)argument;
    options.timeout_ms = SHORT_MS;
    processes_devices(2);
    set_slurm(index, n);
    set("SLURM_LOCALID", index);
    if (index < 2) {
        CHECK_STATUS(trib_comm_from_env(&comm, &options), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("rank 2 of 3 did not come");
        return;
    }
    CHECK_STATUS(trib_comm_from_env(&comm, &options), TRIB_ERR_NO_DEVICE);
    CHECK_DETAIL("rank 2 of 3 has local rank 2, and \"processes\" has 2 devices for it");
    CHECK(comm == NULL && check_now_ms() - start < SHORT_MS);
}

static void mistakes(int index, int n, void *argument)
{
    trib_comm *comm = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    (void)index;
    (void)n;
    (void)argument;
    CHECK_STATUS(trib_comm_from_env(NULL, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_comm_from_env(&comm, NULL), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("no launcher has started this process");
    set_slurm(0, 1);
    options.backend = "nobody";
    CHECK_STATUS(trib_comm_from_env(&comm, &options), TRIB_ERR_UNKNOWN_NAME);
    options.size--;
    CHECK_STATUS(trib_comm_from_env(&comm, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_comm_from_env: options.size is");
    CHECK(comm == NULL);
}

int main(void)
{
    static char one[] = "one device";
    for (int n = 1; n <= 4; n++) {
        check_begin("a job of %d", n);
        processes_check(n, MEMBER_DEADLINE_MS, job, NULL);
        check_end();
    }
    check_begin("a job whose processes see one device each");
    processes_check(3, MEMBER_DEADLINE_MS, job, one);
    check_end();
    check_begin("a rank does not come");
    processes_check(2, MEMBER_DEADLINE_MS, late, NULL);
    check_end();
    check_begin("more processes on a host than devices");
    processes_check(3, MEMBER_DEADLINE_MS, one_too_many, NULL);
    check_end();
    check_begin("mistakes");
    processes_check(1, MEMBER_DEADLINE_MS, mistakes, NULL);
    check_end();
    return check_finish("from_env_test");
}
