/* Which calls push serves, and that they are right; NCCL gets the rest. */
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { LARGE = 1 << 20 }; /* elements: more than push serves */

/* Of one rank after another, all by one thread: no call waits for a peer. */
static void sums(int size)
{
    struct push_ranks ranks;
    push_begin("sums by one thread");
    if (push_open(&ranks, size, PUSH_N * 8, NULL)) {
        for (int round = 0; round < 5; round++)
            CHECK(push_works(&ranks));
        CHECK(push_counts(&ranks, 0, 5));
        push_fill(&ranks, TRIB_F32, PUSH_N);
        for (int rank = 0; rank < size; rank++) /* calls of no elements do not count */
            CHECK_OK(push_sum(&ranks, rank, 0, TRIB_F32));
        CHECK(push_works(&ranks) && push_counts(&ranks, 0, 1));
        push_close(&ranks);
    }
    push_end();
}

/* A rank may be several calls ahead of what its peers have come to. */
static void ahead(void)
{
    struct push_ranks ranks;
    push_begin("a rank that is ahead");
    if (push_open(&ranks, 3, PUSH_N * 4, NULL)) {
        push_fill(&ranks, TRIB_F32, PUSH_N);
        for (int call = 0; call < 3; call++)
            CHECK_OK(push_sum(&ranks, 2, PUSH_N, TRIB_F32));
        CHECK(!push_is_done(&ranks, 2) && push_counts(&ranks, 0, 0));
        for (int rank = 0; rank < 2; rank++)
            for (int call = 0; call < 3; call++)
                CHECK_OK(push_sum(&ranks, rank, PUSH_N, TRIB_F32));
        for (int rank = 0; rank < 3; rank++) {
            CHECK_OK(trib_comm_wait(ranks.comms[rank], ranks.streams[rank], PUSH_PLENTY_MS));
            CHECK(push_holds(&ranks, rank, TRIB_F32, PUSH_N, 9));
        }
        CHECK(push_counts(&ranks, 0, 3));
        push_close(&ranks);
    }
    push_end();
}

/* Lists, averages and barriers are allreduces, too. */
static void composed_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    trib_comm *comm = ranks->comms[rank];
    const trib_stream stream = ranks->streams[rank];
    float *data = ranks->data[rank];
    const trib_tensor list[2] = {{data, 3, TRIB_F32, 0}, {data + 3, PUSH_N - 3, TRIB_F32, 0}};
    push_fill_rank(ranks, rank, TRIB_F32, PUSH_N);
    CHECK_OK(trib_barrier(comm, stream));
    CHECK_OK(trib_allreduce_list(comm, list, 2, TRIB_SUM, stream));
    CHECK_OK(trib_comm_wait(comm, stream, PUSH_PLENTY_MS));
    CHECK(push_holds(ranks, rank, TRIB_F32, PUSH_N, 1));
    CHECK_OK(trib_weighted_average(comm, list, 2, (float)(rank + 1), NULL, NULL, stream));
    CHECK_OK(trib_comm_wait(comm, stream, PUSH_PLENTY_MS));
    CHECK(push_holds(ranks, rank, TRIB_F32, PUSH_N, 1)); /* the average of equals */
    CHECK_OK(trib_allreduce(comm, data, data, PUSH_N, TRIB_F32, TRIB_AVG, stream));
    CHECK_OK(trib_comm_wait(comm, stream, PUSH_PLENTY_MS));
    CHECK(push_holds(ranks, rank, TRIB_F32, PUSH_N, 1));
    (void)size;
}

static void composed(void)
{
    struct push_ranks ranks;
    push_begin("lists, averages and barriers");
    if (push_open(&ranks, 3, PUSH_N * 4, NULL)) {
        push_each(&ranks, composed_rank);
        CHECK_MSG(fake_nccl_calls() == ranks.served.nccl, "NCCL got calls");
        CHECK(fake_pushes() - ranks.served.pushes >= 4);
        push_close(&ranks);
    }
    push_end();
}

/* ------------------------------------------------------------------------------------ NCCL's own */

static void scaled_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = TRIB_CALL_FACTOR;
    options.factor = 2;
    (void)size;
    CHECK_OK(trib_allreduce_with(ranks->comms[rank], ranks->data[rank], ranks->data[rank], PUSH_N,
                                 TRIB_F32, TRIB_SUM, &options, ranks->streams[rank]));
}

static void reduce_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    (void)size;
    CHECK_OK(trib_reduce(ranks->comms[rank], ranks->data[rank], ranks->data[rank], PUSH_N, TRIB_F32,
                         TRIB_SUM, 1, ranks->streams[rank]));
}

static void large_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    (void)size;
    CHECK_OK(push_sum(ranks, rank, LARGE, TRIB_F32));
}

/* Small ones between others are no exception: their order in the batch is NCCL's. */
static void batch_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    (void)size;
    CHECK_OK(trib_batch_begin(ranks->comms[rank]));
    for (int call = 0; call < 3; call++)
        CHECK_OK(push_sum(ranks, rank, PUSH_N, TRIB_F32));
    CHECK_OK(trib_batch_end(ranks->comms[rank]));
}

static void batch_of_one_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    (void)size;
    CHECK_OK(trib_batch_begin(ranks->comms[rank]));
    CHECK_OK(push_sum(ranks, rank, PUSH_N, TRIB_F32));
    CHECK_OK(trib_batch_end(ranks->comms[rank]));
}

static void others(void)
{
    struct push_ranks ranks;
    push_begin("calls that are NCCL's");
    if (push_open(&ranks, 2, (size_t)LARGE * 4, NULL)) {
        push_each(&ranks, scaled_rank);
        CHECK(push_counts(&ranks, 2, 0));
        push_each(&ranks, reduce_rank);
        CHECK(push_counts(&ranks, 2, 0));
        push_each(&ranks, large_rank);
        CHECK(push_counts(&ranks, 2, 0));
        push_each(&ranks, batch_rank);
        CHECK(push_counts(&ranks, 6, 0));
        push_each(&ranks, batch_of_one_rank);
        CHECK(push_counts(&ranks, 0, 1));
        CHECK(push_works(&ranks) && push_counts(&ranks, 0, 1));
        push_close(&ranks);
    }
    push_end();
}

/* Ranks 0 and 1 swap an element; the others have no messages. */
static void swap_rank(int rank, int size, void *argument)
{
    const struct push_ranks *ranks = argument;
    trib_comm *comm = ranks->comms[rank];
    const size_t offsets[3] = {0}, counts[3] = {rank == 1, rank == 0, 0};
    float *sent = (float *)ranks->data[rank] + PUSH_N;
    (void)size;
    CHECK_OK(trib_batch_begin(comm));
    CHECK_OK(trib_alltoallv(comm, sent, counts, offsets, sent + 1, counts, offsets, TRIB_F32,
                            ranks->streams[rank]));
    CHECK_OK(push_sum(ranks, rank, PUSH_N, TRIB_F32));
    CHECK_OK(trib_batch_end(comm));
    CHECK_OK(trib_comm_wait(comm, ranks->streams[rank], PUSH_PLENTY_MS));
}

/* Whoever has no messages chooses as the others do. */
static void beside_messages(void)
{
    struct push_ranks ranks;
    push_begin("a batch with messages of some ranks");
    if (push_open(&ranks, 3, (PUSH_N + 2) * sizeof(float), NULL)) {
        push_fill(&ranks, TRIB_F32, PUSH_N);
        push_each(&ranks, swap_rank);
        CHECK(push_summed(&ranks, TRIB_F32, PUSH_N) && push_counts(&ranks, 4, 1));
        push_close(&ranks);
    }
    push_end();
}

/* ------------------------------------------------------------------------- several communicators */

struct two {
    struct push_ranks *first, *second;
    size_t counts[2];
    bool alone; /* the first one's batch has one call; else two */
};

static void two_rank(int rank, int size, void *argument)
{
    const struct two *two = argument;
    const struct push_ranks *both[2] = {two->first, two->second};
    trib_comm *comms[2] = {two->first->comms[rank], two->second->comms[rank]};
    (void)size;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(trib_batch_begin(comms[i]));
        CHECK_OK(push_sum(both[i], rank, two->counts[i], TRIB_F32));
    }
    if (!two->alone)
        CHECK_OK(push_sum(both[0], rank, two->counts[0], TRIB_F32));
    CHECK_OK(trib_batch_end_all(comms, 2));
}

/* Of a batch over two communicators, push serves the one that has a single small call. */
static void two_communicators(void)
{
    struct push_ranks first, second;
    struct two two = {&first, &second, {PUSH_N, LARGE}, true};
    push_begin("batches over two communicators");
    if (push_open(&first, 2, (size_t)LARGE * 4, NULL) &&
        push_open(&second, 2, (size_t)LARGE * 4, NULL)) {
        push_fill(&first, TRIB_F32, PUSH_N);
        check_ranks(2, two_rank, &two);
        CHECK(push_summed(&first, TRIB_F32, PUSH_N));
        CHECK(push_counts(&second, 2, 1));
        two.counts[1] = PUSH_N;
        push_fill(&first, TRIB_F32, PUSH_N);
        push_fill(&second, TRIB_F32, PUSH_N);
        check_ranks(2, two_rank, &two);
        CHECK(push_summed(&first, TRIB_F32, PUSH_N) && push_summed(&second, TRIB_F32, PUSH_N));
        CHECK(push_counts(&second, 0, 2));
        two.alone = false;
        push_fill(&second, TRIB_F32, PUSH_N);
        check_ranks(2, two_rank, &two);
        CHECK(push_summed(&second, TRIB_F32, PUSH_N));
        CHECK(push_counts(&second, 4, 1));
        push_close(&first);
        push_close(&second);
    }
    push_end();
}

void push_calls(void)
{
    for (int size = 2; size <= 8; size += 3)
        sums(size);
    ahead();
    composed();
    others();
    beside_messages();
    two_communicators();
}
