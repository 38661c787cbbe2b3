/* Up to which size push serves a call: the same on all ranks, and exactly. */
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { KIB = 1024, MEASURED = 4 /* ranks: of more, pull serves by name alone */ };

static const trib_dtype dtypes[] = {TRIB_F16, TRIB_F32, TRIB_F64, TRIB_I32};

static bool sum_all(const struct push_ranks *ranks, trib_group *group, size_t count,
                    trib_dtype dtype)
{
    return CHECK_OK(trib_group_allreduce(group, (const void *const *)ranks->data, ranks->data,
                                         count, dtype, TRIB_SUM, ranks->streams));
}

struct limits {
    const char *name;
    int size;
    uint64_t peer_bytes; /* 0: the default; over NVLink up to 4 ranks have pull with as much */
    bool nvlink;
    size_t slot, one_shot, bytes; /* of a slot; the most of an allreduce in one shot, and at all */
};

static bool has_pull(const struct limits *limits)
{
    const bool few = limits->size <= MEASURED;
    const uint64_t bytes = limits->peer_bytes == 0 ? (uint64_t)49152 * KIB : limits->peer_bytes;
    return limits->nvlink && bytes >= (uint64_t)(few ? 40960 : 65536) * KIB;
}

/* Bytes from which on pull is ahead of NCCL. */
static size_t pulls_above(const struct limits *limits)
{
    return (size_t)(limits->size == 2 ? 1024 : 512) * KIB;
}

static void wait_all(const struct push_ranks *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++)
        CHECK_OK(trib_stream_wait(ranks->devices[rank], ranks->streams[rank]));
}

/* So many elements are pushed, and by that kind. */
static void check_pushed(struct push_ranks *ranks, trib_group *group, size_t count,
                         trib_dtype dtype, enum tri_push_kind kind)
{
    push_fill(ranks, dtype, count);
    if (!sum_all(ranks, group, count, dtype))
        return;
    wait_all(ranks);
    for (int rank = 0; rank < ranks->size; rank++)
        CHECK(push_holds(ranks, rank, dtype, count, 1));
    CHECK_MSG(large_counts(ranks, 0, 1, 0, 0) && fake_push_kind() == kind, "%zu of %s", count,
              trib_dtype_name(dtype));
}

/* The most is half of that of types whose granules are wide; one element more is pulled, or NCCL's. */
static void check_limit(struct push_ranks *ranks, trib_group *group, const struct limits *limits,
                        trib_dtype dtype)
{
    const size_t element = trib_dtype_size(dtype) * (tri_push_is_wide(dtype) ? 2 : 1);
    const size_t one_shot = limits->one_shot / element, most = limits->bytes / element;
    const bool pulls = has_pull(limits) && limits->size <= MEASURED &&
                       (most + 1) * trib_dtype_size(dtype) > pulls_above(limits);
    (void)large_counts(ranks, -1, -1, -1, -1);
    check_pushed(ranks, group, one_shot, dtype, TRI_PUSH_ALLREDUCE);
    if (most > one_shot) {
        check_pushed(ranks, group, one_shot + 1, dtype, TRI_PUSH_TWO_SHOT);
        check_pushed(ranks, group, most, dtype, TRI_PUSH_TWO_SHOT);
    }
    (void)sum_all(ranks, group, most + 1, dtype);
    wait_all(ranks);
    CHECK_MSG(large_counts(ranks, pulls ? 0 : ranks->size, 0, pulls, 0), "%zu of %s", most + 1,
              trib_dtype_name(dtype));
}

static uint64_t device_bytes(const struct push_ranks *ranks, int rank)
{
    trib_memory memory = TRIB_MEMORY_INIT;
    CHECK_OK(trib_device_memory(&memory, ranks->devices[rank]));
    return memory.peer_bytes;
}

/* Which of the kernels it has. */
static uint32_t can_of(const trib_comm *comm)
{
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    CHECK_OK(trib_comm_capabilities(&can, comm));
    return can.flags & (TRIB_CAN_PEERS | TRIB_CAN_PEERS_LARGE);
}

/* Two lanes of two buffers of a slot for each peer, rounded up, 32 MiB for pull, and little else; `before` it
 * was there. */
static void check_memory(const struct push_ranks *ranks, trib_group *group,
                         const struct limits *limits, uint64_t before)
{
    const size_t scratch =
        4 * limits->slot * (size_t)(ranks->size - 1) + (has_pull(limits) ? (size_t)32768 * KIB : 0);
    for (int rank = 0; rank < ranks->size; rank++) {
        trib_memory memory = TRIB_MEMORY_INIT;
        CHECK_OK(trib_comm_memory(&memory, trib_group_comm(group, rank)));
        CHECK_MSG(memory.peer_bytes > scratch && memory.peer_bytes == memory.peer_peak_bytes &&
                      memory.peer_bytes < scratch + 2 * FAKE_GRANULARITY + 4096,
                  "rank %d: %llu bytes", rank, (unsigned long long)memory.peer_bytes);
        CHECK(device_bytes(ranks, rank) == before + memory.peer_bytes);
        CHECK(can_of(trib_group_comm(group, rank)) ==
              (TRIB_CAN_PEERS | (has_pull(limits) ? TRIB_CAN_PEERS_LARGE : 0)));
    }
}

static void check(const struct limits *limits)
{
    struct push_ranks ranks;
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "nccl";
    options.peer_bytes = limits->peer_bytes;
    push_begin(limits->name);
    if (push_open(&ranks, limits->size, limits->bytes + 8,
                  NULL)) { /* its communicators have buffers of their own */
        const uint64_t before = device_bytes(&ranks, 0);
        fake_reach(true, limits->nvlink);
        if (CHECK_OK(trib_group_create(&group, NULL, limits->size, &options))) {
            check_memory(&ranks, group, limits, before);
            for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
                check_limit(&ranks, group, limits, dtypes[i]);
        }
        CHECK_OK(trib_group_destroy(group));
        CHECK(device_bytes(&ranks, 0) == before);
        push_close(&ranks);
    }
    push_end();
}

/* A slot of so much scratch: two lanes of two buffers have one for each peer. */
static size_t slot_in(size_t bytes, int size)
{
    return bytes / 4 / TRI_PUSH_CHUNK / (size_t)(size - 1) * TRI_PUSH_CHUNK;
}

/* Two shots take two shares of a slot. */
static size_t in_two_shots(size_t slot, int size)
{
    return slot / 2 / TRI_PUSH_CHUNK * TRI_PUSH_CHUNK * (size_t)size;
}

void push_limits(void)
{
    const size_t unit = FAKE_GRANULARITY, room = (size_t)16384 * KIB;
    const size_t alone = slot_in(16384 * KIB - unit, 2), few2 = slot_in(3 * unit, 2);
    const size_t slot3 = slot_in(room, 3), few3 = slot_in(2 * unit, 3), few8 = slot_in(2 * unit, 8);
    const size_t slot4 = slot_in(room, 4);
    const struct limits all[] = {
        {"2 ranks", 2, 0, true, 4096 * KIB, 768 * KIB, 4096 * KIB},
        {"2 ranks, push alone", 2, PUSH_ROOM, true, alone, 768 * KIB, alone},
        {"3 ranks", 3, 0, true, slot3, 384 * KIB, in_two_shots(slot3, 3)},
        {"4 ranks", 4, 0, true, slot4, 256 * KIB, in_two_shots(slot4, 4)},
        {"2 ranks, the least with pull", 2, 40960 * KIB, true, 2048 * KIB, 768 * KIB, 2048 * KIB},
        {"4 ranks, more memory", 4, 57344 * KIB, true, 2048 * KIB, 256 * KIB, 4096 * KIB},
        {"3 ranks, more memory", 3, 73728 * KIB, true, slot_in(40960 * KIB, 3), 384 * KIB,
         in_two_shots(slot_in(40960 * KIB, 3), 3)},
        {"8 ranks", 8, 0, true, 128 * KIB, 128 * KIB, 512 * KIB},
        {"8 ranks, more memory", 8, 65536 * KIB, true, 128 * KIB, 128 * KIB, 512 * KIB},
        {"PCI Express", 2, 0, false, 64 * KIB, 64 * KIB, 64 * KIB},
        {"PCI Express, 4 ranks", 4, 0, false, 64 * KIB, 64 * KIB, 64 * KIB},
        {"2 ranks, less memory", 2, 3 * unit + 5, true, few2, few2, few2},
        {"3 ranks, less memory", 3, 2 * unit, true, few3, few3, in_two_shots(few3, 3)},
        {"8 ranks, of the coarsest granularity", 8, 3 * unit, true, few8, few8,
         in_two_shots(few8, 8)}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        check(&all[i]);
}
