/* Children get a push of their own; those of the caller's communicators get none. */
#include <nccl.h>
#include <string.h>

#include "tests/nccl_fake/push/cases.h"
#include "tests/nccl_fake/push/fixture.h"

enum { RANKS = 4, HALF = 2 };

struct family {
    struct push_ranks parents, children[2];
    ncclUniqueId id;
};

/* Even and odd ranks apart, or all without the last one. */
static void split_rank(int rank, int size, void *argument)
{
    struct family *family = argument;
    (void)size;
    CHECK_OK(trib_comm_split(&family->children[rank % 2].comms[rank / 2],
                             family->parents.comms[rank], rank % 2, 0));
}

static void shrink_rank(int rank, int size, void *argument)
{
    struct family *family = argument;
    const int32_t excluded = size - 1;
    if (rank != size - 1)
        CHECK_OK(trib_comm_shrink(&family->children[0].comms[rank], family->parents.comms[rank],
                                  &excluded, 1, 0));
}

/* A child of a child. */
static void split_again_rank(int rank, int size, void *argument)
{
    struct family *family = argument;
    (void)size;
    CHECK_OK(
        trib_comm_split(&family->children[1].comms[rank], family->children[0].comms[rank], 0, 0));
}

/* The children use what their parents have. */
static void adopt_buffers(struct push_ranks *child, const struct push_ranks *parents, int size,
                          int first, int step)
{
    child->size = size;
    for (int rank = 0; rank < size; rank++) {
        child->devices[rank] = parents->devices[first + step * rank];
        child->streams[rank] = parents->streams[first + step * rank];
        child->data[rank] = parents->data[first + step * rank];
    }
    (void)push_counts(child, -1, -1);
}

static void splits(void)
{
    static struct family family;
    push_begin("splits");
    if (push_open(&family.parents, RANKS, PUSH_N * 4, NULL)) {
        const int before = fake_mappings();
        push_each(&family.parents, push_call_rank); /* a split needs no call of NCCL's before */
        check_ranks(RANKS, split_rank, &family);
        CHECK(fake_mappings() == 2 * before);
        for (int color = 0; color < 2; color++) {
            adopt_buffers(&family.children[color], &family.parents, HALF, color, 2);
            CHECK(push_works(&family.children[color]));
            CHECK(push_counts(&family.children[color], 0, 1));
        }
        CHECK(push_works(&family.parents));
        push_destroy(&family.children[0]);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(push_works(&family.children[1]) && push_works(&family.parents));
        push_destroy(&family.parents);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(push_works(&family.children[1]));
        push_destroy(&family.children[1]);
        push_drop(&family.parents);
    }
    push_end();
}

static void shrinks(void)
{
    static struct family family;
    struct push_ranks *child = &family.children[0];
    push_begin("shrinks");
    if (push_open(&family.parents, RANKS, PUSH_N * 4, NULL)) {
        CHECK_OK(push_sum(&family.parents, 0, PUSH_N, TRIB_F32)); /* and waits for the others */
        check_ranks(RANKS, shrink_rank, &family);
        adopt_buffers(child, &family.parents, RANKS - 1, 0, 1);
        CHECK(push_works(child) && push_counts(child, 0, 1));
        push_close(&family.parents);
        push_destroy(child);
    }
    push_end();
}

/* Options are inherited. */
static void without(void)
{
    static struct family family;
    trib_options options = TRIB_OPTIONS_INIT;
    options.peer_bytes = TRIB_NO_PEERS;
    push_begin("children of ranks that want no peers");
    if (push_open(&family.parents, RANKS, PUSH_N * 4, &options)) {
        check_ranks(RANKS, split_rank, &family);
        CHECK(fake_mappings() == 0);
        adopt_buffers(&family.children[0], &family.parents, HALF, 0, 2);
        push_each(&family.children[0], push_call_rank);
        CHECK(push_counts(&family.children[0], HALF, 0));
        push_destroy(&family.children[0]);
        family.children[1].size = HALF;
        push_destroy(&family.children[1]);
        check_ranks(RANKS, shrink_rank, &family);
        CHECK(fake_mappings() == 0);
        check_ranks(RANKS - 1, split_again_rank, &family);
        CHECK(fake_mappings() == 0);
        for (int child = 0; child < 2; child++) {
            family.children[child].size = RANKS - 1;
            push_destroy(&family.children[child]);
        }
        push_close(&family.parents);
    }
    push_end();
}

/* ------------------------------------------------------------------------- the caller's own ranks */

static void adopted_rank(int rank, int size, void *argument)
{
    struct family *family = argument;
    ncclComm_t nccl = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    fake_make_current(rank);
    CHECK(ncclCommInitRankConfig(&nccl, size, family->id, rank, &config) == ncclSuccess);
    fake_make_current(-1);
    CHECK_OK(trib_comm_adopt(&family->parents.comms[rank], nccl, NULL));
    push_call_rank(rank, size, &family->parents);
    CHECK_OK(trib_comm_split(&family->children[0].comms[rank], family->parents.comms[rank], 0, 0));
    push_call_rank(rank, size, &family->children[0]);
    CHECK_OK(trib_comm_destroy(family->children[0].comms[rank]));
    CHECK_OK(trib_comm_destroy(family->parents.comms[rank]));
    CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
    fake_make_current(rank);
    CHECK(ncclCommFinalize(nccl) == ncclSuccess && ncclCommDestroy(nccl) == ncclSuccess);
    fake_make_current(-1);
}

static void adopted(void)
{
    static struct family family;
    push_begin("communicators that were adopted");
    if (push_open(&family.parents, HALF, PUSH_N * 4, NULL)) {
        push_destroy(&family.parents);
        CHECK_OK(trib_quiesce(PUSH_PLENTY_MS));
        CHECK(ncclGetUniqueId(&family.id) == ncclSuccess);
        adopt_buffers(&family.children[0], &family.parents, HALF, 0, 1);
        fake_move_data(true);
        check_ranks(HALF, adopted_rank, &family);
        fake_move_data(false);
        CHECK(fake_pushes() == family.parents.served.pushes);
        CHECK(fake_nccl_calls() - family.parents.served.nccl >= 2 * HALF);
        push_drop(&family.parents);
    }
    push_end();
}

void push_children(void)
{
    splits();
    shrinks();
    without();
    adopted();
}
