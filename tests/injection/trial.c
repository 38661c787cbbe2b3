/* One run with one fault, and what must hold after it:
 *   - every rank has returned, within BOUND_MS (the watch ends the process otherwise);
 *   - every status is TRIB_OK, the injected one, or what a peer's failure gives;
 *   - a failure that matters is reported, and an abort is seen;
 *   - results of calls that succeeded are right: the programs compare them;
 *   - nothing is left: in flight, allocated, in the background;
 *   - and the last run, without a fault, passes: communicators made after failed ones work. */
#define _POSIX_C_SOURCE 200809L
#include "tests/injection/trial.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/abort.h"

enum { BOUND_MS = 10000 };

/* ------------------------------------------------------------------------------ of the programs */

const char *where(void)
{
    const struct injection_place *place = injection_fired();
    return place == NULL ? "nothing" : place->name;
}

bool went(struct rank *rank, trib_status status, const char *call)
{
    rank->calls++;
    if (status == TRIB_OK)
        return true;
    if (rank->nnotes < NOTES) {
        struct note *note = &rank->notes[rank->nnotes++];
        note->call = call;
        note->status = status;
        note->number = rank->calls;
        (void)snprintf(note->detail, sizeof note->detail, "%s", trib_last_detail());
    }
    return false;
}

bool went_together(struct rank *rank, trib_status status, const char *call)
{
    const int before = rank->nnotes;
    const bool good = went(rank, status, call);
    if (rank->nnotes > before)
        rank->notes[before].agreed = true;
    return good;
}

bool settled(struct rank *rank)
{
    return WENT(rank, trib_stream_wait(rank->device, rank->stream)) &&
           (rank->comm == NULL || WENT(rank, trib_comm_status(rank->comm)));
}

bool found(const struct rank *rank, int row, size_t n, float value, float step)
{
    for (size_t i = 0; i < n; i++)
        if (rank->data[row][i] != value + (float)i * step)
            return CHECK_MSG(false, "rank %d of %s: data[%d][%zu] is %g, expected %g", rank->rank,
                             rank->trial->program->name, row, i, (double)rank->data[row][i],
                             (double)(value + (float)i * step));
    return true;
}

bool opened(struct rank *rank)
{
    if (!WENT(rank, trib_comm_abort_handle(&rank->handle, rank->comm)))
        return false;
    injection_target(rank->handle);
    return true;
}

/* A communicator whose abort has been raised says so. */
bool closed(struct rank *rank)
{
    const bool aborted = rank->handle != NULL && injection_raised() == rank->handle;
    const bool good = WENT(rank, trib_comm_status(rank->comm));
    CHECK_MSG(!aborted || !good, "rank %d has not seen its abort", rank->rank);
    trib_comm *comm = rank->comm;
    rank->comm = NULL;
    return WENT(rank, trib_comm_destroy(comm)) && good;
}

/* ------------------------------------------------------------------------------------ the watch */

static _Atomic double ends_ms; /* of the run; 0: none */
static struct trial *running;

static void *watch(void *nothing)
{
    (void)nothing;
    for (;; check_sleep_ms(50)) {
        const double end = atomic_load(&ends_ms);
        if (end == 0 || check_now_ms() < end)
            continue;
        printf("HANG: %s, %d ranks%s, %s at call %ld of rank %d (%s): not over after %d ms\n",
               running->program->name, running->size, running->queued ? ", queued" : "",
               injection_mode_name(running->fault.mode), running->fault.n, running->fault.rank,
               where(), BOUND_MS);
        fflush(stdout);
        abort();
    }
    return NULL;
}

void trial_watched(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, NULL) != 0)
        abort();
    pthread_detach(thread);
}

/* ---------------------------------------------------------------------------------------- a run */

static trib_options options_of(const struct trial *trial)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = trial->program->options;
    return options;
}

static void prepare(struct trial *trial)
{
    for (int i = 0; i < trial->size; i++) {
        struct rank *rank = &trial->ranks[i];
        rank->trial = trial;
        rank->rank = i;
        rank->size = trial->size;
        CHECK_OK(trib_device_get(&rank->device, "host", i));
        CHECK_OK(trib_stream_create(&rank->stream, rank->device));
    }
    CHECK_OK(trib_id_create(&trial->id, "host"));
}

static pthread_barrier_t barrier;

void together(void)
{
    (void)pthread_barrier_wait(&barrier);
}

static void run_rank(int i, int size, void *argument)
{
    struct trial *trial = argument;
    struct rank *rank = &trial->ranks[i];
    const trib_options options = options_of(trial);
    const bool opens = (trial->program->flags & PROGRAM_OPENS) != 0;
    if (!opens) {
        CHECK_OK(trib_comm_create(&rank->comm, &trial->id, i, size, i, &options));
        CHECK_OK(trib_comm_abort_handle(&rank->handle, rank->comm));
        together();
    }
    injection_enter(i, rank->handle);
    trial->program->run(rank);
    if (rank->comm != NULL)
        closed(rank);
    injection_leave();
}

static void clean_up(struct trial *trial)
{
    for (int i = 0; i < trial->size; i++) {
        struct rank *rank = &trial->ranks[i];
        CHECK_OK(trib_stream_destroy(rank->device, rank->stream));
        if (rank->handle != NULL)
            CHECK_MSG(tri_abort_in_flight(rank->handle) == 0, "%u calls are still in flight",
                      tri_abort_in_flight(rank->handle));
        trib_abort_release(rank->handle);
    }
    CHECK_OK(trib_quiesce(BOUND_MS));
}

/* ------------------------------------------------------------------------------------ the judge */

static bool allowed(const struct trial *trial, trib_status status)
{
    const struct injection_place *place = injection_fired();
    if (place == NULL || trial->fault.mode == INJECT_DELAY)
        return false;
    if (status == TRIB_ERR_ABORTED || status == TRIB_ERR_CLOSED)
        return true;
    /* A creation that misses a rank. */
    if (status == TRIB_ERR_TIMEOUT && (trial->program->flags & PROGRAM_OPENS) != 0)
        return true;
    return trial->fault.mode != INJECT_ABORT && status == place->status;
}

/* If one rank fails in a call in which all ranks agree, those that are in it get the same status,
 * and those that are not in it yet, or have ended it well, do not get far: the communicator is
 * over. */
static void judge_agreed(const struct trial *trial)
{
    const enum injection_mode mode = trial->fault.mode;
    const struct rank *victim = &trial->ranks[trial->fault.rank];
    const struct note *note = victim->notes;
    if ((mode != INJECT_NO_MEMORY && mode != INJECT_FAILURE) || victim->nnotes == 0 ||
        !note->agreed)
        return;
    for (int i = 0; i < trial->size; i++) {
        const struct rank *rank = &trial->ranks[i];
        const bool elsewhere = rank->notes->number != note->number;
        CHECK_MSG(rank->nnotes > 0 && (elsewhere || rank->notes->status == note->status),
                  "%s: %s is %s on rank %d, and rank %d has %s", where(), note->call,
                  trib_status_name(note->status), trial->fault.rank, i,
                  rank->nnotes > 0 ? rank->notes->detail : "no failure");
    }
}

static void judge(const struct trial *trial)
{
    const struct injection_place *place = injection_fired();
    const enum injection_mode mode = trial->fault.mode;
    const bool fails = mode != INJECT_DELAY && mode != INJECT_ABORT;
    int notes = 0;
    for (int i = 0; i < trial->size; i++) {
        const struct rank *rank = &trial->ranks[i];
        notes += rank->nnotes;
        for (int n = 0; n < rank->nnotes; n++) {
            const struct note *note = &rank->notes[n];
            CHECK_MSG(allowed(trial, note->status), "%s: rank %d: %s is %s: %s", where(), i,
                      note->call, trib_status_name(note->status), note->detail);
            CHECK_MSG(note->detail[0] != '\0', "%s: rank %d: %s fails without a detail", where(), i,
                      note->call);
        }
    }
    judge_agreed(trial);
    if (place != NULL && fails && !place->ignored)
        CHECK_MSG(notes > 0, "nobody has reported the failure of %s", place->name);
}

/* Returns true if the fault has been injected. */
static bool run(struct trial *trial)
{
    const bool drives = (trial->program->flags & PROGRAM_DRIVES) != 0;
    const long blocks = injection_live_blocks();
    running = trial;
    atomic_store(&ends_ms, check_now_ms() + BOUND_MS);
    prepare(trial);
    (void)pthread_barrier_init(&barrier, NULL, (unsigned)trial->size);
    injection_arm(&trial->fault);
    check_ranks(drives ? 1 : trial->size, run_rank, trial);
    clean_up(trial);
    injection_disarm(); /* no stream runs anything any more */
    (void)pthread_barrier_destroy(&barrier);
    judge(trial);
    atomic_store(&ends_ms, 0);
    if (!trial->clean)
        CHECK_MSG(injection_live_blocks() == blocks, "%s: %ld blocks of memory are left", where(),
                  injection_live_blocks() - blocks);
    return injection_fired() != NULL;
}

bool trial_run(const struct program *program, int size, bool queued,
               const struct injection_fault *fault)
{
    struct trial *trial = aligned_alloc(256, (sizeof *trial + 255) / 256 * 256);
    if (trial == NULL)
        abort();
    memset(trial, 0, sizeof *trial);
    trial->program = program;
    trial->size = size;
    trial->queued = queued;
    trial->clean = fault->mode == INJECT_NOTHING;
    trial->fault = *fault;
    const bool fired = run(trial);
    free(trial);
    return fired;
}
