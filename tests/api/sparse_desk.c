/* One rank's state and buffers. */
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

static bool take(struct desk *desk, void *out, size_t bytes)
{
    void *data = NULL;
    const bool good = CHECK_OK(trib_device_alloc(&data, desk->device, bytes));
    memcpy(out, &data, sizeof data);
    return good;
}

bool desk_open(struct desk *desk, struct team *team, int rank, const trib_sparse_options *options)
{
    memset(desk, 0, sizeof *desk);
    desk->team = team;
    desk->rank = rank;
    desk->size = team->size;
    desk->device = team->devices[rank];
    desk->stream = team->streams[rank];
    desk->comm = team->comms[rank];
    const size_t bytes = DESK_COUNT * sizeof(float);
    return take(desk, &desk->gradient, bytes) && take(desk, &desk->result, bytes) &&
           take(desk, &desk->index, bytes) && take(desk, &desk->count, sizeof *desk->count) &&
           (options == NULL || CHECK_OK(trib_sparse_create(&desk->sparse, desk->comm, DESK_COUNT,
                                                           TRIB_F32, options)));
}

void desk_close(struct desk *desk)
{
    CHECK_OK(trib_stream_wait(desk->device, desk->stream));
    CHECK_OK(trib_sparse_destroy(desk->sparse));
    CHECK_OK(trib_device_free(desk->device, desk->gradient));
    CHECK_OK(trib_device_free(desk->device, desk->result));
    CHECK_OK(trib_device_free(desk->device, desk->index));
    CHECK_OK(trib_device_free(desk->device, desk->count));
}

static void move(struct desk *desk, void *dst, const void *src, size_t bytes)
{
    CHECK_OK(trib_device_copy(desk->device, dst, src, bytes, desk->stream));
    CHECK_OK(trib_stream_wait(desk->device, desk->stream));
}

void desk_push(struct desk *desk)
{
    move(desk, desk->gradient, desk->given, sizeof desk->given);
}

void desk_pull(struct desk *desk)
{
    move(desk, desk->found, desk->result, sizeof desk->found);
}

void desk_fill(struct desk *desk, size_t first, size_t n, float value)
{
    memset(desk->given, 0, sizeof desk->given);
    for (size_t i = 0; i < n; i++)
        desk->given[first + i] = value + (float)i;
}

trib_status desk_call(struct desk *desk)
{
    desk_push(desk);
    const trib_status status =
        trib_sparse_allreduce(desk->sparse, desk->gradient, desk->result, desk->stream);
    desk_pull(desk);
    return status;
}

uint32_t desk_outcome(struct desk *desk)
{
    uint32_t outcome = 2;
    move(desk, &outcome, trib_sparse_outcome(desk->sparse), sizeof outcome);
    return outcome;
}

char *desk_export(struct desk *desk, size_t *bytes)
{
    *bytes = (size_t)trib_sparse_export_bytes(desk->sparse);
    char *data = malloc(*bytes);
    if (data == NULL)
        abort();
    memset(data, 0xa5, *bytes);
    CHECK_OK(trib_sparse_export(desk->sparse, data, *bytes, desk->stream));
    return data;
}

trib_sparse_statistics desk_statistics(struct desk *desk)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_OK(trib_sparse_statistics_get(&statistics, desk->sparse));
    return statistics;
}

trib_sparse_options desk_options(const char *algorithm, uint64_t k, uint32_t flags)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = algorithm;
    options.k = k;
    options.flags = flags | TRIB_SPARSE_USE_K;
    return options;
}

void desk_ranks(const char *backend, int size, const trib_options *options,
                void (*body)(int rank, int size, void *team), const char *what)
{
    struct team team;
    check_begin("%s, %d ranks: %s", backend, size, what);
    if (team_create(&team, backend, size, options))
        check_ranks(size, body, &team);
    team_destroy(&team);
    check_end();
}
