/* Bad ends of several batches, and bad batches of a group: nothing is queued on any rank. */
#include <stdint.h>
#include <string.h>

#include "tests/api/bad_input.h"

enum { N = 16 };

/* A group without faults, a buffer per rank that no call may write, and the communicators. */
struct crew {
    struct team team;
    trib_group *group;
    trib_comm *comms[TEAM_MAX];
    struct guarded memory[TEAM_MAX];
    const void *send[TEAM_MAX];
    void *recv[TEAM_MAX];
};

static bool create(struct crew *crew, const char *backend, int size, uint32_t flags)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = backend;
    options.flags = flags;
    if (!CHECK_OK(trib_group_create(&crew->group, NULL, size, &options)) ||
        !team_prepare(&crew->team, backend, size))
        return false;
    for (int rank = 0; rank < size; rank++) {
        struct guarded *memory = &crew->memory[rank];
        CHECK(guarded_create(memory, crew->team.devices[rank], N * sizeof(float)));
        guarded_reset(memory, N * sizeof(float), 0);
        guarded_push(memory, crew->team.streams[rank]);
        crew->send[rank] = crew->recv[rank] = guarded_data(memory, 0);
        crew->comms[rank] = trib_group_comm(crew->group, rank);
        CHECK(crew->comms[rank] != NULL && trib_comm_rank(crew->comms[rank]) == rank);
    }
    CHECK(trib_group_comm(crew->group, -1) == NULL && trib_group_comm(NULL, 0) == NULL);
    CHECK(trib_group_comm(crew->group, size) == NULL);
    return true;
}

/* Nothing was queued on any rank, and the group still works, in a batch. */
static void destroy(struct crew *crew)
{
    const struct team *team = &crew->team;
    CHECK_OK(trib_group_status(crew->group));
    for (int rank = 0; rank < team->size; rank++) {
        guarded_pull(&crew->memory[rank], team->streams[rank]);
        CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
        guarded_same(&crew->memory[rank], __FILE__, __LINE__, "a buffer after bad batches");
    }
    CHECK_OK(trib_group_batch_begin(crew->group));
    CHECK_OK(trib_group_allreduce(crew->group, crew->send, crew->recv, N, TRIB_I32, TRIB_MAX,
                                  team->streams));
    CHECK_OK(trib_group_batch_end(crew->group));
    for (int rank = 0; rank < team->size; rank++) {
        CHECK_OK(trib_stream_wait(team->devices[rank], team->streams[rank]));
        guarded_destroy(&crew->memory[rank]);
    }
    CHECK_OK(trib_group_destroy(crew->group));
    team_destroy(&crew->team);
}

static trib_status call(const struct crew *crew, int rank, size_t count)
{
    return trib_allreduce(crew->comms[rank], crew->send[rank], crew->recv[rank], count, TRIB_F32,
                          TRIB_SUM, crew->team.streams[rank]);
}

/* Without one of the communicators nothing ends; whatever else is wrong, all batches do. */
static void bad_sets(const struct crew *crew)
{
    trib_comm *const twice[] = {crew->comms[0], crew->comms[0]};
    trib_comm *const none[] = {crew->comms[0], NULL};
    CHECK_OK(trib_batch_begin(crew->comms[0]));
    CHECK_STATUS(trib_batch_end_all(NULL, 1), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_batch_end_all(none, 2), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(trib_batch_end_all(crew->comms, 1));
    CHECK_OK(trib_batch_begin(crew->comms[0]));
    CHECK_STATUS(trib_batch_end_all(twice, 2), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("trib_batch_end_all");
    CHECK_DETAIL("`comms[0]` and `comms[1]`");
    CHECK_STATUS(trib_batch_end_all(crew->comms, 1), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("no batch is open");
    CHECK_STATUS(trib_group_batch_end(crew->group), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_group_batch_begin(NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_group_batch_end(NULL), TRIB_ERR_INVALID_ARGUMENT);
}

/* One rank's call is bad; a list; a batch in a batch: the whole of it fails. */
static void bad_calls(struct crew *crew)
{
    const int last = crew->team.size - 1;
    const trib_tensor tensor = {crew->recv[0], N, TRIB_F32, 0};
    const trib_tensor *lists[TEAM_MAX];
    for (int rank = 0; rank <= last; rank++)
        lists[rank] = &tensor;
    CHECK_OK(trib_group_batch_begin(crew->group));
    CHECK_OK(trib_group_allreduce(crew->group, crew->send, crew->recv, N, TRIB_F32, TRIB_SUM,
                                  crew->team.streams));
    crew->recv[last] = NULL;
    CHECK_STATUS(trib_group_broadcast(crew->group, crew->send, crew->recv, N, TRIB_F32, 0,
                                      crew->team.streams),
                 TRIB_ERR_INVALID_BUFFER);
    crew->recv[last] = guarded_data(&crew->memory[last], 0);
    CHECK_STATUS(trib_group_batch_end(crew->group), TRIB_ERR_INVALID_BUFFER);
    CHECK_DETAIL("`recv`");
    CHECK_OK(trib_group_batch_begin(crew->group));
    CHECK_OK(trib_group_allreduce(crew->group, crew->send, crew->recv, N, TRIB_F32, TRIB_SUM,
                                  crew->team.streams));
    CHECK_STATUS(trib_group_allreduce_list(crew->group, lists, 1, TRIB_SUM, crew->team.streams),
                 TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_group_batch_end(crew->group), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("a batch takes no lists");
    CHECK_OK(trib_group_batch_begin(crew->group));
    CHECK_STATUS(trib_group_batch_begin(crew->group), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_group_batch_end(crew->group), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("do not nest");
}

static void open_on_one_rank(const struct crew *crew)
{
    const int last = crew->team.size - 1;
    CHECK_OK(trib_batch_begin(crew->comms[last]));
    CHECK_STATUS(trib_group_allreduce(crew->group, crew->send, crew->recv, N, TRIB_F32, TRIB_SUM,
                                      crew->team.streams),
                 TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("on 1 of the group's");
    CHECK_STATUS(trib_batch_end(crew->comms[last]), TRIB_ERR_INVALID_USAGE);
    CHECK_OK(trib_batch_begin(crew->comms[last]));
    CHECK_STATUS(trib_group_batch_begin(crew->group), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_batch_end(crew->comms[last]), TRIB_ERR_INVALID_USAGE);
    CHECK_STATUS(trib_batch_end(crew->comms[0]), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("no batch is open");
}

/* One thread compares the ranks if it has all of them, and cannot if it has two of three. */
static void bad_matches_together(const struct crew *crew)
{
    const int size = crew->team.size;
    CHECK_OK(trib_group_batch_begin(crew->group));
    for (int rank = 0; rank < size; rank++)
        CHECK_OK(call(crew, rank, rank == size - 1 ? N - 1 : N));
    CHECK_STATUS(trib_group_batch_end(crew->group), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("nothing was queued");
    if (size < 3)
        return;
    CHECK_OK(trib_batch_begin(crew->comms[0]));
    CHECK_OK(trib_batch_begin(crew->comms[1]));
    CHECK_OK(call(crew, 0, N));
    CHECK_OK(call(crew, 1, N));
    CHECK_STATUS(trib_batch_end_all(crew->comms, 2), TRIB_ERR_INVALID_USAGE);
    CHECK_DETAIL("2 of its 3 ranks");
}

void bad_together(const char *backend, int size)
{
    struct crew crew = {.group = NULL};
    check_begin("%s, %d ranks: batches that end together", backend, size);
    if (create(&crew, backend, size, 0)) {
        bad_sets(&crew);
        bad_calls(&crew);
        if (size > 1)
            open_on_one_rank(&crew);
        destroy(&crew);
    }
    if (size > 1 && create(&crew, backend, size, TRIB_MATCH)) {
        bad_matches_together(&crew);
        destroy(&crew);
    }
    check_end();
}
