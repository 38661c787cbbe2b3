/* Dumps: what is in them, when they are written, and that nothing else is disturbed. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/team.h"

enum { TIMEOUT_MS = 200, BOUND_MS = 20000, N = 16, TEXT = 1 << 20 };

static char folder[] = "/tmp/tributary-dump-XXXXXX";
static char text[TEXT];
static float data[2][N];

/* `path`: of the dump number `n` that nobody asked for, with a prefix. */
static void unasked(char *path, size_t size, const char *prefix, int n)
{
    char host[256] = "";
    CHECK(gethostname(host, sizeof host - 1) == 0);
    (void)snprintf(path, size, "%s%s-%ld-%d.json", prefix, host, (long)getpid(), n);
}

/* Read it into `text`, and remove it; wait until it is there. */
static bool read_dump(const char *path)
{
    const double end = check_now_ms() + BOUND_MS;
    FILE *file = NULL;
    text[0] = '\0';
    while ((file = fopen(path, "r")) == NULL && check_now_ms() < end)
        check_sleep_ms(1);
    if (!CHECK_MSG(file != NULL, "no \"%s\"", path))
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    return CHECK(remove(path) == 0);
}

static void has_not(const char *words)
{
    CHECK_MSG(strstr(text, words) == NULL, "%s in:\n%s", words, text);
}

static void has(const char *words)
{
    CHECK_MSG(strstr(text, words) != NULL, "no %s in:\n%s", words, text);
}

static trib_status allreduce(struct team *team, int rank, size_t count)
{
    return trib_allreduce(team->comms[rank], data[rank], data[rank], count, TRIB_F32, TRIB_SUM,
                          team->streams[rank]);
}

static bool open_team(struct team *team, uint32_t flags)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.call_timeout_ms = TIMEOUT_MS;
    options.flags = flags;
    options.name = "a \"name\"";
    return team_create(team, "host", 2, &options);
}

static void on_request(void)
{
    struct team team;
    char path[128];
    check_begin("a dump on request");
    (void)snprintf(path, sizeof path, "%s/request.json", folder);
    if (open_team(&team, 0)) {
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(allreduce(&team, rank, N));
        CHECK_OK(trib_broadcast(team.comms[0], data[0], data[0], 3, TRIB_I32, 1, team.streams[0]));
        check_sleep_ms(TIMEOUT_MS / 2);
        CHECK_OK(trib_dump(path));
        CHECK(trib_last_detail()[0] == '\0'); /* a success leaves it as it was */
        CHECK_OK(trib_broadcast(team.comms[1], data[1], data[1], 3, TRIB_I32, 1, team.streams[1]));
        if (read_dump(path)) {
            has("\"reason\": \"request\"");
            has("\"rank\": 1, \"size\": 2, \"name\": \"a \\\"name\\\"\", \"backend\": "
                "\"host\", \"device\": 1, \"status\": "
                "\"TRIB_OK\", \"detail\": \"\", \"state\": \"live\", \"entered\": 1, \"issued\": "
                "1, "
                "\"started\": 1, \"ended\": 1,");
            has("{\"number\": 1, \"collective\": 1, \"operation\": \"allreduce\", \"count\": 16, "
                "\"dtype\": \"f32\", \"op\": \"sum\", \"peer\": null, \"algorithm\": null, "
                "\"state\": \"done\", \"age_ms\": ");
            has("{\"number\": 2, \"collective\": 2, \"operation\": \"broadcast\", \"count\": 3, "
                "\"dtype\": \"i32\", \"op\": null, \"peer\": 1, \"algorithm\": null, "
                "\"state\": \"started\", \"age_ms\": ");
            has(", \"exact\": true, \"timeout_ms\": ");
        }
    }
    team_destroy(&team);
    CHECK_STATUS(trib_dump("/nowhere/at/all.json"), TRIB_ERR_SYSTEM);
    CHECK_DETAIL("\"/nowhere/at/all.json\" cannot be written: ");
    (void)snprintf(path, sizeof path, "%s/pipe", folder);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_STATUS(trib_dump(path), TRIB_ERR_SYSTEM);
    CHECK_DETAIL("/pipe\" is no regular file");
    CHECK(remove(path) == 0);
    CHECK_STATUS(trib_dump(NULL), TRIB_ERR_INVALID_ARGUMENT);
    check_end();
}

/* The newest calls, of more than a recorder holds. */
static void newest(void)
{
    enum { CALLS = 300, HELD = 256 };
    struct team team;
    char path[128], oldest[32], older[32];
    check_begin("a dump has all calls that are recorded");
    (void)snprintf(path, sizeof path, "%s/newest.json", folder);
    (void)snprintf(oldest, sizeof oldest, "{\"number\": %d, ", CALLS - HELD + 1);
    (void)snprintf(older, sizeof older, "{\"number\": %d, ", CALLS - HELD);
    if (open_team(&team, 0)) {
        for (int call = 0; call < CALLS; call++)
            for (int rank = 0; rank < 2; rank++)
                CHECK_OK(allreduce(&team, rank, N));
        CHECK_OK(trib_dump(path));
        if (read_dump(path)) {
            has(oldest);
            has("{\"number\": 300, ");
            has_not(older);
        }
    }
    team_destroy(&team);
    check_end();
}

/* What is written at last, when the file is closed, may be refused. */
static void disk_full(void)
{
    struct rlimit all, few;
    char path[128];
    check_begin("a dump for which there is no room");
    (void)snprintf(path, sizeof path, "%s/full.json", folder);
    (void)signal(SIGXFSZ, SIG_IGN);
    if (CHECK(getrlimit(RLIMIT_FSIZE, &all) == 0)) {
        few = all;
        few.rlim_cur = 16;
        CHECK(setrlimit(RLIMIT_FSIZE, &few) == 0);
        CHECK_STATUS(trib_dump(path), TRIB_ERR_SYSTEM);
        CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0);
        CHECK_DETAIL("cannot be written: ");
        CHECK(access(path, F_OK) != 0);
    }
    check_end();
}

static void on_timeout(const char *prefix)
{
    struct team team;
    char path[512];
    check_begin("a dump when a call is late, with the calls as they were before");
    if (open_team(&team, 0)) {
        CHECK_OK(allreduce(&team, 0, N));
        CHECK_STATUS(trib_comm_wait(team.comms[0], team.streams[0], TRIB_NO_TIMEOUT),
                     TRIB_ERR_TIMEOUT);
        unasked(path, sizeof path, prefix, 1);
        if (read_dump(path)) {
            has("\"reason\": \"timeout\"");
            has("\"status\": \"TRIB_ERR_TIMEOUT\", \"detail\": \"rank 0 (device 0) has waited");
            has("\"state\": \"started\", \"age_ms\": ");
        }
    }
    team_destroy(&team);
    check_end();
}

static void on_abort(const char *prefix)
{
    struct team team;
    trib_abort *handle = NULL;
    char path[512];
    check_begin("a dump when a communicator is aborted, and destroyed at once");
    if (open_team(&team, 0)) {
        CHECK_OK(allreduce(&team, 0, N));
        check_sleep_ms(TIMEOUT_MS / 4);
        CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0]));
        CHECK_OK(trib_abort_raise(handle, "a \"quoted\"\treason"));
        trib_abort_release(handle);
    }
    team_destroy(&team);
    unasked(path, sizeof path, prefix, 2);
    if (read_dump(path)) {
        has("\"reason\": \"abort\"");
        has("a \\\"quoted\\\"\\u0009reason");
        has("\"state\": \"started\", \"age_ms\": ");
    }
    check_end();
}

static void not_wanted(const char *prefix)
{
    struct team team;
    char path[512], long_prefix[2000];
    check_begin("no dump of an orderly end, of an unrecorded one, or when switched off");
    if (open_team(&team, 0))
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(allreduce(&team, rank, N));
    team_destroy(&team);
    for (int i = 0; i < 2; i++) {
        trib_abort *handle = NULL;
        if (i == 1)
            CHECK_OK(trib_dump_set(NULL));
        if (open_team(&team, i == 0 ? TRIB_UNRECORDED : 0) &&
            CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0])))
            CHECK_OK(trib_abort_raise(handle, "enough"));
        trib_abort_release(handle);
        team_destroy(&team);
    }
    check_sleep_ms(TIMEOUT_MS);
    unasked(path, sizeof path, prefix, 3);
    CHECK(access(path, F_OK) != 0);
    memset(long_prefix, 'x', sizeof long_prefix);
    long_prefix[sizeof long_prefix - 1] = '\0';
    CHECK_STATUS(trib_dump_set(long_prefix), TRIB_ERR_INVALID_ARGUMENT);
    check_end();
}

static void abort_once(void)
{
    struct team team;
    trib_abort *handle = NULL;
    if (open_team(&team, 0) && CHECK_OK(trib_comm_abort_handle(&handle, team.comms[0])))
        CHECK_OK(trib_abort_raise(handle, "once more"));
    trib_abort_release(handle);
    team_destroy(&team);
}

/* Two before. */
static void at_most(const char *prefix)
{
    enum { MOST = 16 };
    char path[512];
    check_begin("at most %d dumps that nobody asks for", MOST);
    CHECK_OK(trib_dump_set(prefix));
    for (int n = 3; n <= MOST; n++) {
        abort_once();
        unasked(path, sizeof path, prefix, n);
        read_dump(path);
    }
    abort_once();
    check_sleep_ms(TIMEOUT_MS);
    unasked(path, sizeof path, prefix, MOST + 1);
    CHECK(access(path, F_OK) != 0);
    check_end();
}

/* The program's choice, from before the first communicator, is above the environment's. */
static void by_a_process_that_exits(void)
{
    enum { TIMES = 5 };
    char prefix[64], path[512], host[256] = "";
    check_begin("a dump by a process that exits at once");
    CHECK(gethostname(host, sizeof host - 1) == 0);
    (void)snprintf(prefix, sizeof prefix, "%s/c-", folder);
    for (int i = 0; i < TIMES; i++) {
        int status = -1;
        (void)fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            CHECK_OK(trib_dump_set(prefix));
            abort_once();
            exit(check_failed() ? EXIT_FAILURE : EXIT_SUCCESS);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        (void)snprintf(path, sizeof path, "%s%s-%ld-1.json", prefix, host, (long)child);
        if (CHECK_MSG(access(path, F_OK) == 0, "no \"%s\"", path) && read_dump(path))
            has("once more");
    }
    check_end();
}

int main(void)
{
    char prefix[64];
    if (mkdtemp(folder) == NULL)
        return EXIT_FAILURE;
    (void)snprintf(prefix, sizeof prefix, "%s/d-", folder);
    (void)setenv("TRIBUTARY_DUMP", prefix, 1);
    by_a_process_that_exits(); /* no communicator has been created before */
    on_request();
    newest();
    disk_full();
    on_timeout(prefix);
    on_abort(prefix);
    not_wanted(prefix);
    at_most(prefix);
    check_begin("nothing else is there");
    CHECK(rmdir(folder) == 0);
    check_end();
    return check_finish("dump_test");
}
