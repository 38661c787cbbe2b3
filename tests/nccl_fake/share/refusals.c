/* Ranks that share no memory, by what they offer, and how they are asked: NCCL serves all of their
 * calls. */
#include "csrc/nccl/device.h"
#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/fixture.h"

enum { RANKS = 3 };

/* `failing` ranks fail in `step`, for a reason with `words`. */
static void check_fails(struct share_ranks *ranks, enum share_step step, int failing,
                        const char *words)
{
    const int mappings = fake_mappings();
    CHECK(!share(ranks));
    CHECK_MSG(ranks->step == step && share_failed(ranks, words) == failing,
              "%d ranks fail in step %d", share_failed(ranks, words), (int)ranks->step);
    CHECK(fake_mappings() == mappings && share_has_memory(ranks, false));
}

/* And all of them go on without. */
static void check_refused(struct share_ranks *ranks, enum share_step step, int failing,
                          const char *words)
{
    if (!share_open(ranks))
        return;
    check_fails(ranks, step, failing, words);
    (void)share_counts(ranks, -1, -1);
    share_call_nccl(ranks, SHARE_N);
    CHECK(share_counts(ranks, RANKS, 0));
    share_close(ranks);
}

static void peer_bytes(void)
{
    struct share_ranks ranks;
    share_begin("a rank that has no memory for others");
    share_prepare(&ranks, RANKS);
    ranks.configs[1].peer_bytes = 0;
    check_refused(&ranks, SHARE_OFFER, 1, "TRIB_NO_PEERS");
    share_prepare(&ranks, RANKS);
    ranks.configs[1].peer_bytes = FAKE_GRANULARITY - 1;
    check_refused(&ranks, SHARE_ALLOCATE, RANKS, "too small");
    share_end();
}

/* They make no calls: NCCL would have refused them, and here they would share the lock of their device. */
static void one_device(void)
{
    struct share_ranks ranks;
    share_begin("two ranks on one device");
    share_prepare(&ranks, RANKS);
    ranks.devices[2] = 0;
    if (share_open(&ranks))
        check_fails(&ranks, SHARE_ALLOCATE, 2, "two of its ranks are on one device");
    share_close(&ranks);
    share_end();
}

static void unreachable(void)
{
    struct share_ranks ranks;
    share_begin("devices that do not reach each other");
    fake_reach(false, false);
    share_prepare(&ranks, RANKS);
    check_refused(&ranks, SHARE_ALLOCATE, RANKS, "cannot access each other's memory");
    for (int device = 0; device < FAKE_DEVICES; device++)
        fake_hide(device, true);
    share_prepare(&ranks, RANKS);
    check_refused(&ranks, SHARE_MAP, RANKS, "maps no memory");
    share_end();
}

/* Each sees its own device only: as over PCI Express, of which it knows nothing. */
static void hidden(void)
{
    enum { FITS = 64 * 1024 / 4 };
    struct share_ranks ranks;
    share_begin("devices that other processes do not see");
    for (int device = 0; device < FAKE_DEVICES; device++)
        fake_hide(device, true);
    share_prepare(&ranks, RANKS);
    for (int rank = 0; rank < RANKS; rank++)
        ranks.configs[rank].peer_bytes = (uint64_t)16 * SHARE_PEER_BYTES;
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        share_serves_up_to(&ranks, FITS);
    }
    share_close(&ranks);
    share_end();
}

/* One of them sees all: its answer is not that of the others, and what they share is. */
static void half_hidden(void)
{
    struct share_ranks ranks;
    share_begin("a device that other processes do not see");
    fake_hide(0, true);
    share_prepare(&ranks, RANKS);
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        (void)share_counts(&ranks, -1, -1);
        CHECK(share_works(&ranks, TRI_ALLREDUCE) && share_counts(&ranks, 0, 1));
    }
    share_close(&ranks);
    share_end();
}

static void old_driver(void)
{
    const struct tri_nccl_driver driver = tri_nccl_driver;
    struct share_ranks ranks;
    share_begin("a driver that exports no memory");
    for (int function = 0; function < 3; function++) {
        tri_nccl_driver.mem_export = function == 0 ? NULL : driver.mem_export;
        tri_nccl_driver.mem_import = function == 1 ? NULL : driver.mem_import;
        tri_nccl_driver.mem_create = function == 2 ? NULL : driver.mem_create;
        share_prepare(&ranks, RANKS);
        check_refused(&ranks, SHARE_OFFER, RANKS, function < 2 ? "exports no memory" : "kind");
    }
    tri_nccl_driver.mem_create = driver.mem_create; /* and not what other threads read */
    share_end();
}

void share_refusals(void)
{
    peer_bytes();
    one_device();
    unreachable();
    hidden();
    half_hidden();
    old_driver();
}
