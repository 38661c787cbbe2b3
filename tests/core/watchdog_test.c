/* The watchdog ends communicators whose calls do not end, and no others. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/team.h"

/* Long: enough that a busy machine runs what is due in that time. */
enum { TIMEOUT_MS = 200, LONG_MS = 1000, BOUND_MS = 20000, N = 1024 };

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

int main(void)
{
    missing_rank();
    no_deadline();
    not_started();
    deferred();
    one_call();
    waits("a wait that is late leaves the communicator as it was", wait_in_time, TRIB_NO_TIMEOUT);
    waits("an abort ends a wait", wait_and_abort, TRIB_NO_TIMEOUT);
    return check_finish("watchdog_test");
}
