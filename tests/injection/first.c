/* The first use of the library in a process, with a fault, and the next one, which succeeds. */
#define _POSIX_C_SOURCE 200809L
#include "tests/injection/first.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/check.h"

enum { WHOLE = 3, MOST = 200, QUIESCE_MS = 10000, N = 8 };

extern char **environ;

/* Returns the first failure. */
static trib_status keep(trib_status status, trib_status next)
{
    return status != TRIB_OK ? status : next;
}

static trib_status reduce(trib_device *device, trib_comm *comm)
{
    float data[N] = {1, 2, 3, 4, 5, 6, 7, 8};
    trib_status status = trib_allreduce(comm, data, data, N, TRIB_F32, TRIB_SUM, NULL);
    status = keep(status, trib_stream_wait(device, NULL));
    status = keep(status, trib_comm_status(comm));
    for (int i = 0; i < N && status == TRIB_OK; i++)
        CHECK(data[i] == (float)(i + 1));
    return status;
}

/* Of one rank: streams, also the default one, and a sparse state, whose creation has a deadline. */
static trib_status use(void)
{
    trib_device *device = NULL;
    trib_stream stream = NULL;
    trib_comm *comm = NULL;
    trib_sparse *sparse = NULL;
    trib_id id;
    trib_status status = trib_device_get(&device, "host", 0);
    if (status == TRIB_OK)
        status = trib_stream_create(&stream, device);
    if (status == TRIB_OK)
        status = trib_id_create(&id, "host");
    if (status == TRIB_OK)
        status = trib_comm_create(&comm, &id, 0, 1, 0, NULL);
    if (status == TRIB_OK)
        status = reduce(device, comm);
    if (status == TRIB_OK)
        status = trib_sparse_create(&sparse, comm, N, TRIB_F32, NULL);
    status = keep(status, trib_sparse_destroy(sparse));
    status = keep(status, trib_comm_destroy(comm));
    if (stream != NULL)
        status = keep(status, trib_stream_destroy(device, stream));
    return keep(status, trib_quiesce(QUIESCE_MS));
}

int first_use(enum injection_mode mode, long n)
{
    const struct injection_fault fault = {mode, 0, n};
    injection_backend(false);
    check_begin("the first use: %s at call %ld", injection_mode_name(mode), n);
    injection_arm(&fault);
    injection_enter(0, NULL);
    const trib_status status = use();
    injection_leave();
    const struct injection_place *place = injection_fired();
    if (place == NULL)
        CHECK_OK(status);
    else if (mode == INJECT_NO_MEMORY ||
             status != TRIB_OK) /* the timer of streams may be missing */
        CHECK_STATUS(status, place->status);
    injection_disarm();
    CHECK_OK(use());
    check_end();
    const int failed = check_finish("the first use");
    return failed != 0 ? failed : place == NULL ? WHOLE : 0;
}

long first_walk(const char *program, enum injection_mode mode)
{
    long n = 0;
    int status = 0;
    /* The thread sanitizer waits a second at every exit. */
    (void)setenv("TSAN_OPTIONS", "halt_on_error=1:atexit_sleep_ms=0", 1);
    check_begin("the first use in a process: %s", injection_mode_name(mode));
    while (status == 0 && n < MOST) {
        char number[24], kind[8];
        (void)snprintf(number, sizeof number, "%ld", ++n);
        (void)snprintf(kind, sizeof kind, "%d", mode);
        char *const arguments[] = {(char *)program, "--first", kind, number, NULL};
        pid_t child = 0;
        const int error = posix_spawn(&child, program, NULL, NULL, arguments, environ);
        if (!CHECK_MSG(error == 0 && waitpid(child, &status, 0) == child, "%s: %s", program,
                       strerror(error)))
            break;
    }
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == WHOLE, "fault %ld: status 0x%x", n,
              (unsigned)status);
    check_end();
    return n - 1;
}
