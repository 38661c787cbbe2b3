/* Sparse calls whose packets stay where they were made: which ones do, what serves the rest of a call, and what
 * becomes of their memory. Nothing is merged or decided here. */
#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum {
    COUNT = 80000,
    NEAR = 65525,   /* entries of a packet of 512 KiB, with its header */
    FAR = NEAR - 9, /* 64 bytes less */
    MOST_CALLS = 64
};

struct states {
    struct push_ranks *ranks;
    uint64_t k;
    uint32_t flags;
    trib_sparse *of[TRI_PUSH_RANKS];
    trib_status status[TRI_PUSH_RANKS];
};

static void create_rank(int rank, int size, void *argument)
{
    struct states *states = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    (void)size;
    options.algorithm = "topka";
    options.flags = TRIB_SPARSE_USE_K | TRIB_SPARSE_IN_PLACE | states->flags;
    options.k = states->k;
    states->status[rank] = trib_sparse_create(&states->of[rank], states->ranks->comms[rank], COUNT,
                                              TRIB_F32, &options);
}

static bool create(struct states *states)
{
    const int size = states->ranks->size;
    bool good = true;
    check_ranks(size, create_rank, states);
    for (int rank = 0; rank < size; rank++)
        good = good && states->status[rank] == TRIB_OK;
    return good;
}

static void set_rank(int rank, int size, void *argument)
{
    struct states *states = argument;
    (void)size;
    states->status[rank] = trib_sparse_set_k(states->of[rank], states->k);
}

static void destroy(const struct states *states)
{
    for (int rank = 0; rank < states->ranks->size; rank++)
        CHECK_OK(trib_sparse_destroy(states->of[rank]));
}

/* Buffers have twice COUNT floats: the accumulator, and the result. */
static void call_rank(int rank, int size, void *argument)
{
    const struct states *states = argument;
    const struct push_ranks *ranks = states->ranks;
    (void)size;
    CHECK_OK(trib_sparse_allreduce(states->of[rank], ranks->data[rank],
                                   (float *)ranks->data[rank] + COUNT, ranks->streams[rank]));
    CHECK_OK(trib_comm_wait(ranks->comms[rank], ranks->streams[rank], PUSH_PLENTY_MS));
}

/* NCCL may serve it, so a thread for each rank. */
static void call(struct states *states)
{
    push_fill(states->ranks, TRIB_F32, COUNT);
    check_ranks(states->ranks->size, call_rank, states);
}

static bool open_ranks(struct push_ranks *ranks, int size, uint64_t peer_bytes)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = peer_bytes;
    return push_open(ranks, size, 2 * COUNT * sizeof(float), &options);
}

/* Push brings the headers and says that all ranks are done; or the packets go by `pushes`, `pulls` or NCCL. */
static void goes(int size, uint64_t peer_bytes, uint64_t k, uint32_t flags, const long served[3])
{
    struct push_ranks ranks;
    struct states states = {.ranks = &ranks, .k = k, .flags = flags};
    if (open_ranks(&ranks, size, peer_bytes)) {
        const int before = fake_mappings();
        if (CHECK_MSG(create(&states), "%d ranks: %s and %s", size,
                      trib_status_name(states.status[0]), trib_status_name(states.status[1]))) {
            (void)large_counts(&ranks, -1, -1, -1, -1);
            for (int i = 0; i < 3 && flags == 0; i++) {
                call(&states);
                CHECK_MSG(large_counts(&ranks, served[0] * size, served[1], served[2], 0),
                          "%d ranks, %llu entries", size, (unsigned long long)k);
            }
            CHECK((fake_mappings() > before) == (served[1] == 2));
            const int made = fake_mappings();
            destroy(&states);
            CHECK(create(&states) && fake_mappings() == made); /* the same memory once more */
            destroy(&states);
        }
        push_close(&ranks);
    }
}

static void which(void)
{
    static const long stays[] = {0, 2, 0}, pushed[] = {0, 1, 0}, pulled[] = {0, 0, 1},
                      nccl[] = {1, 0, 0}, none[] = {0, 0, 0};
    push_begin("packets that stay, and smaller ones");
    goes(2, 0, NEAR, 0, stays);
    goes(2, 0, FAR, 0, pushed);
    goes(4, 0, NEAR, 0, stays);
    goes(4, 0, FAR, 0, pulled);
    goes(4, PUSH_ROOM, NEAR, 0, stays); /* without pull */
    push_end();
    push_begin("packets that do not stay");
    fake_move_data(true);
    goes(2, 0, NEAR, TRIB_SPARSE_ENTRIES, none);
    goes(2, TRIB_NO_PEERS, NEAR, 0, nccl);
    goes(5, 0, NEAR, 0, nccl); /* nobody has measured */
    fake_reach(true, false);
    goes(2, 0, NEAR, 0, nccl); /* not over NVLink */
    fake_move_data(false);
    push_end();
}

static void larger(void)
{
    struct push_ranks ranks;
    push_begin("packets that stay from another k on");
    if (open_ranks(&ranks, 2, 0)) {
        struct states states = {.ranks = &ranks, .k = FAR};
        const int before = fake_mappings();
        CHECK(create(&states) && fake_mappings() == before);
        states.k = NEAR;
        check_ranks(2, set_rank, &states);
        const int more = fake_mappings();
        CHECK(states.status[0] == TRIB_OK && more > before);
        states.k = NEAR + 10000;
        check_ranks(2, set_rank, &states);
        CHECK(states.status[0] == TRIB_OK && fake_mappings() > more);
        call(&states);
        destroy(&states);
        push_close(&ranks);
    }
    push_end();
}

/* Whichever call of the driver fails, on whichever rank, none gets a state. */
static void failures(void)
{
    struct push_ranks ranks;
    int n = 0, failed = 0;
    push_begin("packets whose memory the driver refuses");
    if (open_ranks(&ranks, 2, 0)) {
        struct states states = {.ranks = &ranks, .k = NEAR};
        const int before = fake_mappings();
        for (bool good = false; !good && n < MOST_CALLS; n++) {
            fake_fail_mapping(n);
            good = create(&states);
            fake_fail_mapping(-1);
            failed += !good;
            CHECK_MSG(good || (states.status[0] == TRIB_ERR_OUT_OF_MEMORY &&
                               states.status[1] == TRIB_ERR_OUT_OF_MEMORY && states.of[0] == NULL &&
                               states.of[1] == NULL && fake_mappings() == before),
                      "call %d: %s and %s", n, trib_status_name(states.status[0]),
                      trib_status_name(states.status[1]));
        }
        CHECK(failed >= 3 * 2); /* each creates, reserves, maps at least */
        call(&states);
        destroy(&states);
        push_close(&ranks);
    }
    push_end();
}

/* An abort leaves the memory to who destroys the communicator: another rank may still read it. */
static void aborted(void)
{
    struct push_ranks ranks;
    push_begin("packets that stay after an abort");
    if (open_ranks(&ranks, 2, 0)) {
        struct states states = {.ranks = &ranks, .k = NEAR};
        trib_abort *handle = NULL;
        if (CHECK(create(&states)) && CHECK_OK(trib_comm_abort_handle(&handle, ranks.comms[0]))) {
            call(&states);
            CHECK_OK(trib_abort_raise(handle, "a test"));
            CHECK_OK(trib_quiesce(PUSH_PLENTY_MS)); /* the memory of push is gone */
            const int before = fake_mappings();
            CHECK(before > 0);
            destroy(&states);
            CHECK(fake_mappings() == before);
        }
        trib_abort_release(handle);
        push_close(&ranks);
    }
    push_end();
}

void push_near(void)
{
    which();
    larger();
    failures();
    aborted();
}
