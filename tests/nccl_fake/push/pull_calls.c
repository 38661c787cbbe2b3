/* Which calls pull serves, how, and that they are right; NCCL gets the rest. */
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 2, MIB = 1 << 20 };

/* ------------------------------------------------------------------------------------------ sizes */

struct sum {
    const struct push_ranks *ranks;
    size_t count;
    trib_dtype dtype;
};

static void sum_rank(int rank, int size, void *argument)
{
    const struct sum *sum = argument;
    (void)size;
    CHECK_OK(push_sum(sum->ranks, rank, sum->count, sum->dtype));
}

/* `limit` bytes are push's, and one element more is pull's. */
static void check_boundary(struct push_ranks *ranks, trib_dtype dtype, size_t limit)
{
    const size_t most = limit / trib_dtype_size(dtype);
    for (size_t count = most - 1; count <= most + 2; count++) {
        struct sum sum = {ranks, count, dtype};
        push_fill(ranks, dtype, count);
        check_ranks(RANKS, sum_rank, &sum);
        CHECK(push_summed(ranks, dtype, count));
        CHECK_MSG(large_counts(ranks, 0, count <= most, count > most, 0), "%zu of %s", count,
                  trib_dtype_name(dtype));
    }
}

/* Push goes up to 2 MiB, to half of that for types whose granules are wide. */
static void sizes(void)
{
    struct push_ranks ranks;
    push_begin("where pull takes over");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        check_boundary(&ranks, TRIB_F16, (size_t)2 * MIB);
        check_boundary(&ranks, TRIB_F32, (size_t)2 * MIB);
        check_boundary(&ranks, TRIB_F64, MIB);
        check_boundary(&ranks, TRIB_I32, MIB);
        push_close(&ranks);
    }
    push_end();
}

/* With so many ranks up to `bytes`, of any type; then NCCL is the faster one. */
static void most(int size, size_t bytes, trib_dtype dtype)
{
    struct push_ranks ranks;
    const trib_options options = TRIB_OPTIONS_INIT;
    push_begin("up to where pull goes");
    if (push_open(&ranks, size, bytes + 8, &options)) {
        (void)large_counts(&ranks, -1, -1, -1, -1);
        for (size_t over = 0; over < 2; over++) {
            struct sum sum = {&ranks, bytes / trib_dtype_size(dtype) + over, dtype};
            check_ranks(size, sum_rank, &sum);
            for (int rank = 0; rank < size; rank++)
                CHECK_OK(trib_stream_wait(ranks.devices[rank], ranks.streams[rank]));
            CHECK(large_counts(&ranks, over != 0 ? size : 0, 0, over == 0, 0));
        }
        push_close(&ranks);
    }
    push_end();
}

static void limits(void)
{
#ifdef __SANITIZE_THREAD__
    return; /* 11 GiB with the sanitizer's own, and no other threads than elsewhere here */
#endif
    most(2, (size_t)1024 * MIB, TRIB_F64);
    most(3, (size_t)256 * MIB, TRIB_F64);
    most(4, (size_t)64 * MIB, TRIB_F64);
    most(4, (size_t)64 * MIB, TRIB_F16);
}

/* ------------------------------------------------------------------------------------ NCCL's own */

struct other {
    struct push_ranks *ranks;
    enum { REDUCE, SCALED, BATCH, KINDS } kind;
};

static void other_rank(int rank, int size, void *argument)
{
    const struct other *other = argument;
    trib_comm *comm = other->ranks->comms[rank];
    const trib_stream stream = other->ranks->streams[rank];
    float *data = other->ranks->data[rank];
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    (void)size;
    options.flags = TRIB_CALL_FACTOR;
    options.factor = 2;
    if (other->kind == REDUCE)
        CHECK_OK(trib_reduce(comm, data, data, LARGE_N, TRIB_F32, TRIB_SUM, 1, stream));
    else if (other->kind == SCALED)
        CHECK_OK(
            trib_allreduce_with(comm, data, data, LARGE_N, TRIB_F32, TRIB_SUM, &options, stream));
    else {
        CHECK_OK(trib_batch_begin(comm));
        large_sum(other->ranks, rank);
        large_sum(other->ranks, rank);
        CHECK_OK(trib_batch_end(comm));
    }
}

static void others(void)
{
    struct push_ranks ranks;
    struct other other = {&ranks, REDUCE};
    push_begin("large calls that are NCCL's");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        for (int kind = 0; kind < KINDS; kind++) {
            other.kind = kind;
            check_ranks(RANKS, other_rank, &other);
            CHECK_MSG(large_counts(&ranks, kind == BATCH ? 2 * RANKS : RANKS, 0, 0, 0), "kind %d",
                      kind);
        }
        CHECK(large_works(&ranks) && large_counts(&ranks, 0, 0, 1, 0));
        push_close(&ranks);
    }
    push_end();
}

/* ----------------------------------------------------------------------------------------- batches */

struct two {
    struct push_ranks *both[2];
    size_t counts[2];
};

static void two_rank(int rank, int size, void *argument)
{
    const struct two *two = argument;
    trib_comm *comms[2] = {two->both[0]->comms[rank], two->both[1]->comms[rank]};
    (void)size;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trib_batch_begin(comms[i]));
        CHECK_OK(push_sum(two->both[i], rank, two->counts[i], TRIB_F32));
    }
    CHECK_OK(trib_batch_end_all(comms, 2));
}

/* Of a batch over two communicators each call finds its way. */
static void batches(void)
{
    struct push_ranks first, second;
    struct two two = {{&first, &second}, {LARGE_N, LARGE_N}};
    push_begin("large calls in batches over two communicators");
    if (large_open(&first, RANKS, LARGE_ROOM) && large_open(&second, RANKS, LARGE_NO_ROOM)) {
        check_ranks(RANKS, two_rank, &two);
        CHECK(large_counts(&second, RANKS, 0, 1, 0));
        two.counts[1] = PUSH_N;
        push_fill(&first, TRIB_F32, LARGE_N);
        push_fill(&second, TRIB_F32, PUSH_N);
        check_ranks(RANKS, two_rank, &two);
        CHECK(push_summed(&first, TRIB_F32, LARGE_N) && push_summed(&second, TRIB_F32, PUSH_N));
        CHECK(large_counts(&second, 0, 1, 1, 0));
        push_close(&first);
        push_close(&second);
    }
    push_end();
}

/* ------------------------------------------------------------------------------------------- steps */

/* The steps of the kernel in the memory of both lanes, staged and not: what is short enough for them. */
static void steps(void)
{
    enum { N = MIB / 8 + 5 };
    struct push_ranks ranks;
    push_begin("large calls step by step");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        for (int pool = 0; pool < 2; pool++) {
            if (pool == 1)
                fake_pool(ranks.data[1], false);
            push_fill(&ranks, TRIB_F64, N);
            for (int call = 0; call < 3; call++)
                for (int rank = 0; rank < RANKS; rank++)
                    CHECK_OK(push_sum(&ranks, rank, N, TRIB_F64));
            for (int rank = 0; rank < RANKS; rank++) {
                CHECK_OK(trib_comm_wait(ranks.comms[rank], ranks.streams[rank], PUSH_PLENTY_MS));
                CHECK(push_holds(&ranks, rank, TRIB_F64, N, RANKS * RANKS));
            }
            CHECK(large_counts(&ranks, 0, 0, 3, pool == 1 ? 3 : 0));
            CHECK(fake_pulls().blocks == 64);
        }
        push_close(&ranks);
    }
    push_end();
}

void pull_calls(void)
{
    sizes();
    limits();
    others();
    batches();
    steps();
}
