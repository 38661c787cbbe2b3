/* One rank's state and buffers. */
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

static bool take(struct fixture *fixture, void *out, size_t bytes)
{
    void *data = NULL;
    const bool good = CHECK_OK(trib_device_alloc(&data, fixture->device, bytes));
    memcpy(out, &data, sizeof data);
    return good;
}

bool fixture_open(struct fixture *fixture, struct team *team, int rank,
                  const trib_sparse_options *options)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->team = team;
    fixture->rank = rank;
    fixture->size = team->size;
    fixture->device = team->devices[rank];
    fixture->stream = team->streams[rank];
    fixture->comm = team->comms[rank];
    const size_t bytes = FIXTURE_COUNT * sizeof(float);
    return take(fixture, &fixture->gradient, bytes) && take(fixture, &fixture->result, bytes) &&
           take(fixture, &fixture->index, bytes) &&
           take(fixture, &fixture->count, sizeof *fixture->count) &&
           (options == NULL || CHECK_OK(trib_sparse_create(&fixture->sparse, fixture->comm,
                                                           FIXTURE_COUNT, TRIB_F32, options)));
}

void fixture_close(struct fixture *fixture)
{
    CHECK_OK(trib_stream_wait(fixture->device, fixture->stream));
    CHECK_OK(trib_sparse_destroy(fixture->sparse));
    CHECK_OK(trib_device_free(fixture->device, fixture->gradient));
    CHECK_OK(trib_device_free(fixture->device, fixture->result));
    CHECK_OK(trib_device_free(fixture->device, fixture->index));
    CHECK_OK(trib_device_free(fixture->device, fixture->count));
}

static void move(struct fixture *fixture, void *dst, const void *src, size_t bytes)
{
    CHECK_OK(trib_device_copy(fixture->device, dst, src, bytes, fixture->stream));
    CHECK_OK(trib_stream_wait(fixture->device, fixture->stream));
}

void fixture_push(struct fixture *fixture)
{
    move(fixture, fixture->gradient, fixture->given, sizeof fixture->given);
}

void fixture_pull(struct fixture *fixture)
{
    move(fixture, fixture->found, fixture->result, sizeof fixture->found);
}

void fixture_fill(struct fixture *fixture, size_t first, size_t n, float value)
{
    memset(fixture->given, 0, sizeof fixture->given);
    for (size_t i = 0; i < n; i++)
        fixture->given[first + i] = value + (float)i;
}

trib_status fixture_call(struct fixture *fixture)
{
    fixture_push(fixture);
    const trib_status status =
        trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result, fixture->stream);
    fixture_pull(fixture);
    return status;
}

uint32_t fixture_outcome(struct fixture *fixture)
{
    uint32_t outcome = 2;
    move(fixture, &outcome, trib_sparse_outcome(fixture->sparse), sizeof outcome);
    return outcome;
}

char *fixture_export(struct fixture *fixture, size_t *bytes)
{
    *bytes = (size_t)trib_sparse_export_bytes(fixture->sparse);
    char *data = malloc(*bytes);
    if (data == NULL)
        abort();
    memset(data, 0xa5, *bytes);
    CHECK_OK(trib_sparse_export(fixture->sparse, data, *bytes, fixture->stream));
    return data;
}

trib_sparse_statistics fixture_statistics(struct fixture *fixture)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_OK(trib_sparse_statistics_get(&statistics, fixture->sparse));
    return statistics;
}

trib_sparse_options fixture_options(const char *algorithm, uint64_t k, uint32_t flags)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = algorithm;
    options.k = k;
    options.flags = flags | TRIB_SPARSE_USE_K;
    return options;
}

void fixture_ranks(const char *backend, int size, const trib_options *options,
                   void (*body)(int rank, int size, void *team), const char *what)
{
    struct team team;
    check_begin("%s, %d ranks: %s", backend, size, what);
    if (team_create(&team, backend, size, options))
        check_ranks(size, body, &team);
    team_destroy(&team);
    check_end();
}
