/* Children of fork: once the process has used the library, every call in them fails with a detail;
 * none waits for a thread that stayed in the parent. Before that, children may use the library. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/team.h"

enum { TIMEOUT_S = 20, ELEMENTS = 100 };

/* Run `body` in a child; it must end, and all its checks pass. */
static void in_child(void (*body)(void *argument), void *argument)
{
    fflush(stdout);
    fflush(stderr);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(TIMEOUT_S); /* if it waits for a thread that is not there */
        body(argument);
        check_end(); /* of the case that the parent has begun */
        _exit(check_finish("child") == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d: %s", status,
              WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "it waited for ever"
                                                                 : "a check failed");
}

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        CHECK_STATUS((call), TRIB_ERR_INVALID_USAGE);                                              \
        CHECK_DETAIL("forked");                                                                    \
    } while (0)

struct used {
    struct team team;
    trib_sparse *sparse;
    trib_abort *handle;
    trib_event event;
    void *memory;
};

static void nothing(void *argument)
{
    (void)argument;
}

static void use_device(const struct used *used)
{
    trib_device *device = used->team.devices[0], *other = NULL;
    trib_stream stream = used->team.streams[0], fresh = NULL;
    trib_event event = NULL;
    void *memory = NULL;
    int32_t out = 0;
    float ms = 0;
    REFUSED(trib_device_get(&other, "host", 0));
    REFUSED(trib_device_alloc(&memory, device, 16));
    REFUSED(trib_device_copy(device, used->memory, used->memory, 16, stream));
    REFUSED(trib_device_free(device, used->memory));
    REFUSED(trib_stream_create(&fresh, device));
    REFUSED(trib_stream_submit(device, nothing, NULL, stream));
    REFUSED(trib_stream_query(&out, device, stream));
    REFUSED(trib_stream_wait(device, stream));
    REFUSED(trib_stream_wait(device, NULL));
    REFUSED(trib_stream_wait_event(device, used->event, stream));
    REFUSED(trib_event_create(&event, device));
    REFUSED(trib_event_record(device, used->event, stream));
    REFUSED(trib_event_query(&out, device, used->event));
    REFUSED(trib_event_wait(device, used->event));
    REFUSED(trib_event_elapsed(&ms, device, used->event, used->event));
    REFUSED(trib_event_destroy(device, used->event));
    REFUSED(trib_stream_destroy(device, stream));
}

static void use_comm(const struct used *used)
{
    trib_comm *comm = used->team.comms[0], *child = NULL;
    trib_stream stream = used->team.streams[0];
    const trib_tensor tensor = {used->memory, ELEMENTS, TRIB_F32, 0};
    trib_counters counters = TRIB_COUNTERS_INIT;
    trib_memory memory = TRIB_MEMORY_INIT;
    trib_group *group = NULL;
    trib_id id;
    REFUSED(trib_allreduce(comm, used->memory, used->memory, ELEMENTS, TRIB_F32, TRIB_SUM, stream));
    REFUSED(trib_barrier(comm, stream));
    REFUSED(trib_send(comm, used->memory, ELEMENTS, TRIB_F32, 1, stream));
    REFUSED(trib_allreduce_list(comm, &tensor, 1, TRIB_SUM, stream));
    REFUSED(trib_batch_begin(comm));
    REFUSED(trib_comm_split(&child, comm, 0, 0));
    REFUSED(trib_comm_status(comm));
    REFUSED(trib_comm_counters(&counters, comm));
    REFUSED(trib_sparse_allreduce(used->sparse, used->memory, used->memory, stream));
    REFUSED(trib_sparse_destroy(used->sparse));
    REFUSED(trib_abort_raise(used->handle, "from the child"));
    REFUSED(trib_id_create(&id, "host"));
    REFUSED(trib_group_create(&group, NULL, 2, NULL));
    REFUSED(trib_comm_close(comm, 1000));
    REFUSED(trib_comm_destroy(comm));
    REFUSED(trib_quiesce(1000));
    REFUSED(trib_log_set(NULL, NULL, 0));
    REFUSED(trib_comm_memory(&memory, comm));
    REFUSED(trib_device_memory(&memory, used->team.devices[0]));
    REFUSED(trib_debug_set(1));
    CHECK(trib_comm_rank(comm) == 0);
    CHECK(trib_abort_raised(used->handle) == 0);
}

static void use_all(void *argument)
{
    use_device(argument);
    use_comm(argument);
}

static void again(void *argument)
{
    in_child(use_all, argument);
    use_all(argument);
}

static void works(struct team *team, float *data)
{
    for (int i = 0; i < 2 * ELEMENTS; i++)
        data[i] = 1;
    for (int rank = 0; rank < team->size; rank++)
        CHECK_OK(trib_allreduce(team->comms[rank], data + rank * ELEMENTS, data + rank * ELEMENTS,
                                ELEMENTS, TRIB_F32, TRIB_SUM, team->streams[rank]));
    for (int rank = 0; rank < team->size; rank++)
        team_wait(team, rank, TIMEOUT_S * 1000);
    CHECK(data[0] == 2 && data[2 * ELEMENTS - 1] == 2);
}

/* All of it, in a process that has not used the library yet. */
static void use_freshly(void *argument)
{
    struct team team;
    (void)argument;
    static float data[2 * ELEMENTS];
    if (team_create(&team, "host", 2, NULL))
        works(&team, data);
    team_destroy(&team);
}

static void create_device(void *argument)
{
    trib_device *device = NULL;
    (void)argument;
    REFUSED(trib_device_get(&device, "host", 0));
}

/* What a process makes first, whatever it is, its children cannot use. */
static void use_one(void *argument)
{
    const int what = *(const int *)argument;
    trib_device *device = NULL;
    trib_comm *comm = NULL;
    trib_group *group = NULL;
    trib_id id;
    if (what == 0)
        CHECK_OK(trib_device_get(&device, "host", 0));
    else if (what == 1)
        CHECK(CHECK_OK(trib_id_create(&id, "host")) &&
              CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 0, NULL)));
    else
        CHECK_OK(trib_group_create(&group, NULL, 1, NULL));
    in_child(create_device, NULL);
    CHECK_OK(trib_comm_destroy(comm));
    CHECK_OK(trib_group_destroy(group));
}

static void create_sparse(int rank, int size, void *argument)
{
    struct used *used = argument;
    trib_sparse *sparse = NULL;
    (void)size;
    CHECK_OK(trib_sparse_create(&sparse, used->team.comms[rank], ELEMENTS, TRIB_F32, NULL));
    if (rank == 0)
        used->sparse = sparse;
    else
        CHECK_OK(trib_sparse_destroy(sparse));
}

static void use_and_fork(void)
{
    static float data[2 * ELEMENTS];
    struct used used = {.memory = NULL};
    if (!team_create(&used.team, "host", 2, NULL) ||
        !CHECK_OK(
            trib_device_alloc(&used.memory, used.team.devices[0], ELEMENTS * sizeof(float))) ||
        !CHECK_OK(trib_event_create(&used.event, used.team.devices[0])) ||
        !CHECK_OK(trib_comm_abort_handle(&used.handle, used.team.comms[0])))
        return;
    check_ranks(2, create_sparse, &used);
    works(&used.team, data);
    CHECK_OK(trib_event_record(used.team.devices[0], used.event, used.team.streams[0]));
    in_child(use_all, &used);
    in_child(again, &used);  /* a child of a child */
    works(&used.team, data); /* nothing of it has touched the parent */
    CHECK_OK(trib_sparse_destroy(used.sparse));
    CHECK_OK(trib_event_destroy(used.team.devices[0], used.event));
    CHECK_OK(trib_device_free(used.team.devices[0], used.memory));
    trib_abort_release(used.handle);
    team_destroy(&used.team);
}

int main(void)
{
    trib_id id;
    check_begin("fork before the first use");
    CHECK(trib_backend_count() > 0);
    CHECK_OK(trib_id_create(&id, "host"));
    in_child(use_freshly, NULL);
    for (int what = 0; what < 3; what++)
        in_child(use_one, &what);
    check_end();
    check_begin("fork after it");
    use_and_fork();
    check_end();
    return check_finish("fork_test");
}
