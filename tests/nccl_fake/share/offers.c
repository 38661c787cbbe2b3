/* What ranks offer: each its own, and what all of them have follows from that. */
#define _POSIX_C_SOURCE 200809L
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/fixture.h"

enum { RANKS = 3 };

/* --------------------------------------------------------------------------------- the environment */

/* Nothing else of this program reads or writes the environment by then. */
static void set(const char *name, const char *value)
{
    if (value == NULL)
        (void)unsetenv(name); /* NOLINT(concurrency-mt-unsafe) */
    else
        (void)setenv(name, value, 1); /* NOLINT(concurrency-mt-unsafe) */
}

/* The last rank offers with another environment than the others. */
static bool offer_with(struct share_ranks *ranks, const char *name, const char *first,
                       const char *last)
{
    bool good = true;
    ranks->step = SHARE_OFFER;
    for (int rank = 0; rank < RANKS; rank++) {
        set(name, rank < RANKS - 1 ? first : last);
        ranks->statuses[rank] = transports()->share->offer(ranks->of[rank], &ranks->offers[rank]);
        good = good && ranks->statuses[rank] == TRIB_OK;
    }
    set(name, NULL);
    return good;
}

static void hosts(void)
{
    struct share_ranks ranks;
    share_begin("NCCL_HOSTID");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks)) {
        CHECK(offer_with(&ranks, "NCCL_HOSTID", "one", "two"));
        CHECK(!share_take(&ranks, SHARE_ALLOCATE));
        CHECK(share_failed(&ranks, "NCCL_HOSTID") >= 1);
        share_drop(&ranks);
        CHECK(offer_with(&ranks, "NCCL_HOSTID", "one", NULL));
        CHECK(!share_take(&ranks, SHARE_ALLOCATE));
        share_drop(&ranks);
        CHECK(offer_with(&ranks, "NCCL_HOSTID", "one", "one"));
        CHECK(share_take(&ranks, SHARE_ALLOCATE));
        share_drop(&ranks);
    }
    share_close(&ranks);
    share_end();
}

static void forbidden(void)
{
    struct share_ranks ranks;
    share_begin("NCCL_P2P_DISABLE");
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks)) {
        CHECK(!offer_with(&ranks, "NCCL_P2P_DISABLE", "0", "1"));
        CHECK(ranks.statuses[0] == TRIB_OK && ranks.statuses[RANKS - 1] != TRIB_OK);
        CHECK_DETAIL("NCCL_P2P_DISABLE");
        share_drop(&ranks);
    }
    share_close(&ranks);
    share_end();
}

/* ------------------------------------------------------------------------------------- the links */

/* Only some ranks see NVLink alone: what is shared is as over PCI Express. */
static void links(void)
{
    enum { FITS = 64 * 1024 / 4 };
    struct share_ranks ranks;
    share_begin("ranks that see different links");
    share_prepare(&ranks, RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        ranks.configs[rank].peer_bytes = (uint64_t)16 * SHARE_PEER_BYTES;
    if (share_open(&ranks)) {
        for (int rank = 0; rank < RANKS; rank++) {
            fake_reach(true, rank != 1);
            CHECK_OK(transports()->share->offer(ranks.of[rank], &ranks.offers[rank]));
        }
        fake_reach(true, true);
        for (int step = SHARE_ALLOCATE; step < SHARE_STEPS; step++)
            CHECK(share_take(&ranks, (enum share_step)step));
        share_serves_up_to(&ranks, FITS);
    }
    share_close(&ranks);
    share_end();
}

/* ------------------------------------------------------------------------- the caller's communicators */

struct adopting {
    struct share_ranks ranks;
    struct share_ranks children;
    ncclUniqueId id;
    ncclComm_t theirs[RANKS];
};

static void adopt_rank(int rank, int size, void *argument)
{
    struct adopting *adopting = argument;
    struct tri_adoptee of = {.rank = rank, .size = size, .device = rank};
    trib_id id = adopting->ranks.id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    fake_make_current(rank);
    CHECK(ncclCommInitRankConfig(&adopting->theirs[rank], size, adopting->id, rank, &config) ==
          ncclSuccess);
    fake_make_current(-1);
    of.handle = adopting->theirs[rank];
    share_set_apart(true);
    if (rank != 0)
        memset(&id, 0, sizeof id);
    CHECK_OK(transports()->adopt(&adopting->ranks.of[rank], &id, &of,
                                 &adopting->ranks.configs[rank], SHARE_PLENTY_MS));
    CHECK_OK(transports()->split(&adopting->children.of[rank], adopting->ranks.of[rank], 0, rank,
                                 &adopting->children.configs[rank], SHARE_PLENTY_MS));
}

static void end_rank(int rank, int size, void *argument)
{
    struct adopting *adopting = argument;
    (void)size;
    CHECK_OK(share_finish(&adopting->children, rank, SHARE_PLENTY_MS));
    CHECK_OK(share_finish(&adopting->ranks, rank, SHARE_PLENTY_MS));
    fake_make_current(rank);
    CHECK(ncclCommFinalize(adopting->theirs[rank]) == ncclSuccess &&
          ncclCommDestroy(adopting->theirs[rank]) == ncclSuccess);
    fake_make_current(-1);
}

/* Its owner may end it while kernels run: nothing is shared, nor with a child of it. */
static void adopted(void)
{
    struct adopting adopting;
    memset(&adopting, 0, sizeof adopting);
    share_begin("communicators of the caller");
    share_prepare(&adopting.ranks, RANKS);
    share_prepare(&adopting.children, RANKS);
    CHECK(ncclGetUniqueId(&adopting.id) == ncclSuccess);
    fake_move_data(true);
    check_ranks(RANKS, adopt_rank, &adopting);
    fake_move_data(false);
    CHECK(!share_take(&adopting.ranks, SHARE_OFFER));
    CHECK(share_failed(&adopting.ranks, "the caller's") == RANKS);
    CHECK(!share_take(&adopting.children, SHARE_OFFER));
    CHECK(share_failed(&adopting.children, "the caller's") == RANKS);
    share_drop(&adopting.ranks);
    share_drop(&adopting.children);
    check_ranks(RANKS, end_rank, &adopting);
    share_end();
}

void share_offers(void)
{
    hosts();
    forbidden();
    links();
    adopted();
}
