/* The watchdog ends communicators whose calls do not end, and no others. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/team.h"

/* Long: enough that a busy machine runs what is due in that time. */
enum { TIMEOUT_MS = 200, LONG_MS = 1000, BOUND_MS = 20000, N = 1024, LOG = 8192 };

static float data[2][N];

static bool make_team(struct team *team, int size, uint32_t call_timeout_ms)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = call_timeout_ms;
    return team_create(team, "host", size, &options);
}

static trib_status allreduce(struct team *team, int rank, size_t count)
{
    return trib_allreduce(team->comms[rank], data[rank], data[rank], count, TRIB_F32, TRIB_SUM,
                          team->streams[rank]);
}

/* Wait for the end of `rank`'s communicator; its status, with the detail. */
static trib_status wait_for_end(struct team *team, int rank)
{
    const double end = check_now_ms() + BOUND_MS;
    trib_status status = TRIB_OK;
    while ((status = trib_comm_status(team->comms[rank])) == TRIB_OK && check_now_ms() < end)
        check_sleep_ms(1);
    return status;
}

static void missing_rank(void)
{
    struct team team;
    check_begin("a rank does not make the call: both ranks learn who, and which");
    if (make_team(&team, 2, TIMEOUT_MS)) {
        CHECK_OK(allreduce(&team, 0, N));
        CHECK_OK(allreduce(&team, 1, N));
        CHECK_OK(allreduce(&team, 0, N / 2));
        for (int rank = 0; rank < 2; rank++) {
            CHECK_STATUS(wait_for_end(&team, rank), TRIB_ERR_TIMEOUT);
            CHECK_DETAIL("rank 0 (device 0) has waited for 0.");
            CHECK_DETAIL("call 2, trib_allreduce of 512 f32, sum; rank 1 has not made it: its "
                         "newest is call 1, trib_allreduce of 1024 f32, sum");
        }
        team_wait(&team, 0, BOUND_MS);
    }
    team_destroy(&team);
    check_end();
}

static void take_line(void *context, int32_t level, const char *line)
{
    char *log = context;
    const size_t used = strlen(log);
    (void)level;
    (void)snprintf(log + used, LOG - used, "%s\n", line);
}

/* Where its ranks stand. */
static void logged(void)
{
    static char log[LOG];
    struct team team;
    check_begin("the log of a late call");
    CHECK_OK(trib_log_set(take_line, log, TRIB_LOG_ERROR));
    if (make_team(&team, 2, TIMEOUT_MS)) {
        for (int call = 0; call < 3; call++)
            CHECK_OK(allreduce(&team, 0, N));
        CHECK_STATUS(wait_for_end(&team, 0), TRIB_ERR_TIMEOUT);
        team_wait(&team, 0, BOUND_MS);
    }
    team_destroy(&team); /* by then it has been logged */
    CHECK_OK(trib_log_set(NULL, NULL, 0));
    CHECK_MSG(strstr(log,
                     "rank 0 of 2 (device 0 of host): call 1, trib_allreduce of 1024 f32, sum, "
                     "made 0.") != NULL &&
                  strstr(log, "has started, and not ended; 2 more behind it\n") != NULL &&
                  strstr(log, "rank 1 of 2 (device 1 of host): has made no call\n") != NULL,
              "%s", log);
    check_end();
}

static void many_behind(void)
{
    enum { CALLS = 300 }; /* more than a recorder holds */
    struct team team;
    check_begin("a rank does not make the call, and the other one makes many more");
    if (make_team(&team, 2, TIMEOUT_MS)) {
        CHECK_OK(allreduce(&team, 1, N));
        for (int call = 1; call <= CALLS; call++)
            CHECK_OK(allreduce(&team, 0, N));
        for (int rank = 0; rank < 2; rank++) {
            CHECK_STATUS(wait_for_end(&team, rank), TRIB_ERR_TIMEOUT);
            CHECK_DETAIL("rank 1 has not made it: its newest is call 1, trib_allreduce of 1024 "
                         "f32, sum");
        }
        team_wait(&team, 0, BOUND_MS);
    }
    team_destroy(&team);
    check_end();
}

/* ------------------------------------------------------------------------------ sends, receives */

enum message { RECEIVE, SEND, BATCH_OF_ONE, BATCH_OF_TWO, MESSAGES };
static const struct {
    const char *name, *detail;
} messages[MESSAGES] = {
    [RECEIVE] = {"a receive without a send",
                 "call 2, trib_recv of 8 f32, peer 1; it waits for rank 1, whose newest is call 1, "
                 "trib_allreduce of 1024 f32, sum"},
    [SEND] = {"a send without a receive",
              "call 2, trib_send of 8 f32, peer 1; it waits for rank 1, whose newest is call 1, "
              "trib_allreduce of 1024 f32, sum"},
    [BATCH_OF_ONE] = {"a batch with a send alone",
                      "call 2, trib_send of 8 f32, peer 1; it waits for rank 1, whose newest is "
                      "call 1, trib_allreduce of 1024 f32, sum"},
    [BATCH_OF_TWO] = {"a batch of a send and a receive",
                      "call 2, trib_batch_end of 2; it waits for the partners of its sends and "
                      "receives"},
};

/* What rank 0 waits for. */
static void make_message(struct team *team, enum message which)
{
    trib_comm *comm = team->comms[0];
    trib_stream stream = team->streams[0];
    const bool batch = which == BATCH_OF_ONE || which == BATCH_OF_TWO;
    if (batch)
        CHECK_OK(trib_batch_begin(comm));
    if (which != RECEIVE)
        CHECK_OK(trib_send(comm, data[0], 8, TRIB_F32, 1, stream));
    if (which == RECEIVE || which == BATCH_OF_TWO)
        CHECK_OK(trib_recv(comm, data[1], 8, TRIB_F32, 1, stream));
    if (batch)
        CHECK_OK(trib_batch_end(comm));
}

/* The records do not tell whether the partner has made its side, so nobody is lost. */
static void missing_partner(enum message which)
{
    struct team team;
    int32_t lost = -1, n = -1;
    check_begin("%s: the detail names the partner", messages[which].name);
    if (make_team(&team, 2, TIMEOUT_MS)) {
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(allreduce(&team, rank, N));
        make_message(&team, which);
        CHECK_STATUS(wait_for_end(&team, 0), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL(messages[which].detail);
        CHECK(strstr(trib_last_detail(), "every rank has made it") == NULL);
        CHECK_OK(trib_comm_lost(&n, team.comms[0], &lost, 1));
        CHECK_MSG(n == 0, "%d lost, rank %d", n, lost);
        team_wait(&team, 0, BOUND_MS);
    }
    team_destroy(&team);
    check_end();
}

static void no_deadline(void)
{
    struct team team;
    check_begin("without a deadline a rank may be as late as it likes");
    if (make_team(&team, 2, TRIB_NO_TIMEOUT)) {
        CHECK_OK(allreduce(&team, 0, N));
        check_sleep_ms(3 * TIMEOUT_MS);
        CHECK_OK(allreduce(&team, 1, N));
        for (int rank = 0; rank < 2; rank++) {
            team_wait(&team, rank, BOUND_MS);
            CHECK_OK(trib_comm_status(team.comms[rank]));
        }
    }
    team_destroy(&team);
    check_end();
}

static void not_started(void)
{
    struct team team;
    _Atomic bool released = false;
    check_begin("a call whose stream has not reached it has no deadline");
    if (make_team(&team, 2, LONG_MS)) {
        for (int rank = 0; rank < 2; rank++) {
            CHECK_OK(
                trib_stream_submit(team.devices[rank], team_hold, &released, team.streams[rank]));
            CHECK_OK(allreduce(&team, rank, N));
        }
        check_sleep_ms(LONG_MS + LONG_MS / 2);
        atomic_store(&released, true);
        for (int rank = 0; rank < 2; rank++) {
            team_wait(&team, rank, BOUND_MS);
            CHECK_OK(trib_comm_status(team.comms[rank]));
        }
    }
    team_destroy(&team);
    check_end();
}

static void deferred(void)
{
    struct team team;
    trib_abort *handle = NULL;
    check_begin("a deferred deadline ends nothing until that time, then it does");
    if (make_team(&team, 2, TIMEOUT_MS)) {
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[1]));
        CHECK_OK(trib_abort_defer(handle, 6 * TIMEOUT_MS));
        CHECK_OK(trib_abort_defer(handle, 0)); /* changes nothing */
        const double begin = check_now_ms();
        CHECK_OK(allreduce(&team, 0, N));
        CHECK_STATUS(wait_for_end(&team, 0), TRIB_ERR_TIMEOUT);
        CHECK(check_now_ms() - begin >= 6 * TIMEOUT_MS);
        trib_abort_release(handle);
    }
    team_destroy(&team);
    check_end();
}

static void one_call(void)
{
    struct team team;
    check_begin("a deadline for one call");
    if (make_team(&team, 2, TRIB_NO_TIMEOUT)) {
        CHECK_STATUS(trib_comm_set_call_timeout(team.comms[0], 1, 2), TRIB_ERR_INVALID_ARGUMENT);
        CHECK_DETAIL("`timed` is 2");
        CHECK_OK(allreduce(&team, 0, N));
        CHECK_OK(trib_comm_set_call_timeout(team.comms[0], TIMEOUT_MS, 1));
        CHECK_OK(allreduce(&team, 0, N / 2));
        CHECK_OK(trib_comm_set_call_timeout(team.comms[0], TRIB_NO_TIMEOUT, 0));
        check_sleep_ms(3 * TIMEOUT_MS);
        CHECK_OK(trib_comm_status(team.comms[0])); /* it waits behind the first, which has none */
        CHECK_OK(allreduce(&team, 1, N));
        CHECK_STATUS(wait_for_end(&team, 0), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("call 2, trib_allreduce of 512 f32");
    }
    team_destroy(&team);
    check_end();
}

/* As nanoseconds they have more than 32 bits, without which little is left of them. */
static void long_times(void)
{
    enum { CALL_MS = 4400, WAIT_MS = 4500 };
    struct team team;
    int ms = 3 * TIMEOUT_MS;
    check_begin("a deadline, and a wait, of more than four seconds");
    if (make_team(&team, 2, CALL_MS)) {
        CHECK_OK(trib_stream_submit(team.devices[1], team_rest, &ms, team.streams[1]));
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(allreduce(&team, rank, N));
        CHECK_OK(trib_comm_wait(team.comms[0], team.streams[0], WAIT_MS));
        CHECK_OK(trib_comm_wait(team.comms[1], team.streams[1], WAIT_MS));
    }
    team_destroy(&team);
    check_end();
}

/* ---------------------------------------------------------------------------------------- waits */

static void wait_in_time(struct team *team)
{
    const double begin = check_now_ms();
    data[0][0] = 1;
    data[1][0] = 2;
    CHECK_OK(allreduce(team, 0, N));
    CHECK_STATUS(trib_comm_wait(team->comms[0], team->streams[0], TIMEOUT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("trib_comm_wait on rank 0 (device 0 of host): `stream` has not reached this point "
                 "after 200 ms: rank 0");
    CHECK_DETAIL("rank 1 has made no call; the communicator is as before");
    CHECK(check_now_ms() - begin >= TIMEOUT_MS);
    CHECK_STATUS(trib_comm_wait(team->comms[0], team->streams[0], 0), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("`stream` has not reached this point, and `timeout_ms` is 0; the communicator");
    check_sleep_ms(TIMEOUT_MS);
    CHECK_STATUS(trib_comm_wait(team->comms[0], team->streams[0], 1), TRIB_ERR_TIMEOUT);
    const char *after = strstr(trib_last_detail(), "after ");
    CHECK(after != NULL && atoi(after + 6) >= 2 * TIMEOUT_MS); /* from the first wait on */
    CHECK_OK(allreduce(team, 1, N));
    for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(trib_comm_wait(team->comms[rank], team->streams[rank], BOUND_MS));
        CHECK(data[rank][0] == 3);
    }
    CHECK_OK(trib_comm_wait(team->comms[0], team->streams[0], BOUND_MS));
    CHECK_STATUS(trib_comm_wait(team->comms[0], team, 0), TRIB_ERR_INVALID_STREAM);
}

static void *abort_soon(void *handle)
{
    check_sleep_ms(TIMEOUT_MS);
    CHECK_OK(trib_abort_raise(handle, "enough"));
    return NULL;
}

static void wait_and_abort(struct team *team)
{
    trib_abort *handle = NULL;
    pthread_t thread;
    CHECK_OK(trib_comm_abort_handle(&handle, team->comms[0]));
    CHECK_OK(allreduce(team, 0, N));
    CHECK(pthread_create(&thread, NULL, abort_soon, handle) == 0);
    CHECK_STATUS(trib_comm_wait(team->comms[0], team->streams[0], TRIB_NO_TIMEOUT),
                 TRIB_ERR_ABORTED);
    CHECK_DETAIL("enough");
    pthread_join(thread, NULL);
    team_wait(team, 0, BOUND_MS); /* the stream has gone on */
    CHECK_STATUS(trib_comm_wait(team->comms[0], team->streams[0], 0), TRIB_ERR_ABORTED);
    trib_abort_release(handle);
}

static void waits(const char *name, void (*body)(struct team *team), uint32_t call_timeout_ms)
{
    struct team team;
    check_begin("%s", name);
    if (make_team(&team, 2, call_timeout_ms))
        body(&team);
    team_destroy(&team);
    check_end();
}

/* ----------------------------------------------------------------------------- waits of a group */

static const void *const sends[2] = {data[0], data[1]};
static void *const recvs[2] = {data[0], data[1]};

static trib_status group_allreduce(trib_group *group, const trib_stream *streams)
{
    return trib_group_allreduce(group, sends, recvs, N, TRIB_F32, TRIB_SUM, streams);
}

static void group_in_time(trib_group *group, const struct team *team)
{
    data[0][0] = 1;
    data[1][0] = 2;
    CHECK_OK(group_allreduce(group, team->streams));
    CHECK_OK(trib_group_wait(group, team->streams, BOUND_MS));
    CHECK(data[0][0] == 3 && data[1][0] == 3);
    CHECK_OK(group_allreduce(group, NULL));
    CHECK_OK(trib_group_wait(group, NULL, TRIB_NO_TIMEOUT));
    CHECK(data[0][0] == 6 && data[1][0] == 6);
    CHECK_STATUS(trib_group_wait(NULL, NULL, 0), TRIB_ERR_INVALID_ARGUMENT);
}

/* The stream of `rank` is held: the first that is late is the rank `late`. */
static void group_late(trib_group *group, const struct team *team, int held, bool call, int late)
{
    _Atomic bool released = false;
    char words[192];
    const double begin = check_now_ms();
    (void)snprintf(words, sizeof words,
                   "trib_group_wait on rank %d (device %d of host): `stream` has not reached this "
                   "point after 200 ms%s",
                   late, late, call ? ": rank 0 (device 0) has waited for 0." : "; the");
    CHECK_OK(trib_stream_submit(team->devices[held], team_hold, &released, team->streams[held]));
    if (call)
        CHECK_OK(group_allreduce(group, team->streams));
    CHECK_STATUS(trib_group_wait(group, team->streams, TIMEOUT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL(words);
    CHECK_DETAIL("the communicator is as before: wait again, or abort it");
    const double ms = check_now_ms() - begin;
    CHECK_MSG(ms >= TIMEOUT_MS && ms < 2 * TIMEOUT_MS, "it took %.0f ms", ms);
    CHECK_OK(trib_group_status(group));
    atomic_store(&released, true);
    CHECK_OK(trib_group_wait(group, team->streams, BOUND_MS));
    CHECK(team_wait(team, 0, BOUND_MS) && team_wait(team, 1, BOUND_MS));
}

static void group_is_late(trib_group *group, const struct team *team)
{
    group_late(group, team, 1, false, 1);
    group_late(group, team, 0, false, 0);
    group_late(group, team, 1, true, 0);
}

/* The stream of rank 0 passes shortly before the deadline, which is the same for rank 1. */
static void group_one_deadline(trib_group *group, const struct team *team)
{
    _Atomic bool released = false;
    int ms = LONG_MS - TIMEOUT_MS;
    const double begin = check_now_ms();
    CHECK_OK(trib_stream_submit(team->devices[0], team_rest, &ms, team->streams[0]));
    CHECK_OK(trib_stream_submit(team->devices[1], team_hold, &released, team->streams[1]));
    CHECK_STATUS(trib_group_wait(group, team->streams, LONG_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 1");
    CHECK(check_now_ms() - begin < LONG_MS + 2 * TIMEOUT_MS);
    atomic_store(&released, true);
    CHECK_OK(trib_group_wait(group, team->streams, BOUND_MS));
    CHECK(team_wait(team, 0, BOUND_MS) && team_wait(team, 1, BOUND_MS));
}

static void group_bad_stream(trib_group *group, const struct team *team)
{
    const trib_stream streams[2] = {team->streams[0], data};
    CHECK_STATUS(trib_group_wait(group, streams, BOUND_MS), TRIB_ERR_INVALID_STREAM);
    CHECK_DETAIL("trib_group_wait on rank 1");
    CHECK_OK(trib_group_wait(group, team->streams, BOUND_MS));
}

static void group_aborted(trib_group *group, const struct team *team)
{
    _Atomic bool released = false;
    trib_abort *handle = NULL;
    pthread_t thread;
    CHECK_OK(trib_group_abort_handle(&handle, group));
    CHECK_OK(trib_stream_submit(team->devices[1], team_hold, &released, team->streams[1]));
    CHECK(pthread_create(&thread, NULL, abort_soon, handle) == 0);
    CHECK_STATUS(trib_group_wait(group, team->streams, TRIB_NO_TIMEOUT), TRIB_ERR_ABORTED);
    CHECK_DETAIL("enough");
    pthread_join(thread, NULL);
    CHECK_STATUS(trib_group_wait(group, team->streams, 0), TRIB_ERR_ABORTED);
    atomic_store(&released, true);
    CHECK(team_wait(team, 1, BOUND_MS));
    trib_abort_release(handle);
}

static void group_waits(const char *name, void (*body)(trib_group *group, const struct team *team))
{
    struct team team;
    trib_group *group = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "host";
    check_begin("a group waits: %s", name);
    if (team_prepare(&team, "host", 2) && CHECK_OK(trib_group_create(&group, NULL, 2, &options)))
        body(group, &team);
    CHECK_OK(trib_group_destroy(group));
    team_destroy(&team);
    check_end();
}

int main(void)
{
    missing_rank();
    logged();
    many_behind();
    for (enum message which = RECEIVE; which < MESSAGES; which++)
        missing_partner(which);
    no_deadline();
    not_started();
    deferred();
    one_call();
    long_times();
    waits("a wait that is late leaves the communicator as it was", wait_in_time, TRIB_NO_TIMEOUT);
    waits("an abort ends a wait", wait_and_abort, TRIB_NO_TIMEOUT);
    group_waits("in time", group_in_time);
    group_waits("one rank is late", group_is_late);
    group_waits("all ranks have one deadline", group_one_deadline);
    group_waits("one rank's stream is none", group_bad_stream);
    group_waits("until an abort", group_aborted);
    return check_finish("watchdog_test");
}
