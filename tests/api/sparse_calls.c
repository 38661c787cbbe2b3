/* Calls that succeed, and their statistics; numbers that are not finite. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

static void every_algorithm(int rank, int size, void *team)
{
    struct fixture fixture;
    CHECK(strcmp(trib_sparse_algorithm_name(0), "auto") == 0);
    CHECK(trib_sparse_algorithm_name(-1) == NULL);
    CHECK(trib_sparse_algorithm_name(trib_sparse_algorithm_count()) == NULL);
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
        const char *name = trib_sparse_algorithm_name(i);
        const trib_sparse_options options = fixture_options(name, 8, 0);
        uint64_t bytes = 0;
        if (!fixture_open(&fixture, team, rank, &options))
            return;
        CHECK_OK(trib_sparse_bytes(&bytes, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options));
        CHECK_MSG(bytes >= 2 * sizeof fixture.given, "%s: %llu bytes", name,
                  (unsigned long long)bytes);
        const trib_sparse_options placed = fixture_options(name, 8, TRIB_SPARSE_IN_PLACE);
        /* Two residuals; what auto chooses may be another algorithm. In place hier needs up to one for sums. */
        const uint64_t sums = strcmp(name, "hier") == 0 ? sizeof fixture.given : 0;
        uint64_t without = 0;
        CHECK_OK(trib_sparse_bytes(&without, fixture.comm, FIXTURE_COUNT, TRIB_F32, &placed));
        CHECK_MSG(i == 0 || bytes + sums >= without + 2 * sizeof fixture.given,
                  "%s: %llu bytes, in place %llu", name, (unsigned long long)bytes,
                  (unsigned long long)without);
        CHECK(fixture_outcome(&fixture) == 0);
        CHECK_OK(trib_sparse_status(fixture.sparse));
        for (int call = 0; call < 3; call++) {
            /* One element is above all, on all ranks: whatever is chosen, that is. */
            fixture_fill(&fixture, 0, FIXTURE_COUNT, 1);
            fixture.given[123] = 4096;
            CHECK_OK(fixture_call(&fixture));
            CHECK_MSG(fixture.found[123] == 4096.0f * (float)size, "%s: %g", name,
                      (double)fixture.found[123]);
            CHECK(fixture_outcome(&fixture) == 1);
            CHECK_OK(trib_sparse_status(fixture.sparse));
        }
        const trib_sparse_statistics statistics = fixture_statistics(&fixture);
        CHECK(statistics.calls == 3 && statistics.calls_applied == 3);
        CHECK(i == 0 || strcmp(statistics.algorithm, name) == 0);
        CHECK((i == 0) == (statistics.reason[0] != 0));
        fixture_close(&fixture);
    }
}

/* Every rank has two large entries of its own, k is 2; in the next call one, and one is left
 * over. */
static void numbers(int rank, int size, void *team)
{
    trib_sparse_options options = fixture_options("topka", 2, 0);
    struct fixture fixture;
    options.norm_every = 2;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    CHECK(trib_sparse_capacity(fixture.sparse) == 2 * (uint64_t)size);
    fixture_fill(&fixture, 10 * (size_t)rank, 3, 1); /* 1, 2, 3: the 1 stays */
    CHECK_OK(fixture_call(&fixture));
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == (i < 10 * size && (i % 10 == 1 || i % 10 == 2) ? i % 10 + 1 : 0));
    trib_sparse_statistics found = fixture_statistics(&fixture);
    const uint64_t others = (uint64_t)size - 1;
    CHECK(found.count == FIXTURE_COUNT && found.k == 2);
    CHECK(found.calls == 1 && found.calls_applied == 1 && found.calls_non_finite == 0);
    CHECK(found.selected == 2 && found.applied == 2);
    CHECK(found.words_sent == 4 * others && found.words_received == 4 * others);
    CHECK(found.bytes_sent >= 4 * found.words_sent + 64 * others);
    CHECK(found.bytes_sent == found.bytes_received);
    CHECK(found.residual_norm == -1);
    fixture_fill(&fixture, 500, 1, 4);
    CHECK_OK(fixture_call(&fixture));
    CHECK(fixture.found[500] == 4 * (float)size && fixture.found[10 * rank] == 1);
    found = fixture_statistics(&fixture);
    CHECK(found.calls == 2 && found.selected == 2 && found.total_selected == 4);
    CHECK(found.total_applied == 4 && found.residual_norm == 0);
    fixture_fill(&fixture, 300, 4, 3); /* 3, 4, 5, 6: of two calls, 3 and 4 */
    CHECK_OK(fixture_call(&fixture));
    fixture_fill(&fixture, 0, 0, 0);
    CHECK(fixture_statistics(&fixture).residual_norm == 0); /* not measured in the third */
    CHECK_OK(trib_sparse_set_k(fixture.sparse, 0));
    CHECK_OK(fixture_call(&fixture));
    found = fixture_statistics(&fixture);
    CHECK(found.residual_norm == 5 && found.k == 0 && found.selected == 0);
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == 0);
    fixture_close(&fixture);
}

/* Where there is more than enough to choose from, the statistics' k is what is chosen. */
static void chosen(int rank, int size, void *team)
{
    static const struct {
        const char *algorithm;
        uint64_t k;
        uint32_t chunk;
    } cases[] = {
        {"dense", 5, 0},     {"topka", 5, 0},      {"topka2", 5, 0}, {"gtopk", 5, 0},
        {"srs", 5, 0},       {"srs", 10, 0},       {"shared", 5, 0}, {"chunked", 5, 0},
        {"chunked", 5, 256}, {"chunked", 800, 64}, /* at the end 40 elements, not 51 */
        {"hier", 5, 0},
    };
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, NULL))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trib_sparse_options options = fixture_options(cases[i].algorithm, cases[i].k, 0);
        options.chunk = cases[i].chunk;
        CHECK_OK(
            trib_sparse_create(&fixture.sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &options));
        fixture_fill(&fixture, 0, FIXTURE_COUNT, 1);
        CHECK_OK(fixture_call(&fixture));
        const trib_sparse_statistics found = fixture_statistics(&fixture);
        const bool leads = strcmp(cases[i].algorithm, "shared") != 0 || rank == 0;
        CHECK_MSG(found.k == found.selected || !leads, "%s of k %llu: %llu chosen, by k %llu",
                  cases[i].algorithm, (unsigned long long)cases[i].k,
                  (unsigned long long)found.selected, (unsigned long long)found.k);
        CHECK_OK(trib_sparse_destroy(fixture.sparse));
        fixture.sparse = NULL;
    }
    (void)size;
    fixture_close(&fixture);
}

/* What all ranks together send is what they receive, in words too, where values have 16 bits. */
struct balance {
    struct team team;
    const char *algorithm;
    _Atomic uint64_t sent, received;
};

static void odd_words(int rank, int size, void *argument)
{
    struct balance *balance = argument;
    trib_sparse_options options = fixture_options(balance->algorithm, 5, 0);
    struct fixture fixture;
    options.wire = TRIB_BF16;
    options.chunk = 256;
    options.constants = "vgg";
    if (!fixture_open(&fixture, &balance->team, rank, &options))
        return;
    for (int call = 0; call < 3; call++) {
        fixture_fill(&fixture, (size_t)(70 * rank + call), 30, 1);
        CHECK_OK(fixture_call(&fixture));
    }
    const trib_sparse_statistics found = fixture_statistics(&fixture);
    atomic_fetch_add(&balance->sent, found.words_sent);
    atomic_fetch_add(&balance->received, found.words_received);
    (void)size;
    fixture_close(&fixture);
}

static void balanced(const char *backend, int size)
{
    for (int32_t i = 1; i < trib_sparse_algorithm_count(); i++) {
        struct balance balance = {.algorithm = trib_sparse_algorithm_name(i)};
        check_begin("%s, %d ranks: words of %s", backend, size, balance.algorithm);
        if (team_create(&balance.team, backend, size, NULL))
            check_ranks(size, odd_words, &balance);
        team_destroy(&balance.team);
        CHECK_MSG(atomic_load(&balance.sent) == atomic_load(&balance.received),
                  "%llu sent, %llu received", (unsigned long long)atomic_load(&balance.sent),
                  (unsigned long long)atomic_load(&balance.received));
        check_end();
    }
}

static void entries(int rank, int size, void *team)
{
    const trib_sparse_options options =
        fixture_options("topka", 2, TRIB_SPARSE_ENTRIES | TRIB_SPARSE_AVERAGE);
    uint32_t index[TEAM_MAX + 1], count = 0;
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, (size_t)rank, 1, 8); /* one of each rank, and one that all have */
    fixture.given[900] = 6;
    fixture_push(&fixture);
    CHECK_OK(trib_sparse_allreduce_entries(fixture.sparse, fixture.gradient, fixture.index,
                                           fixture.result, fixture.count, fixture.stream));
    fixture_pull(&fixture);
    CHECK_OK(trib_device_copy(fixture.device, &count, fixture.count, sizeof count, fixture.stream));
    CHECK_OK(trib_device_copy(fixture.device, index, fixture.index,
                              ((size_t)size + 1) * sizeof index[0], fixture.stream));
    CHECK_OK(trib_stream_wait(fixture.device, fixture.stream));
    CHECK(count == (uint32_t)size + 1);
    for (int i = 0; i < size; i++)
        CHECK(index[i] == (uint32_t)i && fixture.found[i] == 8.0f / (float)size);
    CHECK(index[size] == 900 && fixture.found[size] == 6);
    fixture_close(&fixture);
}

/* The call with an element that is not finite, on one rank. */
static void not_finite_call(struct fixture *fixture, const char *name, float value)
{
    bool zero = true;
    if (fixture->rank == fixture->size - 1)
        fixture->given[fixture->size] = value;
    CHECK_OK(fixture_call(fixture));
    CHECK_STATUS(trib_sparse_status(fixture->sparse), TRIB_ERR_NON_FINITE);
    CHECK_DETAIL("trib_sparse_status");
    CHECK_OK(trib_comm_status(fixture->comm));
    CHECK(fixture_outcome(fixture) == 0);
    for (int at = 0; at < FIXTURE_COUNT; at++)
        zero = zero && fixture->found[at] == 0 && !signbit(fixture->found[at]);
    CHECK_MSG(zero, "%s: the result is not 0", name);
}

/* What that call leaves, when the state has made two before. */
static void not_finite_after_two(struct fixture *fixture, const char *name, float value)
{
    size_t before_bytes, after_bytes;
    const trib_sparse_statistics reported = fixture_statistics(fixture);
    char *before = fixture_export(fixture, &before_bytes);
    not_finite_call(fixture, name, value);
    char *after = fixture_export(fixture, &after_bytes);
    /* The head counts the call; the residual is as it was. */
    const size_t tail = FIXTURE_COUNT * sizeof(float);
    CHECK_MSG(before_bytes == after_bytes, "%s: another length", name);
    CHECK_MSG(memcmp(before + 128, after + 128, tail) == 0, "%s: another residual", name);
    const trib_sparse_statistics found = fixture_statistics(fixture);
    CHECK(found.calls == reported.calls + 1 && found.calls_non_finite == 1);
    CHECK(found.calls_applied == reported.calls_applied &&
          found.total_selected == reported.total_selected &&
          found.words_sent == reported.words_sent && found.bytes_sent == reported.bytes_sent);
    free(before);
    free(after);
}

/* Whatever the algorithm: nothing is applied, nothing changes, on no rank; then it goes on. */
static void not_finite(int rank, int size, void *team)
{
    struct fixture fixture;
    (void)size;
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++)
        for (int which = 0; which < 2; which++) {
            const char *name = trib_sparse_algorithm_name(i);
            const trib_sparse_options options = fixture_options(name, 16, 0);
            if (!fixture_open(&fixture, team, rank, &options))
                return;
            for (int call = 0; call < 2; call++) {
                fixture_fill(&fixture, 0, FIXTURE_COUNT, 1);
                CHECK_OK(fixture_call(&fixture));
            }
            not_finite_after_two(&fixture, name, which == 0 ? (float)INFINITY : (float)NAN);
            fixture_fill(&fixture, 0, FIXTURE_COUNT, 1);
            CHECK_OK(fixture_call(&fixture));
            CHECK_OK(trib_sparse_status(fixture.sparse));
            CHECK(fixture_outcome(&fixture) == 1);
            fixture_close(&fixture);
        }
}

/* The residual after so many calls with k = 1, and where the last one found the largest element.
 * Applied are: 1000; 999 twice; 998 three times ... Returns that element. */
static float replay(const float *given, int calls, float *residual, int *at)
{
    float last = 0;
    for (int call = 0; call < calls; call++) {
        *at = 0;
        for (int i = 0; i < FIXTURE_COUNT; i++) {
            residual[i] += given[i];
            *at = residual[i] > residual[*at] ? i : *at;
        }
        last = residual[*at];
        residual[*at] = 0;
    }
    return last;
}

/* Calls on two streams, nothing waited for between them: each takes on where the last one ended,
 * also if the first stream has other things to do. */
static void two_streams(int rank, int size, void *team)
{
    enum { CALLS = 21 };
    static int pause_ms = 20;
    const trib_sparse_options options = fixture_options("topka", 1, 0);
    trib_stream other = NULL;
    size_t bytes = 0;
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options) ||
        !CHECK_OK(trib_stream_create(&other, fixture.device)))
        return;
    fixture_fill(&fixture, 0, FIXTURE_COUNT,
                 1); /* the last one is the largest, until it is applied */
    fixture_push(&fixture);
    for (int call = 0; call < CALLS; call++) {
        if (call == 0 || call == CALLS - 1)
            CHECK_OK(trib_stream_submit(fixture.device, team_rest, &pause_ms, fixture.stream));
        CHECK_OK(trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.result,
                                       call % 2 == 0 ? fixture.stream : other));
    }
    struct fixture elsewhere = fixture;
    elsewhere.stream = other;
    char *exported = fixture_export(&elsewhere, &bytes); /* waits for the last call, too */
    fixture_pull(&fixture);
    float residual[FIXTURE_COUNT] = {0};
    int at = 0;
    const float last = replay(fixture.given, CALLS, residual, &at);
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == (i == at ? last * (float)size : 0));
    CHECK(bytes >= 128 + sizeof residual && memcmp(exported + 128, residual, sizeof residual) == 0);
    free(exported);
    CHECK(fixture_statistics(&fixture).calls == CALLS);
    CHECK_OK(trib_stream_destroy(fixture.device, other));
    fixture_close(&fixture);
}

/* In place the accumulator is the residual; half of it stays after each call. */
static void in_place(int rank, int size, void *team)
{
    trib_sparse_options options = fixture_options("topka", 1, TRIB_SPARSE_IN_PLACE);
    struct fixture fixture;
    float kept[FIXTURE_COUNT];
    options.decay = 0.5;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    fixture_fill(&fixture, 40, 3, 8);
    CHECK_OK(fixture_call(&fixture));
    CHECK(fixture.found[42] == 10 * (float)size && fixture.found[41] == 0);
    CHECK_OK(trib_device_copy(fixture.device, kept, fixture.gradient, sizeof kept, fixture.stream));
    CHECK_OK(trib_stream_wait(fixture.device, fixture.stream));
    CHECK(kept[40] == 4 && kept[41] == 4.5f && kept[42] == 0);
    CHECK(trib_sparse_export_bytes(fixture.sparse) < sizeof kept);
    fixture_close(&fixture);
}

static void empty(int rank, int size, void *team)
{
    struct fixture fixture;
    (void)size;
    if (!fixture_open(&fixture, team, rank, NULL))
        return;
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
        const trib_sparse_options options = fixture_options(trib_sparse_algorithm_name(i), 3, 0);
        if (!CHECK_OK(trib_sparse_create(&fixture.sparse, fixture.comm, 0, TRIB_F64, &options)))
            break;
        CHECK(trib_sparse_capacity(fixture.sparse) == 0);
        CHECK_OK(trib_sparse_allreduce(fixture.sparse, NULL, NULL, fixture.stream));
        CHECK(fixture_outcome(&fixture) == 1);
        CHECK_OK(trib_sparse_status(fixture.sparse));
        CHECK_OK(trib_sparse_destroy(fixture.sparse));
        fixture.sparse = NULL;
    }
    fixture_close(&fixture);
}

void sparse_calls(const char *backend, int size)
{
    fixture_ranks(backend, size, NULL, every_algorithm, "a sparse allreduce by every name");
    fixture_ranks(backend, size, NULL, numbers, "results and statistics of sparse allreduces");
    fixture_ranks(backend, size, NULL, chosen, "k, and what is chosen");
    balanced(backend, size);
    fixture_ranks(backend, size, NULL, entries, "entries as the result");
    fixture_ranks(backend, size, NULL, not_finite, "an infinity or a NaN on one rank");
    fixture_ranks(backend, size, NULL, two_streams, "sparse allreduces on two streams");
    fixture_ranks(backend, size, NULL, in_place, "in place, decayed");
    fixture_ranks(backend, size, NULL, empty, "sparse allreduces of nothing");
}
