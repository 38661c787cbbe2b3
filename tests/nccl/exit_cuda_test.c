/* A process that exits, or resets its devices, right after the last destroy: background work must
 * not find CUDA gone. Each case is a process of its own: this program again. */
#define _POSIX_C_SOURCE 200809L
#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/team.h"

enum { ELEMENTS = 1 << 16, ROUNDS = 5, CASE_MS = 90000, QUIET_MS = 60000 };

/* --------------------------------------------------------------------- the process that exits */

struct used {
    struct team *team;
    bool aborts; /* rank 0 makes one call less, which ends the others' wait */
};

static void use(int rank, int size, void *argument)
{
    const struct used *used = argument;
    const struct team *team = used->team;
    void *data = NULL;
    trib_abort *handle = NULL;
    (void)size;
    CHECK_OK(trib_device_alloc(&data, team->devices[rank], ELEMENTS * sizeof(float)));
    for (int i = 0; i < (used->aborts && rank == 0 ? 1 : 2); i++) {
        const trib_status status = trib_allreduce(team->comms[rank], data, data, ELEMENTS, TRIB_F32,
                                                  TRIB_SUM, team->streams[rank]);
        CHECK(status == TRIB_OK || (used->aborts && status == TRIB_ERR_ABORTED));
    }
    if (used->aborts && rank == 0) {
        CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0]));
        CHECK_OK(trib_abort_raise(handle, "the process is about to end"));
        trib_abort_release(handle);
    }
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
}

static void one_life(bool aborts)
{
    struct team team;
    struct used used = {&team, aborts};
    if (!team_create(&team, "nccl", team_limit("nccl"), NULL))
        return;
    check_ranks(team.size, use, &used);
    team_destroy(&team);
}

static int child(const char *what)
{
    const bool aborts = strstr(what, "abort") != NULL;
    check_begin("%s", what);
    for (int i = 0; i < (strstr(what, "many") != NULL ? ROUNDS : 1); i++)
        one_life(aborts);
    if (strstr(what, "reset") != NULL) {
        CHECK_OK(trib_quiesce(QUIET_MS));
        for (int device = 0; device < team_limit("nccl"); device++)
            CHECK(cudaSetDevice(device) == cudaSuccess && cudaDeviceReset() == cudaSuccess);
    }
    check_end();
    return check_finish(what);
}

/* ------------------------------------------------------------------------------- this process */

/* The wait status of `process`: 0 in good order; -1 after a timeout. */
static int ended(pid_t process)
{
    const struct timespec pause = {0, 5000000};
    const double end = check_now_ms() + CASE_MS;
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
        if (check_now_ms() > end) {
            (void)kill(process, SIGKILL);
            (void)waitpid(process, &status, 0);
            return -1;
        }
        (void)nanosleep(&pause, NULL);
    }
    return status;
}

static void run(const char *what)
{
    check_begin("a process ends: %s", what);
    const pid_t process = fork();
    if (process == 0) {
        (void)execl("/proc/self/exe", "exit_cuda_test", what, (char *)NULL);
        _exit(127);
    }
    if (CHECK(process > 0)) {
        const int status = ended(process);
        CHECK_MSG(status == 0, "%s: %s %d", what,
                  status == -1          ? "still there after ms"
                  : WIFSIGNALED(status) ? "killed by signal"
                                        : "exit status",
                  status == -1          ? CASE_MS
                  : WIFSIGNALED(status) ? WTERMSIG(status)
                                        : WEXITSTATUS(status));
    }
    check_end();
}

int main(int n, char **arguments)
{
    static const char *const cases[] = {"destroy, exit",    "abort, exit",    "destroy many, exit",
                                        "abort many, exit", "destroy, reset", "abort many, reset"};
    if (n > 1)
        return child(arguments[1]);
    if (team_limit("nccl") == 0) {
        check_skip("there is no GPU");
        return check_finish("exit_cuda_test");
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run(cases[i]);
    return check_finish("exit_cuda_test");
}
