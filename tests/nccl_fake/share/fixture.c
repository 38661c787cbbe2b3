/* Ranks in processes of their own that share memory, over the fake. */
#define _POSIX_C_SOURCE 200809L
#include "tests/nccl_fake/share/fixture.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/abort.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/nccl/local.h"
#include "csrc/nccl/pinned.h"
#include "tests/nccl_fake/share/counts.h"

/* In place of csrc/backends.c, which the linker then leaves out. */
const struct tri_backend *const tri_backends[] = {NULL};

const struct tri_backend *tri_backend_find(const char *name)
{
    (void)name;
    return NULL;
}

/* The program is linked with --wrap=tri_nccl_add_rank_by_key. */
static _Thread_local bool apart;
static _Atomic uint32_t joined;

void share_set_apart(bool is_apart)
{
    apart = is_apart;
}

trib_status __real_tri_nccl_add_rank_by_key(struct tri_nccl_local *made,
                                            const struct tri_nccl_key *key,
                                            struct tri_transport *transport, bool *out_used);
trib_status __wrap_tri_nccl_add_rank_by_key(struct tri_nccl_local *made,
                                            const struct tri_nccl_key *key,
                                            struct tri_transport *transport, bool *out_used);

/* No two ranks that are apart have the same number. */
trib_status __wrap_tri_nccl_add_rank_by_key(struct tri_nccl_local *made,
                                            const struct tri_nccl_key *key,
                                            struct tri_transport *transport, bool *out_used)
{
    struct tri_nccl_key own;
    if (!apart)
        return __real_tri_nccl_add_rank_by_key(made, key, transport, out_used);
    own = *key;
    own.sequence = ~joined++;
    return __real_tri_nccl_add_rank_by_key(made, &own, transport, out_used);
}

/* ------------------------------------------------------------------------------------ the cases */

static struct counts before;

/* What the library keeps for ever is there before the first case. */
static void set_up(void)
{
    static bool done;
    for (int page = 0; page < 4 && !done; page++)
        CHECK_OK(tri_nccl_grow_pinned());
    if (!done)
        counts_warm_up();
    done = true;
}

void share_begin(const char *name)
{
    check_begin("sharing over a fake: %s", name);
    CHECK(devices()->count() == FAKE_DEVICES);
    set_up();
    fake_reach(true, true);
    for (int rank = 0; rank < TRI_PUSH_RANKS; rank++)
        fake_process(rank, rank + 1);
    before = counts_now();
}

void share_end(void)
{
    fake_fail_mapping(-1);
    fake_fail_push(-1);
    fake_fail_blocks(-1);
    fake_allow_events(-1);
    fake_push_as(FAKE_PUSH_WORKS);
    fake_hurry(1);
    for (int device = 0; device < FAKE_DEVICES; device++)
        fake_hide(device, false);
    counts_check(&before);
    check_end();
}

/* ------------------------------------------------------------------------------------ the ranks */

void share_prepare(struct share_ranks *ranks, int size)
{
    memset(ranks, 0, sizeof *ranks);
    ranks->size = size;
    CHECK_OK(transports()->id_create(&ranks->id));
    for (int rank = 0; rank < size; rank++) {
        ranks->devices[rank] = rank;
        ranks->configs[rank].peer_bytes = SHARE_PEER_BYTES;
        ranks->fds[rank] = -1;
    }
}

static void open_rank(int rank, int size, void *argument)
{
    struct share_ranks *ranks = argument;
    const int32_t device = ranks->devices[rank];
    void *data = NULL;
    share_set_apart(true);
    CHECK_OK(transports()->open(&ranks->of[rank], &ranks->id, rank, size, device,
                                &ranks->configs[rank], SHARE_PLENTY_MS));
    CHECK_OK(devices()->stream_create(device, &ranks->streams[rank]));
    CHECK_OK(devices()->alloc(device, &data, 2 * (size_t)SHARE_HALF));
    ranks->data[rank] = data;
}

bool share_open(struct share_ranks *ranks)
{
    bool good = true;
    check_ranks(ranks->size, open_rank, ranks);
    for (int rank = 0; rank < ranks->size; rank++)
        good = good && ranks->of[rank] != NULL && ranks->data[rank] != NULL &&
               CHECK(transports()->here(ranks->of[rank]) == 1);
    (void)share_counts(ranks, -1, -1);
    return good;
}

trib_status share_finish(struct share_ranks *ranks, int rank, uint32_t timeout_ms)
{
    const trib_status status = transports()->close(ranks->of[rank], timeout_ms);
    transports()->destroy(ranks->of[rank]);
    ranks->of[rank] = NULL;
    return status;
}

static void close_rank(int rank, int size, void *argument)
{
    struct share_ranks *ranks = argument;
    (void)size;
    if (ranks->of[rank] != NULL)
        (void)share_finish(ranks, rank, SHARE_PLENTY_MS);
    CHECK_OK(devices()->stream_wait(ranks->devices[rank], ranks->streams[rank]));
    CHECK_OK(devices()->stream_destroy(ranks->devices[rank], ranks->streams[rank]));
    CHECK_OK(devices()->free(ranks->devices[rank], ranks->data[rank]));
}

void share_close(struct share_ranks *ranks)
{
    check_ranks(ranks->size, close_rank, ranks);
}

void share_stop(const struct share_ranks *ranks, int rank)
{
    (void)tri_abort_raise(transports()->abort_state(ranks->of[rank]), TRIB_ERR_ABORTED, "a test");
}
