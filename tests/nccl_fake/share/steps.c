/* Core's part of what tri_share_ops says: every step on all ranks, before the next one on any. */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <unistd.h>

#include "csrc/base/status.h"
#include "tests/nccl_fake/share/fixture.h"

static const struct tri_share_ops *ops(void)
{
    return transports()->share;
}

/* Each rank gets descriptors of its own, as another process does, and has them no longer than this. */
static trib_status map(struct share_ranks *ranks, int rank)
{
    int fds[TRI_PUSH_RANKS];
    for (int other = 0; other < ranks->size; other++)
        fds[other] = other == rank ? -1 : dup(ranks->fds[other]);
    const trib_status status = ops()->map(ranks->of[rank], fds);
    for (int other = 0; other < ranks->size; other++)
        CHECK_MSG(other == rank || close(fds[other]) == 0,
                  "a descriptor of the caller's is closed");
    return status;
}

static trib_status allocate(struct share_ranks *ranks, int rank)
{
    const trib_status status = ops()->allocate(ranks->of[rank], ranks->offers, &ranks->fds[rank]);
    CHECK_MSG((status == TRIB_OK) == (ranks->fds[rank] >= 0),
              "rank %d: a descriptor after a failure, or none", rank);
    return status;
}

static trib_status take(struct share_ranks *ranks, int rank)
{
    struct tri_transport *transport = ranks->of[rank];
    switch (ranks->step) {
    case SHARE_OFFER:
        return ops()->offer(transport, &ranks->offers[rank]);
    case SHARE_ALLOCATE:
        return allocate(ranks, rank);
    case SHARE_MAP:
        return map(ranks, rank);
    case SHARE_TRY:
        return ops()->try(transport);
    default:
        ops()->use(transport);
        return TRIB_OK;
    }
}

static void take_rank(int rank, int size, void *argument)
{
    struct share_ranks *ranks = argument;
    const int current = fake_current();
    (void)size;
    ranks->statuses[rank] = ranks->absent[rank] ? TRIB_ERR_ABORTED : take(ranks, rank);
    ranks->why[rank][0] = '\0';
    if (ranks->statuses[rank] != TRIB_OK)
        (void)strncpy(ranks->why[rank], tri_detail(), sizeof ranks->why[rank] - 1);
    CHECK_MSG(fake_current() == current, "step %d leaves another device current", (int)ranks->step);
}

static void close_files(struct share_ranks *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        CHECK(ranks->fds[rank] < 0 || close(ranks->fds[rank]) == 0);
        ranks->fds[rank] = -1;
    }
}

/* Memory that is mapped needs no descriptor. */
bool share_take(struct share_ranks *ranks, enum share_step step)
{
    bool good = true;
    ranks->step = step;
    if (step == SHARE_TRY || ranks->threads)
        check_ranks(ranks->size, take_rank, ranks);
    for (int rank = 0; rank < ranks->size && step != SHARE_TRY && !ranks->threads; rank++)
        take_rank(rank, ranks->size, ranks);
    if (step == SHARE_MAP)
        close_files(ranks);
    for (int rank = 0; rank < ranks->size; rank++)
        good = good && ranks->statuses[rank] == TRIB_OK;
    return good;
}

bool share_take_up_to(struct share_ranks *ranks, enum share_step step)
{
    bool good = true;
    for (int at = 0; at <= (int)step && good; at++)
        good = share_take(ranks, (enum share_step)at);
    return good;
}

void share_drop(struct share_ranks *ranks)
{
    close_files(ranks);
    for (int rank = 0; rank < ranks->size; rank++)
        ops()->drop(ranks->of[rank]);
}

bool share(struct share_ranks *ranks)
{
    const bool good = share_take_up_to(ranks, SHARE_USE);
    if (!good)
        share_drop(ranks);
    return good;
}

int share_failed(const struct share_ranks *ranks, const char *words)
{
    int n = 0;
    for (int rank = 0; rank < ranks->size; rank++) {
        const bool failed = ranks->statuses[rank] != TRIB_OK;
        n += failed;
        CHECK_MSG(!failed || ranks->absent[rank] || strstr(ranks->why[rank], words) != NULL,
                  "rank %d: %s", rank, ranks->why[rank]);
    }
    return n;
}
