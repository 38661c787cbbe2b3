/* Bad input, on host and, where there are GPUs, on nccl. */
#include <string.h>

#include "tests/api/bad_input.h"

static void works_rank(int rank, int size, void *argument)
{
    struct bad *bad = argument;
    struct team *team = &bad->team;
    struct guarded memory;
    if (!guarded_create(&memory, team->devices[rank], 64))
        return;
    guarded_reset(&memory, 64, 0);
    memset(guarded_image(&memory, 0), 1 + rank, 64);
    guarded_push(&memory, team->streams[rank]);
    CHECK_OK(trib_allreduce(team->comms[rank], guarded_data(&memory, 0), guarded_data(&memory, 0),
                            64, TRIB_U8, TRIB_MAX, team->streams[rank]));
    guarded_pull(&memory, team->streams[rank]);
    CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
    memset(guarded_image(&memory, 0), size, 64);
    guarded_same(&memory, __FILE__, __LINE__, "a good call after many bad ones");
    CHECK_OK(trib_comm_status(team->comms[rank]));
    guarded_destroy(&memory);
}

/* The bad rank's buffers as they were? */
static void untouched(const struct bad *bad)
{
    float found[BAD_FLOATS];
    float *const buffers[] = {bad->a, bad->b};
    for (int which = 0; which < 2; which++) {
        CHECK_OK(trib_device_copy(bad->team.devices[bad->rank], found, buffers[which], BAD_BYTES,
                                  bad->stream));
        CHECK_OK(trib_stream_wait(bad->team.devices[bad->rank], bad->stream));
        for (int i = 0; i < BAD_FLOATS; i++)
            if (!CHECK(found[i] == (float)(i + which)))
                return;
    }
}

static bool create(struct bad *bad, const char *backend, int size, const trib_options *options)
{
    static float numbers[2][BAD_FLOATS];
    void *memory[3] = {NULL, NULL, NULL};
    memset(bad, 0, sizeof *bad);
    if (!team_create(&bad->team, backend, size, options))
        return false;
    bad->rank = size - 1;
    bad->comm = bad->team.comms[bad->rank];
    bad->stream = bad->team.streams[bad->rank];
    trib_device *device = bad->team.devices[bad->rank];
    bool good = true;
    for (int which = 0; which < 2 && good; which++) {
        for (int i = 0; i < BAD_FLOATS; i++)
            numbers[which][i] = (float)(i + which);
        good = CHECK_OK(trib_device_alloc(&memory[which], device, BAD_BYTES)) &&
               CHECK_OK(trib_device_copy(device, memory[which], numbers[which], BAD_BYTES,
                                         bad->stream)) &&
               CHECK_OK(trib_stream_wait(device, bad->stream));
    }
    if (size > 1)
        good = good && CHECK_OK(trib_device_alloc(&memory[2], bad->team.devices[0], BAD_BYTES));
    bad->a = memory[0];
    bad->b = memory[1];
    bad->foreign = memory[2];
    return good;
}

static void destroy(struct bad *bad)
{
    CHECK_OK(trib_device_free(bad->team.devices[bad->rank], bad->a));
    CHECK_OK(trib_device_free(bad->team.devices[bad->rank], bad->b));
    CHECK_OK(trib_device_free(bad->team.devices[0], bad->foreign));
    team_destroy(&bad->team);
}

static void one_part(struct bad *bad, const char *name, void (*part)(const struct bad *bad))
{
    trib_counters before = TRIB_COUNTERS_INIT, after = TRIB_COUNTERS_INIT;
    check_begin("%s, %d ranks: bad %s", bad->team.backend, bad->team.size, name);
    CHECK_OK(trib_comm_counters(&before, bad->comm));
    part(bad);
    CHECK_OK(trib_comm_counters(&after, bad->comm));
    CHECK_MSG(before.calls == after.calls && before.backend_calls == after.backend_calls &&
                  before.lists_queued == after.lists_queued,
              "a bad call was counted");
    untouched(bad);
    check_ranks(bad->team.size, works_rank, bad);
    check_end();
}

/* What is not checked of memory and streams is still checked of numbers. */
static void unchecked(const char *backend, int size)
{
    struct bad unchecked_bad, *bad = &unchecked_bad;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_UNCHECKED;
    check_begin("%s, %d ranks: unchecked", backend, size);
    if (create(bad, backend, size, &options)) {
        REFUSED(trib_allreduce(bad->comm, bad->a, bad->b, 4, 0, TRIB_SUM, bad->stream),
                TRIB_ERR_INVALID_ARGUMENT, "trib_allreduce", "`dtype`");
        REFUSED(trib_allreduce(bad->comm, NULL, bad->b, 4, TRIB_F32, TRIB_SUM, bad->stream),
                TRIB_ERR_INVALID_BUFFER, "trib_allreduce", "`send`");
        REFUSED(trib_broadcast(bad->comm, bad->a, bad->b, 4, TRIB_F32, size, bad->stream),
                TRIB_ERR_INVALID_ARGUMENT, "trib_broadcast", "`root`");
        check_ranks(size, works_rank, bad);
        destroy(bad);
    }
    check_end();
}

static void suite(const char *backend, int size)
{
    struct bad bad;
    if (!create(&bad, backend, size, NULL))
        return;
    one_part(&bad, "collectives", bad_collectives);
    one_part(&bad, "vectors and messages", bad_vectors);
    one_part(&bad, "lists", bad_lists);
    one_part(&bad, "factors", bad_factors);
    one_part(&bad, "batches", bad_batches);
    destroy(&bad);
    unchecked(backend, size);
    check_begin("%s, %d ranks: bad groups", backend, size);
    bad_groups(backend, size);
    check_end();
    bad_together(backend, size);
    if (size > 1)
        bad_matches(backend, size);
}

int main(void)
{
    static const char *const backends[] = {"host", "nccl"};
    for (int i = 0; i < 2; i++) {
        const int limit = team_limit(backends[i]);
        if (limit == 0) {
            check_skip("%s: there is no device", backends[i]);
            continue;
        }
        check_begin("%s: bad creation", backends[i]);
        bad_creation(backends[i]);
        check_end();
        check_begin("%s: bad devices, streams and events", backends[i]);
        bad_devices(backends[i]);
        check_end();
        suite(backends[i], 1);
        if (limit > 1)
            suite(backends[i], limit < 3 ? limit : 3);
    }
    return check_finish("bad_input_test");
}
