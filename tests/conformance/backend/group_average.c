/* Weighted averages of all ranks that one thread drives. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"

enum { TENSORS = 2, FIRST = 5, ALL = 1005, BOUND_MS = 20000 };

struct ranks {
    trib_group *group;
    int size;
    float total; /* of the weights */
    trib_device *devices[TEAM_MAX];
    trib_stream streams[TEAM_MAX];
    struct guarded data[TEAM_MAX]; /* ALL elements, then the total */
};

/* Small, so that every sum is exact. */
static float weight(int rank)
{
    return (float)(1 + rank % 2);
}

/* A multiple of the total, so that the average is exact, too. */
static float input(const struct ranks *ranks, int rank, int i)
{
    return ranks->total * (float)(rank % 3 + i % 7);
}

static float answer(const struct ranks *ranks, int i)
{
    float sum = 0;
    for (int rank = 0; rank < ranks->size; rank++)
        sum += weight(rank) * input(ranks, rank, i);
    return sum / ranks->total;
}

static bool create(struct ranks *ranks, const char *backend, int size, uint32_t flags)
{
    trib_options options = TRIB_OPTIONS_INIT;
    bool good = true;
    memset(ranks, 0, sizeof *ranks);
    options.backend = backend;
    options.flags = flags;
    ranks->size = size;
    for (int rank = 0; rank < size; rank++) {
        ranks->total += weight(rank);
        good = good && CHECK_OK(trib_device_get(&ranks->devices[rank], backend, rank)) &&
               CHECK_OK(trib_stream_create(&ranks->streams[rank], ranks->devices[rank])) &&
               guarded_create(&ranks->data[rank], ranks->devices[rank], sizeof(float) * (ALL + 1));
    }
    return good && CHECK_OK(trib_group_create(&ranks->group, NULL, size, &options));
}

static void destroy(struct ranks *ranks)
{
    CHECK_OK(trib_group_destroy(ranks->group));
    for (int rank = 0; rank < ranks->size; rank++) {
        guarded_destroy(&ranks->data[rank]);
        CHECK_OK(trib_stream_destroy(ranks->devices[rank], ranks->streams[rank]));
    }
}

/* A function of trib_group_run. */
static trib_status average(trib_comm *comm, int32_t rank, void *argument)
{
    const struct ranks *ranks = argument;
    float *data = guarded_data(&ranks->data[rank], 0);
    const trib_tensor tensors[TENSORS] = {{data, FIRST, TRIB_F32, 0},
                                          {data + FIRST, ALL - FIRST, TRIB_F32, 0}};
    return trib_weighted_average(comm, tensors, TENSORS, weight(rank), NULL, data + ALL,
                                 ranks->streams[rank]);
}

static trib_status rank_after_rank(struct ranks *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        const trib_status status = average(trib_group_comm(ranks->group, rank), rank, ranks);
        if (status != TRIB_OK)
            return status;
    }
    return TRIB_OK;
}

static void fill(struct ranks *ranks, int rank, bool done)
{
    float *image = NULL;
    if (!done)
        guarded_reset(&ranks->data[rank], sizeof(float) * (ALL + 1), 0);
    image = guarded_image(&ranks->data[rank], 0);
    for (int i = 0; i < ALL; i++)
        image[i] = done ? answer(ranks, i) : input(ranks, rank, i);
    image[ALL] = done ? ranks->total : -1;
}

static void try_once(struct ranks *ranks, bool by_run)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        fill(ranks, rank, false);
        CHECK(guarded_push(&ranks->data[rank], ranks->streams[rank]));
    }
    CHECK_OK(by_run ? trib_group_run(ranks->group, average, ranks) : rank_after_rank(ranks));
    CHECK_OK(trib_group_wait(ranks->group, ranks->streams, BOUND_MS));
    for (int rank = 0; rank < ranks->size; rank++) {
        CHECK(guarded_pull(&ranks->data[rank], ranks->streams[rank]));
        CHECK_OK(trib_stream_wait(ranks->devices[rank], ranks->streams[rank]));
        fill(ranks, rank, true);
        guarded_same(&ranks->data[rank], __FILE__, __LINE__,
                     by_run ? "by trib_group_run" : "rank after rank");
    }
}

void backend_group_averages(const char *backend, int size)
{
    static const uint32_t flags[] = {0, TRIB_MATCH};
    struct ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks == NULL)
        abort();
    for (int i = 0; i < 2; i++) {
        check_begin("%s, %d ranks: weighted averages of a group%s", backend, size,
                    flags[i] == 0 ? "" : ", matched");
        if (create(ranks, backend, size, flags[i])) {
            try_once(ranks, true);
            try_once(ranks, true);
            if (flags[i] == 0 && strcmp(backend, "host") == 0)
                try_once(ranks, false);
        }
        destroy(ranks);
        check_end();
    }
    free(ranks);
}
