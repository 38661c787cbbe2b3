/* Symmetric memory of ranks in processes of their own. */
#define _POSIX_C_SOURCE 200809L
#include "tests/nccl_fake/share/symmetric.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct tri_symmetric_ops *symmetric_ops(void)
{
    return transports()->symmetric;
}

static bool all_ok(const struct symmetric *all)
{
    bool good = true;
    for (int rank = 0; rank < all->ranks->size; rank++)
        good = good && all->status[rank] == TRIB_OK;
    return good;
}

static bool allocate(struct symmetric *all, size_t bytes)
{
    for (int rank = 0; rank < all->ranks->size; rank++) {
        all->of[rank] = tri_symmetric_create(rank, all->ranks->size, bytes);
        all->status[rank] =
            symmetric_ops()->alloc(all->ranks->of[rank], all->of[rank], &all->fds[rank]);
        CHECK((all->status[rank] == TRIB_OK) == (all->fds[rank] >= 0));
    }
    return all_ok(all);
}

static void close_files(struct symmetric *all)
{
    for (int rank = 0; rank < all->ranks->size; rank++)
        CHECK(all->fds[rank] < 0 || close(all->fds[rank]) == 0);
}

static bool map(struct symmetric *all)
{
    for (int rank = 0; rank < all->ranks->size; rank++) {
        int fds[SYMMETRIC_RANKS];
        memcpy(fds, all->fds, sizeof fds);
        fds[rank] = -1;
        all->status[rank] = symmetric_ops()->map(all->ranks->of[rank], all->of[rank], fds);
    }
    return all_ok(all);
}

static void tell(struct symmetric *all)
{
    for (int rank = 0; rank < all->ranks->size; rank++)
        for (int other = 0; other < all->ranks->size; other++)
            all->of[rank]->of[other].there = (uint64_t)(uintptr_t)all->of[other]->of[rank].here;
}

void symmetric_release(struct symmetric *all)
{
    for (int rank = 0; rank < all->ranks->size; rank++) {
        symmetric_ops()->release(all->ranks->of[rank], all->of[rank]);
        free(all->of[rank]);
    }
}

bool symmetric_make(struct symmetric *all, size_t bytes)
{
    const bool made = allocate(all, bytes);
    const bool mapped = made && map(all);
    close_files(all);
    if (mapped)
        tell(all);
    else
        symmetric_release(all);
    return mapped;
}

static void take_rank(int rank, int size, void *argument)
{
    struct symmetric *all = argument;
    (void)size;
    all->status[rank] = all->fails[rank]
                            ? TRIB_ERR_OUT_OF_MEMORY
                            : symmetric_ops()->try_wanted(all->ranks->of[rank], all->of[rank]);
}

/* May all ranks have it? */
static bool begin_wanted(struct symmetric *all)
{
    for (int rank = 0; rank < all->ranks->size; rank++)
        all->status[rank] = symmetric_ops()->begin_wanted(all->ranks->of[rank]);
    return all_ok(all);
}

bool symmetric_take_wanted(struct symmetric *all, bool by_all)
{
    const size_t wants = symmetric_ops()->wants(all->ranks->of[0]);
    for (int rank = 1; rank < all->ranks->size; rank++)
        CHECK(symmetric_ops()->wants(all->ranks->of[rank]) == wants);
    if (!CHECK(wants > 0))
        return false;
    const bool made = begin_wanted(all) && symmetric_make(all, wants);
    if (made)
        check_ranks(all->ranks->size, take_rank, all);
    const bool taken = made && all_ok(all) && by_all;
    for (int rank = 0; rank < all->ranks->size; rank++)
        symmetric_ops()->settle_wanted(all->ranks->of[rank], made ? all->of[rank] : NULL, taken);
    CHECK(symmetric_ops()->wants(all->ranks->of[0]) == 0);
    return taken;
}

bool symmetric_add(struct symmetric *all)
{
    if (!CHECK(symmetric_make(all, SYMMETRIC_BYTES)))
        return false;
    for (int rank = 0; rank < all->ranks->size; rank++)
        tri_symmetric_add(symmetric_ops()->list(all->ranks->of[rank]), all->of[rank]);
    return true;
}
