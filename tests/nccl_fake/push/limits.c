/* Up to which size push serves a call: the same on all ranks, and exactly. */
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { KIB = 1024 };

static const trib_dtype dtypes[] = {TRIB_F16, TRIB_F32, TRIB_F64, TRIB_I32};

static bool sum_all(const struct push_ranks *ranks, trib_group *group, size_t count,
                    trib_dtype dtype)
{
    return CHECK_OK(trib_group_allreduce(group, (const void *const *)ranks->data, ranks->data,
                                         count, dtype, TRIB_SUM, ranks->streams));
}

/* `limit` bytes of elements are pushed, half of that of those whose granules are wide, and one element
 * more is pulled, or NCCL's. */
static void check_limit(struct push_ranks *ranks, trib_group *group, size_t limit, bool pulls,
                        trib_dtype dtype)
{
    (void)large_counts(ranks, -1, -1, -1, -1);
    const size_t most = limit / (tri_push_is_wide(dtype) ? 2 : 1) / trib_dtype_size(dtype);
    push_fill(ranks, dtype, most);
    if (!sum_all(ranks, group, most, dtype))
        return;
    for (int rank = 0; rank < ranks->size; rank++) {
        CHECK_OK(trib_stream_wait(ranks->devices[rank], ranks->streams[rank]));
        CHECK(push_holds(ranks, rank, dtype, most, 1));
    }
    CHECK_MSG(large_counts(ranks, 0, 1, 0, 0), "%zu of %s", most, trib_dtype_name(dtype));
    (void)sum_all(ranks, group, most + 1, dtype);
    for (int rank = 0; rank < ranks->size; rank++)
        CHECK_OK(trib_stream_wait(ranks->devices[rank], ranks->streams[rank]));
    CHECK_MSG(large_counts(ranks, pulls ? 0 : ranks->size, 0, pulls, 0), "%zu of %s", most + 1,
              trib_dtype_name(dtype));
}

static uint64_t device_bytes(const struct push_ranks *ranks, int rank)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_device_memory(&memory, ranks->devices[rank]));
    return memory.peer_bytes;
}

/* Two lanes of two buffers of `limit` bytes for each rank, rounded up, 8 MiB for pull, and little else;
 * `before` it was there. */
static void check_memory(const struct push_ranks *ranks, trib_group *group, size_t limit,
                         bool pulls, uint64_t before)
{
    const size_t scratch = 4 * limit * (size_t)ranks->size + (pulls ? 8192 * KIB : 0);
    for (int rank = 0; rank < ranks->size; rank++) {
        trib_memory memory = TRIB_MEMORY_INIT;
        CHECK_OK(trib_comm_memory(&memory, trib_group_comm(group, rank)));
        CHECK_MSG(memory.peer_bytes > scratch && memory.peer_bytes == memory.peer_peak_bytes &&
                      memory.peer_bytes < scratch + 2 * FAKE_GRANULARITY + 4096,
                  "rank %d: %llu bytes", rank, (unsigned long long)memory.peer_bytes);
        CHECK(device_bytes(ranks, rank) == before + memory.peer_bytes);
    }
}

/* With the default of `peer_bytes` up to 4 ranks over NVLink have pull. */
static void limit(const char *name, int size, uint64_t peer_bytes, bool nvlink, size_t bytes)
{
    const bool pulls = peer_bytes == 0 && size <= 4 && nvlink;
    struct push_ranks ranks;
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "nccl";
    options.peer_bytes = peer_bytes;
    push_begin(name);
    if (push_open(&ranks, size, bytes + 8,
                  NULL)) { /* its communicators have buffers of their own */
        const uint64_t before = device_bytes(&ranks, 0);
        fake_reach(true, nvlink);
        if (CHECK_OK(trib_group_create(&group, NULL, size, &options))) {
            check_memory(&ranks, group, bytes, pulls, before);
            for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
                check_limit(&ranks, group, bytes, pulls, dtypes[i]);
        }
        CHECK_OK(trib_group_destroy(group));
        CHECK(device_bytes(&ranks, 0) == before);
        push_close(&ranks);
    }
    push_end();
}

/* A chunk of the payload takes 64 bytes a rank: two lanes of two buffers. */
static size_t chunks_in(size_t bytes, int size)
{
    return bytes / 64 / (size_t)size;
}

void push_limits(void)
{
    const size_t unit = FAKE_GRANULARITY;
    limit("2 ranks", 2, 0, true, (size_t)1024 * KIB);
    limit("2 ranks, push alone", 2, PUSH_ROOM, true,
          TRI_PUSH_CHUNK * chunks_in(16384 * KIB - unit, 2));
    limit("3 ranks", 3, 0, true, (size_t)512 * KIB);
    limit("4 ranks", 4, 0, true, (size_t)512 * KIB);
    limit("8 ranks", 8, 0, true, (size_t)256 * KIB);
    limit("PCI Express", 2, 0, false, (size_t)64 * KIB);
    limit("2 ranks, less memory", 2, 3 * unit + 5, true, TRI_PUSH_CHUNK * chunks_in(3 * unit, 2));
    limit("3 ranks, less memory", 3, 2 * unit, true, TRI_PUSH_CHUNK * chunks_in(2 * unit, 3));
    limit("8 ranks, of the coarsest granularity", 8, 3 * unit, true,
          TRI_PUSH_CHUNK * chunks_in(2 * unit, 8));
}
