/* The question to NCCL's RAS service, against servers that answer rightly, wrongly, or not at all. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "csrc/base/log.h"
#include "csrc/nccl/ras.h"
#include "csrc/nccl/thread.h"
#include "tests/check.h"

enum { LINES = 2048, LINE = 1024, BOUND_MS = 2000, SLACK_MS = 900, PLENTY_S = 20 };

#define HELLO "SERVER PROTOCOL 2\n"
#define QUESTIONS "CLIENT PROTOCOL 2\nTIMEOUT 1\nVERBOSE STATUS\n"

/* --------------------------------------------------------------------------------------- the log */

/* Written under the log's lock; read when no thread asks. */
static struct {
    int answers, notes; /* TRIB_LOG_WARN, TRIB_LOG_INFO */
    char answer[LINES][LINE];
    char note[LINE];
} heard;

static void on_line(void *context, int32_t level, const char *line)
{
    (void)context;
    if (level == TRIB_LOG_INFO) {
        heard.notes++;
        (void)snprintf(heard.note, sizeof heard.note, "%s", line);
    } else if (heard.answers < LINES) {
        (void)snprintf(heard.answer[heard.answers++], LINE, "%s", line);
    }
}

static void ask(void)
{
    memset(&heard, 0, sizeof heard);
    tri_log_set(on_line, NULL, TRIB_LOG_DEBUG);
    tri_nccl_ras_ask();
}

/* Returns how long the thread has taken. */
static double await(double start)
{
    while (tri_nccl_threads(TRI_NCCL_TASKS) > 0)
        check_sleep_ms(1);
    tri_nccl_threads_join();
    tri_log_set(NULL, NULL, 0);
    return check_now_ms() - start;
}

static double ask_and_wait(void)
{
    const double start = check_now_ms();
    ask();
    return await(start);
}

static void answered(int n, const char *const *lines)
{
    CHECK_MSG(heard.answers == n, "%d lines, expected %d", heard.answers, n);
    for (int i = 0; i < n && i < heard.answers; i++)
        CHECK_MSG(strcmp(heard.answer[i], lines[i]) == 0, "line %d is \"%s\"", i, heard.answer[i]);
}

static void noted(const char *words)
{
    CHECK_MSG(heard.notes == (words != NULL), "%d notes", heard.notes);
    if (words != NULL)
        CHECK_MSG(strstr(heard.note, words) != NULL, "the note is \"%s\"", heard.note);
}

/* ------------------------------------------------------------------------------------ the server */

enum { REPLIES = 3 };

struct server {
    const char *replies[REPLIES]; /* one for each line that comes; NULL: reads no more */
    bool slow;                    /* byte by byte */
    bool stays;                   /* does not close before the client does */
    int family, listener, port;
    pthread_t thread;
    int accepted;
    char said[256]; /* by the client */
    size_t used;
};

static bool read_line(struct server *server, int fd)
{
    while (server->used + 1 < sizeof server->said) {
        char *byte = &server->said[server->used];
        if (read(fd, byte, 1) != 1)
            return false;
        server->used++;
        if (*byte == '\n')
            return true;
    }
    return false;
}

static void reply(const struct server *server, int fd, const char *text)
{
    const size_t bytes = strlen(text);
    const size_t step = server->slow ? 1 : bytes;
    for (size_t at = 0; at < bytes && send(fd, text + at, step, MSG_NOSIGNAL) > 0; at += step)
        ;
}

static void *serve(void *argument)
{
    struct server *server = argument;
    const struct timeval limit = {PLENTY_S, 0};
    const int one = 1;
    char byte;
    CHECK(setsockopt(server->listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    const int fd = accept(server->listener, NULL, NULL);
    if (fd < 0)
        return NULL;
    server->accepted++;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof one) == 0);
    for (int i = 0; i < REPLIES && server->replies[i] != NULL && read_line(server, fd); i++)
        reply(server, fd, server->replies[i]);
    if (server->stays)
        while (read(fd, &byte, 1) > 0)
            ;
    (void)close(fd);
    return NULL;
}

static bool listen_on(struct server *server)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *address =
        server->family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t length = server->family == AF_INET6 ? sizeof six : sizeof four;
    server->listener = socket(server->family, SOCK_STREAM, 0);
    if (server->listener < 0 || bind(server->listener, address, length) != 0 ||
        listen(server->listener, 8) != 0 || getsockname(server->listener, address, &length) != 0)
        return false;
    server->port = ntohs(server->family == AF_INET6 ? six.sin6_port : four.sin_port);
    return true;
}

static void name_address(const char *host, int port)
{
    char address[64];
    (void)snprintf(address, sizeof address, "%s:%d", host, port);
    CHECK(setenv("NCCL_RAS_ADDR", address, 1) == 0);
}

static bool begin(struct server *server, const char *name)
{
    check_begin("RAS: %s", name);
    server->family = server->family == 0 ? AF_INET : server->family;
    if (!CHECK(listen_on(server)))
        return false;
    name_address("127.0.0.1", server->port);
    return CHECK(pthread_create(&server->thread, NULL, serve, server) == 0);
}

static void end(struct server *server)
{
    CHECK(shutdown(server->listener, SHUT_RDWR) == 0); /* ends an accept */
    CHECK(pthread_join(server->thread, NULL) == 0);
    (void)close(server->listener);
    check_end();
}

/* ---------------------------------------------------------------------------------- good answers */

static const char *const status_lines[] = {"NCCL RAS: NCCL version 2.28.9", "NCCL RAS: Job summary",
                                           "NCCL RAS:   rank?7?? is dead?"};

static void answers(bool slow)
{
    struct server server = {.replies = {HELLO, "OK\n",
                                        "NCCL version 2.28.9\n\nJob summary\n\t rank\x01"
                                        "7\xc3\xa9 is dead\x7f\n"},
                            .slow = slow};
    if (begin(&server, slow ? "a right answer, byte by byte" : "a right answer")) {
        CHECK(ask_and_wait() < BOUND_MS);
        answered(3, status_lines);
        noted(NULL);
        end(&server);
        CHECK_MSG(strcmp(server.said, QUESTIONS) == 0, "asked \"%s\"", server.said);
    }
}

/* NCCL takes the first address of the name "localhost", so either must be found. */
static void addresses(int family, const char *host)
{
    static const char *const lines[] = {"NCCL RAS: here"};
    struct server server = {.replies = {HELLO, "OK\n", "here\n"}, .family = family};
    char name[64];
    (void)snprintf(name, sizeof name, "%s over version %d", host, family == AF_INET6 ? 6 : 4);
    if (begin(&server, name)) {
        name_address(host, server.port);
        (void)ask_and_wait();
        answered(1, lines);
        noted(NULL);
        end(&server);
    }
}

/* The log cuts a line at 1024. */
static void long_line(void)
{
    static char line[2002];
    struct server server = {.replies = {HELLO, "OK\n", line}};
    memset(line, 'x', 2000);
    line[2000] = '\n';
    if (begin(&server, "a line too long for the log")) {
        (void)ask_and_wait();
        CHECK(heard.answers == 3);
        for (int i = 0; i < 3; i++)
            CHECK(strlen(heard.answer[i]) == (i < 2 ? 900u : 200u) + strlen("NCCL RAS: "));
        noted(NULL);
        end(&server);
    }
}

/* The answer is about all communicators: a question while one is open is the same question. */
static void twice(void)
{
    struct server server = {.replies = {HELLO, "OK\n", "here\n"}, .stays = true};
    if (begin(&server, "two questions at a time")) {
        const double start = check_now_ms();
        ask();
        tri_nccl_ras_ask();
        CHECK(tri_nccl_threads(TRI_NCCL_TASKS) <= 1);
        (void)await(start);
        CHECK(heard.answers == 1 && heard.notes == 1);
        end(&server);
        CHECK(server.accepted == 1);
    }
}

/* ----------------------------------------------------------------------------------- bad answers */

/* A server that says this and then closes, or stays silent; what is logged of it. */
static const struct bad {
    const char *name;
    const char *replies[REPLIES];
    bool stays;
    int n; /* lines */
    const char *lines[2];
    const char *note;
} bads[] = {
    {"all at once", {HELLO "OK\nhere\n", "", ""}, false, 1, {"NCCL RAS: here"}, NULL},
    {"a silent server", {NULL}, true, 0, {NULL}, "it has not answered all within 2 s"},
    {"silent after the greeting",
     {HELLO, ""},
     true,
     0,
     {NULL},
     "it has not answered all within 2 s"},
    {"silent within the status",
     {HELLO, "OK\n", "one\ntw"},
     true,
     2,
     {"NCCL RAS: one", "NCCL RAS: tw"},
     "it has not answered all within 2 s"},
    {"closes at once", {""}, false, 0, {NULL}, "it has closed the connection"},
    {"closes after the greeting", {HELLO, ""}, false, 0, {NULL}, "it has closed the connection"},
    {"closes within a reply", {"SERVER PROT"}, false, 0, {NULL}, "it has closed the connection"},
    {"closes within a line",
     {HELLO, "OK\n", "one\ntw"},
     false,
     2,
     {"NCCL RAS: one", "NCCL RAS: tw"},
     NULL},
    {"closes without a status", {HELLO, "OK\n", ""}, false, 0, {NULL}, NULL},
    {"another protocol", {"220 mail ready\n"}, true, 0, {NULL}, "does not speak"},
    {"a reply too short", {"SERVER\n"}, true, 0, {NULL}, "does not speak"},
    {"garbage",
     {"\x7f"
      "ELF\x02\x01\x01\xff\n\n"},
     true,
     0,
     {NULL},
     "does not speak"},
    {"the time limit is refused", {HELLO, "ERROR: no\n"}, true, 0, {NULL}, "does not speak"},
};

static void bad(const struct bad *of)
{
    struct server server = {.stays = of->stays};
    memcpy(server.replies, of->replies, sizeof server.replies);
    if (begin(&server, of->name)) {
        const double ms = ask_and_wait();
        CHECK_MSG(ms < BOUND_MS + SLACK_MS, "it took %.0f ms", ms);
        answered(of->n, of->lines);
        noted(of->note);
        end(&server);
    }
}

/* Lines of 64 bytes, and more of them than are read. */
static void too_long(void)
{
    enum { EACH = 64, BYTES = 4 * 65536 };
    char *status = malloc(BYTES + 1);
    struct server server = {.replies = {HELLO, "OK\n", status}, .stays = true};
    if (status == NULL)
        return;
    for (int i = 0; i < BYTES; i++)
        status[i] = "x\n"[i % EACH == EACH - 1];
    status[BYTES] = '\0';
    if (begin(&server, "an answer without an end")) {
        CHECK(ask_and_wait() < BOUND_MS);
        CHECK_MSG(heard.answers == 65536 / EACH, "%d lines", heard.answers);
        noted("more than 64 KiB");
        end(&server);
    }
    free(status);
}

/* ------------------------------------------------------------------------------------- no server */

static void unreachable(const char *host, int port, const char *words)
{
    name_address(host, port);
    CHECK(ask_and_wait() < BOUND_MS / 2.0);
    answered(0, NULL);
    noted(words);
}

static void nobody(void)
{
    struct server server = {.family = AF_INET};
    check_begin("RAS: no server, no address, switched off");
    if (CHECK(listen_on(&server))) {
        (void)close(server.listener);
        unreachable("127.0.0.1", server.port, "connecting: Connection refused");
        unreachable("localhost", server.port, "connecting: Connection refused");
        unreachable("example.invalid", server.port, "expected localhost or the numbers of a host");
        unreachable("", server.port, "expected localhost or the numbers of a host");
        unreachable("[", server.port, "expected localhost or the numbers of a host");
        unreachable("127.0.0.1:x", 1 << 20, "expected localhost or the numbers of a host");
        CHECK(setenv("NCCL_RAS_ADDR", "127.0.0.1", 1) == 0);
        (void)ask_and_wait();
        noted("NCCL RAS at 127.0.0.1: expected host:port");
        CHECK(setenv("NCCL_RAS_ENABLE", "0", 1) == 0);
        (void)ask_and_wait();
        noted(NULL);
        CHECK(unsetenv("NCCL_RAS_ENABLE") == 0);
    }
    check_end();
}

static bool has_ipv6(void)
{
    struct server server = {.family = AF_INET6};
    const bool has = listen_on(&server);
    if (server.listener >= 0)
        (void)close(server.listener);
    return has;
}

int main(void)
{
    answers(false);
    answers(true);
    addresses(AF_INET, "localhost");
    if (has_ipv6()) {
        addresses(AF_INET6, "localhost");
        addresses(AF_INET6, "[::1]");
    }
    long_line();
    twice();
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++)
        bad(&bads[i]);
    too_long();
    nobody();
    return check_finish("ras_test");
}
