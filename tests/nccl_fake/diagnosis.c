/* When the nccl backend asks NCCL's RAS service, and that nothing waits for the answer: the service
 * is a socket that accepts and stays silent. What is said is the matter of tests/nccl/ras_test.c. */
#define _POSIX_C_SOURCE 200809L
#include "tests/nccl_fake/diagnosis.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/nccl/quiesce.h"
#include "csrc/nccl/ras.h"
#include "csrc/nccl/thread.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fixture.h"

enum { PLENTY_MS = 20000, SOON_MS = 500, QUESTION_MS = 2000, SLACK_MS = 900 };

/* Returns a socket that listens where RAS is expected, or -1. */
static int silent_service(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    char name[64];
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
               listen(fd, 8) == 0 && getsockname(fd, (struct sockaddr *)&address, &length) == 0))
        return -1;
    (void)snprintf(name, sizeof name, "127.0.0.1:%d", ntohs(address.sin_port));
    CHECK(setenv("NCCL_RAS_ADDR", name, 1) == 0);
    return fd;
}

/* Does anybody connect within `ms`? Hangs up, which ends the question. */
static bool is_asked(int service, int ms)
{
    struct pollfd one = {.fd = service, .events = POLLIN};
    if (poll(&one, 1, ms) != 1)
        return false;
    const int fd = accept(service, NULL, NULL);
    return CHECK(fd >= 0) && close(fd) == 0;
}

static bool open_ranks(struct tri_transport **ranks, int32_t n)
{
    const int32_t order[2] = {0, 1};
    return CHECK_OK(transports()->open_group(ranks, order, n, NULL, PLENTY_MS));
}

static void close_ranks(struct tri_transport **ranks, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_OK(transports()->close(ranks[i], PLENTY_MS));
        transports()->destroy(ranks[i]);
    }
}

static uint32_t quiesce(uint32_t timeout_ms)
{
    uint32_t graphs = 0;
    return tri_nccl_quiesce(tri_deadline_ns(timeout_ms), &graphs);
}

static void asks(void)
{
    const int service = silent_service();
    struct tri_transport *pair[2], *single[1];
    check_begin("RAS is asked from version 2.24 on, about ranks that are NCCL's");
    if (service >= 0 && open_ranks(pair, 2) && open_ranks(single, 1)) {
        fake_version(TRI_NCCL_RAS_SINCE - 1);
        transports()->diagnose(pair[0]);
        CHECK(!is_asked(service, SOON_MS));
        fake_version(TRI_NCCL_RAS_SINCE);
        transports()->diagnose(single[0]);
        CHECK(!is_asked(service, SOON_MS));
        transports()->diagnose(pair[1]);
        CHECK(is_asked(service, PLENTY_MS));
        fake_version(0);
        close_ranks(single, 1);
        close_ranks(pair, 2);
        CHECK(quiesce(PLENTY_MS) == 0);
    }
    (void)close(service);
    check_end();
}

/* The caller does not wait, quiesce does. An abort goes on meanwhile. */
static void waits(void)
{
    const int service = silent_service();
    struct tri_transport *pair[2];
    check_begin("a RAS service that does not answer holds nobody up");
    if (service >= 0 && open_ranks(pair, 2)) {
        const double start = check_now_ms();
        struct trib_abort *state = transports()->abort_state(pair[0]);
        (void)tri_abort_raise(state, TRIB_ERR_TIMEOUT, "late");
        transports()->diagnose(pair[0]);
        CHECK(check_now_ms() - start < SOON_MS);
        close_ranks(pair, 2);
        for (int i = 0; i < SOON_MS && fake_communicators() > 0; i++)
            check_sleep_ms(1);
        CHECK(fake_communicators() == 0 && tri_nccl_threads(TRI_NCCL_TASKS) == 1);
        CHECK(quiesce(0) > 0);
        CHECK(quiesce(PLENTY_MS) == 0);
        const double ms = check_now_ms() - start;
        CHECK_MSG(ms < QUESTION_MS + SLACK_MS, "it took %.0f ms", ms);
    }
    (void)close(service);
    check_end();
}

static void on_line(void *context, int32_t level, const char *line)
{
    int *lines = context;
    *lines += level == TRIB_LOG_INFO && strstr(line, "no thread to ask it") != NULL;
}

static void without_a_thread(void)
{
    const int service = silent_service();
    struct tri_transport *pair[2];
    int lines = 0;
    check_begin("no thread can be started to ask RAS");
    if (service >= 0 && open_ranks(pair, 2)) {
        tri_log_set(on_line, &lines, TRIB_LOG_INFO);
        fake_allow_threads(false);
        transports()->diagnose(pair[0]);
        fake_allow_threads(true);
        CHECK(lines == 1 && !is_asked(service, SOON_MS));
        transports()->diagnose(pair[0]);
        CHECK(is_asked(service, PLENTY_MS));
        close_ranks(pair, 2);
        CHECK(quiesce(PLENTY_MS) == 0);
        tri_log_set(NULL, NULL, 0);
    }
    (void)close(service);
    check_end();
}

int diagnosing_process(void)
{
    struct tri_transport *pair[2];
    check_begin("a process that ends while it asks");
    if (silent_service() >= 0 && open_ranks(pair, 2)) {
        transports()->diagnose(pair[0]);
        close_ranks(pair, 2);
    }
    check_end();
    return check_finish("nccl_life_test: a process that ends while it asks");
}

static void leaves(const char *program)
{
    int status = -1;
    check_begin("a process ends while it asks RAS");
    const double start = check_now_ms();
    const pid_t process = fork();
    if (process == 0) {
        (void)execl("/proc/self/exe", program, "ask", (char *)NULL);
        _exit(127);
    }
    CHECK(process > 0 && waitpid(process, &status, 0) == process);
    CHECK_MSG(status == 0, "it ended with status %x", (unsigned)status);
    const double ms = check_now_ms() - start;
    CHECK_MSG(ms < QUESTION_MS + 2 * SLACK_MS, "it took %.0f ms", ms);
    check_end();
}

void diagnosis(const char *program)
{
    asks();
    waits();
    without_a_thread();
    leaves(program);
}
