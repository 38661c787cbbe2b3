/* Where there is no pull: NCCL serves large calls and push small ones, the log says why, and nothing is
 * left. */
#include <cuda.h>
#include <nccl.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/large.h"

enum {
    RANKS = 2,
    MAPPINGS = 3, /* what a mapping of a rank is made of */
    PARENTS = 5   /* more than have pull */
};

/* Without a word in the log, for nobody has asked for it; push serves so many of a large and a small call. */
static void check_none(int size, uint64_t peer_bytes, int pushes)
{
    struct push_ranks ranks;
    if (!large_open(&ranks, size, peer_bytes))
        return;
    push_each(&ranks, large_rank);
    push_each(&ranks, push_call_rank);
    CHECK(large_counts(&ranks, (2 - pushes) * size, pushes, 0, 0));
    CHECK(push_large_refusals(NULL) == 0);
    push_close(&ranks);
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
}

static void not_for_them(void)
{
    push_begin("communicators that have no pull");
    check_none(5, 4 * (uint64_t)LARGE_ROOM, 1);
    check_none(RANKS, LARGE_NO_ROOM, 1);
    check_none(RANKS, (40 << 20) - 1, 2);
    check_none(RANKS, TRIB_NO_PEERS, 0);
    fake_reach(true, false);
    check_none(RANKS, LARGE_ROOM, 1);
    push_end();
}

struct adopting {
    struct push_ranks ranks;
    ncclUniqueId id;
};

static void adopting_rank(int rank, int size, void *argument)
{
    struct adopting *adopting = argument;
    struct push_ranks *ranks = &adopting->ranks;
    trib_options options = TRIB_OPTIONS_INIT;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t nccl = NULL;
    config.blocking = 1;
    options.peer_bytes = LARGE_ROOM;
    fake_make_current(rank);
    CHECK(ncclCommInitRankConfig(&nccl, size, adopting->id, rank, &config) == ncclSuccess);
    fake_make_current(-1);
    CHECK_OK(trib_comm_adopt(&ranks->comms[rank], nccl, &options));
    large_rank(rank, size, ranks);
    CHECK_OK(trib_comm_destroy(ranks->comms[rank]));
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
    fake_make_current(rank);
    CHECK(ncclCommFinalize(nccl) == ncclSuccess && ncclCommDestroy(nccl) == ncclSuccess);
    fake_make_current(-1);
}

static void adopted(void)
{
    static struct adopting adopting;
    push_begin("adopted communicators have no pull");
    if (large_open(&adopting.ranks, RANKS, TRIB_NO_PEERS)) {
        push_destroy(&adopting.ranks);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(ncclGetUniqueId(&adopting.id) == ncclSuccess);
        const long pulls = fake_pulls().done;
        fake_move_data(true); /* ranks that are adopted find each other by NCCL */
        check_ranks(RANKS, adopting_rank, &adopting);
        fake_move_data(false);
        CHECK(fake_nccl_calls() - adopting.ranks.served.nccl >= RANKS);
        CHECK(fake_pulls().done == pulls);
        push_drop(&adopting.ranks);
    }
    push_end();
}

/* ------------------------------------------------------------------------------ setups that fail */

/* A communicator is made whose pull fails, for a reason with `words`: only push's memory is there. */
static void check_absent(const char *words)
{
    struct push_ranks ranks;
    const int before = push_large_refusals(NULL);
    const int mappings = fake_mappings();
    const bool good = large_open(&ranks, RANKS, LARGE_ROOM);
    fake_fail_mapping(-1);
    fake_fail_pull(-1);
    fake_query_result(0);
    fake_pull_as(FAKE_PULL_WORKS);
    fake_set_multiprocessors(1, 0);
    if (!good)
        return;
    CHECK_MSG(push_large_refusals(words) == before + 1, "the log has not said: %s", words);
    CHECK(fake_mappings() == mappings + MAPPINGS * RANKS && push_refusals(NULL) == 0);
    push_each(&ranks, large_rank);
    CHECK(large_counts(&ranks, RANKS, 0, 0, 0));
    CHECK(push_works(&ranks) && push_works(&ranks) && large_counts(&ranks, 0, 2, 0, 0));
    push_close(&ranks);
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
}

/* Push's four calls of each rank have been good; then comes access, and pull's own four. */
static void no_memory(void)
{
    push_begin("no access, or no memory for large calls");
    for (int call = 0; call < RANKS; call++) {
        fake_fail_mapping(4 * RANKS + call);
        check_absent("an error of the fake");
    }
    for (int call = 0; call < 4 * RANKS; call++) {
        fake_fail_mapping(5 * RANKS + call);
        check_absent("had no memory for that");
    }
    push_end();
}

static void trials(void)
{
    push_begin("trials of large calls that fail");
    for (int how = FAKE_PULL_LOSES; how <= FAKE_PULL_GARBLES_READS; how++) {
        fake_pull_as(how);
        check_absent("does not arrive");
    }
    for (int call = 0; call < 6 * RANKS; call++) { /* two lanes of each rank, three times */
        fake_fail_pull(call);
        check_absent("an error of the fake");
    }
    push_end();
}

static void devices(void)
{
    push_begin("devices on which large calls cannot be");
    fake_set_multiprocessors(1, 1);
    check_absent("too few multiprocessors");
    fake_set_multiprocessors(1, -1);
    check_absent("too few multiprocessors");
    fake_query_result(CUDA_ERROR_NOT_SUPPORTED);
    check_absent("does not tell which memory");
    push_end();
}

/* ------------------------------------------------------------------------------ room on a device */

/* Two communicators on a device have pull; a third one does when one of them is gone. */
static void room(void)
{
    struct push_ranks ranks[2], third;
    push_begin("three communicators with large calls on a device");
    if (large_open(&ranks[0], RANKS, LARGE_ROOM) && large_open(&ranks[1], RANKS, LARGE_ROOM)) {
        CHECK(push_large_refusals(NULL) == 0);
        for (int third_one = 0; third_one < 2; third_one++)
            check_absent("as many communicators");
        for (int i = 0; i < 2; i++) {
            (void)large_counts(&ranks[i], -1, -1, -1, -1);
            CHECK(large_works(&ranks[i]) && large_counts(&ranks[i], 0, 0, 1, 0));
        }
        push_close(&ranks[0]);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        if (large_open(&third, RANKS, LARGE_ROOM)) {
            CHECK(large_works(&third) && large_counts(&third, 0, 0, 1, 0));
            CHECK(large_works(&ranks[1]));
            push_close(&third);
        }
        push_close(&ranks[1]);
    }
    push_end();
}

struct family {
    struct push_ranks parents;
    trib_comm *children[3][PARENTS]; /* by rank of the parent */
    int apart;                       /* the rank that is not in the first two children: 0 or 2 */
};

static int apart_of(const struct family *family, int child)
{
    return child < 2 ? family->apart : 2 - family->apart;
}

/* Of three parents' devices, two children of two; then one of the third and the second, which has no room.
 * The other ranks are alone. */
static void split_rank(int rank, int size, void *argument)
{
    struct family *family = argument;
    (void)size;
    for (int i = 0; i < 3; i++)
        CHECK_OK(trib_comm_split(&family->children[i][rank], family->parents.comms[rank],
                                 rank == apart_of(family, i) ? PARENTS
                                 : rank < 3                  ? 0
                                                             : rank,
                                 0));
}

/* The large calls of a child are pull's, or NCCL's. */
static void check_child(const struct family *family, int child, bool pulls)
{
    const int first = apart_of(family, child) == 0 ? 1 : 0;
    struct push_ranks ranks = {.size = RANKS};
    for (int rank = 0; rank < RANKS; rank++) {
        ranks.comms[rank] = family->children[child][first + rank];
        ranks.devices[rank] = family->parents.devices[first + rank];
        ranks.streams[rank] = family->parents.streams[first + rank];
        ranks.data[rank] = family->parents.data[first + rank];
    }
    (void)large_counts(&ranks, -1, -1, -1, -1);
    push_each(&ranks, large_rank);
    CHECK(large_counts(&ranks, pulls ? 0 : RANKS, 0, pulls, 0));
}

static void room_on_each(int apart)
{
    static struct family family;
    family.apart = apart;
    push_begin("room for large calls on one of two devices");
    if (large_open(&family.parents, PARENTS, LARGE_ROOM)) {
        check_ranks(PARENTS, split_rank, &family);
        CHECK(push_large_refusals("as many communicators") == 1);
        for (int child = 0; child < 3; child++)
            check_child(&family, child, child < 2);
        for (int child = 0; child < 3; child++)
            for (int rank = 0; rank < PARENTS; rank++)
                CHECK_OK(trib_comm_destroy(family.children[child][rank]));
        push_close(&family.parents);
    }
    push_end();
}

/* Whoever debugs reads how much memory it is, pull's 32 MiB included. */
static void told(void)
{
    struct push_ranks ranks;
    push_begin("memory for large calls in the log");
    CHECK_OK(trib_debug_set(1));
    if (large_open(&ranks, RANKS, 16 << 20)) {
        const unsigned long without = push_allocated();
        push_close(&ranks);
        if (large_open(&ranks, RANKS, 0))
            push_close(&ranks);
        CHECK_MSG(push_allocated() == without + (32 << 20), "%lu and %lu bytes", without,
                  push_allocated());
    }
    CHECK_OK(trib_debug_set(0));
    push_end();
}

void pull_absent(void)
{
    told();
    not_for_them();
    adopted();
    no_memory();
    trials();
    devices();
    room();
    room_on_each(0);
    room_on_each(2);
}
