/* A call that blocks until all ranks have come, and whose deadline passes: detail, trib_comm_lost
 * and the dump say of whom it waits, as far as that is known. tests/api/sparse_late.c has every call
 * that blocks so. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/core/communicator.h"
#include "tests/team.h"

enum { DEADLINE_MS = 200, LONG_MS = 20000, N = 8, RANKS = 3, TEXT = 1 << 18 };

static float data[RANKS][N];

static bool open_team(struct team *team, int size, uint32_t flags)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.flags = TRIB_MATCH | flags;
    if (!team_create(team, "host", size, &options))
        return false;
    for (int rank = 0; rank < size; rank++)
        team->comms[rank]->timeout_ms = rank == 0 ? DEADLINE_MS : LONG_MS;
    return true;
}

static trib_status allreduce(const struct team *team, int rank)
{
    return trib_allreduce(team->comms[rank], data[rank], data[rank], N, TRIB_F32, TRIB_SUM,
                          team->streams[rank]);
}

/* The lost ranks must be rank `expected` alone; -1: none. */
static void check_lost(const struct team *team, int expected)
{
    int32_t lost[RANKS] = {-1}, n = -1;
    CHECK_OK(trib_comm_lost(&n, team->comms[0], lost, RANKS));
    CHECK_MSG(n == (expected >= 0) && lost[0] == expected, "%d lost, rank %d", n, lost[0]);
}

/* ----------------------------------------------------------------------------------- who is away */

/* Rank 0 is the first whose deadline passes; rank 1 has come; the last one has not. */
static void make_call(int rank, int size, void *team)
{
    if (rank == 1 || rank == 0)
        CHECK_STATUS(allreduce(team, rank), TRIB_ERR_TIMEOUT);
    if (rank != 0)
        return;
    CHECK_DETAIL(
        "trib_allreduce on rank 0 (device 0 of host): in trib_allreduce the ranks exchange "
        "a few bytes first, and 1000 ms, the timeout_ms of the communicator's options, were "
        "not enough: rank 0 (device 0) has waited for ");
    CHECK_DETAIL(" in call 1, trib_allreduce; rank 2 has made no call");
    check_lost(team, size - 1);
}

static void one_is_away(void)
{
    struct team team;
    check_begin("a compared call that one of three ranks does not make");
    if (open_team(&team, RANKS, 0)) {
        team.comms[0]->timeout_ms = 5 * DEADLINE_MS; /* until then rank 1 has come */
        check_ranks(RANKS, make_call, &team);
    }
    team_destroy(&team);
    check_end();
}

static void come_late(int rank, int size, void *team)
{
    (void)size;
    if (rank == 1)
        check_sleep_ms(2 * DEADLINE_MS);
    CHECK_OK(allreduce(team, rank));
}

/* What the ranks exchange first waits for timeout_ms, not for call_timeout_ms. */
static void short_calls(void)
{
    struct team team;
    check_begin("a compared call waits longer than a queued one may");
    if (open_team(&team, 2, 0)) {
        for (int rank = 0; rank < 2; rank++) {
            team.comms[rank]->timeout_ms = LONG_MS;
            CHECK_OK(trib_comm_set_call_timeout(team.comms[rank], DEADLINE_MS / 2, 0));
        }
        check_ranks(2, come_late, &team);
        CHECK(team.comms[0]->call_timeout_ms == DEADLINE_MS / 2);
    }
    team_destroy(&team);
    check_end();
}

static void not_recorded(void)
{
    struct team team;
    check_begin("a compared call of a communicator without a recorder");
    if (open_team(&team, 2, TRIB_UNRECORDED)) {
        CHECK_STATUS(allreduce(&team, 0), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("a rank has not joined, or earlier work kept a stream busy: rank 0 has waited "
                     "for all ranks in trib_allreduce for 200 ms");
        check_lost(&team, -1);
    }
    team_destroy(&team);
    check_end();
}

/* On host the communicator lives on, so none of its ranks is lost. */
static void split(void)
{
    struct team team;
    trib_comm *child = NULL;
    check_begin("a split that one of two ranks does not make");
    if (open_team(&team, 2, 0)) {
        CHECK_STATUS(trib_comm_split(&child, team.comms[0], 0, 0), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("these ranks did not join: 1");
        CHECK_OK(trib_comm_status(team.comms[0]));
        check_lost(&team, -1);
    }
    team_destroy(&team);
    check_end();
}

/* ------------------------------------------------------------------------ behind an earlier call */

/* Rank 0 waits for a message of rank 1 on another stream, which may be in order; the rank that does
 * not come keeps it waiting. */
static void receive_elsewhere(void)
{
    struct team team;
    trib_stream other = NULL;
    check_begin("a receive is pending, and a rank does not come");
    if (open_team(&team, 2, 0) && CHECK_OK(trib_stream_create(&other, team.devices[0]))) {
        CHECK_OK(trib_recv(team.comms[0], data[0], N, TRIB_F32, 1, other));
        CHECK_STATUS(allreduce(&team, 0), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("in call 2, trib_allreduce; rank 1 has made no call");
        check_lost(&team, 1);
        CHECK_OK(trib_stream_wait(team.devices[0], other));
        CHECK_OK(trib_stream_destroy(team.devices[0], other));
    }
    team_destroy(&team);
    check_end();
}

static void receive_then_call(int rank, int size, void *argument)
{
    const struct team *team = argument;
    (void)size;
    if (rank == 0)
        CHECK_OK(trib_recv(team->comms[0], data[0], N, TRIB_F32, 1, team->streams[0]));
    CHECK_STATUS(allreduce(team, rank), TRIB_ERR_TIMEOUT);
}

/* All ranks come, and nobody sends: the receive is what waits. */
static void receive_before(void)
{
    struct team team;
    check_begin("a receive keeps the stream busy, and every rank comes");
    if (open_team(&team, 2, 0)) {
        team.comms[0]->timeout_ms = 5 * DEADLINE_MS; /* until then rank 1 has come */
        check_ranks(2, receive_then_call, &team);
        CHECK_STATUS(trib_comm_status(team.comms[0]), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("in call 1, trib_recv of 8 f32, peer 1; it waits for rank 1, whose newest is "
                     "call 1, trib_allreduce");
        check_lost(&team, -1);
    }
    team_destroy(&team);
    check_end();
}

/* ------------------------------------------------------------------------------------- the dump */

static bool read_file(char *out, size_t size, const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    out[fread(out, 1, size - 1, file)] = '\0';
    (void)fclose(file);
    return true;
}

static void dump(void)
{
    static char text[TEXT];
    char folder[] = "/tmp/tributary-deadline-XXXXXX", prefix[64], path[512], host[256] = "";
    struct team team;
    check_begin("the dump of a compared call that is late");
    CHECK(mkdtemp(folder) != NULL && gethostname(host, sizeof host - 1) == 0);
    (void)snprintf(prefix, sizeof prefix, "%s/", folder);
    (void)snprintf(path, sizeof path, "%s%s-%ld-1.json", prefix, host, (long)getpid());
    CHECK_OK(trib_dump_set(prefix));
    if (open_team(&team, 2, 0)) {
        CHECK_STATUS(allreduce(&team, 0), TRIB_ERR_TIMEOUT);
        for (int ms = 0; ms < LONG_MS && !read_file(text, sizeof text, path); ms++)
            check_sleep_ms(1);
        CHECK_MSG(strstr(text, "\"reason\": \"timeout\"") != NULL, "%s", text);
    }
    team_destroy(&team);
    CHECK_OK(trib_dump_set(NULL));
    CHECK(remove(path) == 0 && rmdir(folder) == 0); /* one dump, although two ranks have ended */
    check_end();
}

int main(void)
{
    not_recorded();
    not_recorded(); /* the thread of deadlines has had nothing to look at in between, and slept */
    dump();         /* the first of the process, so its number is 1 */
    one_is_away();
    short_calls();
    split();
    receive_elsewhere();
    receive_before();
    return check_finish("deadline_test");
}
