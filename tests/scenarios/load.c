/* Healthy work under deadlines: a long run of mixed calls over several communicators, in which no
 * deadline may pass; and a call that takes longer than its deadline, which was extended. */
#include <stdatomic.h>
#include <stdio.h>

#include "tests/api/sparse.h"
#include "tests/scenarios/scenario.h"

enum { DEADLINE_MS = 2000, SECONDS = 4, COMMS = 3, LIST = 300, K = 16 };
enum { SHORT_MS = 300, SLOW_MS = 900, LONG_MS = 10000 };

/* -------------------------------------------------------------------------------- a long run */

/* Two teams on the same devices, and children of the first. */
struct load {
    struct team teams[COMMS];
    const struct faults *faults;
    double end_at;
    _Atomic int last; /* the round after which all stop; written before its calls */
    _Atomic int rounds;
};

static void split_rank(int rank, int size, void *argument)
{
    struct load *load = argument;
    (void)size;
    CHECK_OK(trib_comm_split(&load->teams[2].comms[rank], load->teams[0].comms[rank], 0, rank));
}

static bool open_load(struct load *load)
{
    const struct faults *faults = load->faults;
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = DEADLINE_MS;
    if (!faults_team(&load->teams[0], faults, &options) ||
        !faults_team(&load->teams[1], faults, &options) ||
        !team_prepare(&load->teams[2], faults->backend, faults->size))
        return false;
    check_ranks(faults->size, split_rank, load);
    return load->teams[2].comms[0] != NULL;
}

/* All of a rank's streams; the slowest counts. */
static bool wait_all(struct load *load, int rank, double since)
{
    bool good = true;
    for (int i = 0; i < COMMS && good; i++)
        good = CHECK_OK(trib_comm_wait(load->teams[i].comms[rank], load->teams[i].streams[rank],
                                       TRIB_NO_TIMEOUT)) &&
               CHECK_OK(trib_comm_status(load->teams[i].comms[rank]));
    faults_returned(load->faults, check_now_ms() - since);
    return good;
}

/* Exact sums of small numbers. */
static bool right(const struct fixture *fixture, const struct guarded *memory, int round)
{
    const int size = fixture->size;
    const float *data = guarded_found(memory, 0);
    bool good = true;
    for (int i = 0; i < LIST && good; i++)
        good = data[i] == (float)(size * (round % 100) + size * (size - 1) / 2 + size * (i % 5));
    for (int i = 0; i < K && good; i++)
        good = fixture->found[i] == (float)(size * (i + 1));
    return CHECK_MSG(good, "round %d: a result is wrong", round);
}

/* Two copies and a maximum that nobody looks at, as one call, and a barrier. */
static bool queue_batch(const struct load *load, int rank, float *scratch, int round)
{
    trib_comm *comm = load->teams[2].comms[rank];
    trib_stream stream = load->teams[2].streams[rank];
    return CHECK_OK(trib_batch_begin(comm)) &&
           CHECK_OK(trib_broadcast(comm, scratch, scratch, 100, TRIB_F32,
                                   round % load->teams[2].size, stream)) &&
           CHECK_OK(trib_allreduce(comm, scratch + 200, scratch + 200, 100, TRIB_F32, TRIB_MAX,
                                   stream)) &&
           CHECK_OK(trib_batch_end(comm)) && CHECK_OK(trib_barrier(comm, stream));
}

static bool queue_round(struct load *load, struct fixture *fixture, float *data, int round)
{
    const int rank = fixture->rank;
    const struct team *teams = load->teams;
    const trib_tensor list[] = {{data, 10, TRIB_F32, 0}, {data + 10, LIST - 10, TRIB_F32, 0}};
    void *scratch = fixture->index;
    bool good = CHECK_OK(trib_allreduce_list(teams[1].comms[rank], list, 2, TRIB_SUM,
                                             teams[1].streams[rank])) &&
                CHECK_OK(trib_sparse_allreduce(fixture->sparse, fixture->gradient, fixture->result,
                                               teams[0].streams[rank]));
    for (int i = 0; i < round % 8 && good; i++)
        good = CHECK_OK(trib_allreduce(teams[i % COMMS].comms[rank], NULL, NULL, 0, TRIB_F32,
                                       TRIB_SUM, teams[i % COMMS].streams[rank]));
    return good && queue_batch(load, rank, scratch, round);
}

static bool one_round(struct load *load, struct fixture *fixture, struct guarded *memory, int round)
{
    trib_stream stream = load->teams[1].streams[fixture->rank];
    guarded_reset(memory, LIST * sizeof(float), 0);
    float *given = guarded_image(memory, 0);
    for (int i = 0; i < LIST; i++)
        given[i] = (float)(round % 100 + fixture->rank + i % 5);
    fixture_fill(fixture, 0, K, 1);
    fixture_push(fixture);
    if (!guarded_push(memory, stream) || !CHECK_OK(trib_stream_wait(fixture->device, stream)))
        return false;
    const double since = check_now_ms();
    if (!queue_round(load, fixture, guarded_data(memory, 0), round) ||
        !wait_all(load, fixture->rank, since))
        return false;
    fixture_pull(fixture);
    return guarded_pull(memory, stream) && CHECK_OK(trib_stream_wait(fixture->device, stream)) &&
           right(fixture, memory, round);
}

static void load_rank(int rank, int size, void *argument)
{
    struct load *load = argument;
    struct fixture fixture;
    struct guarded memory;
    const trib_sparse_options options = fixture_options("topka", K, 0);
    (void)size;
    if (!fixture_open(&fixture, &load->teams[0], rank, &options) ||
        !guarded_create(&memory, fixture.device, LIST * sizeof(float)))
        return;
    /* No rank ends a round before rank 0 has begun it. */
    for (int round = 0; atomic_load(&load->last) < 0 || round <= atomic_load(&load->last);
         round++) {
        if (rank == 0 && check_now_ms() > load->end_at && atomic_load(&load->last) < 0)
            atomic_store(&load->last, round);
        if (!one_round(load, &fixture, &memory, round))
            break;
        if (rank == 0)
            atomic_store(&load->rounds, round + 1);
    }
    guarded_destroy(&memory);
    fixture_close(&fixture);
}

void scenario_load(const struct faults *faults)
{
    static struct load load = {.last = -1};
    const int seconds = scenario_number("TRIB_TEST_SCENARIO_SECONDS", SECONDS);
    load.faults = faults;
    check_begin("%s, %d ranks: %d s of healthy work", faults->backend, faults->size, seconds);
    if (open_load(&load)) {
        load.end_at = check_now_ms() + seconds * 1e3;
        check_ranks(faults->size, load_rank, &load);
        scenario_says("%d rounds in %d s on %d communicators under a deadline of %d ms; the time "
                      "is that of the slowest round",
                      atomic_load(&load.rounds), seconds, COMMS, DEADLINE_MS);
    }
    for (int i = COMMS - 1; i >= 0; i--)
        team_destroy(&load.teams[i]);
    check_end();
}

/* ------------------------------------------------------------------------------- a slow call */

struct slow {
    struct team team;
    const struct faults *faults;
    bool extended;
    struct fault_data data[TEAM_MAX];
    double begun_at;
};

/* The last rank's stream does not reach the call for a long time. */
static void slow_rank(int rank, int size, void *argument)
{
    static int rest_ms = SLOW_MS;
    struct slow *slow = argument;
    struct team *team = &slow->team;
    struct fault_data *data = &slow->data[rank];
    if (rank == size - 1)
        CHECK_OK(trib_stream_submit(team->devices[rank], team_rest, &rest_ms, team->streams[rank]));
    CHECK_OK(trib_allreduce(team->comms[rank], fault_data_at(data), fault_data_at(data),
                            FAULT_ELEMENTS, TRIB_F32, TRIB_SUM, team->streams[rank]));
    CHECK_STATUS(trib_comm_wait(team->comms[rank], team->streams[rank], LONG_MS),
                 slow->extended ? TRIB_OK : TRIB_ERR_TIMEOUT);
    if (slow->extended)
        fault_data_is(data, team, rank, true, "the result of a slow call");
    else
        faults_returned(slow->faults, check_now_ms() - slow->begun_at - SHORT_MS);
    team_wait(team, rank, slow->faults->bound_ms);
}

static void slow_call(const struct faults *faults, bool extended)
{
    struct slow slow = {.faults = faults, .extended = extended};
    trib_options options = TRIB_OPTIONS_INIT;
    trib_abort *handle = NULL;
    options.call_timeout_ms = SHORT_MS;
    options.flags = TRIB_TIMED;
    check_begin("%s, %d ranks: a slow call whose deadline was %sextended", faults->backend,
                faults->size, extended ? "" : "not ");
    if (faults_team(&slow.team, faults, &options) &&
        CHECK_OK(trib_comm_abort_handle(&handle, slow.team.comms[0]))) {
        for (int rank = 0; rank < faults->size; rank++)
            if (fault_data_create(&slow.data[rank], &slow.team, rank))
                fault_data_put(&slow.data[rank], &slow.team, rank);
        if (extended)
            CHECK_OK(trib_abort_defer(handle, LONG_MS));
        slow.begun_at = check_now_ms();
        check_ranks(faults->size, slow_rank, &slow);
        CHECK(trib_abort_raised(handle) == !extended);
        for (int rank = 0; rank < faults->size; rank++)
            fault_data_destroy(&slow.data[rank]);
        trib_abort_release(handle);
    }
    team_destroy(&slow.team);
    check_end();
}

void scenario_slow(const struct faults *faults)
{
    slow_call(faults, true);
    slow_call(faults, false);
}
