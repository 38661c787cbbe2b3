/* What else is at the ports of a meeting, or leaves rank 0 no room: a listener that knows the handshake,
 * one of the other kind of address, connections without end, no descriptors. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "csrc/peers/message.h"
#include "csrc/peers/proof.h"
#include "tests/job/hall.h"

enum { FLOOD = 600, GREETERS = 2 + 16 };

/* Of IPv4 or of IPv6 alone; -1 where that is not to be had. */
static int listen_at(int family, uint16_t port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    const int fd = socket(family, SOCK_STREAM, 0), on = 1;
    memset(&at, 0, sizeof at);
    at.any.sa_family = (sa_family_t)family;
    at.v4.sin_port = htons(port); /* at the same place in both */
    if (family == AF_INET)
        at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &at.any, sizeof at) == 0 && listen(fd, 64) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* ------------------------------------------------------------------------------------ the handshake */

/* Answer a hello as rank 0 would, with a challenge, and nothing after it. */
static void challenge(int fd)
{
    uint8_t bytes[TRI_PEER_HEADER + TRI_NONCE];
    struct tri_peer_message hello;
    if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != (ssize_t)sizeof bytes ||
        tri_peer_parse(bytes, sizeof bytes, &hello) != TRI_PEER_WHOLE)
        return;
    const struct tri_peer_message answer = {
        .type = TRI_PEER_CHALLENGE, .receiver = hello.sender, .length = TRI_NONCE};
    tri_peer_header(bytes, &answer);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

/* Process 2 holds the first port, and keeps every connection open. */
static void challenger(int index, int n, void *argument)
{
    const int listener = index == 2 ? listen_at(AF_INET, hall_port()) : -1;
    struct pollfd comes = {.fd = listener, .events = POLLIN};
    (void)argument;
    children_meet(&hall->arrived[0], n);
    if (index < 2) {
        const double start = check_now_ms();
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        CHECK(check_now_ms() - start < HALL_LONG_MS / 2);
        children_meet(&hall->arrived[1], n);
        return;
    }
    while (atomic_load(&hall->arrived[1]) < 2)
        if (poll(&comes, 1, 20) == 1)
            challenge(accept(listener, NULL, NULL));
    children_meet(&hall->arrived[1], n);
}

/* ----------------------------------------------------------------------------------------- listeners */

/* Process 2 has the first port of IPv6 alone, so that rank 0 could have that of IPv4. */
static void other_family(int index, int n, void *argument)
{
    const int listener = index == 2 ? listen_at(AF_INET6, hall_port()) : -1;
    (void)argument;
    children_meet(&hall->arrived[0], n);
    if (index < 2)
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
    children_meet(&hall->arrived[1], n);
    if (listener >= 0)
        (void)close(listener);
}

static bool has_v6(void)
{
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 here = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const bool has = fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0;
    if (fd >= 0)
        (void)close(fd);
    return has;
}

/* ---------------------------------------------------------------------------------------------- room */

static _Atomic int warnings;

static void count_warning(void *context, int32_t level, const char *line)
{
    (void)context;
    if (level <= TRIB_LOG_WARN && strstr(line, "cannot accept a connection") != NULL)
        atomic_fetch_add(&warnings, 1);
}

/* Rank 0 has a descriptor for its listener, and none for whoever comes. */
static void no_descriptors(int index, int n, void *argument)
{
    struct rlimit limit;
    (void)argument;
    (void)n;
    if (index == 0) {
        CHECK_OK(trib_log_set(count_warning, NULL, TRIB_LOG_WARN));
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        const int first = dup(0); /* of those that are free */
        CHECK(first >= 0 && close(first) == 0);
        limit.rlim_cur = (rlim_t)first + 3; /* epoll, timer, listener */
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    }
    CHECK_STATUS(hall_meet(index, index, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    if (index > 0)
        return;
    CHECK_DETAIL("rank 1 of 2 did not come");
    CHECK_DETAIL("rank 0 could not accept a connection: Too many open files");
    CHECK_MSG(atomic_load(&warnings) == 1, "%d warnings", atomic_load(&warnings));
}

static int call(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* Process 2 opens connections without end, and says nothing on any; rank 0 keeps few of them. */
static void flood(int index, int n, void *argument)
{
    int fds[FLOOD];
    (void)argument;
    if (index < 2) {
        if (index == 1)
            children_meet(&hall->arrived[0], n - 1);
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        return;
    }
    for (int i = 0; i < FLOOD; i++)
        while ((fds[i] = call(hall_port())) < 0)
            check_sleep_ms(5);
    children_meet(&hall->arrived[0], n - 1);
    for (int i = 0; i < FLOOD; i++) {
        (void)close(fds[i]);
        fds[i] = call(hall_port());
    }
}

enum { KEPT = 100, AT_ONCE = 4, SLOW_MS = 100 };

/* Until the ranks have met: connect without end, say nothing, and keep the last KEPT open. */
static void keep_connecting(void)
{
    int fds[KEPT], n = 0;
    while (atomic_load(&hall->arrived[0]) < 2) {
        for (int i = 0; i < AT_ONCE; i++, n++) {
            if (n >= KEPT)
                (void)close(fds[n % KEPT]);
            fds[n % KEPT] = call(hall_port());
        }
        check_sleep_ms(1);
    }
}

/* Pass on what comes from either end until one of them ends; to the first it takes a while. */
static void pass_slowly(int first, int second)
{
    struct pollfd ends[] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
    while (poll(ends, 2, HALL_LONG_MS) > 0)
        for (int i = 0; i < 2; i++) {
            char bytes[512];
            const ssize_t n = ends[i].revents == 0 ? 0 : recv(ends[i].fd, bytes, sizeof bytes, 0);
            if (ends[i].revents != 0 && n <= 0)
                return;
            if (i == 1 && n > 0)
                check_sleep_ms(SLOW_MS);
            if (n > 0)
                (void)!send(ends[1 - i].fd, bytes, (size_t)n, MSG_NOSIGNAL);
        }
}

/* The far way of rank 1 to rank 0, at the port behind. */
static void far_way(void)
{
    const int listener = listen_at(AF_INET, (uint16_t)(hall_port() + 1));
    struct pollfd comes = {.fd = listener, .events = POLLIN};
    while (atomic_load(&hall->arrived[0]) < 2)
        if (poll(&comes, 1, 20) == 1) {
            const int first = accept(listener, NULL, NULL), second = call(hall_port());
            if (second >= 0)
                pass_slowly(first, second);
            (void)close(first);
            (void)close(second);
        }
}

/* Rank 1 is far, and a stranger connects faster than its handshake takes. */
static void flood_and_distance(int index, int n, void *argument)
{
    static struct hall own;
    struct hall *shared = hall;
    (void)n;
    (void)argument;
    if (index == 2)
        keep_connecting();
    if (index == 3)
        far_way();
    if (index >= 2)
        return;
    own.job = shared->job;
    own.job.port = hall_port() + index;
    hall = &own;
    CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
    hall = shared;
    hall->ids[index] = own.ids[index];
    atomic_fetch_add(&hall->arrived[0], 1);
}

/* Say hello as rank 1, which anybody can. */
static void say_hello(int fd)
{
    uint8_t bytes[TRI_PEER_HEADER + TRI_NONCE] = {0};
    const struct tri_peer_message hello = {
        .type = TRI_PEER_HELLO, .sender = 1, .length = TRI_NONCE};
    tri_peer_header(bytes, &hello);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

/* Process 2 has every slot of rank 0, with connections that have said hello and say no more. */
static void all_say_hello(int index, int n, void *argument)
{
    int fds[GREETERS];
    (void)argument;
    if (index < 2) {
        if (index == 1)
            children_meet(&hall->arrived[0], n - 1);
        const double start = check_now_ms();
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        CHECK(index == 0 || check_now_ms() - start < 1500); /* before their time is over: 2 s */
        children_meet(&hall->arrived[1], n);
        return;
    }
    for (int i = 0; i < GREETERS; i++) {
        while ((fds[i] = call(hall_port())) < 0)
            check_sleep_ms(5);
        say_hello(fds[i]);
    }
    check_sleep_ms(50);
    children_meet(&hall->arrived[0], n - 1);
    children_meet(&hall->arrived[1], n);
}

int main(void)
{
    hall = children_share(sizeof *hall);
    check_begin("a listener that challenges and is silent");
    hall_new(2);
    hall_run(3, challenger, NULL);
    hall_check_ids(2);
    check_end();
    check_begin("a port that is taken for IPv6 alone");
    hall_new(2);
    memcpy(hall->job.host, "::1", sizeof "::1");
    if (has_v6()) {
        hall_run(3, other_family, NULL);
        hall_check_ids(2);
    } else {
        check_skip("no IPv6 here");
    }
    check_end();
    check_begin("rank 0 has no descriptors");
    hall_new(2);
    hall_run(2, no_descriptors, NULL);
    check_end();
    check_begin("connections without end");
    hall_new(2);
    hall_run(3, flood, NULL);
    hall_check_ids(2);
    check_end();
    check_begin("connections without end, and a rank that is far");
    hall_new(2);
    hall_run(4, flood_and_distance, NULL);
    hall_check_ids(2);
    check_end();
    check_begin("strangers that say hello have every slot");
    hall_new(2);
    hall->job.port = hall_port();
    hall_run(3, all_say_hello, NULL);
    hall_check_ids(2);
    check_end();
    children_unshare(hall, sizeof *hall);
    return check_finish("hostile_test");
}
