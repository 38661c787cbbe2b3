/* What communicators come from and end with: devices, streams and events; creation by id, a split,
 * a group, close. */
#include <string.h>

#include "tests/injection/programs.h"

enum { N = 8, MANY = 9, LONG_MS = 10000, SHORT_MS = 500 };

/* ---------------------------------------------------------------------------------- one device */

static void count_up(void *number)
{
    ++*(int *)number;
}

struct own {
    void *memory;
    trib_stream stream;
    trib_event events[2];
};

static bool use(struct rank *rank, const struct own *own)
{
    trib_device *device = rank->device;
    int called = 0;
    int32_t done = 0;
    float ms = -1;
    rank->data[0][0] = 7;
    const bool good =
        WENT(rank, trib_event_record(device, own->events[0], own->stream)) &&
        WENT(rank, trib_device_copy(device, own->memory, rank->data[0], 4, own->stream)) &&
        WENT(rank, trib_event_record(device, own->events[1], own->stream)) &&
        WENT(rank, trib_stream_wait_event(device, own->events[1], rank->stream)) &&
        WENT(rank, trib_device_copy(device, rank->data[1], own->memory, 4, rank->stream)) &&
        WENT(rank, trib_event_wait(device, own->events[1])) &&
        WENT(rank, trib_event_query(&done, device, own->events[1])) &&
        WENT(rank, trib_event_elapsed(&ms, device, own->events[0], own->events[1])) &&
        WENT(rank, trib_stream_submit(device, count_up, &called, own->stream)) &&
        WENT(rank, trib_stream_wait(device, own->stream)) &&
        WENT(rank, trib_stream_query(&done, device, own->stream)) && settled(rank);
    injection_leave(); /* what is on this stack is no longer in use after this */
    CHECK_OK(trib_stream_wait(device, own->stream));
    injection_enter(rank->rank, rank->handle);
    if (good)
        CHECK(rank->data[1][0] == 7 && called == 1 && done == 1 && ms >= 0);
    return good;
}

static void device(struct rank *rank)
{
    struct own own = {NULL};
    trib_id id;
    if (WENT(rank, trib_id_create(&id, "host")) &&
        WENT(rank, trib_device_alloc(&own.memory, rank->device, N)) &&
        WENT(rank, trib_stream_create(&own.stream, rank->device)) &&
        WENT(rank, trib_event_create(&own.events[0], rank->device)) &&
        WENT(rank, trib_event_create(&own.events[1], rank->device)))
        (void)use(rank, &own);
    (void)WENT(rank, trib_stream_wait(rank->device, rank->stream));
    (void)WENT(rank, trib_event_destroy(rank->device, own.events[0]));
    (void)WENT(rank, trib_event_destroy(rank->device, own.events[1]));
    if (own.stream != NULL)
        (void)WENT(rank, trib_stream_destroy(rank->device, own.stream));
    (void)WENT(rank, trib_device_free(rank->device, own.memory));
}

/* ----------------------------------------------------------------------------- one communicator */

/* A creation may miss a rank, and nothing else ends that wait. */
static trib_options options(const struct rank *rank)
{
    const enum injection_mode mode = rank->trial->fault.mode;
    trib_options out = TRIB_OPTIONS_INIT;
    out.timeout_ms = mode == INJECT_FAILURE || mode == INJECT_NO_MEMORY ? SHORT_MS : LONG_MS;
    return out;
}

static bool reduce(struct rank *rank, trib_comm *comm)
{
    float (*data)[ROW] = rank->data;
    const int size = trib_comm_size(comm);
    for (int i = 0; i < N; i++)
        data[0][i] = (float)(i + 1);
    if (!WENT(rank, trib_allreduce(comm, data[0], data[1], N, TRIB_F32, TRIB_SUM, rank->stream)) ||
        !WENT(rank, trib_stream_wait(rank->device, rank->stream)) ||
        !WENT(rank, trib_comm_status(comm)))
        return false;
    return CHECK(found(rank, 1, N, (float)size, (float)size));
}

static void creation(struct rank *rank)
{
    const trib_options with = options(rank);
    if (!WENT(rank, trib_comm_create(&rank->comm, &rank->trial->id, rank->rank, rank->size,
                                     rank->rank, &with)))
        return;
    if (!opened(rank) || !reduce(rank, rank->comm))
        return;
    (void)WENT(rank, trib_comm_close(rank->comm, LONG_MS));
    (void)WENT(rank, trib_comm_destroy(rank->comm));
    rank->comm = NULL;
}

/* The last rank takes part without a color; the others are in reverse order. */
static void split(struct rank *rank)
{
    const bool out = rank->size > 1 && rank->rank == rank->size - 1;
    trib_comm *child = NULL;
    trib_abort *handle = NULL;
    if (!WENT(rank, trib_comm_split(&child, rank->comm, out ? TRIB_NO_COLOR : rank->rank / 2,
                                    -rank->rank))) {
        CHECK(child == NULL);
        return;
    }
    CHECK((child == NULL) == out);
    if (out)
        return;
    if (WENT(rank, trib_comm_abort_handle(&handle, child))) {
        injection_target(handle);
        (void)reduce(rank, child);
    }
    (void)WENT(rank, trib_comm_destroy(child));
    injection_target(rank->handle);
    trib_abort_release(handle);
}

/* The last rank leaves, the others shrink, which aborts the communicator, and reduce. */
static void shrink(struct rank *rank)
{
    const trib_options with = options(rank);
    const int32_t last = rank->size - 1;
    trib_comm *rest = NULL;
    trib_abort *handle = NULL;
    if (!WENT(rank, trib_comm_create(&rank->comm, &rank->trial->id, rank->rank, rank->size,
                                     rank->rank, &with)) ||
        !opened(rank))
        return;
    if (last > 0 && rank->rank == last) {
        (void)WENT(rank, trib_comm_destroy(rank->comm));
        rank->comm = NULL;
        return;
    }
    if (!WENT(rank, trib_comm_shrink(&rest, rank->comm, &last, last > 0, SHORT_MS))) {
        CHECK(rest == NULL);
        return;
    }
    (void)WENT(rank, trib_comm_destroy(rank->comm));
    rank->comm = NULL;
    if (WENT(rank, trib_comm_abort_handle(&handle, rest))) {
        injection_target(handle);
        (void)reduce(rank, rest);
    }
    (void)WENT(rank, trib_comm_destroy(rest));
    injection_target(rank->handle);
    trib_abort_release(handle);
}

/* -------------------------------------------------------------------------------------- a group */

struct buffers {
    const void *send[RANKS_MAX];
    void *recv[RANKS_MAX];
    trib_stream streams[RANKS_MAX];
    trib_tensor lists[RANKS_MAX][2];
    const trib_tensor *tensors[RANKS_MAX];
};

static void fill(struct buffers *buffers, struct rank *ranks)
{
    for (int r = 0; r < ranks->size; r++) {
        struct rank *rank = &ranks[r];
        for (int row = 0; row < ROWS; row++)
            for (int i = 0; i < N; i++)
                rank->data[row][i] = (float)((r + 1) * (i + 1));
        buffers->send[r] = rank->data[0];
        buffers->recv[r] = rank->data[1];
        buffers->streams[r] = rank->stream;
        buffers->lists[r][0] = (trib_tensor){rank->data[2], N, TRIB_F32, 0};
        buffers->lists[r][1] = (trib_tensor){rank->data[3], N, TRIB_I32, 0};
        buffers->tensors[r] = buffers->lists[r];
    }
}

/* trib_group_wait returns at the end of the group, and the streams may use the buffers still. */
static bool group_settled(struct rank *ranks, trib_group *group, const struct buffers *buffers)
{
    bool good = WENT(ranks, trib_group_wait(group, buffers->streams, LONG_MS));
    for (int r = 0; r < ranks->size; r++)
        good = WENT(ranks, trib_stream_wait(ranks[r].device, ranks[r].stream)) && good;
    return WENT(ranks, trib_group_status(group)) && good;
}

static bool group_calls(struct rank *ranks, trib_group *group)
{
    const int size = ranks->size;
    const float sum = (float)(size * (size + 1) / 2);
    struct buffers buffers;
    fill(&buffers, ranks);
    bool good = WENT(ranks, trib_group_allreduce(group, buffers.send, buffers.recv, N, TRIB_F32,
                                                 TRIB_SUM, buffers.streams)) &&
                WENT(ranks, trib_group_allreduce_list(group, buffers.tensors, 2, TRIB_SUM,
                                                      buffers.streams));
    good = group_settled(ranks, group, &buffers) && good;
    for (int r = 0; r < size && good; r++)
        CHECK(found(&ranks[r], 1, N, sum, sum) && found(&ranks[r], 2, N, sum, sum));
    if (!good)
        return false;
    fill(&buffers, ranks);
    good = WENT(ranks, trib_group_broadcast(group, buffers.send, buffers.recv, N, TRIB_F32,
                                            size - 1, buffers.streams)) &&
           WENT(ranks,
                trib_group_broadcast_list(group, buffers.tensors, 2, size - 1, buffers.streams));
    good = group_settled(ranks, group, &buffers) && good;
    for (int r = 0; r < size && good; r++)
        CHECK(found(&ranks[r], 1, N, (float)size, (float)size) &&
              found(&ranks[r], 2, N, (float)size, (float)size));
    return good;
}

/* More calls than a batch has memory for at first, and scratch. */
static bool group_batch(struct rank *ranks, trib_group *group)
{
    const float sum = (float)(ranks->size * (ranks->size + 1) / 2);
    struct buffers buffers;
    fill(&buffers, ranks);
    if (!WENT(ranks, trib_group_batch_begin(group)))
        return false;
    bool good = WENT(ranks, trib_group_allreduce(group, buffers.send, buffers.recv, N, TRIB_F32,
                                                 TRIB_SUM, buffers.streams));
    for (int r = 0; r < ranks->size && good; r++)
        for (int call = 0; call < MANY && good; call++)
            good = WENT(ranks, trib_alltoall(trib_group_comm(group, r), ranks[r].data[4],
                                             ranks[r].data[4], 1, TRIB_F32, ranks[r].stream));
    good = WENT(ranks, trib_group_batch_end(group)) && good;
    good = group_settled(ranks, group, &buffers) && good;
    for (int r = 0; r < ranks->size && good; r++)
        CHECK(found(&ranks[r], 1, N, sum, sum));
    return good;
}

/* Its first rank's state and call are made on this thread. */
static bool group_sparse(struct rank *ranks, trib_group *group)
{
    trib_sparse *sparse[RANKS_MAX] = {NULL};
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    struct buffers buffers;
    void *gradients[RANKS_MAX];
    options.algorithm = "gtopk";
    fill(&buffers, ranks);
    for (int r = 0; r < ranks->size; r++)
        gradients[r] = ranks[r].data[0];
    if (!WENT(ranks, trib_group_sparse_create(sparse, group, N, TRIB_F32, &options)))
        return false;
    bool good = WENT(ranks, trib_group_sparse_allreduce(group, sparse, gradients, buffers.recv,
                                                        buffers.streams));
    good = group_settled(ranks, group, &buffers) && good;
    const float largest = (float)(N * (ranks->size * (ranks->size + 1) / 2));
    for (int r = 0; r < ranks->size && good; r++)
        CHECK(ranks[r].data[1][N - 1] == largest && ranks[r].data[1][0] == 0);
    for (int r = 0; r < ranks->size; r++)
        good = WENT(ranks, trib_sparse_destroy(sparse[r])) && good;
    return good;
}

/* Its ranks become communicators at the end, unless that fails. */
static void end_group(struct rank *rank, trib_group *group, bool good)
{
    trib_comm *comms[RANKS_MAX] = {NULL};
    if (!good || !WENT(rank, trib_group_split(comms, group))) {
        (void)WENT(rank, trib_group_destroy(group));
        return;
    }
    for (int r = 0; r < rank->size; r++)
        (void)WENT(rank, trib_comm_destroy(comms[r]));
}

static void group(struct rank *rank)
{
    trib_options with = options(rank);
    trib_group *made = NULL;
    with.backend = "host";
    if (!WENT(rank, trib_group_create(&made, NULL, rank->size, &with))) {
        CHECK(made == NULL);
        return;
    }
    bool good = WENT(rank, trib_group_abort_handle(&rank->handle, made));
    if (good) {
        injection_target(rank->handle);
        good = group_calls(rank, made) && group_batch(rank, made) && group_sparse(rank, made);
    }
    CHECK_MSG(good || injection_raised() != rank->handle || rank->nnotes > 0,
              "the group has not seen its abort");
    end_group(rank, made, good);
}

/* -------------------------------------------------------------------------------------------- */

const struct program programs_life[] = {
    {.name = "a device", .run = device},
    {.name = "creation and close", .run = creation, .flags = PROGRAM_OPENS},
    {.name = "a split", .run = split},
    {.name = "a shrink", .run = shrink, .flags = PROGRAM_OPENS},
    {.name = "a group", .run = group, .flags = PROGRAM_OPENS | PROGRAM_DRIVES},
    {.name = NULL},
};
