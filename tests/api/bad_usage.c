/* Bad batches, creation, devices, groups; and calls that do not match. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/bad_input.h"

/* ------------------------------------------------------------------------------------ batches */

static trib_status good_call(const struct bad *bad, trib_stream stream)
{
    return trib_allreduce(bad->comm, bad->a, bad->a, 4, TRIB_F32, TRIB_SUM, stream);
}

/* A bad call poisons the batch: its end gives the same status and queues nothing. */
static void poisoned(const struct bad *bad)
{
    CHECK_OK(trib_batch_begin(bad->comm));
    CHECK_OK(good_call(bad, bad->stream));
    REFUSED(trib_broadcast(bad->comm, NULL, bad->b, 4, TRIB_F32, bad->rank, bad->stream),
            TRIB_ERR_INVALID_BUFFER, "trib_broadcast", "`send`");
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_BUFFER);
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_USAGE); /* it is over */
    /* The first mistake counts. */
    CHECK_OK(trib_batch_begin(bad->comm));
    CHECK_STATUS(trib_broadcast(bad->comm, bad->a, bad->b, 4, 0, bad->rank, bad->stream),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK(good_call(bad, (trib_stream)(uintptr_t)2) != TRIB_OK);
    CHECK_STATUS(trib_batch_end(bad->comm), TRIB_ERR_INVALID_ARGUMENT);
}

/* What a rank sends itself it receives in the same batch, and nothing else. */
static void messages_to_oneself(const struct bad *bad)
{
    CHECK_OK(trib_batch_begin(bad->comm));
    CHECK_OK(trib_send(bad->comm, bad->a, 4, TRIB_F32, bad->rank, bad->stream));
    REFUSED(trib_batch_end(bad->comm), TRIB_ERR_INVALID_USAGE, "trib_batch_end", "has no receive");
    CHECK_OK(trib_batch_begin(bad->comm));
    CHECK_OK(trib_recv(bad->comm, bad->b, 4, TRIB_F32, bad->rank, bad->stream));
    REFUSED(trib_batch_end(bad->comm), TRIB_ERR_INVALID_USAGE, "trib_batch_end", "has no send");
    for (int which = 0; which < 2; which++) { /* the second of two messages */
        CHECK_OK(trib_batch_begin(bad->comm));
        CHECK_OK(trib_send(bad->comm, bad->a, 4, TRIB_F32, bad->rank, bad->stream));
        CHECK_OK(trib_recv(bad->comm, bad->b, 4, TRIB_F32, bad->rank, bad->stream));
        CHECK_OK(trib_send(bad->comm, bad->a, 4, TRIB_F32, bad->rank, bad->stream));
        CHECK_OK(trib_recv(bad->comm, bad->b, which == 0 ? 3 : 4, which == 0 ? TRIB_F32 : TRIB_I32,
                           bad->rank, bad->stream));
        REFUSED(trib_batch_end(bad->comm), TRIB_ERR_MISMATCH, "trib_batch_end", "message 1");
    }
}

/* No list, no batch and no split inside of a batch. */
static void inside_of_a_batch(const struct bad *bad)
{
    const trib_tensor tensor = {bad->b, 8, TRIB_F32, 0};
    trib_comm *child = NULL;
    CHECK_OK(trib_batch_begin(bad->comm));
    REFUSED(trib_batch_begin(bad->comm), TRIB_ERR_INVALID_USAGE, "trib_batch_begin", "batch");
    (void)trib_batch_end(bad->comm);
    CHECK_OK(trib_batch_begin(bad->comm));
    REFUSED(trib_allreduce_list(bad->comm, &tensor, 1, TRIB_SUM, bad->stream),
            TRIB_ERR_INVALID_USAGE, "trib_allreduce_list", "batch");
    (void)trib_batch_end(bad->comm);
    CHECK_OK(trib_batch_begin(bad->comm));
    REFUSED(trib_weighted_average(bad->comm, &tensor, 1, 1.0f, NULL, NULL, bad->stream),
            TRIB_ERR_INVALID_USAGE, "trib_weighted_average", "batch");
    (void)trib_batch_end(bad->comm);
    CHECK_OK(trib_batch_begin(bad->comm));
    REFUSED(trib_comm_split(&child, bad->comm, 0, 0), TRIB_ERR_INVALID_USAGE, "trib_comm_split",
            "batch");
    (void)trib_batch_end(bad->comm);
}

static void two_streams(const struct bad *bad)
{
    CHECK_OK(trib_batch_begin(bad->comm));
    CHECK_OK(good_call(bad, bad->stream));
    CHECK(good_call(bad, NULL) != TRIB_OK);
    CHECK_DETAIL("stream");
    CHECK(trib_batch_end(bad->comm) != TRIB_OK);
}

void bad_batches(const struct bad *bad)
{
    REFUSED(trib_batch_end(bad->comm), TRIB_ERR_INVALID_USAGE, "trib_batch_end",
            "trib_batch_begin");
    poisoned(bad);
    messages_to_oneself(bad);
    CHECK_OK(trib_stream_wait(bad->team.devices[bad->rank], bad->stream));
    CHECK_OK(trib_comm_status(bad->comm)); /* nothing was queued */
    inside_of_a_batch(bad);
    two_streams(bad);
}

/* ----------------------------------------------------------------------------------- creation */

static void bad_options(const char *backend, const trib_id *id)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_group *group = NULL;
    trib_comm *comm = NULL;
    options.backend = backend;
    options.size = 0;
    CHECK_STATUS(trib_group_create(&group, NULL, 1, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.size");
    CHECK_STATUS(trib_comm_create(&comm, id, 0, 1, 0, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.size");
    options.size = (uint32_t)sizeof options;
    options.flags = 1u << 31;
    CHECK_STATUS(trib_group_create(&group, NULL, 1, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.flags");
    CHECK_STATUS(trib_comm_create(&comm, id, 0, 1, 0, &options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("options.flags");
    options.flags = 0;
    options.backend = "pigeon";
    CHECK_STATUS(trib_group_create(&group, NULL, 1, &options), TRIB_ERR_UNKNOWN_NAME);
    CHECK_DETAIL("pigeon");
    CHECK_STATUS(trib_comm_create(&comm, id, 0, 1, 0, &options), TRIB_ERR_UNKNOWN_NAME);
    CHECK(group == NULL && comm == NULL);
}

static void bad_names(void)
{
    int32_t devices = 5;
    uint32_t version = 5;
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    trib_id id;
    trib_device *device = (trib_device *)&id;
    CHECK_STATUS(trib_backend_version(&version, "pigeon"), TRIB_ERR_UNKNOWN_NAME);
    CHECK_DETAIL("pigeon");
    CHECK_DETAIL("host"); /* what there is */
    CHECK_STATUS(trib_backend_devices(&devices, "pigeon"), TRIB_ERR_UNKNOWN_NAME);
    CHECK_STATUS(trib_id_create(&id, "pigeon"), TRIB_ERR_UNKNOWN_NAME);
    CHECK_STATUS(trib_device_get(&device, "pigeon", 0), TRIB_ERR_UNKNOWN_NAME);
    CHECK(device == NULL);
    CHECK_STATUS(trib_backend_version(NULL, "host"), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_backend_capabilities(&can, "pigeon"), TRIB_ERR_UNKNOWN_NAME);
    CHECK_STATUS(trib_backend_capabilities(&can, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_backend_capabilities(NULL, "host"), TRIB_ERR_INVALID_ARGUMENT);
    can.size--;
    CHECK_STATUS(trib_backend_capabilities(&can, "host"), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("out->size is 23, expected 24");
    CHECK(can.version == 0 && can.flags == 0);
    CHECK_STATUS(trib_id_create(NULL, "host"), TRIB_ERR_INVALID_ARGUMENT);
    CHECK(trib_backend_name(-1) == NULL && trib_backend_name(trib_backend_count()) == NULL);
}

static void bad_ranks(const char *backend, const trib_id *id)
{
    trib_comm *comm = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    static const struct {
        int rank, size;
        const char *says;
    } wrong[] = {{-1, 2, "`rank`"}, {2, 2, "`rank`"}, {0, 0, "`size`"}, {0, -1, "`size`"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(trib_comm_create(&comm, id, wrong[i].rank, wrong[i].size, 0, NULL),
                     TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("trib_comm_create");
        CHECK_DETAIL(wrong[i].says);
        CHECK(comm == NULL);
    }
    CHECK_STATUS(trib_comm_create(&comm, id, 0, 1, -1, NULL), TRIB_ERR_NO_DEVICE);
    CHECK_STATUS(trib_comm_create(&comm, id, 0, 1, team_limit(backend) + 1000, NULL),
                 TRIB_ERR_NO_DEVICE);
    CHECK_STATUS(trib_comm_create(&comm, NULL, 0, 1, 0, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_comm_create(NULL, id, 0, 1, 0, NULL), TRIB_ERR_INVALID_ARGUMENT);
    if (trib_backend_count() > 1) { /* the id is of another backend */
        options.backend = strcmp(backend, "host") == 0 ? "nccl" : "host";
        CHECK_STATUS(trib_comm_create(&comm, id, 0, 1, 0, &options), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL(options.backend);
    }
}

/* Host checks what joining ranks pass, NCCL cannot: rank 0 waits, rank 1 passes bad arguments. */
struct rendezvous {
    trib_id id;
    _Atomic int arrived;
};

static void join_badly(int rank, int size, void *argument)
{
    struct rendezvous *rendezvous = argument;
    trib_options options = TRIB_OPTIONS_INIT;
    trib_comm *comm = NULL;
    options.timeout_ms = 400;
    if (rank == 0) {
        team_barrier(&rendezvous->arrived, size);
        CHECK_STATUS(trib_comm_create(&comm, &rendezvous->id, 0, 2, 5, &options), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("1"); /* the rank that did not join */
        return;
    }
    team_barrier(&rendezvous->arrived, size);
    check_sleep_ms(100); /* rank 0 has joined */
    CHECK_STATUS(trib_comm_create(&comm, &rendezvous->id, 0, 2, 6, &options),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("rank 0");
    CHECK_STATUS(trib_comm_create(&comm, &rendezvous->id, 1, 3, 6, &options),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("size");
    CHECK_STATUS(trib_comm_create(&comm, &rendezvous->id, 1, 2, 5, &options),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("device 5");
    CHECK(comm == NULL);
}

/* Host checks every byte of an id. */
static void bad_ids(const trib_id *id)
{
    trib_comm *comm = NULL;
    for (size_t i = 8; i < sizeof id->bytes; i += 17) {
        trib_id changed = *id;
        changed.bytes[i] ^= 0x40;
        CHECK_STATUS(trib_comm_create(&comm, &changed, 0, 1, 0, NULL), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("id");
        CHECK(comm == NULL);
    }
    trib_id last = *id;
    last.bytes[sizeof last.bytes - 1] = 1;
    CHECK_STATUS(trib_comm_create(&comm, &last, 0, 1, 0, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("byte 127");
}

static void bad_rendezvous(const trib_id *used)
{
    struct rendezvous rendezvous = {.arrived = 0};
    trib_comm *comm = NULL;
    const trib_status again = trib_comm_create(&comm, used, 0, 1, 0, NULL);
    CHECK_MSG(again == TRIB_ERR_INVALID_ARGUMENT || again == TRIB_ERR_INVALID_USAGE,
              "a used id is %s", trib_status_name(again));
    CHECK(comm == NULL);
    if (CHECK_OK(trib_id_create(&rendezvous.id, "host")))
        check_ranks(2, join_badly, &rendezvous);
}

void bad_creation(const char *backend)
{
    trib_id id;
    if (!CHECK_OK(trib_id_create(&id, backend)))
        return;
    bad_names();
    bad_options(backend, &id);
    bad_configurations(backend);
    bad_ranks(backend, &id);
    if (strcmp(backend, "host") == 0)
        bad_ids(&id);
    trib_comm *comm = NULL; /* none of it has used the id up */
    CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 0, NULL));
    CHECK_OK(trib_comm_destroy(comm));
    if (strcmp(backend, "host") == 0)
        bad_rendezvous(&id);
}

/* -------------------------------------------------------------------- devices, streams, events */

static void bad_memory(trib_device *device)
{
    float word = 0;
    void *memory = NULL;
    CHECK_STATUS(trib_device_alloc(&memory, NULL, 16), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_device_alloc(NULL, device, 16), TRIB_ERR_INVALID_ARGUMENT);
    memory = &word;
    CHECK_STATUS(trib_device_alloc(&memory, device, SIZE_MAX - 4096), TRIB_ERR_OUT_OF_MEMORY);
    CHECK(memory == NULL);
    CHECK_STATUS(trib_device_copy(device, NULL, &word, 4, NULL), TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("`dst`");
    CHECK_STATUS(trib_device_copy(device, &word, NULL, 4, NULL), TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("`src`");
}

static void bad_streams_and_events(trib_device *device)
{
    trib_stream stream = NULL;
    int32_t done = 0;
    float ms = 0;
    CHECK_STATUS(trib_stream_create(&stream, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_stream_wait(NULL, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_stream_wait(device, (trib_stream)(uintptr_t)2), TRIB_ERR_INVALID_STREAM);
    CHECK_DETAIL("trib_stream_wait");
    CHECK_STATUS(trib_stream_submit(device, NULL, NULL, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_event_record(device, NULL, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_event_wait(device, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_event_query(&done, device, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_event_elapsed(&ms, device, NULL, NULL), TRIB_ERR_INVALID_ARGUMENT);
}

/* A stream of device 1 in calls on device 0. */
static void foreign_streams(const char *backend, trib_device *device, trib_event event)
{
    trib_device *other = NULL;
    trib_stream foreign = NULL;
    int32_t done = 0;
    float word = 0;
    if (team_limit(backend) < 2 || !CHECK_OK(trib_device_get(&other, backend, 1)))
        return;
    CHECK_OK(trib_stream_create(&foreign, other));
    CHECK_STATUS(trib_stream_wait(device, foreign), TRIB_ERR_INVALID_STREAM);
    CHECK_STATUS(trib_stream_query(&done, device, foreign), TRIB_ERR_INVALID_STREAM);
    CHECK_STATUS(trib_event_record(device, event, foreign), TRIB_ERR_INVALID_STREAM);
    CHECK_STATUS(trib_stream_wait_event(device, event, foreign), TRIB_ERR_INVALID_STREAM);
    CHECK_STATUS(trib_device_copy(device, &word, &word, 4, foreign), TRIB_ERR_INVALID_STREAM);
    CHECK_OK(trib_stream_destroy(other, foreign));
}

void bad_devices(const char *backend)
{
    trib_device *device = NULL;
    trib_event event = NULL;
    CHECK_STATUS(trib_device_get(&device, backend, -1), TRIB_ERR_NO_DEVICE);
    CHECK_STATUS(trib_device_get(&device, backend, team_limit(backend) + 1000), TRIB_ERR_NO_DEVICE);
    CHECK_DETAIL(backend);
    CHECK_STATUS(trib_device_get(NULL, backend, 0), TRIB_ERR_INVALID_ARGUMENT);
    if (!CHECK_OK(trib_device_get(&device, backend, 0)))
        return;
    bad_memory(device);
    bad_streams_and_events(device);
    CHECK_OK(trib_event_create(&event, device));
    foreign_streams(backend, device, event);
    CHECK_OK(trib_event_destroy(device, event));
    CHECK_OK(trib_event_destroy(device, NULL));
    CHECK_OK(trib_stream_destroy(device, NULL));
    CHECK_OK(trib_device_free(device, NULL));
    CHECK(trib_device_ordinal(device) == 0 && strcmp(trib_device_backend(device), backend) == 0);
}

/* ------------------------------------------------------------------------------------- groups */

static void bad_group_devices(const char *backend, const trib_options *options)
{
    static const int32_t twice[] = {0, 0}, beyond[] = {0, 1000}, negative[] = {-1, 0};
    trib_group *group = NULL;
    CHECK_STATUS(trib_group_create(NULL, NULL, 1, options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_group_create(&group, NULL, 0, options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("`size`");
    CHECK_STATUS(trib_group_create(&group, NULL, -1, options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_group_create(&group, twice, 2, options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("device");
    CHECK_STATUS(trib_group_create(&group, beyond, 2, options), TRIB_ERR_NO_DEVICE);
    CHECK_STATUS(trib_group_create(&group, negative, 2, options), TRIB_ERR_NO_DEVICE);
    CHECK(trib_group_create(&group, NULL, team_limit(backend) + 1, options) != TRIB_OK);
    CHECK(group == NULL);
}

/* A list of devices that is far too long is refused at once: half a million that are all different
 * would take minutes to compare with each other. */
static void far_too_many_devices(const trib_options *options)
{
    enum { MANY = 500000 };
    int32_t *devices = malloc(MANY * sizeof *devices);
    trib_group *group = NULL;
    if (devices == NULL)
        abort();
    for (int32_t i = 0; i < MANY; i++)
        devices[i] = i;
    const double start = check_now_ms();
    CHECK_STATUS(trib_group_create(&group, devices, MANY, options), TRIB_ERR_NO_DEVICE);
    CHECK_MSG(check_now_ms() - start < 5000, "it took %.0f ms", check_now_ms() - start);
    free(devices);
}

/* A group, and the arguments of its calls. */
struct crew {
    trib_group *group;
    struct team team;
    struct guarded memory[TEAM_MAX];
    const void *send[TEAM_MAX];
    void *recv[TEAM_MAX];
    trib_stream streams[TEAM_MAX];
};

static void crew_prepare(struct crew *crew)
{
    struct team *team = &crew->team;
    for (int rank = 0; rank < team->size; rank++) {
        struct guarded *memory = &crew->memory[rank];
        CHECK(guarded_create(memory, team->devices[rank], 64));
        guarded_reset(memory, 64, 0);
        guarded_push(memory, team->streams[rank]);
        crew->send[rank] = crew->recv[rank] = guarded_data(memory, 0);
        crew->streams[rank] = team->streams[rank];
    }
}

/* A buffer, then the stream, of the last rank. */
static void one_bad_rank(struct crew *crew)
{
    const int last = crew->team.size - 1;
    trib_group *group = crew->group;
    const void **send = crew->send;
    void **recv = crew->recv;
    recv[last] = NULL;
    CHECK_STATUS(trib_group_allreduce(group, send, recv, 16, TRIB_F32, TRIB_SUM, crew->streams),
                 TRIB_ERR_INVALID_BUFFER);
    char rank_text[32];
    (void)snprintf(rank_text, sizeof rank_text, "rank %d", last);
    CHECK_DETAIL(rank_text);
    CHECK_DETAIL("recv");
    CHECK_STATUS(trib_group_broadcast(group, send, recv, 16, TRIB_F32, 0, crew->streams),
                 TRIB_ERR_INVALID_BUFFER);
    recv[last] = guarded_data(&crew->memory[last], 4);
    CHECK_STATUS(trib_group_allreduce(group, send, recv, 12, TRIB_F32, TRIB_SUM, crew->streams),
                 TRIB_ERR_INVALID_BUFFER);
    recv[last] = guarded_data(&crew->memory[last], 0);
    crew->streams[last] = (trib_stream)(uintptr_t)2;
    CHECK_STATUS(trib_group_allreduce(group, send, recv, 16, TRIB_F32, TRIB_SUM, crew->streams),
                 TRIB_ERR_INVALID_STREAM);
}

static void bad_group_arguments(const struct crew *crew)
{
    trib_group *group = crew->group;
    CHECK_STATUS(trib_group_allreduce(group, crew->send, crew->recv, 16, 0, TRIB_SUM, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(
        trib_group_broadcast(group, crew->send, crew->recv, 16, TRIB_F32, crew->team.size, NULL),
        TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_group_allreduce(group, NULL, crew->recv, 16, TRIB_F32, TRIB_SUM, NULL),
                 TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("`send`");
    CHECK_STATUS(trib_group_allreduce_list(group, NULL, 1, TRIB_SUM, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
}

/* Nothing was queued on any rank, and the group still works. */
static void crew_finish(struct crew *crew)
{
    struct team *team = &crew->team;
    const int last = team->size - 1;
    CHECK_OK(trib_group_status(crew->group));
    for (int rank = 0; rank < team->size; rank++) {
        guarded_pull(&crew->memory[rank], team->streams[rank]);
        CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
        guarded_same(&crew->memory[rank], __FILE__, __LINE__,
                     "a buffer of a group after bad calls");
    }
    crew->streams[last] = team->streams[last];
    CHECK_OK(trib_group_allreduce(crew->group, crew->send, crew->recv, 16, TRIB_I32, TRIB_MAX,
                                  crew->streams));
    for (int rank = 0; rank < team->size; rank++) {
        CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
        guarded_destroy(&crew->memory[rank]);
    }
    CHECK_OK(trib_group_destroy(crew->group));
    team_destroy(team);
}

void bad_groups(const char *backend, int size)
{
    trib_options options = TRIB_OPTIONS_INIT;
    struct crew crew = {.group = NULL};
    options.backend = backend;
    bad_group_devices(backend, &options);
    far_too_many_devices(&options);
    if (!CHECK_OK(trib_group_create(&crew.group, NULL, size, &options)) ||
        !team_prepare(&crew.team, backend, size))
        return;
    crew_prepare(&crew);
    one_bad_rank(&crew);
    bad_group_arguments(&crew);
    crew_finish(&crew);
}

/* -------------------------------------------------------------------------- calls that differ */

enum difference { OPERATION, COUNT, DTYPE, OP, ROOT, LIST_LENGTH, LIST_COUNT, DIFFERENCES };
static const char *const differences[DIFFERENCES] = {"operation", "count",       "type",      "op",
                                                     "root",      "list length", "list count"};

struct match {
    struct team team;
    enum difference difference;
    void *memory[TEAM_MAX];
};

/* Rank 0's call, or what the last rank does instead. */
static trib_status differing_call(const struct match *match, int rank, bool other)
{
    trib_comm *comm = match->team.comms[rank];
    trib_stream stream = match->team.streams[rank];
    float *data = match->memory[rank];
    const trib_tensor list[] = {
        {data, match->difference == LIST_COUNT && other ? 7 : 8, TRIB_F32, 0},
        {data + 16, 8, TRIB_F32, 0}};
    switch (match->difference) {
    case OPERATION:
        return other ? trib_barrier(comm, stream)
                     : trib_allreduce(comm, data, data, 8, TRIB_F32, TRIB_SUM, stream);
    case COUNT:
        return trib_allreduce(comm, data, data, other ? 9 : 8, TRIB_F32, TRIB_SUM, stream);
    case DTYPE:
        return trib_broadcast(comm, data, data, 8, other ? TRIB_I32 : TRIB_F32, 0, stream);
    case OP:
        return trib_allreduce(comm, data, data, 8, TRIB_F32, other ? TRIB_MAX : TRIB_SUM, stream);
    case ROOT:
        return trib_reduce(comm, data, data, 8, TRIB_F32, TRIB_SUM, other ? 1 : 0, stream);
    case LIST_LENGTH:
        return trib_allreduce_list(comm, list, other ? 1 : 2, TRIB_SUM, stream);
    default:
        return trib_allreduce_list(comm, list, 2, TRIB_SUM, stream);
    }
}

static void match_rank(int rank, int size, void *argument)
{
    struct match *match = argument;
    trib_device *device = match->team.devices[rank];
    trib_stream stream = match->team.streams[rank];
    float data[32], found[32];
    for (int i = 0; i < 32; i++)
        data[i] = (float)(rank + i);
    if (!CHECK_OK(trib_device_copy(device, match->memory[rank], data, sizeof data, stream)))
        return;
    CHECK_STATUS(differing_call(match, rank, rank == size - 1), TRIB_ERR_MISMATCH);
    CHECK_MSG(strstr(trib_last_detail(), "rank") != NULL, "the detail \"%s\" names no rank",
              trib_last_detail());
    CHECK_OK(trib_comm_status(match->team.comms[rank]));
    CHECK_OK(trib_device_copy(device, found, match->memory[rank], sizeof found, stream));
    CHECK_OK(trib_stream_wait(device, stream));
    CHECK(memcmp(found, data, sizeof data) == 0);
    /* Still usable, and the calls that follow match. */
    CHECK_OK(trib_allreduce(match->team.comms[rank], match->memory[rank], match->memory[rank], 32,
                            TRIB_F32, TRIB_SUM, stream));
    CHECK_OK(trib_device_copy(device, found, match->memory[rank], sizeof found, stream));
    CHECK_OK(trib_stream_wait(device, stream));
    for (int i = 0; i < 32; i++)
        CHECK(found[i] == (float)(size * (size - 1) / 2 + size * i));
}

static void bad_match(const char *backend, int size, enum difference difference)
{
    struct match match = {.difference = difference};
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_MATCH;
    check_begin("%s, %d ranks: another %s on one rank, matched", backend, size,
                differences[difference]);
    bool good = team_create(&match.team, backend, size, &options);
    for (int rank = 0; rank < size && good; rank++)
        good = CHECK_OK(trib_device_alloc(&match.memory[rank], match.team.devices[rank], 128));
    if (good)
        check_ranks(size, match_rank, &match);
    for (int rank = 0; rank < size; rank++)
        CHECK_OK(trib_device_free(match.team.devices[rank], match.memory[rank]));
    team_destroy(&match.team);
    check_end();
}

void bad_matches(const char *backend, int size)
{
    for (int difference = 0; difference < DIFFERENCES; difference++)
        bad_match(backend, size, (enum difference)difference);
}
