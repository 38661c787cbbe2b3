/* The life of communicators: splits, groups driven by one thread, closing in every order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { ELEMENTS = 100 };

/* Allgather `value` (of any meaning) on `comm`: out[i] is the value of its rank i. */
static bool exchange(trib_comm *comm, trib_device *device, trib_stream stream, int32_t value,
                     int32_t *out)
{
    const size_t size = (size_t)trib_comm_size(comm);
    void *memory = NULL;
    int32_t *const all = calloc(size + 1, sizeof *all);
    if (all == NULL)
        abort();
    bool good = CHECK_OK(trib_device_alloc(&memory, device, (size + 1) * sizeof *all));
    int32_t *const device_all = memory;
    good = good && CHECK_OK(trib_device_copy(device, device_all, &value, sizeof value, stream)) &&
           CHECK_OK(trib_allgather(comm, device_all, device_all + 1, 1, TRIB_I32, stream)) &&
           CHECK_OK(trib_device_copy(device, all, device_all, (size + 1) * sizeof *all, stream)) &&
           CHECK_OK(trib_stream_wait(device, stream)) && CHECK_OK(trib_comm_status(comm));
    memcpy(out, all + 1, size * sizeof *all);
    free(all);
    return CHECK_OK(trib_device_free(device, memory)) && good;
}

/* ------------------------------------------------------------------------------------- splits */

/* Is `child` the result of splitting `size` ranks by color_of and key_of? */
struct partition {
    int (*color_of)(int rank);
    int (*key_of)(int rank);
};

static int same(int rank)
{
    (void)rank;
    return 7;
}

static int parity(int rank)
{
    return rank % 2;
}

static int own(int rank)
{
    return 100 - rank;
}

static int first_out(int rank)
{
    return rank == 0 ? TRIB_NO_COLOR : 0;
}

static int backwards(int rank)
{
    return -rank;
}

static int halves(int rank)
{
    return rank / 2;
}

static const struct partition partitions[] = {{same, same},     {parity, backwards},
                                              {own, same},      {first_out, backwards},
                                              {halves, parity}, {parity, halves}};
enum { PARTITIONS = sizeof partitions / sizeof *partitions };

/* The parent's ranks in the order in which they should be in the child of `rank`; their number. */
static int members(const struct partition *partition, int rank, int size, int *out)
{
    int n = 0;
    for (int other = 0; other < size; other++) {
        if (partition->color_of(other) != partition->color_of(rank))
            continue;
        int at = n++;
        for (; at > 0 && partition->key_of(out[at - 1]) > partition->key_of(other); at--)
            out[at] = out[at - 1];
        out[at] = other;
    }
    return n;
}

static void check_child(const struct team *team, int rank, trib_comm *child, const int *expected,
                        int n)
{
    int32_t found[TEAM_MAX];
    CHECK(trib_comm_size(child) == n);
    CHECK(trib_comm_device(child) == rank);
    CHECK(strcmp(trib_comm_backend(child), team->backend) == 0);
    CHECK(expected[trib_comm_rank(child)] == rank);
    if (!exchange(child, team->devices[rank], team->streams[rank], rank, found))
        return;
    for (int i = 0; i < n; i++)
        CHECK_MSG(found[i] == expected[i], "rank %d of the child is %d, not %d", i, (int)found[i],
                  expected[i]);
}

static void check_parent(const struct team *team, int rank, int size)
{
    int32_t found[TEAM_MAX];
    if (!exchange(team->comms[rank], team->devices[rank], team->streams[rank], rank * 3, found))
        return;
    for (int i = 0; i < size; i++)
        CHECK(found[i] == i * 3);
}

static trib_comm *split(const struct team *team, trib_comm *parent,
                        const struct partition *partition, int rank, int size)
{
    int expected[TEAM_MAX];
    const int n = members(partition, rank, size, expected);
    const int color = partition->color_of(rank);
    trib_comm *child = team->comms[rank]; /* any pointer: it must be overwritten */
    if (!CHECK_OK(trib_comm_split(&child, parent, color, partition->key_of(rank))))
        return NULL;
    if (color == TRIB_NO_COLOR)
        CHECK(child == NULL);
    else if (CHECK(child != NULL))
        check_child(team, rank, child, expected, n);
    return child;
}

static void split_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    struct team *team = &suite->team;
    trib_comm *children[PARTITIONS] = {NULL};
    for (int i = 0; i < PARTITIONS; i++) {
        children[i] = split(team, team->comms[rank], &partitions[i], rank, size);
        check_parent(team, rank, size);
    }
    /* A child of a child; then the parent goes first, and the children still work. */
    trib_comm *grandchild = split(team, children[0], &partitions[0], rank, size);
    CHECK_OK(trib_comm_destroy(team->comms[rank]));
    team->comms[rank] = NULL;
    int expected[TEAM_MAX];
    const int n = members(&partitions[1], rank, size, expected);
    if (children[1] != NULL)
        check_child(team, rank, children[1], expected, n);
    for (int i = 0; i < PARTITIONS; i++)
        CHECK_OK(trib_comm_destroy(children[i]));
    if (grandchild != NULL)
        check_child(team, rank, grandchild, expected,
                    members(&partitions[0], rank, size, expected));
    CHECK_OK(trib_comm_destroy(grandchild));
}

void backend_splits(struct suite *suite)
{
    check_begin("%s, %d ranks: splits", suite->team.backend, suite->team.size);
    check_ranks(suite->team.size, split_rank, suite);
    check_end();
}

/* ------------------------------------------------------------------------------------- groups */

/* One thread, all ranks: rank i on device size-1-i. */
struct crew {
    trib_group *group;
    int size;
    trib_device *devices[TEAM_MAX];
    trib_stream streams[TEAM_MAX];
    struct guarded send[TEAM_MAX], recv[TEAM_MAX];
};

static bool crew_create(struct crew *crew, const char *backend, int size)
{
    int32_t ordinals[TEAM_MAX];
    trib_options options = TRIB_OPTIONS_INIT;
    bool good = true;
    options.backend = backend;
    memset(crew, 0, sizeof *crew);
    crew->size = size;
    for (int rank = 0; rank < size; rank++) {
        ordinals[rank] = size - 1 - rank;
        good = CHECK_OK(trib_device_get(&crew->devices[rank], backend, ordinals[rank])) &&
               CHECK_OK(trib_stream_create(&crew->streams[rank], crew->devices[rank])) &&
               guarded_create(&crew->send[rank], crew->devices[rank], ELEMENTS * 8) &&
               guarded_create(&crew->recv[rank], crew->devices[rank], ELEMENTS * 8) && good;
    }
    good = good && CHECK_OK(trib_group_create(&crew->group, ordinals, size, &options)) &&
           CHECK(trib_group_size(crew->group) == size) &&
           CHECK(trib_group_device(crew->group, -1) == -1) &&
           CHECK(trib_group_device(crew->group, size) == -1) &&
           CHECK(strcmp(trib_group_backend(crew->group), backend) == 0);
    for (int rank = 0; rank < size && good; rank++)
        good = CHECK(trib_group_device(crew->group, rank) == ordinals[rank]);
    return good;
}

static void crew_destroy(struct crew *crew)
{
    CHECK_OK(trib_group_destroy(crew->group));
    for (int rank = 0; rank < crew->size; rank++) {
        guarded_destroy(&crew->send[rank]);
        guarded_destroy(&crew->recv[rank]);
        CHECK_OK(trib_stream_destroy(crew->devices[rank], crew->streams[rank]));
    }
}

/* root -1: allreduce by `op`; otherwise a broadcast. */
struct group_call {
    trib_dtype dtype;
    trib_op op;
    int root;
    bool in_place, as_list, default_streams;
    uint64_t seed;
};

static struct reference inputs_of(const struct crew *crew, const struct group_call *call)
{
    return (struct reference){
        .dtype = call->dtype, .op = call->op, .size = crew->size, .seed = call->seed};
}

static void crew_fill(struct crew *crew, const struct group_call *call)
{
    const struct reference inputs = inputs_of(crew, call);
    for (int rank = 0; rank < crew->size; rank++) {
        guarded_reset(&crew->send[rank], ELEMENTS * trib_dtype_size(call->dtype), 0);
        guarded_reset(&crew->recv[rank], ELEMENTS * trib_dtype_size(call->dtype), 0);
        reference_input(guarded_image(&crew->send[rank], 0), &inputs, rank, 0, ELEMENTS);
    }
}

static bool crew_push_or_pull(struct crew *crew, const struct group_call *call, bool push)
{
    bool good = true;
    for (int rank = 0; rank < crew->size && good; rank++) {
        trib_stream stream = call->default_streams ? NULL : crew->streams[rank];
        struct guarded *pair[2] = {&crew->send[rank], &crew->recv[rank]};
        for (int i = 0; i < 2 && good; i++)
            good = push ? guarded_push(pair[i], stream) : guarded_pull(pair[i], stream);
    }
    for (int rank = 0; rank < crew->size && good && !push; rank++)
        good = CHECK_OK(trib_stream_wait(crew->devices[rank],
                                         call->default_streams ? NULL : crew->streams[rank]));
    return good;
}

static bool crew_lists(struct crew *crew, const struct group_call *call, const trib_stream *streams)
{
    trib_tensor tensors[TEAM_MAX][2];
    const trib_tensor *lists[TEAM_MAX];
    for (int rank = 0; rank < crew->size; rank++) {
        const size_t half = ELEMENTS / 2;
        tensors[rank][0] = (trib_tensor){guarded_data(&crew->send[rank], 0), half, call->dtype, 0};
        tensors[rank][1] =
            (trib_tensor){guarded_data(&crew->send[rank], half * trib_dtype_size(call->dtype)),
                          ELEMENTS - half, call->dtype, 0};
        lists[rank] = tensors[rank];
    }
    if (call->root < 0)
        return CHECK_OK(trib_group_allreduce_list(crew->group, lists, 2, call->op, streams));
    return CHECK_OK(trib_group_broadcast_list(crew->group, lists, 2, call->root, streams));
}

static bool crew_call(struct crew *crew, const struct group_call *call)
{
    const void *send[TEAM_MAX];
    void *recv[TEAM_MAX];
    const trib_stream *streams = call->default_streams ? NULL : crew->streams;
    if (call->as_list)
        return crew_lists(crew, call, streams);
    for (int rank = 0; rank < crew->size; rank++) {
        send[rank] = guarded_data(&crew->send[rank], 0);
        recv[rank] = guarded_data(call->in_place ? &crew->send[rank] : &crew->recv[rank], 0);
    }
    if (call->root < 0)
        return CHECK_OK(trib_group_allreduce(crew->group, send, recv, ELEMENTS, call->dtype,
                                             call->op, streams));
    return CHECK_OK(
        trib_group_broadcast(crew->group, send, recv, ELEMENTS, call->dtype, call->root, streams));
}

static void crew_expect(struct crew *crew, const struct group_call *call, int rank)
{
    const bool here = call->in_place || call->as_list;
    const struct reference inputs = inputs_of(crew, call);
    const struct guarded *buffer = here ? &crew->send[rank] : &crew->recv[rank];
    void *image = guarded_image(buffer, 0);
    if (call->root < 0)
        reference_reduced(image, &inputs, 0, ELEMENTS);
    else
        reference_input(image, &inputs, call->root, 0, ELEMENTS);
    if (call->op == TRIB_AVG && call->dtype <= TRIB_F64 &&
        strcmp(trib_group_backend(crew->group), "nccl") == 0 &&
        reference_close(guarded_found(buffer, 0), image, call->dtype, ELEMENTS, crew->size))
        memcpy(image, guarded_found(buffer, 0), ELEMENTS * trib_dtype_size(call->dtype));
}

static void crew_try(struct crew *crew, struct group_call call)
{
    char what[128];
    (void)snprintf(what, sizeof what, "group, %s %s root %d%s%s%s", trib_dtype_name(call.dtype),
                   trib_op_name(call.op), call.root, call.in_place ? " in place" : "",
                   call.as_list ? " list" : "", call.default_streams ? " default streams" : "");
    crew_fill(crew, &call);
    if (!crew_push_or_pull(crew, &call, true) || !crew_call(crew, &call) ||
        !crew_push_or_pull(crew, &call, false) || !CHECK_OK(trib_group_status(crew->group)))
        return;
    for (int rank = 0; rank < crew->size; rank++) {
        crew_expect(crew, &call, rank);
        guarded_same(&crew->send[rank], __FILE__, __LINE__, what);
        guarded_same(&crew->recv[rank], __FILE__, __LINE__, what);
    }
}

static void crew_try_forms(struct crew *crew, struct group_call call)
{
    static uint64_t seed = 77;
    for (int form = 0; form < 6; form++) {
        call.in_place = form % 2 == 1;
        call.as_list = form >= 4;
        call.default_streams = form == 2 || form == 3;
        call.seed = seed++;
        crew_try(crew, call);
    }
}

void backend_groups(const char *backend, int size, enum backend_depth depth)
{
    struct crew *crew = calloc(1, sizeof *crew);
    if (crew == NULL)
        abort();
    check_begin("%s, %d ranks: a group driven by one thread", backend, size);
    if (crew_create(crew, backend, size)) {
        for (trib_dtype dtype = TRIB_F16; dtype <= TRIB_U64; dtype++) {
            for (trib_op op = TRIB_SUM; op <= TRIB_AVG; op++)
                if (depth != BACKEND_LIGHT || dtype == TRIB_F32)
                    crew_try_forms(crew, (struct group_call){.dtype = dtype, .op = op, .root = -1});
            crew_try_forms(crew, (struct group_call){.dtype = dtype, .root = dtype % size});
        }
        for (int root = 0; root < size; root++)
            crew_try_forms(crew, (struct group_call){.dtype = TRIB_F32, .root = root});
        crew_destroy(crew);
    }
    check_end();
    free(crew);
}

/* ------------------------------------------------------------------------------------ closing */

/* Queue an allreduce that nobody waits for before the end. */
static void queue_rank(int rank, int size, void *argument)
{
    struct team *team = argument;
    (void)size;
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_barrier(team->comms[rank], team->streams[rank]));
    CHECK_OK(trib_comm_counters(&counters, team->comms[rank]));
    CHECK(counters.calls == 1);
}

static void closed_rank(int rank, int size, void *argument)
{
    struct team *team = argument;
    trib_comm *comm = team->comms[rank];
    (void)size;
    queue_rank(rank, size, argument);
    CHECK_OK(trib_comm_close(comm, 10000));
    CHECK_STATUS(trib_barrier(comm, team->streams[rank]), TRIB_ERR_CLOSED);
    CHECK_STATUS(trib_batch_begin(comm), TRIB_ERR_CLOSED);
    CHECK_STATUS(trib_comm_status(comm), TRIB_ERR_CLOSED);
    CHECK(trib_comm_rank(comm) == rank);
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
}

enum order { TOGETHER, CLOSE_FIRST, FORWARDS, BACKWARDS, HALF_CLOSED, ORDERS };
static const char *const order_names[ORDERS] = {"together", "closed first", "one by one",
                                                "one by one, backwards", "half of them closed"};

static void destroy_in_turn(struct team *team, enum order order)
{
    for (int i = 0; i < team->size; i++) {
        const int rank = order == BACKWARDS ? team->size - 1 - i : i;
        if (order == HALF_CLOSED && rank % 2 == 0)
            CHECK_OK(trib_comm_close(team->comms[rank], 10000));
        else
            CHECK_OK(trib_comm_destroy(team->comms[rank]));
    }
    for (int rank = 0; rank < team->size && order == HALF_CLOSED; rank += 2)
        CHECK_OK(trib_comm_destroy(team->comms[rank]));
    memset(team->comms, 0, sizeof team->comms);
}

static void close_in(const char *backend, int size, enum order order)
{
    struct team team;
    check_begin("%s, %d ranks: destroyed %s", backend, size, order_names[order]);
    if (team_create(&team, backend, size, NULL)) {
        check_ranks(size, order == CLOSE_FIRST ? closed_rank : queue_rank, &team);
        if (order != TOGETHER && order != CLOSE_FIRST)
            destroy_in_turn(&team, order);
        team_destroy(&team);
    }
    check_end();
}

static void close_group(const char *backend, int size)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_group *group = NULL;
    options.backend = backend;
    check_begin("%s, %d ranks: an unused group destroyed", backend, size);
    CHECK_OK(trib_group_create(&group, NULL, size, &options));
    CHECK_OK(trib_group_destroy(group));
    CHECK_OK(trib_group_destroy(NULL));
    CHECK_OK(trib_comm_destroy(NULL));
    check_end();
}

void backend_closing(const char *backend, int size)
{
    for (int order = 0; order < ORDERS; order++)
        close_in(backend, size, (enum order)order);
    close_group(backend, size);
}
