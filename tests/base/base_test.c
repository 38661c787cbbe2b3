/* Statuses, types, the clock, threads and the log. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/meeting.h"
#include "csrc/base/status.h"
#include "csrc/base/thread.h"
#include "csrc/base/types.h"
#include "tests/check.h"

static void details(void)
{
    char longer[3 * TRI_DETAIL_SIZE];
    check_begin("details");
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    CHECK(tri_fail(TRIB_ERR_TIMEOUT, "rank %d", 3) == TRIB_ERR_TIMEOUT);
    CHECK(strcmp(tri_detail(), "rank 3") == 0 && trib_last_detail() == tri_detail());
    (void)tri_fail(TRIB_ERR_CUDA, "after %s", tri_detail()); /* may quote itself */
    CHECK(strcmp(tri_detail(), "after rank 3") == 0);
    (void)tri_fail(TRIB_ERR_CUDA, "%s", longer);
    CHECK(strlen(tri_detail()) == TRI_DETAIL_SIZE - 1);
    check_end();
}

static void error_texts(void)
{
    char expected[112];
    check_begin("texts of errors");
    (void)snprintf(expected, sizeof expected, "%s (errno %d)", strerror(ENOMEM), ENOMEM);
    CHECK(strcmp(tri_error_text(ENOMEM).text, expected) == 0);
    CHECK(strstr(tri_error_text(-7).text, "(errno -7)") != NULL);
    check_end();
}

static void bytes(void)
{
    size_t found = 7;
    check_begin("bytes of elements");
    CHECK(tri_bytes(&found, 10, 3, TRIB_F16) && found == 60);
    CHECK(tri_bytes(&found, 0, SIZE_MAX, TRIB_F64) && found == 0);
    CHECK(tri_bytes(&found, SIZE_MAX, 0, TRIB_F64) && found == 0);
    CHECK(tri_bytes(&found, PTRDIFF_MAX, 1, TRIB_U8) && found == PTRDIFF_MAX);
    CHECK(!tri_bytes(&found, (size_t)PTRDIFF_MAX + 1, 1, TRIB_U8));
    CHECK(tri_bytes(&found, PTRDIFF_MAX / 8, 1, TRIB_I64));
    CHECK(!tri_bytes(&found, PTRDIFF_MAX / 8 + 1, 1, TRIB_I64));
    CHECK(!tri_bytes(&found, PTRDIFF_MAX / 8, 2, TRIB_I64));
    CHECK(!tri_bytes(&found, SIZE_MAX / 2 + 1, 2, TRIB_U8)); /* the product would be 0 */
    CHECK(!tri_bytes(&found, (size_t)1 << 32, (size_t)1 << 32, TRIB_U8));
    check_end();
}

static void kinds(void)
{
    check_begin("types and reductions");
    for (trib_dtype dtype = -2; dtype < 14; dtype++) {
        CHECK(tri_dtype_valid(dtype) == (dtype >= 1 && dtype <= 10));
        CHECK((trib_dtype_size(dtype) != 0) == tri_dtype_valid(dtype));
    }
    for (trib_op op = -2; op < 8; op++)
        CHECK(tri_op_valid(op) == (op >= 1 && op <= 5));
    CHECK(tri_dtype_is_float(TRIB_F16) && tri_dtype_is_float(TRIB_F64));
    CHECK(!tri_dtype_is_float(TRIB_I8) && !tri_dtype_is_float(0));
    check_end();
}

static void on_line(void *context, int32_t level, const char *line)
{
    CHECK(level == TRIB_LOG_WARN && strcmp(line, "line 5") == 0);
    ++*(int *)context;
}

static void log_levels(void)
{
    int lines = 0;
    check_begin("log levels");
    tri_log(TRIB_LOG_ERROR, "nobody listens");
    tri_log_set(on_line, &lines, TRIB_LOG_WARN);
    tri_log(TRIB_LOG_INFO, "too detailed");
    CHECK(lines == 0);
    tri_log(TRIB_LOG_WARN, "line %d", 5);
    CHECK(lines == 1);
    tri_log_set(NULL, NULL, 0);
    tri_log(TRIB_LOG_WARN, "line %d", 5);
    CHECK(lines == 1);
    check_end();
}

static void clocks(void)
{
    check_begin("the clock");
    const uint64_t before = tri_now_ns();
    const uint64_t deadline = tri_deadline_ns(4000000000u); /* no overflow on the way */
    const uint64_t after = tri_now_ns();
    CHECK(after >= before);
    CHECK(deadline - before >= UINT64_C(4000000000000000));
    CHECK(deadline - after <= UINT64_C(4000000000000000));
    check_end();
}

static bool takes(int signal)
{
    sigset_t blocked;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
    return sigismember(&blocked, signal) == 0;
}

static void *take_none(void *argument)
{
    CHECK(!takes(SIGINT) && !takes(SIGTERM) && !takes(SIGCHLD) && !takes(SIGRTMIN + 1));
    return argument;
}

/* The library's threads take no signals, and who starts one takes what it took before. */
static void threads(void)
{
    pthread_t thread;
    sigset_t usr1;
    void *out = NULL;
    check_begin("threads");
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &usr1, NULL) == 0);
    if (CHECK(tri_thread_start(&thread, take_none, &usr1) == 0))
        CHECK(pthread_join(thread, &out) == 0 && out == &usr1);
    CHECK(takes(SIGINT) && takes(SIGRTMIN + 1) && !takes(SIGUSR1));
    check_end();
}

struct pair {
    struct tri_meeting meeting;
    atomic_bool left; /* rank 0 has */
    uint64_t attempts[2];
};

/* The last one makes the id, while the other gives up. */
static trib_status make_late(trib_id *out, void *context)
{
    struct pair *pair = context;
    while (!atomic_load(&pair->left))
        check_sleep_ms(1);
    memset(out, 0, sizeof *out);
    return TRIB_OK;
}

static bool is_waiting(struct pair *pair)
{
    pthread_mutex_lock(&pair->meeting.lock);
    const bool waits = pair->meeting.n > 0 || pair->meeting.attempts > 0;
    pthread_mutex_unlock(&pair->meeting.lock);
    return waits;
}

static void meet(int rank, int size, void *argument)
{
    enum { SHORT_MS = 50, LONG_MS = 20000 };
    static const int32_t ranks[2] = {0, 1};
    struct pair *pair = argument;
    trib_id id;
    while (rank == 1 && !is_waiting(pair))
        check_sleep_ms(1);
    struct tri_attendee self = {.rank = rank,
                                .ranks = ranks,
                                .n = size,
                                .attempts = &pair->attempts[rank],
                                .timeout_ms = SHORT_MS,
                                .deadline_ns = tri_deadline_ns(rank == 0 ? SHORT_MS : LONG_MS),
                                .make = make_late,
                                .context = pair};
    CHECK_STATUS(tri_meeting_attend(&pair->meeting, &self, &id), TRIB_ERR_TIMEOUT);
    CHECK(pair->attempts[rank] == 1);
    if (rank == 0)
        atomic_store(&pair->left, true);
}

/* Both fail, and what the one makes too late does not count. */
static void meetings(void)
{
    static struct pair pair;
    check_begin("a meeting that a rank leaves while another makes the id");
    if (CHECK(tri_meeting_init(&pair.meeting))) {
        check_ranks(2, meet, &pair);
        CHECK(pair.meeting.attempts == 1);
        tri_meeting_destroy(&pair.meeting);
    }
    check_end();
}

int main(void)
{
    details();
    error_texts();
    bytes();
    kinds();
    log_levels();
    clocks();
    threads();
    meetings();
    return check_finish("base_test");
}
