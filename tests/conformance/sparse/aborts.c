/* Aborts while sparse allreduces are queued and running: at any moment, and where one rank is
 * missing. Afterwards each rank's accumulator is to the bit what its statistics say: as after so
 * many calls that was applied, and no call half done. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse/sparse.h"

enum { CALLS = 12 };

/* What is to be aborted. */
struct kind {
    const char *algorithm;
    size_t count;
    double density;
    double momentum; /* above 0: there are residual and velocity, and history is of both */
    bool in_place;   /* the accumulator is the caller's, or with momentum the velocity */
};

struct aborted {
    struct kind kind;
    struct team team;
    trib_sparse *states[TEAM_MAX];
    void *data[TEAM_MAX], *result[TEAM_MAX];
    float *history[TEAM_MAX]; /* (CALLS + 1) * width_of: what lasts, after each call */
    trib_abort *handle;
    _Atomic int arrived;
    int turn;    /* how long the aborter waits */
    int missing; /* a rank that makes no calls; -1: none */
};

static size_t width_of(const struct aborted *aborted)
{
    return 2 * aborted->kind.count;
}

static void *need(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

/* In place an accumulator, or a velocity, into which nothing is added between the calls; otherwise a
 * gradient that is the same in every call. */
static bool open_state(struct aborted *aborted, int rank, int size)
{
    trib_device *device = aborted->team.devices[rank];
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = aborted->kind.algorithm;
    options.hosts = sparse_hosts_uneven;
    options.density = aborted->kind.density;
    options.momentum = aborted->kind.momentum;
    options.flags = aborted->kind.in_place ? TRIB_SPARSE_IN_PLACE : 0;
    const size_t count = aborted->kind.count, bytes = count * sizeof(float);
    float *start = need(count, sizeof *start);
    for (size_t i = 0; i < count; i++)
        start[i] = (float)sparse_input(SPARSE_SPREAD, 5, 0, rank, size, i, count);
    const bool open = CHECK_OK(trib_device_alloc(&aborted->data[rank], device, bytes)) &&
                      CHECK_OK(trib_device_alloc(&aborted->result[rank], device, bytes)) &&
                      CHECK_OK(trib_device_copy(device, aborted->data[rank], start, bytes,
                                                aborted->team.streams[rank])) &&
                      CHECK_OK(trib_stream_wait(device, aborted->team.streams[rank])) &&
                      CHECK_OK(trib_sparse_create(&aborted->states[rank], aborted->team.comms[rank],
                                                  count, TRIB_F32, &options));
    free(start);
    return open;
}

static void close_state(struct aborted *aborted, int rank)
{
    trib_device *device = aborted->team.devices[rank];
    CHECK_OK(trib_sparse_destroy(aborted->states[rank]));
    CHECK_OK(trib_device_free(device, aborted->data[rank]));
    CHECK_OK(trib_device_free(device, aborted->result[rank]));
    aborted->states[rank] = NULL;
}

/* What the caller has: the accumulator, or the velocity. Waits. */
static void save_in_place(const struct aborted *aborted, int rank, float *out)
{
    trib_device *device = aborted->team.devices[rank];
    trib_stream stream = aborted->team.streams[rank];
    CHECK_OK(trib_device_copy(device, out, aborted->data[rank], aborted->kind.count * sizeof(float),
                              stream));
    CHECK_OK(trib_stream_wait(device, stream));
}

/* What the state has: the residual, and the velocity unless it is in place. Waits. */
static void save_state(const struct aborted *aborted, int rank, float *out)
{
    trib_sparse *state = aborted->states[rank];
    double *numbers = need(width_of(aborted), sizeof *numbers);
    char *snapshot = need((size_t)trib_sparse_export_bytes(state), 1);
    CHECK(sparse_residual(state, aborted->kind.count, TRIB_F32, aborted->team.streams[rank],
                          snapshot, numbers));
    if (!aborted->kind.in_place)
        sparse_velocity(state, aborted->kind.count, TRIB_F32, snapshot,
                        numbers + aborted->kind.count);
    for (size_t i = 0; i < width_of(aborted); i++)
        out[i] = (float)numbers[i];
    free(numbers);
    free(snapshot);
}

/* What lasts: the accumulator; with momentum residual and velocity. Waits. */
static void save(const struct aborted *aborted, int rank, float *out)
{
    if (aborted->kind.momentum != 0)
        save_state(aborted, rank, out);
    if (aborted->kind.in_place)
        save_in_place(aborted, rank, aborted->kind.momentum != 0 ? out + aborted->kind.count : out);
}

/* A call multiplies a velocity in place by the momentum once, but for elements that were sent. These
 * may be all of them, by and by, for what guesses a threshold, but not in the first call. */
static void check_multiplied(const struct aborted *aborted, size_t call, const float *before,
                             const float *now)
{
    size_t left = 0, wrong = 0;
    for (size_t i = aborted->kind.count; i < width_of(aborted); i++) {
        left += now[i] != 0;
        wrong += now[i] != 0 && now[i] != (float)aborted->kind.momentum * before[i];
    }
    CHECK_MSG(wrong == 0, "call %zu: %zu of %zu elements were not multiplied once", call, wrong,
              left);
    CHECK(left > 0 || call > 1);
}

/* What each call makes of the accumulator when nobody aborts. */
static void record_rank(int rank, int size, void *argument)
{
    struct aborted *aborted = argument;
    trib_stream stream = aborted->team.streams[rank];
    if (!open_state(aborted, rank, size))
        return;
    save(aborted, rank, aborted->history[rank]);
    for (size_t i = 1; i <= CALLS; i++) {
        CHECK_OK(trib_sparse_allreduce(aborted->states[rank], aborted->data[rank],
                                       aborted->result[rank], stream));
        float *now = aborted->history[rank] + i * width_of(aborted);
        save(aborted, rank, now);
        if (aborted->kind.in_place && aborted->kind.momentum != 0)
            check_multiplied(aborted, i, now - width_of(aborted), now);
    }
    close_state(aborted, rank);
}

static void look(struct aborted *aborted, int rank)
{
    float *found = need(width_of(aborted), sizeof *found);
    trib_sparse_statistics statistics = TRIB_SPARSE_STATISTICS_INIT;
    CHECK_OK(trib_sparse_statistics_get(&statistics, aborted->states[rank]));
    save(aborted, rank, found);
    if (CHECK(statistics.calls_applied <= CALLS))
        CHECK_MSG(memcmp(found,
                         aborted->history[rank] + statistics.calls_applied * width_of(aborted),
                         width_of(aborted) * sizeof(float)) == 0,
                  "rank %d: the accumulator, or residual and velocity, is not as after %llu calls",
                  rank, (unsigned long long)statistics.calls_applied);
    CHECK_STATUS(trib_sparse_status(aborted->states[rank]), TRIB_ERR_ABORTED);
    free(found);
}

/* Ranks 0 .. size - 2 call; the last thread aborts. */
static void abort_rank(int index, int size, void *argument)
{
    struct aborted *aborted = argument;
    if (index < size - 1 && !open_state(aborted, index, size - 1))
        return;
    team_barrier(&aborted->arrived, size);
    if (index == size - 1) {
        for (volatile int spin = 0; spin < aborted->turn * 30000; spin++)
            continue;
        if (aborted->missing >= 0)
            check_sleep_ms(5);
        CHECK_OK(trib_abort_raise(aborted->handle, "while sparse allreduces run"));
        return;
    }
    for (int i = 0; i < CALLS && index != aborted->missing; i++) {
        const trib_status status =
            trib_sparse_allreduce(aborted->states[index], aborted->data[index],
                                  aborted->result[index], aborted->team.streams[index]);
        if (!CHECK(status == TRIB_OK || status == TRIB_ERR_ABORTED) || status != TRIB_OK)
            break;
    }
    team_wait(&aborted->team, index, 20000);
    while (!trib_abort_raised(aborted->handle)) /* all calls may have been quicker */
        check_sleep_ms(1);
    look(aborted, index);
    CHECK_STATUS(trib_sparse_allreduce(aborted->states[index], aborted->data[index],
                                       aborted->result[index], aborted->team.streams[index]),
                 TRIB_ERR_ABORTED);
}

static void destroy_all(struct aborted *aborted)
{
    for (int rank = 0; rank < aborted->team.size; rank++)
        close_state(aborted, rank);
    trib_abort_release(aborted->handle);
}

/* nccl takes 0.7 s to free aborted ranks. */
static int turns_of(const struct sparse_session *session)
{
    const bool slow = strcmp(session->team.backend, "nccl") == 0;
    return session->depth == SPARSE_WHOLE && !slow ? 12 : 4;
}

static void one_kind(struct sparse_session *session, struct kind kind)
{
    const int size = session->team.size, turns = turns_of(session);
    struct aborted *aborted = need(1, sizeof *aborted);
    aborted->kind = kind;
    check_begin("%s, %d ranks: %s of %zu%s%s, aborts", session->team.backend, size, kind.algorithm,
                kind.count, kind.momentum == 0 ? "" : ", momentum",
                kind.in_place ? ", in place" : "");
    for (int rank = 0; rank < size; rank++)
        aborted->history[rank] = need((CALLS + 1) * width_of(aborted), sizeof(float));
    bool good = team_prepare(&aborted->team, session->team.backend, size) &&
                team_open(&aborted->team, NULL);
    if (good)
        check_ranks(size, record_rank, aborted);
    for (int turn = 0; turn < turns && good; turn++) {
        team_close(&aborted->team);
        atomic_store(&aborted->arrived, 0);
        aborted->turn = turn;
        aborted->missing = size > 1 && turn % 4 == 3 ? turn % size : -1;
        good = team_open(&aborted->team, NULL) &&
               CHECK_OK(trib_comm_abort_handle(&aborted->handle, aborted->team.comms[0]));
        if (!good)
            break;
        check_ranks(size + 1, abort_rank, aborted);
        destroy_all(aborted);
    }
    team_destroy(&aborted->team);
    for (int rank = 0; rank < size; rank++)
        free(aborted->history[rank]);
    check_end();
    free(aborted);
}

void sparse_aborts(struct sparse_session *session)
{
    for (int i = 0; sparse_algorithms[i] != NULL; i++) {
        if (session->depth != SPARSE_WHOLE && (i + session->team.size) % 3 != 0)
            continue;
        one_kind(session, (struct kind){sparse_algorithms[i], 3000, 0.02, 0, true});
        one_kind(session, (struct kind){sparse_algorithms[i], 3000, 0.02, 0.5, false});
        one_kind(session, (struct kind){sparse_algorithms[i], 3000, 0.02, 0.5, true});
    }
    /* Packets that GPUs read where they were made. */
    one_kind(session, (struct kind){"topka", 160000, 0.6, 0, true});
    one_kind(session, (struct kind){"chunked", 160000, 0.6, 0.5, false});
}
