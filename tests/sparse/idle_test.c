/* Thresholds that have become too high: no algorithm that uses one may go on for more than four
 * calls in which nothing is chosen, and what ends them counts as a fallback. */
#include <stdlib.h>
#include <string.h>

#include "tests/team.h"

enum { COUNT = 2000, K = 20, CALLS = 30, MOST_IDLE = 4, SIZE = 3 };

/* Gradients whose k largest elements are 100 times smaller after the first call; of one magnitude,
 * in both signs. */
enum pattern { SHRINKING, SIGNS };
static const char *const patterns[] = {"shrinking", "signs"};

struct trial {
    struct team team;
    const char *algorithm, *constants;
    enum pattern pattern;
};

static float gradient(enum pattern pattern, int rank, int call, size_t i)
{
    const uint64_t any = (i * 2654435761u + (uint64_t)rank * 977 + (uint64_t)call * 131) * 40503u;
    if (pattern == SIGNS)
        return (i + (size_t)rank) % 2 == 0 ? 1 : -1;
    return (float)(any % 21) - 10 + (call == 0 && i % (COUNT / K) == 0 ? 1000 : 0);
}

/* Whether the pattern is one that this algorithm would choose nothing of: those that use a
 * threshold again do where all becomes smaller, an estimate is too high where all is of one
 * size. */
static bool starves(const struct trial *trial)
{
    const bool estimates = strncmp(trial->algorithm, "gaussiank", 9) == 0;
    return estimates == (trial->pattern == SIGNS);
}

/* How many entries are in the result. */
static int call(const struct trial *trial, trib_sparse *state, float *data, int rank, int number)
{
    float *result = data + COUNT;
    int found = 0;
    for (size_t i = 0; i < COUNT; i++)
        data[i] = gradient(trial->pattern, rank, number, i);
    CHECK_OK(trib_sparse_allreduce(state, data, result, trial->team.streams[rank]));
    CHECK(team_wait(&trial->team, rank, 60000));
    CHECK_OK(trib_sparse_status(state));
    for (size_t i = 0; i < COUNT; i++)
        found += result[i] != 0;
    return found;
}

static void take_part(int rank, int size, void *argument)
{
    const struct trial *trial = argument;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    trib_sparse *state = NULL;
    void *data = NULL;
    int idle = 0, longest = 0;
    (void)size;
    options.algorithm = trial->algorithm;
    options.constants = trial->constants;
    options.flags = TRIB_SPARSE_USE_K;
    options.k = K;
    if (!CHECK_OK(trib_device_alloc(&data, trial->team.devices[rank], 2 * COUNT * sizeof(float))) ||
        !CHECK_OK(trib_sparse_create(&state, trial->team.comms[rank], COUNT, TRIB_F32, &options)))
        abort(); /* the others would wait */
    for (int number = 0; number < CALLS; number++) {
        idle = call(trial, state, data, rank, number) == 0 ? idle + 1 : 0;
        longest = idle > longest ? idle : longest;
    }
    CHECK_MSG(longest <= MOST_IDLE, "nothing in the result of %d calls in a row", longest);
    CHECK_OK(trib_sparse_statistics_get(&statistics, state));
    CHECK_MSG(!starves(trial) || (longest == MOST_IDLE && statistics.fallbacks > 0),
              "%d calls without a result, %llu fallbacks", longest,
              (unsigned long long)statistics.fallbacks);
    CHECK_OK(trib_sparse_destroy(state));
    CHECK_OK(trib_device_free(trial->team.devices[rank], data));
}

static void check_idle(const char *algorithm, const char *constants, enum pattern pattern)
{
    struct trial trial = {.algorithm = algorithm, .constants = constants, .pattern = pattern};
    check_begin("%s %s: %s", algorithm, constants == NULL ? "" : constants, patterns[pattern]);
    if (CHECK(team_create(&trial.team, "host", SIZE, NULL)))
        check_ranks(SIZE, take_part, &trial);
    team_destroy(&trial.team);
    check_end();
}

int main(void)
{
    static const char *const constants[] = {"vgg", "lstm", "bert"};
    for (int pattern = SHRINKING; pattern <= SIGNS; pattern++) {
        check_idle("topkaopt", NULL, (enum pattern)pattern);
        for (int i = 0; i < 3; i++) {
            check_idle("oktopk", constants[i], (enum pattern)pattern);
            check_idle("gaussiank", constants[i], (enum pattern)pattern);
            check_idle("gaussiankconcat", constants[i], (enum pattern)pattern);
        }
    }
    return check_finish("idle_test");
}
