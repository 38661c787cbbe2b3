/* Symmetric memory of one process: pull reaches it where it lies, and NCCL's calls on it are NCCL's. */
#include <string.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum { RANKS = 2, MOST_CALLS = 64, KEPT_MAPPINGS = 3 /* of one rank: made, reserved, mapped */ };

/* What each rank gets of one allocation. */
struct allocation {
    struct push_ranks *ranks;
    size_t bytes;
    void *data[RANKS];
    trib_status status[RANKS];
};

static void allocate_rank(int rank, int size, void *argument)
{
    struct allocation *all = argument;
    (void)size;
    all->status[rank] = trib_symmetric_alloc(&all->data[rank], all->ranks->comms[rank], all->bytes);
}

static bool allocate(struct allocation *all, struct push_ranks *ranks, size_t bytes)
{
    *all = (struct allocation){.ranks = ranks, .bytes = bytes};
    check_ranks(RANKS, allocate_rank, all);
    return all->status[0] == TRIB_OK && all->status[1] == TRIB_OK;
}

static void free_rank(int rank, int size, void *argument)
{
    struct allocation *all = argument;
    (void)size;
    CHECK_OK(trib_symmetric_free(all->ranks->comms[rank], all->data[rank]));
}

/* In place, all of them by this thread. */
static bool sum_all(struct push_ranks *ranks, const struct allocation *all, size_t count,
                    trib_variant variant)
{
    struct push_ranks on = *ranks;
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.variant = variant;
    for (int rank = 0; rank < RANKS; rank++)
        on.data[rank] = all->data[rank];
    push_fill(&on, TRIB_F32, count);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_OK(trib_allreduce_with(on.comms[rank], on.data[rank], on.data[rank], count, TRIB_F32,
                                     TRIB_SUM, &options, on.streams[rank]));
    return push_summed(&on, TRIB_F32, count);
}

static void calls(void)
{
    struct push_ranks ranks;
    struct allocation all;
    push_begin("calls on symmetric memory");
    if (large_open(&ranks, RANKS, LARGE_ROOM) && CHECK(allocate(&all, &ranks, LARGE_BYTES))) {
        (void)large_counts(&ranks, -1, -1, -1, -1);
        CHECK(sum_all(&ranks, &all, LARGE_N, TRIB_VARIANT_AUTO));
        CHECK(large_counts(&ranks, 0, 0, 1, 0));
        CHECK(sum_all(&ranks, &all, LARGE_N, TRIB_VARIANT_SYMMETRIC));
        CHECK(large_counts(&ranks, 0, 0, 1, 0));
        CHECK(sum_all(&ranks, &all, PUSH_N, TRIB_VARIANT_SYMMETRIC));
        CHECK(large_counts(&ranks, 0, 1, 0, 0));
        check_ranks(RANKS, free_rank, &all);
        CHECK(large_works(&ranks) && large_counts(&ranks, -1, 0, 0, 0));
        push_close(&ranks);
    }
    push_end();
}

/* A buffer that reaches beyond it is of another kind: all of it is looked at. */
static void too_long(void)
{
    struct push_ranks ranks;
    struct allocation all;
    push_begin("more than symmetric memory");
    if (large_open(&ranks, RANKS, LARGE_ROOM) && CHECK(allocate(&all, &ranks, 400))) {
        trib_call_options options = TRIB_CALL_OPTIONS_INIT;
        options.variant = TRIB_VARIANT_SYMMETRIC;
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK_STATUS(trib_allreduce_with(ranks.comms[rank], all.data[rank], all.data[rank], 101,
                                             TRIB_F32, TRIB_SUM, &options, ranks.streams[rank]),
                         TRIB_ERR_INVALID_BUFFER);
            CHECK_DETAIL("`send`");
        }
        CHECK(sum_all(&ranks, &all, 100, TRIB_VARIANT_SYMMETRIC));
        push_close(&ranks);
    }
    push_end();
}

/* Whichever call of the driver fails, on whichever rank, none has the memory, and the next one is made. */
static void failures(void)
{
    struct push_ranks ranks;
    struct allocation all;
    int n = 0, failed = 0;
    push_begin("symmetric memory that the driver refuses");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        const int before = fake_mappings();
        for (bool good = false; !good && n < MOST_CALLS; n++) {
            fake_fail_mapping(n);
            good = allocate(&all, &ranks, LARGE_BYTES);
            fake_fail_mapping(-1);
            failed += !good;
            CHECK_MSG(good || (all.status[0] == TRIB_ERR_OUT_OF_MEMORY &&
                               all.status[1] == TRIB_ERR_OUT_OF_MEMORY && all.data[0] == NULL &&
                               all.data[1] == NULL && fake_mappings() == before),
                      "call %d: %s and %s", n, trib_status_name(all.status[0]),
                      trib_status_name(all.status[1]));
        }
        CHECK(failed >= 3 * RANKS); /* each creates, reserves, maps at least */
        CHECK(sum_all(&ranks, &all, LARGE_N, TRIB_VARIANT_SYMMETRIC));
        push_close(&ranks);
    }
    push_end();
}

/* Without pull NCCL serves the large calls on it, and without push there is none. */
static void without(void)
{
    struct push_ranks ranks;
    struct allocation all;
    push_begin("symmetric memory without pull");
    if (large_open(&ranks, RANKS, LARGE_NO_ROOM) && CHECK(allocate(&all, &ranks, LARGE_BYTES))) {
        (void)large_counts(&ranks, -1, -1, -1, -1);
        CHECK(sum_all(&ranks, &all, PUSH_N, TRIB_VARIANT_SYMMETRIC));
        CHECK(large_counts(&ranks, 0, 1, 0, 0));
        push_close(&ranks);
    }
    push_end();
    push_begin("no symmetric memory without push");
    if (large_open(&ranks, RANKS, TRIB_NO_PEERS)) {
        CHECK(!allocate(&all, &ranks, 1) && all.status[0] == TRIB_ERR_UNSUPPORTED &&
              all.status[1] == TRIB_ERR_UNSUPPORTED);
        push_close(&ranks);
    }
    push_end();
}

static void alone(void)
{
    struct push_ranks ranks;
    void *data = NULL, *found = NULL;
    push_begin("symmetric memory of one rank");
    if (large_open(&ranks, 1, LARGE_ROOM) &&
        CHECK_OK(trib_symmetric_alloc(&data, ranks.comms[0], LARGE_BYTES))) {
        memset(data, 1, LARGE_BYTES);
        CHECK_OK(trib_symmetric_query(&found, ranks.comms[0], data, LARGE_BYTES, 0));
        CHECK(found == data);
        CHECK_OK(trib_symmetric_free(ranks.comms[0], data));
        CHECK_OK(trib_symmetric_alloc(&data, ranks.comms[0], 1)); /* is left to the communicator */
        push_close(&ranks);
    }
    push_end();
}

/* An abort ends the calls, and leaves it to who destroys the communicator. */
static void aborted(void)
{
    struct push_ranks ranks;
    struct allocation all;
    push_begin("an abort with symmetric memory");
    if (large_open(&ranks, RANKS, LARGE_ROOM) && CHECK(allocate(&all, &ranks, LARGE_BYTES))) {
        trib_abort *handle = NULL;
        void *found = NULL;
        CHECK_OK(trib_comm_abort_handle(&handle, ranks.comms[0]));
        large_sum(&ranks, 0);
        CHECK_OK(trib_abort_raise(handle, "a test"));
        trib_abort_release(handle);
        CHECK_STATUS(trib_symmetric_free(ranks.comms[1], all.data[1]), TRIB_ERR_ABORTED);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        memset(all.data[0], 1, LARGE_BYTES);
        CHECK_OK(trib_symmetric_query(&found, ranks.comms[0], all.data[0], LARGE_BYTES, 1));
        CHECK(found == all.data[1]);
        CHECK(!allocate(&all, &ranks, 1) && all.status[0] == TRIB_ERR_ABORTED);
        push_close(&ranks);
    }
    push_end();
}

static void allocate_alone(int rank, int size, void *argument)
{
    struct allocation *all = argument;
    trib_abort *handle = NULL;
    if (rank == 0) {
        allocate_rank(rank, size, all);
        return;
    }
    check_sleep_ms(PUSH_LATE_MS);
    CHECK_OK(trib_comm_abort_handle(&handle, all->ranks->comms[rank]));
    CHECK_OK(trib_abort_raise(handle, "a test"));
    trib_abort_release(handle);
}

/* A rank that waits for the others' part returns. */
static void interrupted(void)
{
    struct push_ranks ranks;
    push_begin("an abort while a rank allocates symmetric memory");
    if (large_open(&ranks, RANKS, LARGE_ROOM)) {
        struct allocation all = {.ranks = &ranks, .bytes = LARGE_BYTES};
        check_ranks(RANKS, allocate_alone, &all);
        CHECK(all.status[0] == TRIB_ERR_ABORTED && all.data[0] == NULL);
        push_close(&ranks);
    }
    push_end();
}

/* A rank's list still has to write its tensors when all of them are destroyed: nobody knows when it will. */
static void list_left(void)
{
    struct push_ranks ranks;
    struct allocation all;
    struct fake_held held;
    push_begin("a list of symmetric memory that outlives the communicator");
    if (large_open(&ranks, RANKS, LARGE_ROOM) && CHECK(allocate(&all, &ranks, LARGE_BYTES))) {
        trib_abort *handle = NULL;
        const trib_tensor tensor = {all.data[0], PUSH_N, TRIB_F32, 0};
        CHECK_OK(trib_comm_abort_handle(&handle, ranks.comms[0]));
        fake_hold_stream(&held, ranks.streams[0]);
        CHECK_OK(trib_allreduce_list(ranks.comms[0], &tensor, 1, TRIB_SUM, ranks.streams[0]));
        CHECK_OK(trib_abort_raise(handle, "a test"));
        trib_abort_release(handle);
        push_destroy(&ranks);
        fake_release_stream(&held);
        push_drop(&ranks);
        memset(all.data[0], 1, LARGE_BYTES);
    }
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
    push_keep(KEPT_MAPPINGS, 0);
    push_end();
}

static void allocate_or_free(int rank, int size, void *argument)
{
    struct allocation *all = argument;
    void *other = NULL;
    (void)size;
    all->status[rank] = rank == 0 ? trib_symmetric_free(all->ranks->comms[rank], all->data[rank])
                                  : trib_symmetric_alloc(&other, all->ranks->comms[rank], 1);
    CHECK(other == NULL);
}

/* Allocation 1 is freed here, and 1 byte is allocated there: nobody does either. */
static void differ(void)
{
    struct push_ranks ranks;
    struct allocation all;
    push_begin("a rank frees symmetric memory where another one allocates it");
    if (large_open(&ranks, RANKS, LARGE_ROOM) && CHECK(allocate(&all, &ranks, 1)) &&
        CHECK(allocate(&all, &ranks, LARGE_BYTES))) {
        check_ranks(RANKS, allocate_or_free, &all);
        CHECK(all.status[0] == TRIB_ERR_MISMATCH && all.status[1] == TRIB_ERR_MISMATCH);
        CHECK(sum_all(&ranks, &all, LARGE_N, TRIB_VARIANT_SYMMETRIC));
        push_close(&ranks);
    }
    push_end();
}

void push_symmetric_kept(void)
{
    list_left();
}

void push_symmetric(void)
{
    calls();
    too_long();
    failures();
    without();
    alone();
    aborted();
    interrupted();
    differ();
}
