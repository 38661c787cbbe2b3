/* Aborts in the middle of a call: between its checks and the backend, and while the backend has it;
 * and short memory. The program has its own table: the host backend, whose members abort or fail on
 * demand. */

#include "tests/own_backend.h"
#include "tests/team.h"

extern const struct tri_backend tri_backend_host;

enum moment { NEVER, WHILE_CHECKED, WHILE_SUBMITTED, WHILE_SPLIT };

static enum moment moment;
static trib_abort *handle;
static int submitted; /* calls that the backend got */

static struct tri_device_ops device_ops;
static struct tri_transport_ops transport_ops;

static void maybe_abort(enum moment now)
{
    if (moment != now)
        return;
    moment = NEVER;
    CHECK_OK(trib_abort_raise(handle, "in the middle of a call"));
}

static enum tri_fault check_stream(int32_t device, trib_stream stream, size_t *found)
{
    maybe_abort(WHILE_CHECKED);
    return tri_backend_host.device->check_stream(device, stream, found);
}

static trib_status submit(struct tri_transport *transport, void (*function)(void *argument),
                          const void *argument, size_t bytes, trib_stream stream)
{
    submitted++;
    CHECK(tri_abort_in_flight(handle) == 1); /* an abort can see the call in flight */
    maybe_abort(WHILE_SUBMITTED);
    return tri_backend_host.transport->submit(transport, function, argument, bytes, stream);
}

static trib_status split(struct tri_transport **out, struct tri_transport *parent, int32_t color,
                         int32_t key, const struct tri_config *config, uint32_t timeout_ms)
{
    const trib_status status =
        tri_backend_host.transport->split(out, parent, color, key, config, timeout_ms);
    maybe_abort(WHILE_SPLIT);
    return status;
}

enum { ALLREDUCE, LIST, WEIGHTED, BARRIER, ALLGATHERV, BATCH, CALLS };
static const char *const names[CALLS] = {"allreduce", "allreduce_list", "weighted_average",
                                         "barrier",   "allgatherv",     "batch"};

static trib_status call(trib_comm *comm, int which, float *data, trib_stream stream)
{
    static const size_t counts[] = {4}, offsets[] = {4};
    const trib_tensor list[] = {{data, 2, TRIB_F32, 0}, {data + 2, 2, TRIB_F32, 0}};
    switch (which) {
    case ALLREDUCE:
        return trib_allreduce(comm, data, data + 4, 4, TRIB_F32, TRIB_SUM, stream);
    case LIST:
        return trib_allreduce_list(comm, list, 2, TRIB_SUM, stream);
    case WEIGHTED:
        return trib_weighted_average(comm, list, 2, 1.0f, NULL, data + 7, stream);
    case BARRIER:
        return trib_barrier(comm, stream);
    case ALLGATHERV:
        return trib_allgatherv(comm, data, data, counts, offsets, TRIB_F32, stream);
    default:
        break;
    }
    trib_status status = trib_batch_begin(comm);
    if (status == TRIB_OK)
        status = trib_allreduce(comm, data, data + 4, 4, TRIB_F32, TRIB_SUM, stream);
    const trib_status end = trib_batch_end(comm);
    return status != TRIB_OK ? status : end;
}

static void overtaken(int which, enum moment when)
{
    float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct team team;
    check_begin("%s, aborted while it is %s", names[which],
                when == WHILE_CHECKED ? "checked" : "submitted");
    moment = NEVER;
    if (team_create(&team, "host", 1, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0]))) {
        submitted = 0;
        CHECK_OK(call(team.comms[0], which, data, team.streams[0]));
        CHECK(submitted == 1);
        moment = when;
        submitted = 0;
        CHECK_STATUS(call(team.comms[0], which, data, team.streams[0]), TRIB_ERR_ABORTED);
        CHECK_DETAIL("in the middle of a call");
        CHECK(moment == NEVER);
        CHECK_MSG(submitted == (when == WHILE_SUBMITTED), "%d calls reached the backend",
                  submitted);
        CHECK(tri_abort_in_flight(handle) == 0);
        team_close(&team);
        trib_abort_release(handle);
    }
    team_destroy(&team);
    check_end();
}

/* The child of a split that an abort of the parent overtook is given up; other ranks that have
 * theirs already learn it. */
static void overtaken_split(int32_t color)
{
    struct team team;
    trib_comm *child = NULL;
    check_begin("split, aborted before it returns, color %d", (int)color);
    moment = NEVER;
    if (team_create(&team, "host", 1, NULL) &&
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0]))) {
        CHECK_OK(trib_comm_split(&child, team.comms[0], color, 0));
        CHECK((child == NULL) == (color == TRIB_NO_COLOR));
        CHECK_OK(trib_comm_destroy(child));
        moment = WHILE_SPLIT;
        child = team.comms[0];
        CHECK_STATUS(trib_comm_split(&child, team.comms[0], color, 0), TRIB_ERR_ABORTED);
        CHECK_DETAIL("in the middle of a call");
        CHECK(child == NULL && moment == NEVER);
        trib_abort_release(handle);
    }
    team_destroy(&team);
    check_end();
}

/* --------------------------------------------------------------------------------------- memory */

static _Atomic bool short_of_memory; /* rank 1, at its next allocation */

static trib_status alloc(int32_t device, void **out, size_t bytes)
{
    bool once = true;
    if (device != 1 || !atomic_compare_exchange_strong(&short_of_memory, &once, false))
        return tri_backend_host.device->alloc(device, out, bytes);
    *out = NULL;
    return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "injected failure");
}

static void compare_calls(int rank, int size, void *argument)
{
    const struct team *team = argument;
    float data[4] = {1, 2, 3, 4};
    trib_comm *comm = team->comms[rank];
    (void)size;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(trib_allreduce(comm, data, data, 4, TRIB_F32, TRIB_SUM, team->streams[rank]),
                     TRIB_ERR_OUT_OF_MEMORY);
        CHECK_DETAIL("injected failure");
    }
    CHECK(team_wait(team, rank, 10000));
    CHECK(data[3] == 4);
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_OUT_OF_MEMORY);
}

/* The others wait inside the call for the rank that failed: they get its status and detail. */
static void out_of_memory(void)
{
    trib_options options = TRIB_OPTIONS_INIT;
    struct team team;
    check_begin("TRIB_MATCH: a rank that is short of memory ends the others' wait");
    options.flags = TRIB_MATCH;
    options.timeout_ms = 10000; /* TRIB_ERR_TIMEOUT, if no status reaches them */
    atomic_store(&short_of_memory, true);
    if (team_create(&team, "host", 2, &options))
        check_ranks(2, compare_calls, &team);
    CHECK(!atomic_load(&short_of_memory));
    team_destroy(&team);
    check_end();
}

/* On a backend that compares nothing itself, TRIB_COMPARED is TRIB_MATCH: the call returns the
 * error. */
static void differ(int rank, int size, void *argument)
{
    const struct team *team = argument;
    float data[4] = {1, 2, 3, 4};
    trib_comm *comm = team->comms[rank];
    (void)size;
    CHECK_STATUS(
        trib_allreduce(comm, data, data, 3 + (size_t)rank, TRIB_F32, TRIB_SUM, team->streams[rank]),
        TRIB_ERR_MISMATCH);
    CHECK_OK(trib_allreduce(comm, data, data, 4, TRIB_F32, TRIB_SUM, team->streams[rank]));
    CHECK(team_wait(team, rank, 10000));
    CHECK(data[3] == 8);
}

/* On a backend that compares, the call is queued, and writes nothing. */
static void differ_later(int rank, int size, void *argument)
{
    const struct team *team = argument;
    float data[4] = {1, 2, 3, 4};
    trib_comm *comm = team->comms[rank];
    (void)size;
    (void)trib_allreduce(comm, data, data, 3 + (size_t)rank, TRIB_F32, TRIB_SUM,
                         team->streams[rank]);
    CHECK(team_wait(team, rank, 10000));
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_MISMATCH);
    CHECK(data[0] == 1 && data[3] == 4);
}

static _Atomic int submissions; /* of rank 1 */

/* Rank 1 has no memory for its second submission, on which all ranks have just agreed. */
static trib_status submit_but_one(struct tri_transport *transport, void (*function)(void *),
                                  const void *argument, size_t bytes, trib_stream stream)
{
    const struct tri_transport_ops *host = tri_backend_host.transport;
    if (host->rank(transport) == 1 && atomic_fetch_add(&submissions, 1) == 1)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "injected failure");
    return host->submit(transport, function, argument, bytes, stream);
}

static void break_promise(int rank, int size, void *argument)
{
    const struct team *team = argument;
    float data[4] = {1, 2, 3, 4};
    trib_comm *comm = team->comms[rank];
    (void)size;
    const trib_status status =
        trib_allreduce(comm, data, data, 4, TRIB_F32, TRIB_SUM, team->streams[rank]);
    if (rank == 1)
        CHECK(status == TRIB_ERR_OUT_OF_MEMORY);
    CHECK(team_wait(team, rank, 10000));
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_OUT_OF_MEMORY);
    CHECK_DETAIL("injected failure");
}

static void compared(const char *what, uint32_t flags, void (*body)(int, int, void *))
{
    trib_options options = TRIB_OPTIONS_INIT;
    struct team team;
    check_begin("%s", what);
    options.flags = flags;
    if (team_create(&team, "host", 2, &options))
        check_ranks(2, body, &team);
    team_destroy(&team);
    check_end();
}

int main(void)
{
    device_ops = *tri_backend_host.device;
    device_ops.check_stream = check_stream;
    device_ops.alloc = alloc;
    transport_ops = *tri_backend_host.transport;
    transport_ops.submit = submit;
    transport_ops.split = split;
    backend = tri_backend_host;
    backend.device = &device_ops;
    backend.transport = &transport_ops;
    for (int which = 0; which < CALLS; which++) {
        overtaken(which, WHILE_CHECKED);
        overtaken(which, WHILE_SUBMITTED);
    }
    overtaken_split(0);
    overtaken_split(TRIB_NO_COLOR);
    backend.transport = tri_backend_host.transport; /* several threads from here on */
    out_of_memory();
    compared("TRIB_COMPARED where the backend compares", TRIB_COMPARED, differ_later);
    backend.compares = false;
    compared("TRIB_COMPARED where the backend does not compare", TRIB_COMPARED, differ);
    transport_ops = *tri_backend_host.transport;
    transport_ops.submit = submit_but_one;
    backend.transport = &transport_ops;
    compared("TRIB_MATCH: a rank that cannot queue what all agreed on takes them with it",
             TRIB_MATCH, break_promise);
    return check_finish("in_flight_test");
}
