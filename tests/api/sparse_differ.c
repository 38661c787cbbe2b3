/* Ranks whose calls differ: every rank gets an error, none waits for ever, and all can go on. */
#include <string.h>

#include "tests/api/sparse.h"

struct difference {
    const char *word; /* in the detail */
    size_t count;
    trib_dtype dtype;
    const char *algorithm;
    uint64_t k;
    uint32_t flags;
    double decay;
    trib_dtype wire;
    uint32_t chunk, norm_every;
    const char *constants;
};

static const struct difference same = {"", 100, TRIB_F32, "chunked", 5, 0, 1, 0, 64, 0, NULL};

/* In one thing each. */
static const struct difference differences[] = {
    {"count is", 101, TRIB_F32, "chunked", 5, 0, 1, 0, 64, 0, NULL},
    {"dtype is", 100, TRIB_F16, "chunked", 5, 0, 1, 0, 64, 0, NULL},
    {"algorithm is", 100, TRIB_F32, "topka", 5, 0, 1, 0, 64, 0, NULL},
    {"algorithm is auto", 100, TRIB_F32, "auto", 5, 0, 1, 0, 64, 0, NULL},
    {"k is 6", 100, TRIB_F32, "chunked", 6, 0, 1, 0, 64, 0, NULL},
    {"flags is", 100, TRIB_F32, "chunked", 5, TRIB_SPARSE_AVERAGE, 1, 0, 64, 0, NULL},
    {"flags is", 100, TRIB_F32, "chunked", 5, TRIB_SPARSE_ENTRIES, 1, 0, 64, 0, NULL},
    {"flags is", 100, TRIB_F32, "chunked", 5, TRIB_SPARSE_IN_PLACE, 1, 0, 64, 0, NULL},
    {"decay is 0.5", 100, TRIB_F32, "chunked", 5, 0, 0.5, 0, 64, 0, NULL},
    {"wire is bf16", 100, TRIB_F32, "chunked", 5, 0, 1, TRIB_BF16, 64, 0, NULL},
    {"chunk is 128", 100, TRIB_F32, "chunked", 5, 0, 1, 0, 128, 0, NULL},
    {"norm_every is 3", 100, TRIB_F32, "chunked", 5, 0, 1, 0, 64, 3, NULL},
    {"constants is", 100, TRIB_F32, "chunked", 5, 0, 1, 0, 64, 0, "lstm"},
};

static trib_status make(trib_sparse **out, trib_comm *comm, const struct difference *with)
{
    trib_sparse_options options = fixture_options(with->algorithm, with->k, with->flags);
    options.decay = with->decay;
    options.wire = with->wire;
    options.chunk = with->chunk;
    options.norm_every = with->norm_every;
    options.constants = with->constants;
    return trib_sparse_create(out, comm, with->count, with->dtype, &options);
}

/* Each rank in turn is the odd one. */
static void creations(int rank, int size, void *argument)
{
    struct team *team = argument;
    trib_sparse *sparse = NULL;
    for (size_t i = 0; i < sizeof differences / sizeof differences[0]; i++)
        for (int odd = 0; odd < size; odd++) {
            CHECK_STATUS(make(&sparse, team->comms[rank], rank == odd ? &differences[i] : &same),
                         TRIB_ERR_MISMATCH);
            CHECK(sparse == NULL);
            CHECK_DETAIL("trib_sparse_create on rank");
            if (odd != 0)
                CHECK_DETAIL(differences[i].word);
            CHECK_OK(trib_comm_status(team->comms[rank]));
        }
    CHECK_OK(make(&sparse, team->comms[rank], &same));
    CHECK_OK(trib_sparse_destroy(sparse));
}

/* Any one rank's arguments are invalid: the others get an error too. */
static const struct difference mistakes[] = {
    {"options.decay is 7", 100, TRIB_F32, "chunked", 5, 0, 7, 0, 64, 0, NULL},
    {"options.algorithm is", 100, TRIB_F32, "topkb", 5, 0, 1, 0, 64, 0, NULL},
    {"options.constants is", 100, TRIB_F32, "chunked", 5, 0, 1, 0, 64, 0, "alexnet"},
    {"`dtype` is", 100, TRIB_I32, "chunked", 5, 0, 1, 0, 64, 0, NULL},
};

static void refusals(int rank, int size, void *argument)
{
    struct team *team = argument;
    trib_sparse *sparse = NULL, *none = NULL;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        for (int odd = 0; odd < size; odd++) {
            const trib_status status =
                make(&none, team->comms[rank], rank == odd ? &mistakes[i] : &same);
            CHECK_MSG(rank == odd
                          ? status == TRIB_ERR_INVALID_ARGUMENT || status == TRIB_ERR_UNKNOWN_NAME
                          : status == TRIB_ERR_MISMATCH,
                      "%s: %s", trib_status_name(status), trib_last_detail());
            CHECK_DETAIL("trib_sparse_create on rank");
            CHECK_DETAIL(rank == odd ? mistakes[i].word : "rejected its arguments");
            CHECK(none == NULL);
        }
    CHECK_OK(make(&sparse, team->comms[rank], &same));
    const uint64_t capacity = trib_sparse_capacity(sparse);
    for (int odd = 0; odd < size; odd++) {
        CHECK_STATUS(trib_sparse_set_density(sparse, rank == odd ? -1 : 0.5),
                     rank == odd ? TRIB_ERR_INVALID_ARGUMENT : TRIB_ERR_MISMATCH);
        CHECK_DETAIL(rank == odd ? "`density` is -1" : "rejected its arguments");
    }
    CHECK(trib_sparse_capacity(sparse) == capacity);
    CHECK_OK(trib_comm_status(team->comms[rank]));
    CHECK_OK(trib_sparse_destroy(sparse));
}

/* k set to something else on one rank: the old k stays on all. */
static void settings(int rank, int size, void *team)
{
    const trib_sparse_options options = fixture_options("topka", 2, 0);
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    CHECK_STATUS(trib_sparse_set_k(fixture.sparse, rank == size - 1 ? 30 : 40), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("k is 30");
    CHECK_STATUS(trib_sparse_set_density(fixture.sparse, rank == 0 ? 0.5 : 0.25),
                 TRIB_ERR_MISMATCH);
    CHECK_STATUS(rank == 0 ? trib_sparse_set_density(fixture.sparse, 0.01)
                           : trib_sparse_set_k(fixture.sparse, 10),
                 TRIB_ERR_MISMATCH);
    CHECK_DETAIL("call is");
    CHECK(fixture_statistics(&fixture).k == 2);
    CHECK(trib_sparse_capacity(fixture.sparse) == 2 * (uint64_t)size);
    fixture_fill(&fixture, 7, 3, 1);
    CHECK_OK(fixture_call(&fixture));
    for (int i = 0; i < FIXTURE_COUNT; i++)
        CHECK(fixture.found[i] == (i == 8 || i == 9 ? (float)((i - 6) * size) : 0));
    fixture_close(&fixture);
}

/* Two equal states, called in another order on one rank: the headers show it. */
static void orders(int rank, int size, void *team)
{
    static const char *const names[] = {"dense", "topka",   "topka2", "gtopk",
                                        "srs",   "chunked", "hier"};
    struct fixture first, second;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const trib_sparse_options options = fixture_options(names[i], 4, 0);
        if (!fixture_open(&first, team, rank, &options) ||
            !fixture_open(&second, team, rank, &options))
            return;
        fixture_fill(&first, 0, 4, 1);
        fixture_fill(&second, 0, 4, 1);
        CHECK_OK(fixture_call(rank == size - 1 ? &second : &first));
        CHECK_OK(fixture_call(rank == size - 1 ? &first : &second));
        CHECK_STATUS(trib_sparse_status(first.sparse), TRIB_ERR_MISMATCH);
        CHECK_STATUS(trib_sparse_status(second.sparse), TRIB_ERR_MISMATCH);
        CHECK(fixture_outcome(&first) == 0 && fixture_outcome(&second) == 0);
        for (int at = 0; at < FIXTURE_COUNT; at++)
            CHECK(first.found[at] == 0 && second.found[at] == 0);
        CHECK(fixture_statistics(&first).calls_applied == 0);
        CHECK_OK(trib_comm_status(first.comm));
        CHECK_OK(fixture_call(&first));
        CHECK_OK(trib_sparse_status(first.sparse));
        CHECK_MSG(first.found[3] == (float)(4 * size), "%s: %g", names[i], (double)first.found[3]);
        fixture_close(&first);
        fixture_close(&second);
    }
}

/* With TRIB_MATCH also what is another call altogether. */
static void matched(int rank, int size, void *team)
{
    const trib_sparse_options options = fixture_options("topka", 4, 0);
    struct fixture first, second;
    trib_sparse *none = NULL;
    if (!fixture_open(&first, team, rank, &options) || !fixture_open(&second, team, rank, &options))
        return;
    const bool odd = rank == size - 1;
    struct fixture *mine = odd ? &second : &first;
    CHECK_STATUS(trib_sparse_allreduce(mine->sparse, mine->gradient, mine->result, mine->stream),
                 TRIB_ERR_MISMATCH);
    CHECK_DETAIL("trib_sparse_allreduce");
    CHECK_STATUS(
        odd ? trib_barrier(first.comm, first.stream)
            : trib_sparse_allreduce(first.sparse, first.gradient, first.result, first.stream),
        TRIB_ERR_MISMATCH);
    CHECK_STATUS(odd ? trib_sparse_set_k(first.sparse, 4)
                     : trib_sparse_create(&none, first.comm, 4, TRIB_F32, NULL),
                 TRIB_ERR_MISMATCH);
    fixture_fill(&first, 0, 4, 1);
    CHECK_OK(fixture_call(&first));
    for (int i = 0; i < 4; i++)
        CHECK(first.found[i] == (float)((i + 1) * size));
    CHECK(fixture_statistics(&first).calls == 1);
    fixture_close(&first);
    fixture_close(&second);
}

void sparse_differ(const char *backend, int size)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_MATCH;
    if (size < 2)
        return;
    fixture_ranks(backend, size, NULL, creations, "states that differ");
    fixture_ranks(backend, size, NULL, refusals, "what is refused on one rank alone");
    fixture_ranks(backend, size, &options, refusals, "the same with TRIB_MATCH");
    fixture_ranks(backend, size, NULL, settings, "another k on one rank");
    fixture_ranks(backend, size, NULL, orders, "two states in another order on one rank");
    fixture_ranks(backend, size, &options, matched, "matched sparse calls");
}
