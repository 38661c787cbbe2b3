/* CPU kernels as CUDA's: they run at once, or behind a push that waits, or in each launch of the graph
 * that captures their stream. */
#include "tests/nccl_fake/fake_kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_pull.h"
#include "tests/nccl_fake/fake_push.h"

/* pack and unpack: with the slices, as CUDA has the arguments of a kernel. */
struct slices {
    size_t n;
    struct tri_bucket bucket;
    struct tri_weight weight;
    bool weighted;
    const uint32_t *decision;
    struct tri_slice slices[];
};

/* Now, or in each launch. */
static trib_status run(void (*function)(void *argument), void *argument, size_t bytes,
                       trib_stream stream)
{
    fake_run(stream, function, argument, bytes);
    return TRIB_OK;
}

static void run_pack(void *argument)
{
    const struct slices *of = argument;
    CHECK_OK(tri_kernels_cpu.pack(of->slices, of->n, &of->bucket, of->weighted ? &of->weight : NULL,
                                  NULL));
}

static void run_unpack(void *argument)
{
    const struct slices *of = argument;
    CHECK_OK(
        tri_kernels_cpu.unpack(of->slices, of->n, &of->bucket, of->weighted, of->decision, NULL));
}

static trib_status run_slices(void (*function)(void *argument), const struct slices *of,
                              const struct tri_slice *slices, trib_stream stream)
{
    const size_t bytes = sizeof *of + of->n * sizeof *slices;
    struct slices *own = malloc(bytes);
    if (own == NULL)
        abort();
    *own = *of;
    memcpy(own->slices, slices, of->n * sizeof *slices);
    const trib_status status = run(function, own, bytes, stream);
    free(own);
    return status;
}

static trib_status pack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                        const struct tri_weight *weight, trib_stream stream)
{
    struct slices of = {.n = n, .bucket = *bucket, .weighted = weight != NULL};
    if (weight != NULL)
        of.weight = *weight;
    return run_slices(run_pack, &of, slices, stream);
}

static trib_status unpack(const struct tri_slice *slices, size_t n, const struct tri_bucket *bucket,
                          int weighted, const uint32_t *decision, trib_stream stream)
{
    const struct slices of = {
        .n = n, .bucket = *bucket, .weighted = weighted != 0, .decision = decision};
    return run_slices(run_unpack, &of, slices, stream);
}

static void run_commit(void *argument)
{
    CHECK_OK(tri_kernels_cpu.commit(argument, NULL));
}

static trib_status commit(const struct tri_commit *job, trib_stream stream)
{
    struct tri_commit own = *job;
    return run(run_commit, &own, sizeof own, stream);
}

/* A table as CUDA's: addresses, lengths, types. Offsets follow from them. */
static _Atomic int written, read_again;

struct fake_tables fake_tables(void)
{
    return (struct fake_tables){written, read_again};
}

struct table {
    char *data, *count, *dtype;
};

static struct table table_at(const void *memory, size_t n)
{
    char *begin = (char *)(uintptr_t)memory;
    return (struct table){begin, begin + n * sizeof(void *),
                          begin + n * (sizeof(void *) + sizeof(uint32_t))};
}

static trib_status keep(void *table, const struct tri_slice *slices, size_t n,
                        const struct tri_bucket *bucket, trib_stream stream)
{
    const struct table at = table_at(table, n);
    if (fake_capturing(stream) != NULL)
        fake_die("a graph writes a table that other calls change");
    (void)bucket;
    for (size_t i = 0; i < n; i++) {
        const uint32_t count = (uint32_t)slices[i].count;
        memcpy(at.data + i * sizeof(void *), &slices[i].data, sizeof(void *));
        memcpy(at.count + i * sizeof count, &count, sizeof count);
        at.dtype[i] = (char)slices[i].dtype;
    }
    written++;
    return TRIB_OK;
}

struct tri_slice *fake_slices_in(const void *table, size_t n, const struct tri_bucket *bucket,
                                 trib_stream stream)
{
    const size_t per_unit = 16 / trib_dtype_size(bucket->dtype);
    const struct table at = table_at(table, n);
    struct tri_slice *slices = calloc(n + 1, sizeof *slices);
    size_t end = 0;
    if (slices == NULL)
        abort();
    if (fake_capturing(stream) != NULL)
        fake_die("a graph reads a table that other calls change");
    for (size_t i = 0; i < n; i++) {
        uint32_t count;
        memcpy(&slices[i].data, at.data + i * sizeof(void *), sizeof(void *));
        memcpy(&count, at.count + i * sizeof count, sizeof count);
        slices[i].count = count;
        slices[i].dtype = at.dtype[i];
        slices[i].offset = end;
        end = (end + count + per_unit - 1) / per_unit * per_unit;
    }
    read_again++;
    return slices;
}

static trib_status pack_kept(const void *table, size_t n, const struct tri_bucket *bucket,
                             const struct tri_weight *weight, trib_stream stream)
{
    struct tri_slice *slices = fake_slices_in(table, n, bucket, stream);
    const trib_status status = pack(slices, n, bucket, weight, stream);
    free(slices);
    return status;
}

static trib_status unpack_kept(const void *table, size_t n, const struct tri_bucket *bucket,
                               int weighted, const uint32_t *decision, trib_stream stream)
{
    struct tri_slice *slices = fake_slices_in(table, n, bucket, stream);
    const trib_status status = unpack(slices, n, bucket, weighted, decision, stream);
    free(slices);
    return status;
}

struct scaling {
    void *dst;
    const void *src;
    size_t count;
    trib_dtype dtype;
    struct tri_factor factor;
};

static void run_scale(void *argument)
{
    const struct scaling *of = argument;
    CHECK_OK(tri_kernels_cpu.scale(of->dst, of->src, of->count, of->dtype, &of->factor, NULL));
}

static trib_status scale(void *dst, const void *src, size_t count, trib_dtype dtype,
                         const struct tri_factor *factor, trib_stream stream)
{
    struct scaling of = {dst, src, count, dtype, *factor};
    return run(run_scale, &of, sizeof of, stream);
}

const struct tri_kernels tri_kernels_cuda = {.name = "fake",
                                             .pack = pack,
                                             .unpack = unpack,
                                             .keep = keep,
                                             .pack_kept = pack_kept,
                                             .unpack_kept = unpack_kept,
                                             .commit = commit,
                                             .scale = scale,
                                             .push = fake_push,
                                             .pull = fake_pull};
