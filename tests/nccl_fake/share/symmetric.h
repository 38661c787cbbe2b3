/* Symmetric memory of ranks in processes of their own: core's part of tri_symmetric_ops, every step on all
 * ranks before the next one on any. */
#ifndef TRI_TESTS_NCCL_FAKE_SHARE_SYMMETRIC_H
#define TRI_TESTS_NCCL_FAKE_SHARE_SYMMETRIC_H

#include "tests/nccl_fake/fake_pull.h"
#include "tests/nccl_fake/share/fixture.h"

enum { SYMMETRIC_RANKS = 3, SYMMETRIC_BYTES = (8 << 20) + 20 };

/* What all ranks allocate. */
struct symmetric {
    struct share_ranks *ranks;
    struct tri_symmetric *of[SYMMETRIC_RANKS];
    int fds[SYMMETRIC_RANKS];
    trib_status status[SYMMETRIC_RANKS]; /* of the last step */
    bool fails[SYMMETRIC_RANKS];         /* before it tries what the backend wants */
    struct fake_pulls before;
};

const struct tri_symmetric_ops *symmetric_ops(void);

/* Of all ranks, or nothing; and free it. */
bool symmetric_make(struct symmetric *all, size_t bytes);
void symmetric_release(struct symmetric *all);
/* What the backend wants; `by_all` false: some other rank could not. Is it pull's now? */
bool symmetric_take_wanted(struct symmetric *all, bool by_all);
/* SYMMETRIC_BYTES, in the lists, where each rank's end finds it. */
bool symmetric_add(struct symmetric *all);

#endif
