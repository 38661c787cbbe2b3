/* What the watchdog concludes from a backend that knows the progress of marked calls only: the host
 * backend, whose progress is what the test says. */
#include <pthread.h>
#include <stdatomic.h>

#include "csrc/core/communicator.h"
#include "csrc/core/watchdog.h"
#include "tests/own_backend.h"
#include "tests/team.h"

enum { TIMEOUT_MS = 400, BOUND_MS = 20000, LOOK_MS = 20, N = 64 };

extern const struct tri_backend tri_backend_host;
static struct tri_transport_ops transport_ops;

static _Atomic uint64_t started, ended, marked; /* of rank 0 */
static _Atomic uint64_t others;                 /* calls of the other ranks that have ended */
static atomic_int looks;                        /* at rank 0 */
static void (*_Atomic on_look)(void);           /* by the watchdog; NULL: nothing */

static void progress(struct tri_transport *transport, struct tri_progress *out)
{
    const uint64_t theirs = atomic_load(&others);
    *out = (struct tri_progress){
        .started = UINT64_MAX, .ended = theirs, .marked = theirs, .bound = theirs};
    if (tri_backend_host.transport->rank(transport) != 0)
        return;
    looks++;
    if (atomic_load(&on_look) != NULL)
        atomic_load (&on_look)();
    *out = (struct tri_progress){.started = atomic_load(&started),
                                 .ended = atomic_load(&ended),
                                 .marked = atomic_load(&marked),
                                 .bound = atomic_load(&marked)};
}

static atomic_int diagnoses;

/* By then the communicator has ended, and whoever waits for it is free. */
static void diagnose(struct tri_transport *transport)
{
    CHECK(!tri_abort_live(transport_ops.abort_state(transport)));
    diagnoses++;
}

static void set_progress(uint64_t new_started, uint64_t new_ended, uint64_t new_marked)
{
    atomic_store(&started, new_started);
    atomic_store(&ended, new_ended);
    atomic_store(&marked, new_marked);
}

static float data[2][N];

static trib_status allreduce(struct team *team, int rank)
{
    return trib_allreduce(team->comms[rank], data[rank], data[rank], N, TRIB_F32, TRIB_SUM,
                          team->streams[rank]);
}

static bool open_team(struct team *team)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = TIMEOUT_MS;
    set_progress(UINT64_MAX, 0, 0);
    diagnoses = 0;
    return team_prepare(team, "marked", 2) && team_split_group(team, &options);
}

static bool ends_within(struct team *team, int ms)
{
    const double end = check_now_ms() + ms;
    while (trib_comm_status(team->comms[0]) == TRIB_OK && check_now_ms() < end)
        check_sleep_ms(1);
    return trib_comm_status(team->comms[0]) != TRIB_OK;
}

static void both_ranks(struct team *team)
{
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(allreduce(team, rank));
}

static void late(struct team *team, const char *detail)
{
    CHECK(ends_within(team, BOUND_MS));
    CHECK_STATUS(trib_comm_status(team->comms[0]), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL(detail);
    for (int ms = 0; ms < BOUND_MS && diagnoses == 0; ms++)
        check_sleep_ms(1);
    check_sleep_ms(3 * LOOK_MS);
    CHECK(diagnoses == 1);
}

static void unmarked_and_made_by_all(struct team *team)
{
    both_ranks(team);
    CHECK(!ends_within(team, 3 * TIMEOUT_MS)); /* it may have ended: nobody can know */
}

static void unmarked_and_alone(struct team *team)
{
    CHECK_OK(allreduce(team, 0));
    late(team, "call 1, trib_allreduce of 64 f32, sum; rank 1 has made no call");
}

static void unmarked_and_joined_in_time(struct team *team)
{
    CHECK_OK(allreduce(team, 0));
    check_sleep_ms(TIMEOUT_MS / 3);
    CHECK_OK(allreduce(team, 1));
    CHECK(!ends_within(team, 3 * TIMEOUT_MS));
}

static void marked_and_not_ended(struct team *team)
{
    both_ranks(team);
    both_ranks(team);
    set_progress(2, 1, 2);
    late(team, "call 2, trib_allreduce of 64 f32, sum; every rank has made it");
}

/* On streams that are held: the host backend would compare the calls itself. */
static void marked_with_another_root(struct team *team)
{
    _Atomic bool free_to_go = false;
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(
            trib_stream_submit(team->devices[rank], team_hold, &free_to_go, team->streams[rank]));
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(trib_broadcast(team->comms[rank], data[rank], data[rank], N, TRIB_F32, rank,
                                team->streams[rank]));
    set_progress(1, 0, 1);
    late(team, "call 1, trib_broadcast of 64 f32, root 0; rank 1 makes another call: call 1, "
               "trib_broadcast of 64 f32, root 1");
    atomic_store(&free_to_go, true);
    for (int rank = 0; rank < 2; rank++)
        CHECK(team_wait(team, rank, BOUND_MS));
}

static void marked_and_not_started(struct team *team)
{
    both_ranks(team);
    both_ranks(team);
    set_progress(1, 1, 2);
    CHECK(!ends_within(team, 3 * TIMEOUT_MS));
    set_progress(2, 1, 2); /* the deadline counts from here */
    CHECK(!ends_within(team, TIMEOUT_MS / 3));
    late(team, "call 2");
}

/* Between the marks are calls that may have ended or not. */
static void marked_after_a_pause(struct team *team)
{
    both_ranks(team);
    both_ranks(team);
    set_progress(UINT64_MAX, 1, 1);
    CHECK(!ends_within(team, 3 * TIMEOUT_MS));
    both_ranks(team);
    set_progress(UINT64_MAX, 1, 3);
    CHECK(!ends_within(team, TIMEOUT_MS / 2)); /* the deadline counts from the newest mark */
    late(team, "in call 3, trib_allreduce of 64 f32, sum; every rank has made it");
}

static void marked_beyond_the_ring(struct team *team)
{
    enum { CALLS = 300 }; /* more than a recorder holds */
    for (uint64_t call = 1; call <= CALLS; call++)
        both_ranks(team);
    set_progress(UINT64_MAX, 1, CALLS);
    late(team, "in call 300, trib_allreduce of 64 f32, sum; every rank has made it");
}

static void marked_and_left_behind(struct team *team)
{
    enum { CALLS = 20, MADE = 12 };
    for (int call = 1; call <= CALLS; call++) {
        CHECK_OK(allreduce(team, 0));
        if (call <= MADE)
            CHECK_OK(allreduce(team, 1));
    }
    set_progress(UINT64_MAX, 1, CALLS);
    late(team, "in call 20, trib_allreduce of 64 f32, sum; rank 1 has not made it: its newest is "
               "call 12");
}

static void marked_and_many_behind(struct team *team)
{
    const double end = check_now_ms() + BOUND_MS;
    both_ranks(team);
    both_ranks(team);
    set_progress(UINT64_MAX, 1, 2);
    while (trib_comm_status(team->comms[0]) == TRIB_OK && check_now_ms() < end)
        for (int rank = 0; rank < 2; rank++)
            (void)allreduce(team, rank);
    CHECK_STATUS(trib_comm_status(team->comms[0]), TRIB_ERR_TIMEOUT);
}

enum { BURST = 100 };

static void exact_after_a_look(struct team *team)
{
    struct tri_recorded call = {.number = 0};
    for (int i = 0; i < BURST; i++)
        both_ranks(team);
    check_sleep_ms(6 * LOOK_MS);
    both_ranks(team);
    CHECK(tri_recorder_newest(team->comms[0]->recorder, &call));
    CHECK(call.number == BURST + 1 && call.exact);
}

/* One call without a mark, which has ended; then a wait marks it. */
static void waited_for_after_a_pause(struct team *team)
{
    both_ranks(team);
    both_ranks(team);
    set_progress(UINT64_MAX, 1, 1);
    CHECK(!ends_within(team, 3 * TIMEOUT_MS));
    set_progress(UINT64_MAX, 1, 2); /* the watchdog does not know yet that it has ended */
    CHECK(!ends_within(team, TIMEOUT_MS / 2));
    late(team, "in call 2, trib_allreduce of 64 f32, sum; every rank has made it");
}

static _Atomic bool refusing;
static const double attempt_ms = 0.02; /* long enough for a look to come in one */

static trib_status submit(struct tri_transport *self, void (*function)(void *),
                          const void *argument, size_t bytes, trib_stream stream)
{
    if (!atomic_load(&refusing))
        return tri_backend_host.transport->submit(self, function, argument, bytes, stream);
    for (const double end = check_now_ms() + attempt_ms; check_now_ms() < end;)
        continue;
    return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "on demand");
}

/* A call that is refused gives its number back. Two bursts of attempts, with a pause between. */
static void refused_for_long(struct team *team)
{
    set_progress(UINT64_MAX, 1, 1);
    both_ranks(team);
    atomic_store(&refusing, true);
    for (int burst = 0; burst < 2; burst++) {
        const double end = check_now_ms() + 4 * LOOK_MS;
        while (check_now_ms() < end)
            (void)allreduce(team, 0);
        CHECK(!ends_within(team, 2 * TIMEOUT_MS));
    }
    atomic_store(&refusing, false);
}

static _Atomic bool held, released; /* the watchdog */

static void hold(const struct tri_recorder *list, void *context)
{
    (void)list;
    (void)context;
    atomic_store(&held, true);
    while (!atomic_load(&released))
        check_sleep_ms(1);
}

static void *hold_watchdog(void *unused)
{
    tri_watchdog_visit(hold, NULL);
    return unused;
}

/* While the watchdog cannot look, a call that comes long after a burst may have the time of that. */
static void made_after_a_burst(struct team *team)
{
    pthread_t thread;
    atomic_store(&held, false);
    atomic_store(&released, false);
    if (!CHECK(pthread_create(&thread, NULL, hold_watchdog, NULL) == 0))
        return;
    while (!atomic_load(&held))
        check_sleep_ms(1);
    for (int call = 0; call < BURST; call++)
        both_ranks(team);
    check_sleep_ms(2 * TIMEOUT_MS);
    CHECK_OK(allreduce(team, 0));
    atomic_store(&released, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!ends_within(team, TIMEOUT_MS / 2));
    late(team, "in call 101, trib_allreduce of 64 f32, sum; rank 1 has not made it: its newest is "
               "call 100");
}

static void slow_but_moving(struct team *team)
{
    enum { CALLS = 16 };
    for (uint64_t call = 1; call <= CALLS; call++)
        both_ranks(team);
    for (uint64_t call = 1; call <= CALLS; call++) {
        set_progress(call, call - 1, CALLS);
        CHECK(!ends_within(team, TIMEOUT_MS / 8));
    }
    set_progress(CALLS, CALLS, CALLS);
    CHECK(!ends_within(team, 2 * TIMEOUT_MS));
}

/* A call that blocks has a deadline of its own. */
static void compared_and_alone(void)
{
    struct team team;
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_MATCH;
    options.timeout_ms = TIMEOUT_MS;
    options.call_timeout_ms = TRIB_NO_TIMEOUT;
    set_progress(UINT64_MAX, 0, 0);
    diagnoses = 0;
    check_begin("a compared call that a rank does not make is diagnosed, too");
    if (team_create(&team, "marked", 2, &options)) {
        CHECK_STATUS(allreduce(&team, 0), TRIB_ERR_TIMEOUT);
        late(&team, "call 1, trib_allreduce; rank 1 has made no call");
    }
    team_destroy(&team);
    check_end();
}

static atomic_bool broken;

/* What the backend's library reports. */
static trib_status poll_errors(void *context)
{
    (void)context;
    return atomic_load(&broken) ? tri_fail(TRIB_ERR_SYSTEM, "a link is down") : TRIB_OK;
}

static trib_status open_group(struct tri_transport **out, const int32_t *devices, int32_t size,
                              const struct tri_config *config, uint32_t timeout_ms)
{
    TRI_TRY(tri_backend_host.transport->open_group(out, devices, size, config, timeout_ms));
    tri_abort_set_poll(transport_ops.abort_state(out[0]), poll_errors);
    return TRIB_OK;
}

/* Make a rank's newest call older than the watchdog wonders about a call whose end is unknown. */
static void make_old(struct team *team, int rank)
{
    struct tri_recorder *recorder = team->comms[rank]->recorder;
    struct tri_recorded call;
    if (!CHECK(tri_recorder_newest(recorder, &call)))
        return;
    struct tri_record_slot *slot = &recorder->slots[call.number % TRI_RECORDS];
    for (int word = 0; word < TRI_RECORD_WORDS; word++)
        if (atomic_load(&slot->words[word]) == call.entered_ns)
            atomic_store(&slot->words[word], call.entered_ns - UINT64_C(61000000000));
}

/* An unmarked call of all ranks that is old; the watchdog looks for nothing else by now. */
static void old_call(struct team *team)
{
    both_ranks(team);
    for (int rank = 0; rank < 2; rank++)
        make_old(team, rank);
    check_sleep_ms(80 * LOOK_MS);
}

static void unmarked_for_long(struct team *team)
{
    enum { SECONDS = 3 };
    old_call(team);
    const int before = looks;
    check_sleep_ms(SECONDS * 1000);
    CHECK_MSG(looks - before >= SECONDS - 1 && looks - before <= 4 * SECONDS, "%d looks",
              looks - before);
    CHECK(tri_abort_live(team->comms[0]->state));
    atomic_store(&broken, true);
    for (int ms = 0; ms < 2000 && tri_abort_live(team->comms[0]->state); ms++)
        check_sleep_ms(1);
    CHECK(!tri_abort_live(team->comms[0]->state));
    CHECK_STATUS(trib_comm_status(team->comms[0]), TRIB_ERR_SYSTEM);
    CHECK_DETAIL("a link is down");
    atomic_store(&broken, false);
}

/* A new call ends the long pause between two looks. */
static void called_after_long(struct team *team)
{
    old_call(team);
    const double end = check_now_ms() + BOUND_MS;
    for (const int before = looks; looks == before && check_now_ms() < end;)
        check_sleep_ms(1);
    const double begin = check_now_ms();
    CHECK_OK(allreduce(team, 0));
    late(team, "call 2, trib_allreduce of 64 f32, sum; rank 1 has not made it");
    CHECK_MSG(check_now_ms() - begin < 3 * TIMEOUT_MS, "%.0f ms", check_now_ms() - begin);
}

static struct team *sleepy;
static pthread_t caller; /* while `called` */
static atomic_bool called;

static void *call_alone(void *unused)
{
    CHECK_OK(allreduce(sleepy, 1));
    return unused;
}

/* Two looks right after each other: it falls asleep, and has looked at rank 1. */
static void call_in_last_look(void)
{
    static double last_ms;
    const struct tri_recorder *recorder = sleepy->comms[1]->recorder;
    const uint64_t before = atomic_load(&recorder->entered);
    const double passed_ms = check_now_ms() - last_ms;
    last_ms += passed_ms;
    if (passed_ms > LOOK_MS / 2.0 || atomic_load(&called) ||
        !CHECK(pthread_create(&caller, NULL, call_alone, NULL) == 0))
        return;
    while (atomic_load(&recorder->entered) == before)
        check_sleep_ms(1);
    check_sleep_ms(LOOK_MS / 4); /* now it waits for the end of the look, or has found it awake */
    atomic_store(&called, true);
}

static void called_while_it_falls_asleep(struct team *team)
{
    sleepy = team;
    atomic_store(&called, false);
    for (uint64_t call = 1; call <= 20 && !atomic_load(&called); call++) {
        both_ranks(team);
        set_progress(UINT64_MAX, call, call);
        atomic_store(&others, call);
        atomic_store(&on_look, call_in_last_look);
        for (int ms = 0; ms < 100 * LOOK_MS && !atomic_load(&called); ms++)
            check_sleep_ms(1);
        atomic_store(&on_look, NULL);
    }
    if (CHECK(atomic_load(&called)))
        CHECK(pthread_join(caller, NULL) == 0);
    late(team, "trib_allreduce of 64 f32, sum; rank 0 has not made it: its newest is call ");
    atomic_store(&others, 0);
}

static void aborted(struct team *team)
{
    trib_abort *handle = NULL;
    CHECK_OK(allreduce(team, 0));
    CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0]));
    CHECK_OK(trib_abort_raise(handle, "by hand"));
    check_sleep_ms(3 * LOOK_MS);
    CHECK(diagnoses == 0);
    trib_abort_release(handle);
}

static void run(const char *name, void (*body)(struct team *team))
{
    struct team team;
    check_begin("%s", name);
    if (open_team(&team))
        body(&team);
    team_destroy(&team);
    check_end();
}

int main(void)
{
    transport_ops = *tri_backend_host.transport;
    transport_ops.progress = progress;
    transport_ops.diagnose = diagnose;
    transport_ops.submit = submit;
    transport_ops.open_group = open_group;
    backend = tri_backend_host;
    backend.name = "marked";
    backend.transport = &transport_ops;
    run("an unmarked call that all ranks have made is not late", unmarked_and_made_by_all);
    run("an unmarked call that a rank has not made is late", unmarked_and_alone);
    run("an unmarked call that the other rank makes in time", unmarked_and_joined_in_time);
    run("a marked call that does not end is late", marked_and_not_ended);
    run("a marked call that another rank makes otherwise", marked_with_another_root);
    run("a marked call that has not started has no deadline", marked_and_not_started);
    run("a mark after a pause is not late at once", marked_after_a_pause);
    run("a wait after a pause is not late at once", waited_for_after_a_pause);
    run("attempts that are refused are not one call", refused_for_long);
    run("a call that the ring no longer holds is late", marked_beyond_the_ring);
    run("of calls without marks the last one is named", marked_and_left_behind);
    run("the deadline of a call passes while others are made", marked_and_many_behind);
    run("after a look of the watchdog a call has its own time", exact_after_a_look);
    run("a call has no time of calls before it", made_after_a_burst);
    run("calls that take turns are not late together", slow_but_moving);
    compared_and_alone();
    run("a call of unknown end is looked at rarely, and for good", unmarked_for_long);
    run("after such a call the next one has its deadline", called_after_long);
    run("a call while the watchdog falls asleep has its deadline", called_while_it_falls_asleep);
    run("an abort is not diagnosed", aborted);
    return check_finish("watchdog_marks_test");
}
