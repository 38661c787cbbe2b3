/* The statistics of a state are read while calls end: what is read is of one call, and what is not is
 * read again. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/sparse/state.h"
#include "tests/team.h"

enum { SIZE = 2, COUNT = 64, K = 7, CALLS = 20000, LATE_MS = 40, PATIENCE_MS = 60000 };

/* One rank's state and its buffers. */
struct side {
    const struct team *team;
    int rank;
    trib_sparse *state;
    float *gradient, *result;
};

static void open_side(struct side *side, const struct team *team, int rank)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    void *data = NULL;
    options.algorithm = "topka";
    options.flags = TRIB_SPARSE_USE_K;
    options.k = K;
    *side = (struct side){.team = team, .rank = rank};
    if (!CHECK_OK(trib_device_alloc(&data, team->devices[rank], 2 * COUNT * sizeof(float))) ||
        !CHECK_OK(trib_sparse_create(&side->state, team->comms[rank], COUNT, TRIB_F32, &options)))
        abort(); /* the others would wait */
    side->gradient = data;
    side->result = side->gradient + COUNT;
    for (size_t i = 0; i < COUNT; i++)
        side->gradient[i] = (float)(i % 13) + (float)rank;
}

static void close_side(struct side *side)
{
    CHECK_OK(trib_sparse_destroy(side->state));
    CHECK_OK(trib_device_free(side->team->devices[side->rank], side->gradient));
}

static bool queue_call(const struct side *side)
{
    return CHECK_OK(trib_sparse_allreduce(side->state, side->gradient, side->result,
                                          side->team->streams[side->rank]));
}

static trib_sparse_statistics statistics_of(trib_sparse *state)
{
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_OK(trib_sparse_statistics_get(&statistics, state));
    return statistics;
}

/* Every applied call adds the same to each of these. */
static bool of_one_call(const trib_sparse_statistics *found, uint64_t bytes)
{
    return found->calls_applied == found->calls && found->total_selected == K * found->calls &&
           found->total_applied == K * found->calls && found->words_sent == 2 * K * found->calls &&
           found->bytes_sent == bytes * found->calls &&
           found->bytes_received == bytes * found->calls;
}

static void read_beside(int rank, int size, void *argument)
{
    struct side side;
    (void)size;
    open_side(&side, argument, rank);
    (void)queue_call(&side);
    CHECK(team_wait(side.team, rank, PATIENCE_MS));
    const uint64_t bytes = statistics_of(side.state).bytes_sent;
    uint64_t last = 1, torn = 0, backwards = 0;
    for (int i = 1; i < CALLS; i++) {
        if (!queue_call(&side))
            break;
        const trib_sparse_statistics found = statistics_of(side.state);
        torn += !of_one_call(&found, bytes);
        backwards += found.calls < last;
        last = found.calls;
    }
    CHECK(team_wait(side.team, rank, PATIENCE_MS));
    const trib_sparse_statistics end = statistics_of(side.state);
    CHECK_MSG(torn == 0 && backwards == 0, "%llu of the copies were torn, %llu older than the last",
              (unsigned long long)torn, (unsigned long long)backwards);
    CHECK(end.calls == CALLS && of_one_call(&end, bytes));
    close_side(&side);
}

static void beside_calls(void)
{
    struct team team;
    check_begin("%d ranks read while %d calls end", SIZE, CALLS);
    if (CHECK(team_create(&team, "host", SIZE, NULL)))
        check_ranks(SIZE, read_beside, &team);
    team_destroy(&team);
    check_end();
}

/* ---- a copy that is being written */

/* The published word that a write has not reached yet, and its value. */
struct writing {
    uint64_t *word, value;
    _Atomic bool begun;
};

static void *finish_writing(void *argument)
{
    struct writing *writing = argument;
    int ms = LATE_MS;
    writing->begun = true;
    team_rest(&ms);
    __atomic_store_n(writing->word, writing->value, __ATOMIC_RELAXED);
    return NULL;
}

static void amid_a_write(size_t word, bool ends)
{
    struct team team;
    struct side side;
    pthread_t thread;
    check_begin("read amid a write of word %zu that %s", word, ends ? "ends" : "never ends");
    if (CHECK(team_create(&team, "host", 1, NULL))) {
        open_side(&side, &team, 0);
        (void)queue_call(&side);
        CHECK(team_wait(&team, 0, PATIENCE_MS));
        const trib_sparse_statistics before = statistics_of(side.state);
        uint64_t *const words = (uint64_t *)(void *)side.state->published;
        struct writing writing = {.word = &words[word], .value = words[word]};
        __atomic_store_n(writing.word, writing.value + 5, __ATOMIC_RELAXED);
        if (ends)
            CHECK(pthread_create(&thread, NULL, finish_writing, &writing) == 0);
        while (ends && !writing.begun) {}
        const trib_sparse_statistics found = statistics_of(side.state);
        CHECK((memcmp(&found, &before, sizeof found) == 0) == ends);
        if (ends)
            CHECK(pthread_join(thread, NULL) == 0);
        close_side(&side);
    }
    team_destroy(&team);
    check_end();
}

/* ---- none yet */

static void before_calls(void)
{
    struct team team;
    struct side side;
    check_begin("before the first call");
    if (CHECK(team_create(&team, "host", 1, NULL))) {
        open_side(&side, &team, 0);
        const trib_sparse_statistics found = statistics_of(side.state);
        CHECK(found.calls == 0 && found.bytes_sent == 0 && found.residual_norm == -1);
        close_side(&side);
    }
    team_destroy(&team);
    check_end();
}

int main(void)
{
    before_calls();
    beside_calls();
    for (size_t word = 1; word < TRI_COUNTERS_WORDS - 1; word++) /* the first one is the status */
        amid_a_write(word, true);
    amid_a_write(offsetof(struct tri_counters, ended) / sizeof(uint64_t), false);
    return check_finish("statistics_test");
}
