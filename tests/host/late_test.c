/* The log names a rank that others have waited for past the threshold, once per call. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/host/late.h"
#include "tests/team.h"

enum { THRESHOLD_MS = 20, BOUND_MS = 20000, LINES = 64, LINE = 256 };

struct log {
    _Atomic int lines;
    char text[LINES][LINE];
};

static void take_line(void *context, int32_t level, const char *line)
{
    struct log *log = context;
    const int at = atomic_load(&log->lines);
    if (level != TRIB_LOG_WARN || at == LINES)
        return;
    strncpy(log->text[at], line, LINE - 1);
    atomic_store(&log->lines, at + 1);
}

static int count(const struct log *log, const char *words)
{
    int n = 0;
    for (int i = 0; i < atomic_load(&log->lines); i++)
        n += strstr(log->text[i], words) != NULL;
    return n;
}

static void wait_for_line(const struct log *log, const char *words)
{
    const double end = check_now_ms() + BOUND_MS;
    while (count(log, words) == 0 && check_now_ms() < end)
        check_sleep_ms(1);
    const int lines = atomic_load(&log->lines);
    CHECK_MSG(count(log, words) != 0, "the log does not say \"%s\"; its last line of %d is \"%s\"",
              words, lines, lines == 0 ? "" : log->text[lines - 1]);
}

static void finish(struct team *team)
{
    for (int rank = 0; rank < team->size; rank++) {
        team_wait(team, rank, BOUND_MS);
        CHECK_OK(trib_comm_status(team->comms[rank]));
    }
}

static void in_collective(struct team *team, const struct log *log, float *data)
{
    check_begin("a rank is late for an allreduce");
    CHECK_OK(trib_barrier(team->comms[0], team->streams[0]));
    CHECK_OK(trib_barrier(team->comms[1], team->streams[1]));
    CHECK_OK(trib_allreduce(team->comms[0], data, data, 7, TRIB_F32, TRIB_SUM, team->streams[0]));
    wait_for_line(log,
                  "rank 1 has not reached call 2 (allreduce of 7 f32 (sum)) of rank 0 for 0.02 s");
    check_sleep_ms(3 * THRESHOLD_MS);
    CHECK(count(log, "call 2 (allreduce") == 1);
    CHECK_OK(trib_allreduce(team->comms[1], data + 8, data + 8, 7, TRIB_F32, TRIB_SUM,
                            team->streams[1]));
    finish(team);
    check_end();
}

static void in_receive(struct team *team, const struct log *log, float *data)
{
    check_begin("a sender is late, and a receiver");
    CHECK_OK(trib_recv(team->comms[0], data, 5, TRIB_F32, 1, team->streams[0]));
    wait_for_line(log, "rank 1 has not reached call 3 (recv of 5 f32 from rank 1) of rank 0");
    CHECK_OK(trib_send(team->comms[1], data + 8, 5, TRIB_F32, 0, team->streams[1]));
    finish(team);
    CHECK_OK(trib_send(team->comms[1], data + 8, 6, TRIB_F32, 0, team->streams[1]));
    wait_for_line(log, "rank 0 has not reached call 4 (send of 6 f32 to rank 0) of rank 1");
    CHECK_OK(trib_recv(team->comms[0], data, 6, TRIB_F32, 1, team->streams[0]));
    finish(team);
    check_end();
}

/* All wait for the last rank, and one of them logs it. */
static void once_for_all(struct log *log)
{
    struct team team;
    check_begin("4 ranks wait for a fifth: one line");
    if (team_create(&team, "host", 5, NULL)) {
        for (int rank = 0; rank < 4; rank++)
            CHECK_OK(trib_barrier(team.comms[rank], team.streams[rank]));
        wait_for_line(log, " not reached call 1 (barrier) of rank ");
        CHECK(count(log, "4 ha") == 1); /* on a busy machine others may be late, too */
        check_sleep_ms(10 * THRESHOLD_MS);
        CHECK(count(log, " not reached call 1 (barrier) of rank ") == 1);
        CHECK_OK(trib_barrier(team.comms[4], team.streams[4]));
        finish(&team);
    }
    team_destroy(&team);
    check_end();
}

/* The highest of more ranks than an int has bits is late, and then it leaves. */
static void of_many(struct log *log)
{
    enum { RANKS = 40, LAST = RANKS - 1 };
    static float words[RANKS];
    struct team team;
    int32_t lost = -1, n = -1;
    check_begin("rank %d is late, and leaves", LAST);
    if (team_create(&team, "host", RANKS, NULL)) {
        for (int rank = 0; rank < LAST; rank++)
            CHECK_OK(trib_allreduce(team.comms[rank], &words[rank], &words[rank], 1, TRIB_F32,
                                    TRIB_SUM, team.streams[rank]));
        wait_for_line(log, "39 ha"); /* on a busy machine others may be late, too */
        CHECK_OK(trib_comm_close(team.comms[LAST], BOUND_MS));
        for (int rank = 0; rank < LAST; rank++)
            team_wait(&team, rank, BOUND_MS);
        CHECK_STATUS(trib_comm_status(team.comms[0]), TRIB_ERR_CLOSED);
        CHECK_DETAIL("rank 39 left after call 0");
        CHECK_OK(trib_comm_lost(&n, team.comms[0], &lost, 1));
        CHECK_MSG(n == 1 && lost == LAST, "%d lost, rank %d", n, lost);
    }
    team_destroy(&team);
    check_end();
}

int main(void)
{
    static struct log log;
    static float data[16];
    struct team team;
    CHECK_OK(trib_log_set(take_line, &log, TRIB_LOG_WARN));
    tri_host_late_set_threshold(THRESHOLD_MS * (uint64_t)1000000);
    if (team_create(&team, "host", 2, NULL)) {
        in_collective(&team, &log, data);
        in_receive(&team, &log, data);
    }
    team_destroy(&team);
    once_for_all(&log);
    of_many(&log);
    CHECK_OK(trib_log_set(NULL, NULL, 0));
    return check_finish("late_test");
}
