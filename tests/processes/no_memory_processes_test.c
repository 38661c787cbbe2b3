/* In one of two processes an allocation, or a thread start, fails while their ranks create a
 * communicator, call, split, shrink and close; with two ranks each, or with one, which share memory. Whatever it was, every rank of both returns in time,
 * with a right result or an error that says so; nothing is leaked (the address sanitizer looks).
 *
 * Raising n until a run passes whole walks all of them. The n-th is the n-th of the whole process,
 * so that the threads of the watchdog and of the side channel fail, too; which one that is may
 * differ from run to run. tests/injection walks the ranks of one process, one by one.
 *
 *   no_memory_processes_test [STEP]    every STEP-th allocation */
#include <stdio.h>
#include <stdlib.h>

#include "csrc/core/communicator.h"
#include "tests/injection/injection.h"
#include "tests/processes/member.h"
#include "tests/processes/share.h"
#include "tests/processes/transport.h"

enum {
    PROCESSES = 2,
    HERE = 2, /* ranks of each, at most */
    RANKS = PROCESSES * HERE,
    AT_ONCE = CHILDREN_MAX / PROCESSES, /* runs: most wait for a deadline most of the time */
    TIMEOUT_MS = 1500,
    CALL_MS = 500,
    CLOSE_MS = 500,
    BUSY_MS = 3000, /* other programs may have the processors */
    GIVE_UP_MS = 20000,
    MOST = 1000
};

/* What the ranks do, in order. */
enum phase { CREATE, CALL, SPLIT, SHRINK, CLOSE, PHASES };
static const char *const phase_names[PHASES] = {"create", "call", "split", "shrink", "close"};

/* Does a communicator have a side channel, or share memory? */
enum { UNKNOWN, WITH, WITHOUT };

/* One life of both processes, in memory that they share. */
struct run {
    struct injection_fault fault; /* in process `fault.rank` */
    int here;                     /* ranks of each process */
    _Atomic(const char *) place;  /* of the fault; NULL: there was none */
    _Atomic int phase;            /* at that time */
    trib_status created[RANKS];
    trib_status ended[RANKS]; /* the first error, if there was one */
    /* Of the communicators that the phases make; each rank writes its own. */
    int channel[PHASES][RANKS], memory[PHASES][RANKS];
};

/* ------------------------------------------------------------------------------------ the fault */

/* Of this process. */
static struct run *run;
static _Atomic bool armed; /* from here on `run` does not change */
static _Atomic int now;    /* the phase */
static _Atomic long seen;
static _Thread_local bool spared; /* this thread is not in the library */

/* For tests/injection/memory.c, in place of injection.c's: counts for the whole process. */
bool injection_fails(enum injection_mode mode, const struct injection_place *place)
{
    if (spared || !atomic_load(&armed) || mode != run->fault.mode ||
        atomic_fetch_add(&seen, 1) + 1 != run->fault.n)
        return false;
    atomic_store(&run->phase, atomic_load(&now));
    atomic_store(&run->place, place->name);
    return true;
}

/* The backend of these tests has no errors of its own: the linker puts these in front (--wrap). */
trib_status __real_processes_open(struct tri_transport **out, const trib_id *id, int32_t rank,
                                  int32_t size, int32_t device, const struct tri_config *config,
                                  uint32_t timeout_ms);
trib_status __wrap_processes_open(struct tri_transport **out, const trib_id *id, int32_t rank,
                                  int32_t size, int32_t device, const struct tri_config *config,
                                  uint32_t timeout_ms);
trib_status __real_processes_split(struct tri_transport **out, struct tri_transport *parent,
                                   int32_t color, int32_t key, const struct tri_config *config,
                                   uint32_t timeout_ms);
trib_status __wrap_processes_split(struct tri_transport **out, struct tri_transport *parent,
                                   int32_t color, int32_t key, const struct tri_config *config,
                                   uint32_t timeout_ms);

trib_status __wrap_processes_open(struct tri_transport **out, const trib_id *id, int32_t rank,
                                  int32_t size, int32_t device, const struct tri_config *config,
                                  uint32_t timeout_ms)
{
    spared = true;
    const trib_status status =
        __real_processes_open(out, id, rank, size, device, config, timeout_ms);
    spared = false;
    return status;
}

trib_status __wrap_processes_split(struct tri_transport **out, struct tri_transport *parent,
                                   int32_t color, int32_t key, const struct tri_config *config,
                                   uint32_t timeout_ms)
{
    spared = true;
    const trib_status status = __real_processes_split(out, parent, color, key, config, timeout_ms);
    spared = false;
    return status;
}

/* ----------------------------------------------------------------------------------- one rank */

struct life {
    struct member m;
    int pair;
    float data;
};

static const char *place_of_fault(void)
{
    const char *place = atomic_load(&run->place);
    return place == NULL ? "nothing" : place;
}

/* The phase has made a communicator of `size` ranks; or, with an error, none. */
static void check_made(const struct life *life, enum phase phase, trib_status status,
                       const trib_comm *comm, int32_t size)
{
    CHECK((comm != NULL) == (status == TRIB_OK));
    if (comm == NULL)
        return;
    CHECK(trib_comm_size(comm) == size);
    CHECK(comm->remote != NULL || atomic_load(&run->place) != NULL);
    run->channel[phase][life->m.rank] = comm->remote != NULL ? WITH : WITHOUT;
    run->memory[phase][life->m.rank] = share_words(comm, 0) != NULL ? WITH : WITHOUT;
    CHECK(run->here > 1 || share_words(comm, 0) != NULL || atomic_load(&run->place) != NULL);
}

/* A right result, or none. */
static trib_status sum(struct life *life, trib_comm *comm)
{
    const struct member *m = &life->m;
    const int32_t rank = trib_comm_rank(comm), size = trib_comm_size(comm);
    life->data = (float)(1 << rank);
    trib_status status =
        trib_allreduce(comm, &life->data, &life->data, 1, TRIB_F32, TRIB_SUM, m->stream);
    if (status == TRIB_OK)
        status = trib_comm_wait(comm, m->stream, TRIB_NO_TIMEOUT);
    CHECK(member_ends(m, GIVE_UP_MS)); /* nothing uses `data` any more */
    if (status == TRIB_OK)
        CHECK_MSG(life->data == (float)((1 << size) - 1), "rank %d of %d has %g", rank, size,
                  (double)life->data);
    return status;
}

/* Use the new communicator, and end it. */
static trib_status use(struct life *life, trib_status made, trib_comm *comm)
{
    if (comm == NULL)
        return made;
    const trib_status status = sum(life, comm);
    const trib_status end = trib_comm_destroy(comm);
    return status != TRIB_OK ? status : end;
}

static trib_status create(struct life *life)
{
    struct member *m = &life->m;
    const trib_id id = processes_id(life->pair);
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = TIMEOUT_MS;
    options.call_timeout_ms = CALL_MS;
    options.close_timeout_ms = CLOSE_MS;
    const trib_status status =
        trib_comm_create(&m->comm, &id, m->rank, m->size, trib_device_ordinal(m->device), &options);
    check_made(life, CREATE, status, m->comm, m->size);
    run->created[m->rank] = status;
    return status;
}

static trib_status call(struct life *life)
{
    return sum(life, life->m.comm);
}

static trib_status split(struct life *life)
{
    trib_comm *child = NULL;
    const trib_status status = trib_comm_split(&child, life->m.comm, 0, -life->m.rank);
    check_made(life, SPLIT, status, child, life->m.size);
    return use(life, status, child);
}

/* The last rank is excluded, if it shares its process with one that remains. */
static trib_status shrink(struct life *life)
{
    trib_comm *next = NULL;
    const int32_t last = life->m.size - 1, without = run->here > 1;
    if (without && life->m.rank == last)
        return TRIB_OK;
    const trib_status status = trib_comm_shrink(&next, life->m.comm, &last, without, 0);
    if (status == TRIB_ERR_UNSUPPORTED && run->channel[CREATE][life->m.rank] == WITHOUT)
        return TRIB_OK; /* no new id can be sent */
    check_made(life, SHRINK, status, next, life->m.size - without);
    return use(life, status, next);
}

static trib_status end(struct life *life)
{
    trib_comm *comm = life->m.comm;
    life->m.comm = NULL;
    return comm == NULL ? TRIB_OK : trib_comm_destroy(comm);
}

static trib_status (*const phases[PHASES])(struct life *life) = {create, call, split, shrink, end};

/* How a call may end because of the fault, here or elsewhere. */
static bool is_allowed(trib_status status)
{
    return status == TRIB_OK || status == TRIB_ERR_OUT_OF_MEMORY || status == TRIB_ERR_SYSTEM ||
           status == TRIB_ERR_CLOSED || status == TRIB_ERR_ABORTED || status == TRIB_ERR_TIMEOUT;
}

static trib_status live_through(struct life *life, enum phase phase)
{
    const int rank = life->m.rank;
    const double start = check_now_ms();
    if (rank % run->here == 0)
        atomic_store(&now, (int)phase);
    const trib_status status = phases[phase](life);
    const double took = check_now_ms() - start;
    const bool injected = atomic_load(&run->place) != NULL;
    CHECK_MSG(injected ? is_allowed(status) : status == TRIB_OK,
              "fault %ld (%s failed), %s on rank %d: %s, %s", run->fault.n, place_of_fault(),
              phase_names[phase], rank, trib_status_name(status), trib_last_detail());
    CHECK_MSG(took < TIMEOUT_MS + CALL_MS + CLOSE_MS + BUSY_MS,
              "fault %ld (%s failed), %s on rank %d: %.0f ms", run->fault.n, place_of_fault(),
              phase_names[phase], rank, took);
    return status;
}

static void live(int thread, int threads, void *argument)
{
    const int *index = argument;
    const int process = *index % PROCESSES, rank = process * threads + thread;
    struct life life = {.pair = *index / PROCESSES};
    if (!member_prepare(&life.m, rank, PROCESSES * threads, rank))
        return;
    processes_meet(2 * life.pair, life.m.size);
    if (thread == 0)
        atomic_store(&armed, process == run->fault.rank);
    processes_meet(2 * life.pair + 1, life.m.size);
    trib_status status = TRIB_OK;
    for (enum phase phase = CREATE; phase < CLOSE && status == TRIB_OK; phase++)
        status = live_through(&life, phase);
    run->ended[rank] = status;
    (void)live_through(&life, CLOSE);
    spared = true;
    CHECK_OK(trib_stream_destroy(life.m.device, life.m.stream));
}

/* -------------------------------------------------------------------------------------- all runs */

static void process(int index, int n, void *runs)
{
    (void)n;
    run = (struct run *)runs + index / PROCESSES;
    check_ranks(run->here, live, &index);
    atomic_store(&armed, false);
}

/* If one rank goes without, all do. */
static void check_same(const int what[RANKS], long fault, enum phase phase)
{
    bool with = false, without = false;
    for (int rank = 0; rank < RANKS; rank++) {
        with = with || what[rank] == WITH;
        without = without || what[rank] == WITHOUT;
    }
    CHECK_MSG(!(with && without), "fault %ld: after %s some ranks go without", fault,
              phase_names[phase]);
}

/* Creation fails because one rank says that it did not get what it needs: there, or in a call that it made while
 * others still created. Ranks that just cannot connect go on without a side channel. */
static void check_created(const struct run *one)
{
    bool fails = false, caused = false;
    for (int rank = 0; rank < RANKS; rank++) {
        const trib_status ended = one->ended[rank];
        fails = fails || one->created[rank] != TRIB_OK;
        caused = caused || ended == TRIB_ERR_OUT_OF_MEMORY || ended == TRIB_ERR_SYSTEM;
    }
    CHECK_MSG(caused || !fails, "fault %ld: creation fails, and no rank says why", one->fault.n);
}

static void judge(const struct run *one, const struct child_end ends[PROCESSES])
{
    for (int i = 0; i < PROCESSES; i++)
        if (!children_check(&ends[i], i))
            CHECK_MSG(false, "that was with fault %ld", one->fault.n);
    check_created(one);
    for (enum phase phase = CREATE; phase < PHASES; phase++) {
        check_same(one->channel[phase], one->fault.n, phase);
        check_same(one->memory[phase], one->fault.n, phase);
    }
}

/* Fault `first`, and more that are `step` apart. Those injected are counted in `found`, by phase.
 * Returns false if a run has passed whole. */
static bool run_some(const struct injection_fault *first, int here, long step, long found[PHASES])
{
    struct child_end ends[CHILDREN_MAX];
    struct run *runs = children_share(AT_ONCE * sizeof *runs);
    bool all = true;
    for (int i = 0; i < AT_ONCE; i++) {
        runs[i].here = here;
        runs[i].fault = *first;
        runs[i].fault.n += i * step;
    }
    processes_run(ends, AT_ONCE * PROCESSES, MEMBER_DEADLINE_MS, process, runs);
    for (int i = 0; i < AT_ONCE; i++) {
        judge(&runs[i], &ends[i * PROCESSES]);
        if (atomic_load(&runs[i].place) != NULL)
            found[atomic_load(&runs[i].phase)]++;
        else
            all = false;
    }
    children_unshare(runs, AT_ONCE * sizeof *runs);
    return all;
}

static void walk(enum injection_mode mode, int where, int here, long step)
{
    struct injection_fault fault = {mode, where, 1};
    long found[PHASES] = {0};
    const char *what = mode == INJECT_NO_THREAD ? "thread start" : "allocation";
    check_begin("a failure of one %s in process %d of two of %d ranks", what, where, here);
    while (run_some(&fault, here, step, found) && fault.n < MOST && !check_failed())
        fault.n += AT_ONCE * step;
    CHECK(fault.n < MOST);
    CHECK(check_failed() || (found[CREATE] > 0 && found[SPLIT] > 0 && found[SHRINK] > 0));
    printf("  process %d of %d ranks, %-12s", where, here, what);
    for (enum phase phase = CREATE; phase < PHASES; phase++)
        printf(" %4ld in %s", found[phase], phase_names[phase]);
    printf("\n");
    check_end();
}

int main(int n, char **arguments)
{
    const bool quick = getenv("TRIB_TEST_QUICK") != NULL;
    const long step = n > 1 ? atol(arguments[1]) : quick ? 13 : 2;
    if (step < 1)
        return EXIT_FAILURE;
    share_begin(RANKS);
    for (int where = 0; where < PROCESSES; where++)
        for (int here = 1; here <= HERE; here++) {
            walk(INJECT_NO_MEMORY, where, here, step);
            walk(INJECT_NO_THREAD, where, here, 1);
        }
    return check_finish("no_memory_processes_test");
}
