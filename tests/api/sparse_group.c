/* A group whose ranks one thread drives: sparse allreduces, and functions on every rank at once. */
#include <stdlib.h>
#include <string.h>

#include "tests/api/sparse.h"

struct crew {
    struct team team; /* its communicators are the group's */
    trib_group *group;
    struct fixture *fixtures; /* without states: */
    trib_sparse *sparse[TEAM_MAX];
    void *gradient[TEAM_MAX], *result[TEAM_MAX];
    trib_stream streams[TEAM_MAX];
};

static bool create(struct crew *crew, const char *backend, int size, const trib_options *options)
{
    memset(crew, 0, sizeof *crew);
    crew->fixtures = calloc((size_t)size, sizeof *crew->fixtures);
    if (crew->fixtures == NULL)
        abort();
    if (!team_prepare(&crew->team, backend, size) ||
        !CHECK_OK(trib_group_create(&crew->group, NULL, size, options)))
        return false;
    bool good = true;
    for (int rank = 0; rank < size; rank++) {
        crew->team.comms[rank] = trib_group_comm(crew->group, rank);
        good = fixture_open(&crew->fixtures[rank], &crew->team, rank, NULL) && good;
        crew->gradient[rank] = crew->fixtures[rank].gradient;
        crew->result[rank] = crew->fixtures[rank].result;
        crew->streams[rank] = crew->team.streams[rank];
    }
    return good;
}

static void destroy(struct crew *crew)
{
    for (int rank = 0; rank < crew->team.size; rank++) {
        fixture_close(&crew->fixtures[rank]);
        crew->team.comms[rank] = NULL;
    }
    CHECK_OK(trib_group_destroy(crew->group));
    team_destroy(&crew->team);
    free(crew->fixtures);
}

static trib_status call(struct crew *crew)
{
    return trib_group_sparse_allreduce(crew->group, crew->sparse, crew->gradient, crew->result,
                                       crew->streams);
}

static bool open_states(struct crew *crew, const trib_sparse_options *options)
{
    if (!CHECK_OK(
            trib_group_sparse_create(crew->sparse, crew->group, FIXTURE_COUNT, TRIB_F32, options)))
        return false;
    for (int rank = 0; rank < crew->team.size; rank++)
        crew->fixtures[rank].sparse = crew->sparse[rank];
    return true;
}

static void close_states(struct crew *crew)
{
    for (int rank = 0; rank < crew->team.size; rank++) {
        CHECK_OK(trib_stream_wait(crew->team.devices[rank], crew->streams[rank]));
        CHECK_OK(trib_sparse_destroy(crew->sparse[rank]));
        crew->sparse[rank] = crew->fixtures[rank].sparse = NULL;
    }
}

/* One element is above all, on all ranks: whatever is chosen, that is. */
static void every_algorithm(struct crew *crew)
{
    const int size = crew->team.size;
    for (int32_t i = 0; i < trib_sparse_algorithm_count(); i++) {
        const char *name = trib_sparse_algorithm_name(i);
        const trib_sparse_options options = fixture_options(name, 8, 0);
        if (!open_states(crew, &options))
            return;
        for (int turn = 0; turn < 3; turn++) {
            for (int rank = 0; rank < size; rank++) {
                fixture_fill(&crew->fixtures[rank], 0, FIXTURE_COUNT, 1);
                crew->fixtures[rank].given[123] = 4096;
                fixture_push(&crew->fixtures[rank]);
            }
            CHECK_OK(call(crew));
            for (int rank = 0; rank < size; rank++) {
                struct fixture *fixture = &crew->fixtures[rank];
                fixture_pull(fixture);
                CHECK_MSG(fixture->found[123] == 4096.0f * (float)size, "%s: %g", name,
                          (double)fixture->found[123]);
                CHECK(memcmp(fixture->found, crew->fixtures[0].found, sizeof fixture->found) == 0);
                CHECK(fixture_outcome(fixture) == 1);
            }
        }
        CHECK(fixture_statistics(&crew->fixtures[size - 1]).calls_applied == 3);
        close_states(crew);
    }
}

/* Refused before anything is queued, on all ranks. */
static void mistakes(struct crew *crew)
{
    const int last = crew->team.size - 1;
    const trib_sparse_options options = fixture_options("topka", 8, 0);
    trib_sparse_options wrong = fixture_options("pigeon", 8, 0);
    CHECK_STATUS(
        trib_group_sparse_create(crew->sparse, crew->group, FIXTURE_COUNT, TRIB_F32, &wrong),
        TRIB_ERR_UNKNOWN_NAME);
    CHECK_DETAIL("pigeon");
    CHECK(crew->sparse[0] == NULL && crew->sparse[last] == NULL);
    if (!open_states(crew, &options))
        return;
    void *const result = crew->result[last];
    crew->result[last] = NULL;
    CHECK_STATUS(call(crew), TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("`result`");
    crew->result[last] = result;
    trib_sparse *const state = crew->sparse[last];
    crew->sparse[last] = NULL;
    CHECK_STATUS(call(crew), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("is NULL");
    crew->sparse[last] = crew->sparse[0];
    if (last > 0)
        CHECK_STATUS(call(crew), TRIB_ERR_INVALID_ARGUMENT);
    crew->sparse[last] = state;
    CHECK_STATUS(trib_group_sparse_allreduce(crew->group, crew->sparse, NULL, crew->result, NULL),
                 TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(trib_group_batch_begin(crew->group));
    CHECK_STATUS(call(crew), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("a batch is open");
    CHECK_STATUS(trib_group_batch_end(crew->group), TRIB_ERR_INVALID_USAGE);
    CHECK(fixture_statistics(&crew->fixtures[0]).calls == 0);
    CHECK_OK(trib_group_status(crew->group));
    close_states(crew);
}

/* ------------------------------------------------------------------------------ trib_group_run */

static trib_status set_k(trib_comm *comm, int32_t rank, void *argument)
{
    struct crew *crew = argument;
    CHECK(comm == crew->team.comms[rank] && trib_comm_rank(comm) == rank);
    return trib_sparse_set_k(crew->sparse[rank], 16);
}

static trib_status fail_but_first(trib_comm *comm, int32_t rank, void *argument)
{
    (void)argument;
    return rank == 0 ? TRIB_OK : trib_broadcast(comm, NULL, NULL, 1, TRIB_F32, -rank, NULL);
}

static trib_status nothing(trib_comm *comm, int32_t rank, void *argument)
{
    (void)comm;
    (void)rank;
    (void)argument;
    return TRIB_OK;
}

static trib_status nest(trib_comm *comm, int32_t rank, void *argument)
{
    struct crew *crew = argument;
    (void)comm;
    if (rank == 0)
        CHECK_STATUS(trib_group_run(crew->group, nothing, NULL), TRIB_ERR_INVALID_USAGE);
    return TRIB_OK;
}

static void functions(struct crew *crew)
{
    const trib_sparse_options options = fixture_options("topka", 8, 0);
    CHECK_STATUS(trib_group_run(NULL, nothing, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_group_run(crew->group, NULL, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(trib_group_run(crew->group, nothing, NULL));
    CHECK_OK(trib_group_run(crew->group, nest, crew));
    if (crew->team.size > 1) {
        CHECK_STATUS(trib_group_run(crew->group, fail_but_first, NULL), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("on rank 1");
        CHECK_DETAIL("-1");
    }
    if (!open_states(crew, &options))
        return;
    CHECK_OK(trib_group_run(crew->group, set_k, crew));
    for (int rank = 0; rank < crew->team.size; rank++)
        CHECK(trib_sparse_k(crew->sparse[rank]) == 16);
    close_states(crew);
}

void sparse_group(const char *backend, int size)
{
    static const uint32_t flags[] = {0, TRIB_MATCH};
    for (int i = 0; i < 2; i++) {
        trib_options options = TRIB_OPTIONS_INIT;
        struct crew crew;
        options.backend = backend;
        options.flags = flags[i];
        check_begin("%s, %d ranks: sparse allreduces of a group%s", backend, size,
                    flags[i] == 0 ? "" : ", matched");
        if (create(&crew, backend, size, &options)) {
            every_algorithm(&crew);
            mistakes(&crew);
            functions(&crew);
            destroy(&crew);
        }
        check_end();
    }
}
