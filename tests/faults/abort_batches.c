/* Two communicators of the same ranks, whose batches end together, again and again, until another
 * thread aborts one of the two at a random moment. Every call returns the abort or no error; the
 * batches of both have ended; the other communicator goes on with whatever calls it was given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/abort.h"

enum { DOOMED, OTHER, BOTH };

enum {
    CALLS = 2, /* of each communicator in a batch */
    ELEMENTS = 300,
    CALL_BYTES = ELEMENTS * sizeof(float),
    BATCHES = 300
};

static const char reason[] = "one of the two";

struct batches {
    const struct faults *faults;
    struct team teams[BOTH]; /* of the same devices, with a stream each for every rank */
    struct guarded send[BOTH][TEAM_MAX], recv[BOTH][TEAM_MAX];
    int turn;
    bool one_thread; /* drives all ranks; otherwise each has a thread of its own */
    _Atomic int arrived, stopped;
    _Atomic int most;            /* batches that any thread has ended */
    _Atomic bool done[TEAM_MAX]; /* all calls but the last ones, which no other rank may have */
    int ended, begun;            /* in all turns: batches of the first thread */
};

/* A thread, and the ranks that it drives. */
struct driver {
    struct batches *b;
    int first, end;
    int batches; /* that have ended without an error */
};

/* -------------------------------------------------------------------------------------- buffers */

static float value(const struct batches *b, int which, int rank, int i, bool summed)
{
    const int size = b->faults->size, same = 5 * which + i % 7;
    return (float)(summed ? size * (size - 1) / 2 + size * same : rank + same);
}

static void fill(const struct batches *b, struct guarded *memory, int which, int rank, bool summed)
{
    float *image = guarded_image(memory, 0);
    for (int i = 0; i < CALLS * ELEMENTS; i++)
        image[i] = value(b, which, rank, i % ELEMENTS + i / ELEMENTS, summed);
}

static void put(struct batches *b, int which, int rank)
{
    struct guarded *send = &b->send[which][rank], *recv = &b->recv[which][rank];
    guarded_reset(send, CALLS * CALL_BYTES, 0);
    guarded_reset(recv, CALLS * CALL_BYTES, 8);
    fill(b, send, which, rank, false);
    guarded_push(send, b->teams[which].streams[rank]);
    guarded_push(recv, b->teams[which].streams[rank]);
    CHECK(team_wait(&b->teams[which], rank, b->faults->bound_ms));
}

static void pull(struct batches *b, struct guarded *memory, int rank)
{
    guarded_pull(memory, b->teams[DOOMED].streams[rank]);
    CHECK(team_wait(&b->teams[DOOMED], rank, b->faults->bound_ms));
}

static void check_send(struct batches *b, int which, int rank)
{
    pull(b, &b->send[which][rank], rank);
    guarded_same(&b->send[which][rank], __FILE__, __LINE__, "what was sent");
}

static void check_sums(struct batches *b, int rank)
{
    struct guarded *recv = &b->recv[OTHER][rank];
    fill(b, recv, OTHER, rank, true);
    pull(b, recv, rank);
    guarded_same(recv, __FILE__, __LINE__, "the sums of the communicator that goes on");
}

/* The outputs of an aborted call are undefined, and no more than they. */
static void check_around(struct batches *b, int which, int rank)
{
    struct guarded *recv = &b->recv[which][rank];
    pull(b, recv, rank);
    memcpy(guarded_image(recv, 0), guarded_found(recv, 0), CALLS * CALL_BYTES);
    guarded_same(recv, __FILE__, __LINE__, "around the outputs of aborted calls");
}

/* -------------------------------------------------------------------------------------- batches */

/* A call that joins a batch, or begins one. */
static void check_call(const struct batches *b, int which, int rank, trib_status status)
{
    CHECK_MSG(status == TRIB_OK ||
                  (status == TRIB_ERR_ABORTED &&
                   trib_comm_status(b->teams[which].comms[rank]) == TRIB_ERR_ABORTED),
              "a call of rank %d, communicator %d, is %s: %s", rank, which,
              trib_status_name(status), trib_last_detail());
}

static void queue(const struct batches *b, int which, int rank, const struct guarded *recv)
{
    trib_comm *comm = b->teams[which].comms[rank];
    check_call(b, which, rank, trib_batch_begin(comm));
    for (size_t i = 0; i < CALLS; i++)
        check_call(b, which, rank,
                   trib_allreduce(comm, guarded_data(&b->send[which][rank], i * CALL_BYTES),
                                  guarded_data(recv, i * CALL_BYTES), ELEMENTS, TRIB_F32, TRIB_SUM,
                                  b->teams[which].streams[rank]));
}

/* One batch of both communicators, in one order on all ranks. */
static trib_status end_both(const struct driver *driver)
{
    const struct batches *b = driver->b;
    trib_comm *comms[BOTH * TEAM_MAX];
    size_t n = 0;
    for (int rank = driver->first; rank < driver->end; rank++)
        for (int i = 0; i < BOTH; i++) {
            const int which = (i + b->turn / 2) % BOTH;
            queue(b, which, rank, &b->recv[which][rank]);
            comms[n++] = b->teams[which].comms[rank];
        }
    return trib_batch_end_all(comms, n);
}

/* One of the communicator that goes on, into the buffers of `which`. */
static void end_other(const struct driver *driver, int which)
{
    const struct batches *b = driver->b;
    size_t n = 0;
    trib_comm *comms[TEAM_MAX];
    for (int rank = driver->first; rank < driver->end; rank++) {
        queue(b, OTHER, rank, &b->recv[which][rank]);
        comms[n++] = b->teams[OTHER].comms[rank];
    }
    CHECK_OK(trib_batch_end_all(comms, n));
}

/* Until the abort. Who has ended all batches before waits for it, and ends one more. */
static void end_batches(struct driver *driver)
{
    const struct batches *b = driver->b;
    trib_status status = TRIB_OK;
    while (status == TRIB_OK && driver->batches <= BATCHES) {
        while (driver->batches == BATCHES &&
               trib_comm_status(b->teams[DOOMED].comms[driver->first]) == TRIB_OK)
            check_sleep_ms(0);
        status = end_both(driver);
        driver->batches += status == TRIB_OK;
    }
    CHECK_STATUS(status, TRIB_ERR_ABORTED);
    CHECK_DETAIL(reason);
}

static uint64_t calls_of(trib_comm *comm)
{
    trib_counters counters = TRIB_COUNTERS_INIT;
    CHECK_OK(trib_comm_counters(&counters, comm));
    return counters.calls;
}

/* No batch is open any more, and the next one begins without calls of the old one. */
static void check_closed(const struct driver *driver)
{
    for (int rank = driver->first; rank < driver->end; rank++) {
        trib_comm *other = driver->b->teams[OTHER].comms[rank];
        CHECK_STATUS(trib_batch_end(driver->b->teams[DOOMED].comms[rank]), TRIB_ERR_ABORTED);
        CHECK_DETAIL(reason);
        if (trib_comm_status(other) != TRIB_OK)
            continue;
        const uint64_t before = calls_of(other);
        CHECK_OK(trib_batch_begin(other));
        CHECK_OK(trib_batch_end(other));
        CHECK(calls_of(other) == before);
    }
}

/* -------------------------------------------------------------------- the other communicator goes on */

static void set_done(void *done)
{
    atomic_store((_Atomic bool *)done, true);
}

static bool wait_until_done(const struct batches *b, int rank)
{
    const double start = check_now_ms();
    while (!atomic_load(&b->done[rank]) && check_now_ms() - start < b->faults->bound_ms)
        check_sleep_ms(0);
    return CHECK_MSG(atomic_load(&b->done[rank]), "rank %d waits for ever", rank);
}

/* Every rank queues what it lacks of `most` + 2 batches. The one that the abort failed may have been
 * queued, so a rank may have one more than the others: all its calls but those of the last batch
 * have a counterpart on every rank. Where the last batch writes, nothing is looked at. */
static void go_on(const struct driver *driver)
{
    struct batches *b = driver->b;
    for (int batch = driver->batches; batch < atomic_load(&b->most) + 1; batch++)
        end_other(driver, OTHER);
    for (int rank = driver->first; rank < driver->end; rank++)
        CHECK_OK(trib_stream_submit(b->teams[OTHER].devices[rank], set_done, &b->done[rank],
                                    b->teams[OTHER].streams[rank]));
    end_other(driver, DOOMED);
    for (int rank = driver->first; rank < driver->end; rank++) {
        if (wait_until_done(b, rank))
            check_sums(b, rank);
        CHECK_OK(trib_comm_status(b->teams[OTHER].comms[rank]));
    }
}

/* On host it lives. NCCL may have ended both, for the same reason. */
static void look_at_other(const struct driver *driver)
{
    trib_comm *other = driver->b->teams[OTHER].comms[driver->first];
    const trib_status status = trib_comm_status(other);
    if (status == TRIB_OK || strcmp(driver->b->faults->backend, "host") == 0) {
        if (CHECK_OK(status))
            go_on(driver);
        return;
    }
    CHECK_STATUS(trib_comm_status(other), TRIB_ERR_ABORTED);
    CHECK_DETAIL(reason);
}

/* ---------------------------------------------------------------------------------------- turns */

static void drive(struct driver *driver, int drivers)
{
    struct batches *b = driver->b;
    end_batches(driver);
    check_closed(driver);
    for (int rank = driver->first; rank < driver->end; rank++)
        CHECK(team_wait(&b->teams[DOOMED], rank, b->faults->bound_ms));
    int most = atomic_load(&b->most);
    while (most < driver->batches &&
           !atomic_compare_exchange_weak(&b->most, &most, driver->batches))
        continue;
    team_barrier(&b->stopped, drivers); /* by now NCCL has ended both, or will not */
    look_at_other(driver);
}

static void batches_thread(int index, int size, void *argument)
{
    struct batches *b = argument;
    struct driver driver = {.b = b,
                            .first = b->one_thread ? 0 : index,
                            .end = b->one_thread ? b->faults->size : index + 1};
    team_barrier(&b->arrived, size);
    if (index < size - 1) {
        drive(&driver, size - 1);
        if (index == 0)
            b->ended += driver.batches;
        return;
    }
    check_sleep_ms(b->turn / 4 % 3);
    team_stagger(index, b->turn);
    faults_abort(&b->teams[DOOMED], reason);
}

/* No call is in flight for ever. */
static void check_state(const struct batches *b, int which)
{
    trib_abort *handle = NULL;
    trib_comm_state state = TRIB_COMM_LIVE;
    const double start = check_now_ms();
    CHECK_OK(trib_comm_abort_handle(&handle, b->teams[which].comms[0]));
    do
        CHECK_OK(trib_abort_state(&state, NULL, 0, handle));
    while (state < TRIB_COMM_ABORTED && check_now_ms() - start < b->faults->bound_ms);
    CHECK_MSG(state >= TRIB_COMM_ABORTED, "communicator %d stays in state %d", which, (int)state);
    trib_abort_release(handle);
}

/* Calls that only some ranks have would keep their streams for ever. */
static void end_turn(struct batches *b)
{
    faults_all_aborted(&b->teams[DOOMED], reason);
    faults_abort(&b->teams[OTHER], "calls are left over");
    for (int rank = 0; rank < b->faults->size; rank++) {
        CHECK(team_wait(&b->teams[OTHER], rank, b->faults->bound_ms));
        for (int which = 0; which < BOTH; which++) {
            check_send(b, which, rank);
            check_around(b, which, rank);
        }
    }
    check_state(b, DOOMED);
    check_state(b, OTHER);
}

static void start_turn(struct batches *b)
{
    b->one_thread = b->turn % 2 == 1;
    atomic_store(&b->arrived, 0);
    atomic_store(&b->stopped, 0);
    atomic_store(&b->most, 0);
    for (int rank = 0; rank < b->faults->size; rank++) {
        atomic_store(&b->done[rank], false);
        for (int which = 0; which < BOTH; which++)
            put(b, which, rank);
    }
}

static bool create(struct batches *b)
{
    bool good = true;
    for (int which = 0; which < BOTH && good; which++) {
        good = team_prepare(&b->teams[which], b->faults->backend, b->faults->size);
        for (int rank = 0; rank < b->faults->size && good; rank++)
            good = guarded_create(&b->send[which][rank], b->teams[which].devices[rank],
                                  CALLS * CALL_BYTES) &&
                   guarded_create(&b->recv[which][rank], b->teams[which].devices[rank],
                                  CALLS * CALL_BYTES);
    }
    return good;
}

static void destroy(struct batches *b)
{
    for (int which = 0; which < BOTH; which++) {
        for (int rank = 0; rank < b->faults->size; rank++) {
            guarded_destroy(&b->send[which][rank]);
            guarded_destroy(&b->recv[which][rank]);
        }
        team_destroy(&b->teams[which]);
    }
}

static bool one_turn(struct batches *b)
{
    const bool good = team_open(&b->teams[DOOMED], NULL) && team_open(&b->teams[OTHER], NULL);
    if (good) {
        faults_works(&b->teams[DOOMED], "before");
        faults_works(&b->teams[OTHER], "before");
        start_turn(b);
        check_ranks(b->one_thread ? 2 : b->faults->size + 1, batches_thread, b);
        end_turn(b);
        b->begun += BATCHES;
    }
    team_close(&b->teams[DOOMED]);
    team_close(&b->teams[OTHER]);
    return good && !check_failed();
}

void faults_batches(const struct faults *faults)
{
    const int turns = faults->slow ? 4 : faults->repetitions / 4;
    struct batches *b = calloc(1, sizeof *b);
    if (b == NULL)
        abort();
    b->faults = faults;
    check_begin("%s, %d ranks: abort one of two communicators whose batches end together",
                faults->backend, faults->size);
    bool good = create(b);
    for (b->turn = 0; b->turn < turns && good; b->turn++)
        good = one_turn(b);
    printf("aborted after %d of %d batches; ", b->ended, b->begun);
    destroy(b);
    faults_fresh(faults);
    check_end();
    free(b);
}
