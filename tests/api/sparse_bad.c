/* Calls that a sparse allreduce refuses: it queues and changes nothing, and the detail says why.
 * All ranks make the calls of all ranks; one rank makes the other calls, and the others none. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

static bool refused(trib_status found, trib_status expected, const char *operation,
                    const char *argument, const char *file, int line)
{
    return check_status(found, expected, file, line, operation) &&
           check_detail(operation, file, line) && check_detail(argument, file, line);
}

#define REFUSED(call, expected, operation, argument)                                               \
    refused((call), (expected), (operation), (argument), __FILE__, __LINE__)

/* Options that are wrong in one field. */
static void bad_option(struct fixture *fixture, trib_dtype dtype,
                       const trib_sparse_options *options, trib_status expected,
                       const char *argument)
{
    trib_sparse *sparse = (trib_sparse *)(void *)fixture;
    uint64_t bytes = 1;
    REFUSED(trib_sparse_create(&sparse, fixture->comm, FIXTURE_COUNT, dtype, options), expected,
            "trib_sparse_create on rank", argument);
    CHECK(sparse == NULL);
    REFUSED(trib_sparse_bytes(&bytes, fixture->comm, FIXTURE_COUNT, dtype, options), expected,
            "trib_sparse_bytes", argument);
    CHECK(bytes == 0);
}

static void bad_names_and_flags(struct fixture *fixture)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.size--;
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "TRIB_SPARSE_OPTIONS_INIT");
    options = fixture_options(NULL, 1, 1u << 6);
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "options.flags is 0x48");
    options = fixture_options(NULL, 1, TRIB_SPARSE_F32_RESULT);
    bad_option(fixture, TRIB_F64, &options, TRIB_ERR_INVALID_ARGUMENT, "TRIB_SPARSE_F32_RESULT");
    options = fixture_options("topka", 1, TRIB_SPARSE_IN_PLACE);
    bad_option(fixture, TRIB_F16, &options, TRIB_ERR_INVALID_ARGUMENT, "TRIB_SPARSE_IN_PLACE");
    bad_option(fixture, TRIB_BF16, &options, TRIB_ERR_INVALID_ARGUMENT, "TRIB_SPARSE_IN_PLACE");
    options = fixture_options("topkaa", 1, 0);
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_UNKNOWN_NAME, "auto, dense, topka");
    options = fixture_options("", 1, 0);
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_UNKNOWN_NAME, "options.algorithm is \"\"");
    options = fixture_options(NULL, 1, 0);
    options.constants = "alexnet";
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_UNKNOWN_NAME, "\"alexnet\"");
}

static void bad_fractions(struct fixture *fixture)
{
    static const double densities[] = {-0.1, 1.5, NAN, INFINITY};
    for (size_t i = 0; i < sizeof densities / sizeof densities[0]; i++) {
        trib_sparse_options options = (trib_sparse_options)TRIB_SPARSE_OPTIONS_INIT;
        options.density = densities[i];
        bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "`density`");
        options.density = 0;
        options.decay = densities[i];
        bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "options.decay");
    }
    REFUSED(trib_sparse_set_density(fixture->sparse, 2), TRIB_ERR_INVALID_ARGUMENT,
            "trib_sparse_set_density", "`density` is 2");
}

static void bad_momentum(struct fixture *fixture)
{
    static const double none[] = {-0.1, 1, NAN, INFINITY};
    const trib_status bad = TRIB_ERR_INVALID_ARGUMENT;
    trib_sparse_options options = fixture_options(NULL, 1, TRIB_SPARSE_NO_MASKING);
    bad_option(fixture, TRIB_F32, &options, bad, "TRIB_SPARSE_NO_MASKING");
    options.flags &= ~(uint32_t)TRIB_SPARSE_NO_MASKING;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        options.momentum = none[i];
        bad_option(fixture, TRIB_F32, &options, bad, "options.momentum is");
    }
    options.momentum = 0;
    options.clip_norm = 1;
    bad_option(fixture, TRIB_F32, &options, bad, "without options.momentum");
    options.momentum = 0.9;
    options.flags |= TRIB_SPARSE_IN_PLACE;
    bad_option(fixture, TRIB_F32, &options, bad, "with TRIB_SPARSE_IN_PLACE");
    options.clip_norm = -1;
    bad_option(fixture, TRIB_F32, &options, bad, "options.clip_norm is -1");
}

static void bad_types_and_counts(struct fixture *fixture)
{
    trib_sparse_options options = fixture_options(NULL, 1, 0);
    trib_sparse *sparse = NULL;
    options.wire = TRIB_F16;
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "options.wire is 1 (f16)");
    options.wire = TRIB_BF16;
    bad_option(fixture, TRIB_F64, &options, TRIB_ERR_INVALID_ARGUMENT, "options.wire");
    options = fixture_options(NULL, 1, 0);
    options.chunk = 3000;
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "options.chunk is 3000");
    options.chunk = 131072;
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "options.chunk");
    options = fixture_options(NULL, 1, 0);
    options.reserved = 1;
    bad_option(fixture, TRIB_F32, &options, TRIB_ERR_INVALID_ARGUMENT, "options.reserved");
    bad_option(fixture, TRIB_I32, NULL, TRIB_ERR_INVALID_ARGUMENT, "`dtype` is 7 (i32)");
    bad_option(fixture, 0, NULL, TRIB_ERR_INVALID_ARGUMENT, "`dtype`");
    REFUSED(trib_sparse_create(&sparse, fixture->comm, (size_t)1 << 32, TRIB_F32, NULL),
            TRIB_ERR_INVALID_ARGUMENT, "trib_sparse_create", "`count` is 4294967296");
}

static void bad_null(struct fixture *fixture)
{
    trib_sparse *sparse = fixture->sparse, *out = NULL;
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    uint64_t bytes;
    char byte;
    const trib_status bad = TRIB_ERR_INVALID_ARGUMENT;
    REFUSED(trib_sparse_create(&out, NULL, 1, TRIB_F32, NULL), bad, "trib_sparse_create", "`comm`");
    REFUSED(trib_sparse_bytes(NULL, fixture->comm, 1, TRIB_F32, NULL), bad, "trib_sparse_bytes",
            "`out`");
    REFUSED(trib_sparse_bytes(&bytes, NULL, 1, TRIB_F32, NULL), bad, "trib_sparse_bytes", "`comm`");
    REFUSED(trib_sparse_set_density(NULL, 0.1), bad, "trib_sparse_set_density", "`sparse`");
    REFUSED(trib_sparse_set_k(NULL, 1), bad, "trib_sparse_set_k", "`sparse`");
    REFUSED(trib_sparse_allreduce(NULL, NULL, NULL, NULL), bad, "trib_sparse_allreduce",
            "`sparse`");
    REFUSED(trib_sparse_allreduce_entries(NULL, NULL, NULL, NULL, NULL, NULL), bad,
            "trib_sparse_allreduce_entries", "`sparse`");
    REFUSED(trib_sparse_status(NULL), bad, "trib_sparse_status", "`sparse`");
    REFUSED(trib_sparse_statistics_get(NULL, sparse), bad, "trib_sparse_statistics_get", "`out`");
    REFUSED(trib_sparse_statistics_get(&statistics, NULL), bad, "trib_sparse_statistics_get",
            "`sparse`");
    statistics.size = 8;
    REFUSED(trib_sparse_statistics_get(&statistics, sparse), bad, "trib_sparse_statistics_get",
            "TRIB_SPARSE_STATISTICS_INIT");
    REFUSED(trib_sparse_residual(NULL, &byte, NULL), bad, "trib_sparse_residual", "`sparse`");
    REFUSED(trib_sparse_export(NULL, &byte, 1, NULL), bad, "trib_sparse_export", "`sparse`");
    REFUSED(trib_sparse_export(sparse, NULL, 1, NULL), bad, "trib_sparse_export", "`out`");
    REFUSED(trib_sparse_import(NULL, &byte, 1, 0, NULL), bad, "trib_sparse_import", "`sparse`");
    REFUSED(trib_sparse_import(sparse, NULL, 1, 1, NULL), bad, "trib_sparse_import", "`data`");
    REFUSED(trib_sparse_reset(NULL, NULL), bad, "trib_sparse_reset", "`sparse`");
    CHECK_OK(trib_sparse_destroy(NULL));
    CHECK(trib_sparse_capacity(NULL) == 0 && trib_sparse_export_bytes(NULL) == 0);
    CHECK(trib_sparse_outcome(NULL) == NULL && trib_sparse_k(NULL) == 0);
}

static void bad_buffers(struct fixture *fixture)
{
    trib_sparse *sparse = fixture->sparse;
    trib_stream stream = fixture->stream;
    float *gradient = fixture->gradient, *result = fixture->result;
    const trib_status bad = TRIB_ERR_INVALID_BUFFER;
    const char *name = "trib_sparse_allreduce on rank";
    REFUSED(trib_sparse_allreduce(sparse, NULL, result, stream), bad, name, "`gradient` is NULL");
    REFUSED(trib_sparse_allreduce(sparse, gradient, NULL, stream), bad, name, "`result` is NULL");
    REFUSED(trib_sparse_allreduce(sparse, (char *)gradient + 2, result, stream), bad, name,
            "`gradient`");
    REFUSED(trib_sparse_allreduce(sparse, gradient, (char *)result + 1, stream), bad, name,
            "misaligned");
    REFUSED(trib_sparse_allreduce(sparse, gradient, result + 1, stream), bad, name, "too short");
    REFUSED(trib_sparse_allreduce(sparse, gradient, (char *)gradient - 4, stream), bad, name, "");
    REFUSED(trib_sparse_allreduce(sparse, gradient, result, (trib_stream)2),
            TRIB_ERR_INVALID_STREAM, name, "per-thread");
    if (strcmp(trib_device_backend(fixture->device), "host") ==
        0) /* CUDA would follow the address */
        REFUSED(trib_sparse_allreduce(sparse, gradient, result, result), TRIB_ERR_INVALID_STREAM,
                name, "`stream`");
    REFUSED(trib_sparse_allreduce_entries(sparse, gradient, fixture->index, result, fixture->count,
                                          stream),
            TRIB_ERR_INVALID_USAGE, "trib_sparse_allreduce_entries", "TRIB_SPARSE_ENTRIES");
    REFUSED(trib_sparse_residual(sparse, NULL, stream), bad, "trib_sparse_residual on rank",
            "`out` is NULL");
    REFUSED(trib_sparse_residual(sparse, result + 1, stream), bad, "trib_sparse_residual on rank",
            "too short");
    REFUSED(trib_sparse_residual(sparse, result, (trib_stream)2), TRIB_ERR_INVALID_STREAM,
            "trib_sparse_residual on rank", "`stream`");
    REFUSED(trib_sparse_reset(sparse, (trib_stream)2), TRIB_ERR_INVALID_STREAM, "trib_sparse_reset",
            "`stream`");
}

/* Another rank's memory. */
static void foreign_buffers(struct fixture *fixture)
{
    const trib_status bad = TRIB_ERR_INVALID_BUFFER;
    const char *name = "trib_sparse_allreduce on rank";
    void *foreign = NULL;
    if (fixture->size == 1)
        return;
    trib_device *other = fixture->team->devices[(fixture->rank + 1) % fixture->size];
    CHECK_OK(trib_device_alloc(&foreign, other, sizeof fixture->given));
    REFUSED(trib_sparse_allreduce(fixture->sparse, foreign, fixture->result, fixture->stream), bad,
            name, "`gradient`");
    REFUSED(trib_sparse_allreduce(fixture->sparse, fixture->gradient, foreign, fixture->stream),
            bad, name, "`result`");
    CHECK_OK(trib_device_free(other, foreign));
}

/* A state whose result is entries. */
static void bad_entries(struct fixture *fixture)
{
    trib_sparse *sparse = fixture->sparse;
    trib_stream stream = fixture->stream;
    float *gradient = fixture->gradient, *value = fixture->result;
    uint32_t *index = fixture->index, *count = fixture->count;
    const trib_status bad = TRIB_ERR_INVALID_BUFFER;
    const char *name = "trib_sparse_allreduce_entries on rank";
    REFUSED(trib_sparse_allreduce_entries(sparse, NULL, index, value, count, stream), bad, name,
            "`gradient`");
    REFUSED(trib_sparse_allreduce_entries(sparse, gradient, NULL, value, count, stream), bad, name,
            "`index`");
    REFUSED(trib_sparse_allreduce_entries(sparse, gradient, index, NULL, count, stream), bad, name,
            "`value`");
    REFUSED(trib_sparse_allreduce_entries(sparse, gradient, index, value, NULL, stream), bad, name,
            "`count`");
    REFUSED(trib_sparse_allreduce_entries(sparse, gradient, index, index, count, stream), bad, name,
            "overlaps");
    REFUSED(trib_sparse_allreduce_entries(sparse, gradient, index, gradient + 1, count, stream),
            bad, name, "overlaps");
    REFUSED(trib_sparse_allreduce_entries(sparse, gradient, index, value, (uint32_t *)value + 1,
                                          stream),
            bad, name, "overlaps");
    REFUSED(trib_sparse_allreduce(sparse, gradient, value, stream), TRIB_ERR_INVALID_USAGE,
            "trib_sparse_allreduce on rank", "trib_sparse_allreduce_entries");
}

static void bad_in_place(struct fixture *fixture)
{
    REFUSED(trib_sparse_residual(fixture->sparse, fixture->result, fixture->stream),
            TRIB_ERR_INVALID_USAGE, "trib_sparse_residual on rank", "in place");
    REFUSED(trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->gradient,
                                  fixture->stream),
            TRIB_ERR_INVALID_BUFFER, "trib_sparse_allreduce on rank", "overlaps");
}

static void bad_usage(struct fixture *fixture)
{
    const trib_status bad = TRIB_ERR_INVALID_USAGE;
    CHECK_OK(trib_batch_begin(fixture->comm));
    REFUSED(
        trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result, fixture->stream),
        bad, "trib_sparse_allreduce", "a batch is open");
    CHECK_STATUS(trib_batch_end(fixture->comm), bad);
    CHECK_OK(trib_batch_begin(fixture->comm));
    REFUSED(trib_sparse_reset(fixture->sparse, fixture->stream), bad, "trib_sparse_reset",
            "a batch is open");
    REFUSED(trib_sparse_residual(fixture->sparse, fixture->result, fixture->stream), bad,
            "trib_sparse_residual", "a batch is open");
    CHECK_STATUS(trib_batch_end(fixture->comm), bad);
}

/* A call of all ranks with invalid arguments on one of them: that rank gets its error, the others
 * TRIB_ERR_MISMATCH. */
static void rejected(trib_status status, bool errs, trib_status bad, const char *name,
                     const char *argument)
{
    CHECK_STATUS(status, errs ? bad : TRIB_ERR_MISMATCH);
    CHECK_DETAIL(name);
    CHECK_DETAIL(errs ? argument : "rejected its arguments");
}

/* Errors that the ranks find before they look at anything else of the call. */
static void bad_collective_calls(struct fixture *fixture, bool errs)
{
    const trib_status bad = TRIB_ERR_INVALID_ARGUMENT, usage = TRIB_ERR_INVALID_USAGE;
    trib_sparse *sparse = fixture->sparse, *other = NULL;
    trib_comm *comm = fixture->comm;
    size_t bytes;
    char *data = fixture_export(fixture, &bytes);
    rejected(trib_sparse_create(errs ? NULL : &other, comm, 1, TRIB_F32, NULL), errs, bad,
             "trib_sparse_create on rank", "`out`");
    rejected(trib_sparse_import(sparse, errs ? NULL : data, bytes, 0, fixture->stream), errs, bad,
             "trib_sparse_import on rank", "`data`");
    rejected(trib_sparse_import(sparse, data, errs ? bytes - 1 : bytes, 0, fixture->stream), errs,
             bad, "trib_sparse_import on rank", "whole");
    rejected(trib_sparse_import(sparse, data, bytes, 0, errs ? (trib_stream)2 : fixture->stream),
             errs, TRIB_ERR_INVALID_STREAM, "trib_sparse_import on rank", "per-thread");
    if (errs)
        CHECK_OK(trib_batch_begin(comm));
    rejected(trib_sparse_create(&other, comm, 1, TRIB_F32, NULL), errs, usage,
             "trib_sparse_create on rank", "a batch is open");
    rejected(trib_sparse_set_k(sparse, 1), errs, usage, "trib_sparse_set_k on rank",
             "a batch is open");
    rejected(trib_sparse_set_density(sparse, 1), errs, usage, "trib_sparse_set_density on rank",
             "a batch is open");
    rejected(trib_sparse_import(sparse, data, bytes, 0, fixture->stream), errs, usage,
             "trib_sparse_import on rank", "a batch is open");
    if (errs)
        CHECK_STATUS(trib_batch_end(comm), usage);
    CHECK(other == NULL && fixture_statistics(fixture).k == 2);
    free(data);
}

/* After all that the state works as if nothing had been. */
static void works(struct fixture *fixture)
{
    fixture_fill(fixture, 100, 1, 7);
    CHECK_OK(fixture_call(fixture));
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture->found[i] == (i == 100 ? 7 * (float)fixture->size : 0));
    CHECK(fixture_statistics(fixture).calls == 1);
    CHECK_OK(trib_comm_status(fixture->comm));
}

static _Atomic int through; /* ranks that are through with what is refused */

static void bad_rank(int rank, int size, void *team)
{
    const trib_sparse_options plain = fixture_options("topka", 2, 0);
    const trib_sparse_options entries = fixture_options("topka", 2, TRIB_SPARSE_ENTRIES);
    const trib_sparse_options in_place = fixture_options("topka", 2, TRIB_SPARSE_IN_PLACE);
    struct fixture fixture, listing, accumulating;
    const bool errs = rank == size - 1;
    if (!fixture_open(&fixture, team, rank, &plain) ||
        !fixture_open(&listing, team, rank, &entries) ||
        !fixture_open(&accumulating, team, rank, &in_place))
        return;
    bad_names_and_flags(&fixture);
    bad_fractions(&fixture);
    bad_momentum(&fixture);
    bad_types_and_counts(&fixture);
    bad_collective_calls(&fixture, errs);
    if (errs) {
        fixture_fill(&fixture, 0, FIXTURE_COUNT, 1);
        fixture_push(&fixture);
        bad_null(&fixture);
        bad_buffers(&fixture);
        foreign_buffers(&fixture);
        bad_entries(&listing);
        bad_in_place(&accumulating);
        bad_usage(&fixture);
        CHECK(fixture_statistics(&fixture).calls == 0);
    }
    /* On nccl, memory is not had or given back while a rank waits for the others on the stream. */
    team_barrier(&through, size);
    works(&fixture);
    fixture_close(&fixture);
    fixture_close(&listing);
    fixture_close(&accumulating);
}

void sparse_bad(const char *backend, int size)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = 20000; /* a rank that is left waiting gets TRIB_ERR_TIMEOUT */
    atomic_store(&through, 0);
    fixture_ranks(backend, size, &options, bad_rank, "what a sparse allreduce refuses");
}
