/* Aborts while reducers work, at random moments: a step is applied to every gradient of a rank, or to
 * none, and the outcome tells which (gradients in place are undefined after none); residuals and
 * velocities of sparse ones change with the gradients. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/abort.h"

enum {
    GRADIENTS = 24,
    ELEMENTS = 300,
    ALL = GRADIENTS * ELEMENTS,
    KEPT = 2 * ALL, /* residuals, then velocities; these are 0 without momentum */
    MOST_STEPS = 100000,
    SMALL_BUCKETS = 4096
};

struct torn {
    struct team team;
    const struct faults *faults;
    uint32_t flags;
    bool in_place;
    bool sparse;
    double momentum; /* of sparse steps */
    bool missing;    /* the last rank ends no step */
    int round;
    _Atomic int begun;
    _Atomic int applied, refused; /* steps after the abort had been raised, or overtaken by it */
};

/* One rank's gradients: memory of the reducer, or its own. */
struct part {
    struct torn *torn;
    int rank;
    trib_stream stream;
    trib_device *device;
    struct guarded memory;
    trib_reducer *reducer;
    void *data[GRADIENTS];
    float kept[KEPT]; /* of sparse steps, before the newest */
};

static float input_of(int rank, int step, int i)
{
    return (float)((rank + 1) * (step % 7 + 1) + i % 5);
}

static float sum_of(int size, int step, int i)
{
    return (float)(size * (size + 1) / 2 * (step % 7 + 1) + size * (i % 5));
}

static void ask_views(struct part *part)
{
    for (size_t i = 0; (part->torn->flags & TRIB_REDUCER_VIEWS) != 0 && i < GRADIENTS; i++)
        CHECK_OK(trib_reducer_view(&part->data[i], part->reducer, i));
}

static bool make_reducer(struct part *part)
{
    static const uint64_t buckets[] = {9, 1, 14}; /* in place */
    trib_tensor tensors[GRADIENTS];
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    options.flags = part->torn->flags | TRIB_REDUCER_SUM;
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    sparse.algorithm = "topka";
    sparse.density = 0.3;
    sparse.momentum = part->torn->momentum;
    options.sparse = part->torn->sparse ? &sparse : NULL;
    options.bucket_bytes = options.first_bytes = SMALL_BUCKETS;
    if (part->torn->in_place) {
        options.buckets = buckets;
        options.nbuckets = sizeof buckets / sizeof *buckets;
    }
    guarded_reset(&part->memory, ALL * sizeof(float), 0);
    for (size_t i = 0; i < GRADIENTS; i++) {
        part->data[i] = guarded_data(&part->memory, i * ELEMENTS * sizeof(float));
        tensors[i] = (trib_tensor){part->data[i], ELEMENTS, TRIB_F32, 0};
    }
    if (!CHECK_OK(trib_reducer_create(&part->reducer, part->torn->team.comms[part->rank], tensors,
                                      GRADIENTS, &options)))
        return false;
    ask_views(part);
    return true;
}

static void fill(const struct part *part, float *image, int step, bool summed)
{
    for (int i = 0; i < ALL; i++)
        image[i] = summed ? sum_of(part->torn->team.size, step, i) : input_of(part->rank, step, i);
}

static void put(struct part *part, int step)
{
    float *image = guarded_image(&part->memory, 0);
    fill(part, image, step, false);
    for (size_t i = 0; i < GRADIENTS; i++)
        CHECK_OK(trib_device_copy(part->device, part->data[i], image + i * ELEMENTS,
                                  ELEMENTS * sizeof(float), part->stream));
    CHECK_OK(trib_stream_wait(part->device, part->stream));
}

/* The residuals lie at the end of an export, and with momentum the velocities behind them. */
static void read_kept(const struct part *part, float *out)
{
    const size_t bytes = trib_reducer_export_bytes(part->reducer);
    const size_t length = (part->torn->momentum != 0 ? KEPT : ALL) * sizeof *out;
    char *data = malloc(bytes + 1);
    if (data == NULL)
        abort();
    CHECK_OK(trib_reducer_export(part->reducer, data, bytes));
    memset(out, 0, KEPT * sizeof *out);
    memcpy(out, data + bytes - length, length);
    free(data);
}

/* The velocity is multiplied by the momentum, and what came is added to it; the residual is what
 * there was and this velocity. Or both are 0 where this rank has sent: then all of it is in the
 * result, since no inputs cancel each other out. Every number is exact, or rounded as here. */
static bool sent_or_kept(const struct part *part, int step, const float *found, const float *now)
{
    const float momentum = (float)part->torn->momentum;
    for (int i = 0; i < ALL; i++) {
        const float velocity = momentum * part->kept[ALL + i] + input_of(part->rank, step, i);
        const float all = part->kept[i] + velocity, left = momentum != 0 ? velocity : 0;
        const bool kept = now[i] == all && now[ALL + i] == left;
        const bool sent = now[i] == 0 && now[ALL + i] == 0 && found[i] >= all;
        if (!kept && !sent)
            return false;
    }
    return true;
}

/* After a step that is not applied: the gradients lie in the only buckets that there are. */
static bool undefined(const struct torn *torn)
{
    return torn->in_place ||
           (torn->flags & (TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS)) == TRIB_REDUCER_VIEWS;
}

static void check_sparse(struct part *part, int step, uint32_t outcome, const float *found)
{
    float now[KEPT], given[ALL];
    fill(part, given, step, false);
    read_kept(part, now);
    if (outcome == 0)
        CHECK_MSG(memcmp(now, part->kept, sizeof now) == 0 &&
                      (undefined(part->torn) || memcmp(found, given, sizeof given) == 0),
                  "rank %d, step %d: gradients, residuals or velocities have changed", part->rank,
                  step);
    else
        CHECK_MSG(sent_or_kept(part, step, found, now),
                  "rank %d, step %d: residuals or velocities are torn", part->rank, step);
    memcpy(part->kept, now, sizeof now);
}

/* What the gradients should be after the newest step, by its outcome. */
static void check_step(struct part *part, int step, trib_status status)
{
    uint32_t outcome = 7;
    float *image = guarded_image(&part->memory, 0), *found = guarded_found(&part->memory, 0);
    CHECK_OK(trib_device_copy(part->device, &outcome,
                              (void *)(uintptr_t)trib_reducer_outcome(part->reducer),
                              sizeof outcome, part->stream));
    for (size_t i = 0; i < GRADIENTS; i++)
        CHECK_OK(trib_device_copy(part->device, found + i * ELEMENTS, part->data[i],
                                  ELEMENTS * sizeof(float), part->stream));
    CHECK_OK(trib_stream_wait(part->device, part->stream));
    CHECK_MSG(outcome <= 1, "the outcome is %u", outcome);
    if (part->torn->sparse) {
        check_sparse(part, step, outcome, found);
    } else {
        fill(part, image, step, outcome == 1);
        CHECK_MSG((undefined(part->torn) && outcome == 0) ||
                      memcmp(found, image, ALL * sizeof *found) == 0,
                  "rank %d, step %d, outcome %u: gradients are torn", part->rank, step, outcome);
    }
    if (status != TRIB_OK)
        atomic_fetch_add(outcome == 1 ? &part->torn->applied : &part->torn->refused, 1);
}

static void work(struct part *part)
{
    trib_status status = TRIB_OK;
    struct torn *torn = part->torn;
    const bool away = torn->missing && part->rank == torn->team.size - 1;
    for (int step = 0; step < MOST_STEPS && status == TRIB_OK; step++) {
        put(part, step);
        for (size_t i = GRADIENTS; i-- > 0;)
            CHECK_OK(trib_reducer_ready(part->reducer, i, part->stream));
        atomic_fetch_add(&torn->begun, 1);
        if (torn->round % 5 == 4) /* so that an abort finds buckets reduced, and no end */
            check_sleep_ms(2);
        if (away) { /* its last bucket is queued, and the step not ended */
            while (trib_comm_status(torn->team.comms[part->rank]) == TRIB_OK)
                check_sleep_ms(0);
            return;
        }
        status = trib_reducer_finish(part->reducer, part->stream);
        ask_views(part); /* the first step may have moved them */
        CHECK_OK(trib_stream_wait(part->device, part->stream));
        check_step(part, step, status);
    }
    CHECK_STATUS(status, TRIB_ERR_ABORTED);
    CHECK_STATUS(trib_reducer_finish(part->reducer, part->stream), TRIB_ERR_ABORTED);
}

static void torn_rank(int index, int size, void *argument)
{
    struct torn *torn = argument;
    struct part part = {.torn = torn, .rank = index};
    if (index == size - 1) {
        while (atomic_load(&torn->begun) < size - 1)
            check_sleep_ms(0);
        check_sleep_ms(torn->round % 3);
        team_stagger(index, torn->round);
        faults_abort(&torn->team, "to tear a step");
        return;
    }
    part.stream = torn->team.streams[index];
    part.device = torn->team.devices[index];
    if (guarded_create(&part.memory, part.device, ALL * sizeof(float)) && make_reducer(&part))
        work(&part);
    else
        atomic_fetch_add(&torn->begun, 1);
    CHECK_OK(trib_reducer_destroy(part.reducer));
    guarded_destroy(&part.memory);
}

/* Steps that begin after an abort: each is refused, however many there are. */
static void late_rank(int rank, int size, void *argument)
{
    struct torn *torn = argument;
    struct part part = {.torn = torn,
                        .rank = rank,
                        .stream = torn->team.streams[rank],
                        .device = torn->team.devices[rank]};
    if (guarded_create(&part.memory, part.device, ALL * sizeof(float)) && make_reducer(&part)) {
        put(&part, 0);
        team_barrier(&torn->begun, size);
        if (rank == 0)
            faults_abort(&torn->team, "before the first step");
        while (trib_comm_status(torn->team.comms[rank]) == TRIB_OK)
            check_sleep_ms(0);
        for (int step = 0; step < 8; step++) {
            for (size_t i = 0; i < GRADIENTS; i++)
                CHECK_OK(trib_reducer_ready(part.reducer, i, part.stream));
            const trib_status status = trib_reducer_finish(part.reducer, part.stream);
            CHECK_STATUS(status, TRIB_ERR_ABORTED);
            check_step(&part, 0, status);
        }
    }
    CHECK_OK(trib_reducer_destroy(part.reducer));
    guarded_destroy(&part.memory);
}

static void late_steps(const struct faults *faults)
{
    struct torn torn = {.faults = faults};
    check_begin("%s, %d ranks: a reducer's steps after an abort", faults->backend, faults->size);
    for (torn.round = 0; torn.round < 2; torn.round++) {
        torn.flags = TRIB_REDUCER_LEARN_ORDER |
                     (torn.round == 0 ? 0 : TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS);
        atomic_store(&torn.begun, 0);
        if (faults_team(&torn.team, faults, NULL))
            check_ranks(faults->size, late_rank, &torn);
        team_destroy(&torn.team);
    }
    CHECK(atomic_load(&torn.applied) == 0);
    check_end();
}

/* ------------------------------------------------------------------------------------ creation */

static trib_status create_empty(const struct team *team, int rank)
{
    trib_reducer *reducer = NULL;
    const trib_status status = trib_reducer_create(&reducer, team->comms[rank], NULL, 0, NULL);
    CHECK_OK(trib_reducer_destroy(reducer));
    return status;
}

/* The last rank's stream is held, and a list of it that uses the communicator's memory: its create
 * ends at the deadline all the same. One list before has NCCL connect the ranks, which a held stream
 * may keep it from: it allocates and frees memory meanwhile. */
static void held_rank(int rank, int size, void *argument)
{
    const struct team *team = argument;
    _Atomic bool released = false;
    trib_tensor tensor = {NULL, 8, TRIB_F32, 0};
    trib_device *device = team->devices[rank];
    if (!CHECK_OK(trib_device_alloc(&tensor.data, device, 8 * sizeof(float))))
        return;
    CHECK_OK(trib_allreduce_list(team->comms[rank], &tensor, 1, TRIB_SUM, team->streams[rank]));
    CHECK_OK(trib_stream_wait(device, team->streams[rank]));
    if (rank == size - 1)
        CHECK_OK(trib_stream_submit(device, team_hold, &released, team->streams[rank]));
    CHECK_OK(trib_allreduce_list(team->comms[rank], &tensor, 1, TRIB_SUM, team->streams[rank]));
    const double start = check_now_ms();
    CHECK_STATUS(create_empty(team, rank), TRIB_ERR_TIMEOUT);
    CHECK(check_now_ms() - start < 5000);
    atomic_store(&released, true);
    CHECK_OK(trib_stream_wait(device, team->streams[rank]));
    CHECK_OK(trib_device_free(device, tensor.data));
}

static void create_while_held(const struct faults *faults)
{
    struct team team;
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = 2000;
    check_begin("%s, %d ranks: a reducer is created while a stream is held", faults->backend,
                faults->size);
    if (team_create(&team, faults->backend, faults->size, &options))
        check_ranks(faults->size, held_rank, &team);
    team_destroy(&team);
    check_end();
}

static void other_call(int rank, int size, void *argument)
{
    const struct team *team = argument;
    const trib_status status = rank == size - 1
                                   ? trib_barrier(team->comms[rank], team->streams[rank])
                                   : create_empty(team, rank);
    CHECK_STATUS(status, TRIB_ERR_MISMATCH);
    CHECK_OK(create_empty(team, rank));
}

static void create_matched(const struct faults *faults)
{
    struct team team;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_MATCH;
    check_begin("%s, %d ranks: a rank makes another call than a reducer", faults->backend,
                faults->size);
    if (team_create(&team, faults->backend, faults->size, &options))
        check_ranks(faults->size, other_call, &team);
    team_destroy(&team);
    check_end();
}

/* ----------------------------------------------------------------------------- steps that are held */

/* What a rank does while `held` holds the end of its step, until it sets `released`. */
typedef void held_function(struct part *part, trib_stream held, _Atomic bool *released);

/* What the end takes back stays until then, as the address sanitizer sees. */
static void leave_step(struct part *part, trib_stream held, _Atomic bool *released)
{
    CHECK_STATUS(trib_reducer_destroy(part->reducer), TRIB_ERR_TIMEOUT);
    part->reducer = NULL;
    atomic_store(released, true);
    CHECK_OK(trib_stream_wait(part->device, held));
}

/* No stream but the reducer's own is asked: one that does not wait for the step tells nothing. An
 * abort ends no work that is not of the library. */
static void wait_for_step(struct part *part, trib_stream held, _Atomic bool *released)
{
    (void)held;
    CHECK_STATUS(trib_reducer_wait(part->reducer, 0), TRIB_ERR_TIMEOUT);
    CHECK_STATUS(trib_reducer_wait(part->reducer, 20), TRIB_ERR_TIMEOUT);
    team_barrier(&part->torn->begun, part->torn->team.size); /* all have finished */
    if (part->rank == 0)
        faults_abort(&part->torn->team, "while a step is held");
    while (trib_comm_status(part->torn->team.comms[part->rank]) == TRIB_OK)
        check_sleep_ms(0);
    CHECK_STATUS(trib_reducer_wait(part->reducer, 150), TRIB_ERR_TIMEOUT);
    atomic_store(released, true);
    CHECK_OK(trib_reducer_wait(part->reducer, TRIB_NO_TIMEOUT));
    check_step(part, 0, TRIB_ERR_ABORTED);
}

static void run_held(struct part *part, held_function *function)
{
    _Atomic bool released = false;
    trib_stream held = NULL;
    if (CHECK_OK(trib_stream_create(&held, part->device)) &&
        guarded_create(&part->memory, part->device, ALL * sizeof(float)) && make_reducer(part)) {
        CHECK_OK(trib_reducer_wait(part->reducer, 0));
        put(part, 0);
        for (size_t i = 0; i < GRADIENTS; i++)
            CHECK_OK(trib_reducer_ready(part->reducer, i, part->stream));
        CHECK_OK(trib_stream_submit(part->device, team_hold, &released, held));
        CHECK_OK(trib_reducer_finish(part->reducer, held));
        function(part, held, &released);
    }
    CHECK_OK(trib_reducer_destroy(part->reducer));
    CHECK_OK(trib_stream_destroy(part->device, held));
    guarded_destroy(&part->memory);
}

static void held_step(int rank, int size, void *argument)
{
    struct torn *torn = argument;
    struct part part = {.torn = torn,
                        .rank = rank,
                        .stream = torn->team.streams[rank],
                        .device = torn->team.devices[rank]};
    (void)size;
    run_held(&part, torn->sparse ? leave_step : wait_for_step);
}

static void held_steps(const struct faults *faults)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.close_timeout_ms = 300;
    check_begin("%s, %d ranks: a reducer leaves a step, or waits for one", faults->backend,
                faults->size);
    for (int leaves = 0; leaves < 2; leaves++) {
        struct torn torn = {.faults = faults, .sparse = leaves != 0};
        if (faults_team(&torn.team, faults, &options))
            check_ranks(faults->size, held_step, &torn);
        team_destroy(&torn.team);
    }
    check_end();
}

static void torn_steps(const struct faults *faults)
{
    struct torn torn = {.faults = faults};
    const int rounds = faults->slow ? 12 : faults->repetitions / 4;
    check_begin("%s, %d ranks: aborts while reducers work", faults->backend, faults->size);
    for (torn.round = 0; torn.round < rounds && !check_failed(); torn.round++) {
        torn.flags = torn.round % 2 == 0 ? 0 : TRIB_REDUCER_VIEWS;
        if (torn.round % 8 == 1 || torn.round % 8 == 7)
            torn.flags |= TRIB_REDUCER_TWINS;
        torn.flags |= torn.round % 8 < 4 ? 0 : TRIB_REDUCER_LEARN_ORDER;
        torn.in_place = torn.flags == 0 && torn.round % 16 >= 8;
        torn.missing = torn.round % 4 >= 2;
        torn.sparse = torn.round % 3 == 2;
        torn.momentum = torn.round / 6 % 2 == 1 ? 0.5 : 0; /* of every other two sparse ones */
        atomic_store(&torn.begun, 0);
        if (faults_team(&torn.team, faults, NULL))
            check_ranks(faults->size + 1, torn_rank, &torn);
        team_destroy(&torn.team);
    }
    printf("%d steps that an abort overtook were applied, %d not; ", atomic_load(&torn.applied),
           atomic_load(&torn.refused));
    faults_fresh(faults);
    check_end();
}

void faults_reducers(const struct faults *faults)
{
    create_while_held(faults);
    create_matched(faults);
    torn_steps(faults);
    late_steps(faults);
    held_steps(faults);
}
