/* Pull between ranks in processes of their own, which reaches symmetric memory where each has mapped that of the
 * others. */
#include <stdlib.h>
#include <string.h>

#include "tests/nccl_fake/share/cases.h"
#include "tests/nccl_fake/share/symmetric.h"

enum { RANKS = SYMMETRIC_RANKS, BYTES = SYMMETRIC_BYTES, LARGE_N = BYTES / 4, PLENTY = 48 << 20 };

/* With room for push and pull. */
static void prepare(struct symmetric *all, struct share_ranks *ranks, int size)
{
    share_prepare(ranks, size);
    *all = (struct symmetric){.ranks = ranks};
    for (int rank = 0; rank < size; rank++)
        ranks->configs[rank].peer_bytes = PLENTY;
}

static void begin(struct symmetric *all, struct share_ranks *ranks, const char *name)
{
    share_begin(name);
    prepare(all, ranks, RANKS);
}

static void end(struct share_ranks *ranks)
{
    share_close(ranks);
    share_end();
}

/* From `data` of each rank to `to`, all by this thread; is it right? */
static bool sums_to(const struct symmetric *all, char *const *data, char *const *to, size_t count,
                    trib_variant variant)
{
    bool good = true;
    for (int rank = 0; rank < RANKS; rank++)
        for (size_t i = 0; i < count; i++)
            ((float *)(void *)data[rank])[i] = (float)(i % 100 + (size_t)rank);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct tri_call call = {.kind = TRI_ALLREDUCE,
                                      .transport = all->ranks->of[rank],
                                      .send = data[rank],
                                      .recv = to[rank],
                                      .count = count,
                                      .dtype = TRIB_F32,
                                      .op = TRIB_SUM,
                                      .variant = variant,
                                      .stream = all->ranks->streams[rank]};
        good = CHECK_OK(transports()->collective(&call, 1)) && good;
    }
    for (int rank = 0; rank < RANKS && good; rank++) {
        good = share_wait(all->ranks, rank);
        for (size_t i = 0; i < count && good; i++)
            good = CHECK(((float *)(void *)to[rank])[i] == (float)(RANKS * (i % 100) + 3));
    }
    return good;
}

static bool sums(const struct symmetric *all, char *const *data, size_t count, trib_variant variant)
{
    return sums_to(all, data, data, count, variant);
}

/* Pull has served so many calls since the last time, of which so many went through scratch. */
static bool pulled(struct symmetric *all, long done, long staged)
{
    const struct fake_pulls now = fake_pulls();
    const bool good =
        CHECK_MSG(now.done - all->before.done == done && now.staged - all->before.staged == staged,
                  "pull served %ld, %ld of them staged", now.done - all->before.done,
                  now.staged - all->before.staged);
    all->before = now;
    return good;
}

static void own(const struct symmetric *all, char **data)
{
    for (int rank = 0; rank < RANKS; rank++)
        data[rank] = all->of[rank]->of[rank].here;
}

/* ---------------------------------------------------------------------------------------- cases */

/* A sum of rank 0 that is asked about, and not made. */
static struct tri_call sum_of(const struct share_ranks *ranks, size_t count, trib_dtype dtype,
                              trib_variant variant)
{
    return (struct tri_call){.kind = TRI_ALLREDUCE,
                             .transport = ranks->of[0],
                             .count = count,
                             .dtype = dtype,
                             .op = TRIB_SUM,
                             .variant = variant};
}

/* Which buffer goes through scratch. */
static const char *staged_of_alltoall(const struct share_ranks *ranks, char *send, char *recv)
{
    const struct tri_call call = {.kind = TRI_ALLTOALL,
                                  .transport = ranks->of[0],
                                  .send = send,
                                  .recv = recv,
                                  .count = 262144 + 4,
                                  .dtype = TRIB_F32,
                                  .variant = TRIB_VARIANT_SYMMETRIC};
    return transports()->stages(&call);
}

static const char *refusal(const struct share_ranks *ranks, trib_variant variant)
{
    const struct tri_call call = sum_of(ranks, LARGE_N, TRIB_F32, variant);
    return transports()->refuses(&call);
}

static void calls(void)
{
    struct share_ranks ranks;
    struct symmetric all;
    char *data[RANKS], *plain[RANKS];
    begin(&all, &ranks, "large calls on symmetric memory");
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        const uint64_t before = transports()->peer_bytes(ranks.of[0]);
        CHECK(symmetric_ops()->refuses(ranks.of[0]) == NULL);
        CHECK(refusal(&ranks, TRIB_VARIANT_TWO_SHOT) != NULL);
        CHECK(symmetric_take_wanted(&all, true) && symmetric_add(&all));
        CHECK(transports()->peer_bytes(ranks.of[0]) >= before + BYTES + (32 << 20));
        CHECK(refusal(&ranks, TRIB_VARIANT_TWO_SHOT) == NULL);
        own(&all, data);
        for (int rank = 0; rank < RANKS; rank++)
            plain[rank] = ranks.data[rank];
        all.before = fake_pulls();
        CHECK(sums(&all, data, LARGE_N, TRIB_VARIANT_SYMMETRIC) && pulled(&all, 1, 0));
        CHECK(sums(&all, data, SHARE_N, TRIB_VARIANT_SYMMETRIC) && pulled(&all, 0, 0));
        CHECK(sums(&all, data, SHARE_N, TRIB_VARIANT_TWO_SHOT) && pulled(&all, 1, 0));
        plain[1] = data[1]; /* one rank's is enough */
        CHECK(sums(&all, plain, SHARE_N, TRIB_VARIANT_TWO_SHOT) && pulled(&all, 1, 1));
    }
    end(&ranks);
}

/* Buffers of two allocations, each with shifts of its own; and of one, with a buffer of another kind. */
static void apart(void)
{
    struct share_ranks ranks;
    struct symmetric all, other;
    char *send[RANKS], *recv[RANKS];
    begin(&all, &ranks, "large calls from symmetric memory to other memory");
    if (share_open(&ranks) &&
        CHECK(share(&ranks) && symmetric_take_wanted(&all, true) && symmetric_add(&all))) {
        own(&all, send);
        other = all;
        CHECK(symmetric_add(&other));
        own(&other, recv);
        all.before = fake_pulls();
        CHECK(sums_to(&all, send, recv, LARGE_N, TRIB_VARIANT_SYMMETRIC) && pulled(&all, 1, 0));
        for (int rank = 0; rank < RANKS; rank++)
            recv[rank] = ranks.data[rank];
        CHECK(sums_to(&all, send, recv, SHARE_N, TRIB_VARIANT_TWO_SHOT) && pulled(&all, 1, 1));
        CHECK(sums_to(&all, recv, send, SHARE_N, TRIB_VARIANT_TWO_SHOT) && pulled(&all, 1, 0));
        CHECK(sums_to(&all, recv, send, SHARE_N, TRIB_VARIANT_ONE_SHOT) && pulled(&all, 1, 1));
        CHECK(sums_to(&all, send, recv, SHARE_N, TRIB_VARIANT_ONE_SHOT) && pulled(&all, 1, 0));
    }
    end(&ranks);
}

/* All that peers read is `send`, which each rank has elsewhere: by kind, to memory of another kind. */
static bool kind_works(const struct symmetric *all, enum tri_kind kind, trib_variant variant,
                       char *const *send, char *const *recv, size_t count)
{
    const bool scatters = kind == TRI_REDUCE_SCATTER || kind == TRI_ALLTOALL;
    const bool gathers = kind == TRI_ALLGATHER || kind == TRI_ALLTOALL;
    const size_t sent = count * (scatters ? RANKS : 1), got = count * (gathers ? RANKS : 1);
    bool good = true;
    for (int rank = 0; rank < RANKS; rank++)
        memset(recv[rank], 0xa5, got * sizeof(float));
    for (int rank = 0; rank < RANKS; rank++)
        for (size_t i = 0; i < sent; i++)
            ((float *)(void *)send[rank])[i] = (float)(i % 1000 + 1000 * (size_t)rank);
    for (int rank = 0; rank < RANKS; rank++) {
        const struct tri_call call = {.kind = kind,
                                      .transport = all->ranks->of[rank],
                                      .send =
                                          kind != TRI_BROADCAST || rank == 1 ? send[rank] : NULL,
                                      .recv = recv[rank],
                                      .count = count,
                                      .dtype = TRIB_F32,
                                      .op = TRIB_SUM,
                                      .variant = variant,
                                      .peer = 1,
                                      .stream = all->ranks->streams[rank]};
        good = CHECK_OK(transports()->collective(&call, 1)) && good;
    }
    for (int rank = 0; rank < RANKS && good; rank++) {
        good = share_wait(all->ranks, rank);
        for (size_t i = 0; i < got && good; i++) {
            const size_t own = (scatters ? (size_t)rank * count : 0) + i % count;
            const size_t from = gathers ? i / count : 1;
            const float right = kind == TRI_REDUCE_SCATTER ? (float)(RANKS * (own % 1000) + 3000)
                                                           : (float)(own % 1000 + 1000 * from);
            good = CHECK_MSG(((float *)(void *)recv[rank])[i] == right, "kind %d, rank %d, %zu",
                             (int)kind, rank, i);
        }
    }
    return good;
}

static void kinds(void)
{
    static const enum tri_kind kinds_of[] = {TRI_REDUCE_SCATTER, TRI_ALLGATHER, TRI_ALLTOALL};
    struct share_ranks ranks;
    struct symmetric all;
    char *send[RANKS], *recv[RANKS];
    begin(&all, &ranks, "large calls of other kinds on symmetric memory");
    if (share_open(&ranks) &&
        CHECK(share(&ranks) && symmetric_take_wanted(&all, true) && symmetric_add(&all))) {
        own(&all, send);
        for (int rank = 0; rank < RANKS; rank++)
            recv[rank] = malloc(BYTES);
        all.before = fake_pulls();
        for (size_t i = 0; i < sizeof kinds_of / sizeof *kinds_of; i++) {
            const size_t count = kinds_of[i] == TRI_ALLGATHER ? LARGE_N / 3 : 262144 + 4;
            CHECK(kind_works(&all, kinds_of[i], TRIB_VARIANT_SYMMETRIC, send, recv, count) &&
                  pulled(&all, 1, 0));
            CHECK(kind_works(&all, kinds_of[i], TRIB_VARIANT_SYMMETRIC, send, recv, SHARE_N) &&
                  pulled(&all, 0, 0));
        }
        CHECK(staged_of_alltoall(&ranks, send[0], recv[0]) == NULL);
        CHECK(staged_of_alltoall(&ranks, send[0], send[0]) != NULL); /* a copy */
        CHECK(kind_works(&all, TRI_BROADCAST, TRIB_VARIANT_SYMMETRIC, send, recv, SHARE_N) &&
              pulled(&all, 0, 0));
        CHECK(kind_works(&all, TRI_BROADCAST, TRIB_VARIANT_ONE_SHOT, send, recv, LARGE_N) &&
              pulled(&all, 1, 0));
        for (int rank = 0; rank < RANKS; rank++)
            free(recv[rank]);
    }
    end(&ranks);
}

/* Without the variant they are chosen as staged ones, up to 16 MiB of 3 ranks, and do not go through scratch if they
 * lie in symmetric memory; then NCCL serves them, whose ranks each have a thread. */
static void without_variant(void)
{
    enum { MOST = 4 << 20 };
    struct share_ranks ranks;
    struct symmetric all;
    char *data[RANKS], *symmetric[RANKS];
    begin(&all, &ranks, "large calls that do not ask for symmetric memory");
    if (share_open(&ranks) && CHECK(share(&ranks) && symmetric_take_wanted(&all, true))) {
        for (int rank = 0; rank < RANKS; rank++)
            data[rank] = malloc((MOST + 1) * sizeof(float));
        (void)share_counts(&ranks, -1, -1);
        all.before = fake_pulls();
        CHECK(sums(&all, data, LARGE_N, TRIB_VARIANT_AUTO) && pulled(&all, 1, 1));
        CHECK(sums(&all, data, MOST, TRIB_VARIANT_AUTO) && pulled(&all, 1, 1));
        CHECK(symmetric_add(&all) && sums(&all, data, LARGE_N, TRIB_VARIANT_AUTO) &&
              pulled(&all, 1, 1));
        own(&all, symmetric);
        CHECK(sums(&all, symmetric, LARGE_N, TRIB_VARIANT_AUTO) && pulled(&all, 1, 0) &&
              share_counts(&ranks, 0, 0));
        share_call_nccl(&ranks, MOST + 1);
        CHECK(share_counts(&ranks, RANKS, 0) && pulled(&all, 0, 0));
        for (int rank = 0; rank < RANKS; rank++)
            free(data[rank]);
    }
    end(&ranks);
}

static bool pulls(const struct share_ranks *ranks, size_t bytes, trib_dtype dtype,
                  trib_variant variant)
{
    const struct tri_call call = sum_of(ranks, bytes / trib_dtype_size(dtype), dtype, variant);
    return transports()->packs_itself(&call);
}

/* Behind what push has memory for, of f64 half of that; and whether symmetric memory is of use. */
static void limits(void)
{
    enum { KIB = 1024, MIB = 1024 * KIB, WIDE = sizeof(double) };
    struct share_ranks ranks;
    struct symmetric all;
    begin(&all, &ranks, "from where on pull serves large calls");
    for (int rank = 0; rank < RANKS; rank++)
        ranks.configs[rank].peer_bytes = 40 * MIB;
    if (share_open(&ranks) && CHECK(share(&ranks) && symmetric_take_wanted(&all, true))) {
        CHECK(transports()->peer_bytes(ranks.of[0]) < 41 * MIB);
        CHECK(!pulls(&ranks, MIB, TRIB_F64, TRIB_VARIANT_AUTO));
        CHECK(pulls(&ranks, MIB + WIDE, TRIB_F64, TRIB_VARIANT_AUTO));
        CHECK(!pulls(&ranks, 768 * KIB, TRIB_F64, TRIB_VARIANT_SYMMETRIC));
        CHECK(pulls(&ranks, 768 * KIB + WIDE, TRIB_F64, TRIB_VARIANT_SYMMETRIC));
        CHECK(!symmetric_ops()->serves(ranks.of[0], 768 * KIB / WIDE, TRIB_F64));
        CHECK(symmetric_ops()->serves(ranks.of[0], 768 * KIB / WIDE + 1, TRIB_F64));
        CHECK(symmetric_ops()->serves(ranks.of[0], 256 * MIB / WIDE, TRIB_F64));
        CHECK(!symmetric_ops()->serves(ranks.of[0], 256 * MIB / WIDE + 1, TRIB_F64));
    }
    end(&ranks);
}

/* Another rank could not, or what is stored does not arrive: then there is none, once and for all. */
static void not_taken(int how)
{
    struct share_ranks ranks;
    struct symmetric all;
    begin(&all, &ranks, "pull that does not work between processes");
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        fake_pull_as(how);
        CHECK(!symmetric_take_wanted(&all, how != FAKE_PULL_WORKS));
        fake_pull_as(FAKE_PULL_WORKS);
        CHECK(refusal(&ranks, TRIB_VARIANT_TWO_SHOT) != NULL && symmetric_add(&all));
        (void)share_counts(&ranks, -1, -1);
        CHECK(share_works(&ranks, TRI_ALLREDUCE) && share_counts(&ranks, 0, 1));
    }
    end(&ranks);
}

/* Whichever call of the driver fails. */
static void failures(void)
{
    struct share_ranks ranks;
    struct symmetric all;
    int failed = 0;
    begin(&all, &ranks, "symmetric memory that the driver refuses");
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        const int before = fake_mappings();
        for (bool good = false; !good && failed < 200; failed += !good) {
            fake_fail_mapping(failed);
            good = symmetric_make(&all, BYTES);
            fake_fail_mapping(-1);
            CHECK(good || fake_mappings() == before);
        }
        CHECK(failed >= 3 * RANKS * RANKS);
        symmetric_release(&all);
        CHECK(fake_mappings() == before);
    }
    end(&ranks);
}

/* Too little memory for pull, or no NVLink: there is symmetric memory all the same. */
static void without_pull(void)
{
    struct share_ranks ranks;
    struct symmetric all;
    begin(&all, &ranks, "symmetric memory over PCI Express");
    fake_reach(true, false);
    if (share_open(&ranks) && CHECK(share(&ranks))) {
        CHECK(symmetric_ops()->wants(ranks.of[0]) == 0 && symmetric_add(&all));
        CHECK(refusal(&ranks, TRIB_VARIANT_TWO_SHOT) != NULL);
    }
    end(&ranks);
    begin(&all, &ranks, "symmetric memory beside too little for pull");
    ranks.configs[1].peer_bytes = 39 << 20;
    if (share_open(&ranks) && CHECK(share(&ranks)))
        CHECK(symmetric_ops()->wants(ranks.of[0]) == 0 && symmetric_add(&all));
    end(&ranks);
    begin(&all, &ranks, "no symmetric memory");
    fake_reach(false, false);
    if (share_open(&ranks) && CHECK(!share(&ranks)))
        CHECK(symmetric_ops()->refuses(ranks.of[0]) != NULL);
    end(&ranks);
}

/* One rank fails, and the others have tried in vain: what push has counted so far still counts. */
static void one_does_not_try(void)
{
    struct share_ranks ranks;
    struct symmetric all;
    begin(&all, &ranks, "pull that one rank cannot try");
    if (share_open(&ranks) && CHECK(share(&ranks) && share_works(&ranks, TRI_ALLREDUCE))) {
        all.fails[1] = true;
        CHECK(!symmetric_take_wanted(&all, true));
        for (int call = 0; call < 3; call++)
            CHECK(share_works(&ranks, TRI_ALLREDUCE));
    }
    end(&ranks);
}

/* Some ranks have no room: then none tries. */
static void some_have_no_room(void)
{
    static const int sizes[] = {2, 2, RANKS};
    struct share_ranks ranks[3];
    struct symmetric all[3];
    bool good = true;
    share_begin("pull of a communicator some of whose ranks have no room");
    for (int i = 0; i < 3; i++) {
        prepare(&all[i], &ranks[i], sizes[i]);
        good = good && share_open(&ranks[i]) && CHECK(share(&ranks[i]));
    }
    if (good) {
        CHECK(symmetric_take_wanted(&all[0], true) && symmetric_take_wanted(&all[1], true) &&
              !symmetric_take_wanted(&all[2], true));
        for (int call = 0; call < 3; call++)
            CHECK(share_works(&ranks[2], TRI_ALLREDUCE));
        CHECK(symmetric_add(&all[2]));
    }
    for (int i = 0; i < 3; i++)
        share_close(&ranks[i]);
    share_end();
}

/* Rank `rank` of `all`: NCCL makes a window with all of them. */
static void open_window(int rank, int size, void *argument)
{
    struct symmetric *all = argument;
    (void)size;
    all->status[rank] = transports()->open_window(all->ranks->of[rank], all->of[rank]);
}

/* Each rank of what it maps registers its own. */
static void windows(void)
{
    struct share_ranks ranks;
    struct symmetric all;
    begin(&all, &ranks, "windows of ranks in processes of their own");
    fake_version(22907);
    for (int rank = 0; rank < RANKS; rank++)
        ranks.configs[rank].windows = true;
    if (share_open(&ranks) && CHECK(share(&ranks)) && symmetric_add(&all)) {
        check_ranks(RANKS, open_window, &all);
        CHECK(fake_windows() == RANKS);
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK_OK(all.status[rank]);
            CHECK_OK(transports()->close_window(ranks.of[rank], all.of[rank]));
            CHECK_OK(transports()->close_window(ranks.of[rank], all.of[rank])); /* is none */
        }
        CHECK(fake_windows() == 0);
        check_ranks(RANKS, open_window, &all); /* are left to the communicator */
    }
    end(&ranks);
    CHECK(fake_windows() == 0);
    fake_version(0);
}

/* A device has room for two communicators with pull. */
static void at_most_two(void)
{
    struct share_ranks ranks[3];
    struct symmetric all[3];
    bool good = true;
    share_begin("pull of three communicators");
    for (int i = 0; i < 3; i++) {
        prepare(&all[i], &ranks[i], RANKS);
        good = good && share_open(&ranks[i]) && CHECK(share(&ranks[i]));
    }
    if (good)
        CHECK(symmetric_take_wanted(&all[0], true) && symmetric_take_wanted(&all[1], true) &&
              !symmetric_take_wanted(&all[2], true));
    for (int i = 0; i < 3; i++)
        share_close(&ranks[i]);
    share_end();
}

void share_large(void)
{
    calls();
    apart();
    kinds();
    without_variant();
    limits();
    for (int how = FAKE_PULL_WORKS; how <= FAKE_PULL_GARBLES_READS; how++)
        not_taken(how);
    failures();
    without_pull();
    one_does_not_try();
    some_have_no_room();
    at_most_two();
    windows();
}
