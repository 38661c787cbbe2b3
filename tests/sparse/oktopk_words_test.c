/* oktopk's bound: in its exact mode no rank sends or receives more than 6k(P-1)/P words, in any
 * call from the first one on, be the entries spread or crowded together. */
#include <stdlib.h>

#include "tests/team.h"

enum { COUNT = 40000, K = 800, CALLS = 40 };

enum spread { EVERYWHERE, CORNER, STEEP, SPREADS };
static const char *const spreads[] = {"everywhere", "in a corner", "more and more"};

struct trial {
    struct team team;
    enum spread spread;
    uint64_t most; /* words */
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

/* Small integers, now and then a large one; where they are depends on the index alone. */
static float gradient(enum spread spread, int rank, int call, size_t i)
{
    const uint64_t any = mix(i + ((uint64_t)rank << 32) + ((uint64_t)call << 40));
    const float small = (float)(any % 7) - 3, large = any % 50 == 0 ? (float)(any >> 40 & 255) : 0;
    if (spread == CORNER && i < COUNT - COUNT / 16)
        return 0;
    return (small + large) * (spread == STEEP ? (float)(1 + 100 * i / COUNT) : 1);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void call(const struct trial *trial, trib_sparse *state, float *data, int rank, int number)
{
    trib_sparse_statistics before = TRIB_SPARSE_STATISTICS_INIT, after = before;
    float *result = data + COUNT;
    for (size_t i = 0; i < COUNT; i++)
        data[i] = gradient(trial->spread, rank, number, i);
    CHECK_OK(trib_sparse_statistics_get(&before, state));
    CHECK_OK(trib_sparse_allreduce(state, data, result, trial->team.streams[rank]));
    CHECK(team_wait(&trial->team, rank, 60000));
    CHECK_OK(trib_sparse_status(state));
    CHECK_OK(trib_sparse_statistics_get(&after, state));
    const uint64_t sent = after.words_sent - before.words_sent;
    const uint64_t received = after.words_received - before.words_received;
    CHECK_MSG(larger(sent, received) <= trial->most,
              "call %d, rank %d: %llu words sent, %llu received, where %llu are allowed", number,
              rank, (unsigned long long)sent, (unsigned long long)received,
              (unsigned long long)trial->most);
    CHECK(after.selected == K);
}

static void take_part(int rank, int size, void *argument)
{
    const struct trial *trial = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse *state = NULL;
    void *data = NULL;
    (void)size;
    options.algorithm = "oktopk";
    options.flags = TRIB_SPARSE_USE_K;
    options.k = K;
    if (!CHECK_OK(trib_device_alloc(&data, trial->team.devices[rank], 2 * COUNT * sizeof(float))) ||
        !CHECK_OK(trib_sparse_create(&state, trial->team.comms[rank], COUNT, TRIB_F32, &options)))
        abort(); /* the others would wait */
    for (int number = 0; number < CALLS; number++)
        call(trial, state, data, rank, number);
    CHECK_OK(trib_sparse_destroy(state));
    CHECK_OK(trib_device_free(trial->team.devices[rank], data));
}

static void check_words(int size, enum spread spread)
{
    /* Blocks differ by one entry, which is two words. */
    struct trial trial = {.spread = spread,
                          .most =
                              6 * K * (uint64_t)(size - 1) / (uint64_t)size + 2 * (uint64_t)size};
    check_begin("oktopk, %d ranks, entries %s", size, spreads[spread]);
    if (CHECK(team_create(&trial.team, "host", size, NULL)))
        check_ranks(size, take_part, &trial);
    team_destroy(&trial.team);
    check_end();
}

int main(void)
{
    static const int sizes[] = {2, 3, 4, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int spread = 0; spread < SPREADS; spread++)
            check_words(sizes[i], (enum spread)spread);
    return check_finish("oktopk_words_test");
}
