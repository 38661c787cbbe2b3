#include "tests/pull/gpus_lists.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/kernels_cuda.h"
#include "tests/check.h"
#include "tests/conformance/cuda_must.h"
#include "tests/conformance/kernels/kernels.h"

enum { BYTES = 3 << 20, MOST = 700, ROUNDS = 4 };

/* Of each rank: the tensors in one stretch of memory, the bucket and the table; and what is on the host. */
struct lists {
    struct ranks *ranks;
    unsigned char *tensors[TRI_PULL_RANKS], *packed[TRI_PULL_RANKS], *image, *expected, *found;
    void *device[TRI_PULL_RANKS], *bucket[TRI_PULL_RANKS], *tables[TRI_PULL_RANKS];
    /* The same on all ranks, but for where they are. */
    struct tri_slice slices[MOST];
    size_t at[MOST]; /* in `tensors`, in bytes */
    size_t n, count;
    trib_dtype dtype;
};

static void open_lists(struct lists *l, struct ranks *ranks)
{
    memset(l, 0, sizeof *l);
    l->ranks = ranks;
    l->image = malloc(BYTES);
    l->expected = malloc(BYTES);
    l->found = malloc(BYTES);
    for (int r = 0; r < ranks->size; r++) {
        l->tensors[r] = malloc(BYTES);
        l->packed[r] = malloc(BYTES);
        l->device[r] = ranks_alloc(ranks, r, BYTES);
        l->bucket[r] = ranks_alloc(ranks, r, BYTES);
        l->tables[r] = ranks_alloc(ranks, r, tri_table_bytes(MOST));
    }
}

static void close_lists(struct lists *l)
{
    free(l->image);
    free(l->expected);
    free(l->found);
    for (int r = 0; r < l->ranks->size; r++) {
        free(l->tensors[r]);
        free(l->packed[r]);
        MUST(cudaFree(l->device[r]));
        MUST(cudaFree(l->bucket[r]));
        MUST(cudaFree(l->tables[r]));
    }
}

/* `n` tensors one behind the other, so that few of them begin at a multiple of 16 bytes. */
static void lay_out(struct lists *l, trib_dtype dtype, size_t n)
{
    const size_t width = trib_dtype_size(dtype), per_unit = 16 / width;
    size_t at = 0, end = 0;
    l->dtype = dtype;
    l->n = n;
    for (size_t i = 0; i < n; i++) {
        const size_t count = 1 + kernels_random() % (BYTES / 2 / n / width);
        end = (end + per_unit - 1) / per_unit * per_unit;
        l->slices[i] = (struct tri_slice){.count = count, .offset = end, .dtype = dtype};
        l->at[i] = at;
        at += count * width;
        end += count;
    }
    l->count = end;
}

/* The slices of rank `r` in its table. */
static void keep(struct lists *l, int r)
{
    const struct tri_bucket bucket = {l->bucket[r], l->count, l->dtype};
    for (size_t i = 0; i < l->n; i++)
        l->slices[i].data = (char *)l->device[r] + l->at[i];
    MUST(cudaSetDevice(r / l->ranks->each));
    CHECK_OK(tri_kernels_cuda.keep(l->tables[r], l->slices, l->n, &bucket,
                                   (trib_stream)l->ranks->streams[r / l->ranks->each]));
}

/* Any elements, to the device; `packed` as they are to be in the bucket. That is dirty, or has them already. */
static void fill(struct lists *l, int r, bool packs)
{
    const size_t width = trib_dtype_size(l->dtype);
    memset(l->packed[r], 0, BYTES);
    for (size_t i = 0; i < l->n; i++) {
        kernels_fill(l->tensors[r] + l->at[i], l->dtype, l->slices[i].count, KERNELS_TAME);
        memcpy(l->packed[r] + l->slices[i].offset * width, l->tensors[r] + l->at[i],
               l->slices[i].count * width);
    }
    memset(l->image, 0xa5, BYTES);
    if (packs)
        memcpy(l->image, l->packed[r], l->count * width);
    ranks_copy(l->ranks, r, l->device[r], l->tensors[r], BYTES);
    ranks_copy(l->ranks, r, l->bucket[r], l->image, BYTES);
    ranks_wait(l->ranks);
}

static void check_buckets(struct lists *l, trib_op op)
{
    const size_t width = trib_dtype_size(l->dtype);
    memset(l->expected, 0xa5, BYTES);
    for (size_t i = 0; i < l->count; i++) {
        const void *elements[TRI_PULL_RANKS];
        for (int r = 0; r < l->ranks->size; r++)
            elements[r] = l->packed[r] + i * width;
        kernels_fold(l->expected + i * width, elements, (size_t)l->ranks->size, l->dtype, op);
    }
    for (int r = 0; r < l->ranks->size; r++) {
        ranks_copy(l->ranks, r, l->found, l->bucket[r], BYTES);
        ranks_wait(l->ranks);
        CHECK_MSG(memcmp(l->found, l->expected, BYTES) == 0, "rank %d: the bucket is wrong", r);
    }
}

/* The last rank has packed its list in every other round. */
static void rounds(struct lists *l, bool staged)
{
    const int last = l->ranks->size - 1;
    const void *tables[TRI_PULL_RANKS];
    struct ranks_call call = {.count = l->count,
                              .dtype = l->dtype,
                              .way = TRI_PULL_TWO_SHOT,
                              .blocks = l->ranks->each > 2 ? 8 : 0,
                              .tables = tables,
                              .slices = l->n};
    for (int round = 0; round < ROUNDS; round++) {
        for (int r = 0; r <= last; r++) {
            const bool packs = r == last && round % 2 == 1;
            tables[r] = packs ? NULL : l->tables[r];
            fill(l, r, packs);
        }
        call.op = round % 2 == 0 ? TRIB_SUM : TRIB_MAX;
        call.unmapped = staged ? round % l->ranks->size : RANKS_ALL_MAPPED;
        ranks_pull_all(l->ranks, (const void *const *)l->bucket, l->bucket, &call);
        check_buckets(l, call.op);
    }
}

void gpus_lists(struct ranks *ranks)
{
    static const trib_dtype dtypes[] = {TRIB_F32, TRIB_BF16, TRIB_F64, TRIB_U8};
    static const size_t numbers[] = {1, 3, 161, MOST};
    struct lists lists;
    open_lists(&lists, ranks);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            check_begin("pull of %d ranks on %d GPUs: lists of %zu of %s", ranks->size,
                        ranks->devices, numbers[i], trib_dtype_name(dtypes[d]));
            lay_out(&lists, dtypes[d], numbers[i]);
            for (int r = 0; r < ranks->size; r++)
                keep(&lists, r);
            rounds(&lists, (d + i) % 2 == 1);
            CHECK_MSG(*ranks->abort_flag == 0, "a call waited for too long");
            check_end();
        }
    close_lists(&lists);
}
