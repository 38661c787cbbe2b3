/* Asks NCCL's RAS service.
 *
 * A conversation of lines: the client gives its version of the protocol, and how long the service
 * may wait for other processes; then it asks for the status, which the service sends, and closes.
 * Whoever holds that port may be another program, so everything is bounded, and unprintable bytes
 * do not get into the log. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/nccl/ras.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/base/status.h"
#include "csrc/nccl/ras_answer.h"
#include "csrc/nccl/thread.h"

enum { TOTAL_MS = 2000, ANSWER_SIZE = 65536, ADDRESS_SIZE = 256, WHY_SIZE = 160 };

struct conversation {
    char address[ADDRESS_SIZE]; /* host:port */
    uint64_t end_ns;
    int fd;             /* -1: not connected */
    bool closed;        /* by the service */
    char why[WHY_SIZE]; /* something failed; "" if nothing did */
    size_t used;
    char answer[ANSWER_SIZE];
};

/* What is said until the status is asked for, and how each reply must begin. */
static const struct {
    const char *question, *reply;
} opening[] = {{"CLIENT PROTOCOL 2\n", "SERVER PROTOCOL "}, {"TIMEOUT 1\n", "OK\n"}};

static bool fail(struct conversation *with, const char *what, int error)
{
    (void)snprintf(with->why, sizeof with->why, "%s%s%s", what, error == 0 ? "" : ": ",
                   error == 0 ? "" : tri_error_text(error).text);
    return false;
}

/* Wait until the socket is ready for `events`. */
static bool ready(struct conversation *with, short events)
{
    struct pollfd one = {.fd = with->fd, .events = events};
    for (;;) {
        const uint64_t now = tri_now_ns();
        if (now >= with->end_ns)
            return fail(with, "it has not answered all within 2 s", 0);
        const int n = poll(&one, 1, (int)((with->end_ns - now) / 1000000u) + 1);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return fail(with, "waiting for the service", errno);
    }
}

/* ------------------------------------------------------------------------------------ to connect */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Numbers only: no question to a name server, which may take longer than all the time there is. */
static bool read_address(union address *out, const char *host, const char *port)
{
    char *end;
    const long number = strtol(port, &end, 10);
    memset(out, 0, sizeof *out);
    if (number < 1 || number > UINT16_MAX || *end != '\0')
        return false;
    if (inet_pton(AF_INET, host, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons((uint16_t)number);
        return true;
    }
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = htons((uint16_t)number);
    return inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1;
}

static bool connect_socket(struct conversation *with, const union address *to)
{
    int error = 0;
    socklen_t length = sizeof error;
    (void)fcntl(with->fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(with->fd, F_SETFL, O_NONBLOCK);
    if (connect(with->fd, &to->any, to->any.sa_family == AF_INET ? sizeof to->v4 : sizeof to->v6) ==
        0)
        return true;
    if (errno != EINPROGRESS)
        return fail(with, "connecting", errno);
    if (!ready(with, POLLOUT))
        return false;
    if (getsockopt(with->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    return error == 0 || fail(with, "connecting", error);
}

static bool connect_host(struct conversation *with, const char *host, const char *port)
{
    union address to;
    if (!read_address(&to, host, port))
        return fail(with, "expected localhost or the numbers of a host, and a port", 0);
    with->fd = socket(to.any.sa_family, SOCK_STREAM, 0);
    if (with->fd < 0)
        return fail(with, "opening a socket", errno);
    if (connect_socket(with, &to)) {
        with->why[0] = '\0'; /* of an attempt before */
        return true;
    }
    (void)close(with->fd);
    with->fd = -1;
    return false;
}

/* host:port, or [host]:port where the host has colons. NCCL takes the first address of localhost,
 * which is of one version of IP or of the other. */
static bool connect_address(struct conversation *with)
{
    char host[ADDRESS_SIZE];
    const char *colon = strrchr(with->address, ':');
    const char *begin = with->address, *end = colon;
    if (colon != NULL && colon - begin >= 2 && *begin == '[' && colon[-1] == ']') {
        begin++;
        end--;
    }
    if (colon == NULL || (size_t)(end - begin) >= sizeof host)
        return fail(with, "expected host:port", 0);
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    if (strcmp(host, "localhost") != 0)
        return connect_host(with, host, colon + 1);
    return connect_host(with, "::1", colon + 1) || connect_host(with, "127.0.0.1", colon + 1);
}

/* --------------------------------------------------------------------------------------- to talk */

/* A line is shorter than what any socket takes at once. */
static bool say(struct conversation *with, const char *line)
{
    const size_t bytes = strlen(line);
    if (!ready(with, POLLOUT))
        return false;
    const ssize_t n = send(with->fd, line, bytes, MSG_NOSIGNAL);
    return n == (ssize_t)bytes || fail(with, "sending", n < 0 ? errno : EIO);
}

/* Read what has come. */
static bool hear(struct conversation *with)
{
    if (with->used == sizeof with->answer)
        return fail(with, "it has said more than 64 KiB, of which the rest is left out", 0);
    if (!ready(with, POLLIN))
        return false;
    const ssize_t n =
        recv(with->fd, with->answer + with->used, sizeof with->answer - with->used, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR || fail(with, "receiving", errno);
    with->used += (size_t)n;
    with->closed = n == 0;
    return true;
}

/* Hear one line, which begins with `expected`, and forget it. */
static bool hear_reply(struct conversation *with, const char *expected)
{
    for (;;)
        switch (tri_nccl_ras_reply(with->answer, &with->used, expected)) {
        case TRI_NCCL_RAS_RIGHT:
            return true;
        case TRI_NCCL_RAS_WRONG:
            return fail(with, "what answers there does not speak NCCL's RAS protocol", 0);
        case TRI_NCCL_RAS_SHORT:
            if (with->closed)
                return fail(with, "it has closed the connection", 0);
            if (!hear(with))
                return false;
        }
}

/* Returns true if there is an answer, be it incomplete. */
static bool converse(struct conversation *with)
{
    for (size_t i = 0; i < sizeof opening / sizeof *opening; i++)
        if (!say(with, opening[i].question) || !hear_reply(with, opening[i].reply))
            return false;
    if (!say(with, "VERBOSE STATUS\n"))
        return false;
    while (!with->closed && hear(with))
        ;
    return true;
}

/* -------------------------------------------------------------------------------- the public end */

static _Atomic bool asking; /* a thread has a conversation */

static void ask(struct conversation *with)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the library changes no environment */
    const char *address = getenv("NCCL_RAS_ADDR");
    *with = (struct conversation){.end_ns = tri_deadline_ns(TOTAL_MS), .fd = -1};
    (void)snprintf(with->address, sizeof with->address, "%s",
                   address != NULL ? address : "localhost:28028");
    const bool told = connect_address(with) && converse(with);
    if (with->fd >= 0)
        (void)close(with->fd);
    if (told)
        tri_nccl_ras_log(with->answer, with->used);
    if (with->why[0] != '\0')
        tri_log(TRIB_LOG_INFO, "NCCL RAS at %s: %s", with->address, with->why);
}

static void *ask_once(void *unused)
{
    static struct conversation conversation; /* one thread at a time: see `asking` */
    (void)unused;
    ask(&conversation);
    atomic_store(&asking, false);
    return tri_nccl_thread_end(TRI_NCCL_TASKS);
}

void tri_nccl_ras_ask(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the library changes no environment */
    const char *enabled = getenv("NCCL_RAS_ENABLE");
    if ((enabled != NULL && strtol(enabled, NULL, 0) == 0) || atomic_exchange(&asking, true))
        return;
    const int error = tri_nccl_thread(TRI_NCCL_TASKS, ask_once, NULL);
    if (error == 0)
        return;
    atomic_store(&asking, false);
    tri_log(TRIB_LOG_INFO, "NCCL RAS: no thread to ask it: %s", tri_error_text(error).text);
}
