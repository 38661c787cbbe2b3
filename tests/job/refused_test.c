/* The ranks of a job meet: who does not know its secret, who has another's rank, and strangers are no
 * obstacle. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "csrc/job/place.h"
#include "tests/job/hall.h"

/* ----------------------------------------------------------------------------------------- secrets */

static void with_secret(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK(setenv("TRIBUTARY_SECRET", "sesame", 1) == 0);
    CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
}

/* Rank 2 has another one, or none. */
static void other_secret(int index, int n, void *argument)
{
    const char *other = argument;
    (void)n;
    if (index < 2 || other != NULL)
        CHECK(setenv("TRIBUTARY_SECRET", index < 2 ? "sesame" : other, 1) == 0);
    if (index == 2) {
        CHECK_STATUS(hall_meet(index, index, HALL_SHORT_MS), TRIB_ERR_MISMATCH);
        CHECK_DETAIL(", a rank 0 refused rank 2 of 3: it has another TRIBUTARY_SECRET");
        CHECK(hall_no_id(index));
        return;
    }
    CHECK_STATUS(hall_meet(index, index, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 2 of 3 did not come");
    CHECK_DETAIL("one that claimed to be rank 2 was refused");
}

/* As TRIBUTARY_SECRET=$(cat FILE) leaves it on all ranks where there is no such file. */
static void empty_secret(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK(setenv("TRIBUTARY_SECRET", "", 1) == 0);
    CHECK_STATUS(hall_meet(index, index, HALL_SHORT_MS), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL("TRIBUTARY_SECRET is set, and empty");
    CHECK(hall_no_id(index));
}

/* Rank 1 believes in another number of ranks, or in another job at the same ports. */
static void other_job(int index, int n, void *argument)
{
    (void)n;
    if (index == 1 && argument == NULL)
        hall->job.n_ranks = 3;
    else if (index == 1)
        hall->job.token += (TRI_PLACE_HIGHEST + 1 - TRI_PLACE_LOWEST) / TRI_PLACE_PORTS;
    CHECK_STATUS(hall_meet(index, index, HALL_SHORT_MS),
                 index == 0 ? TRIB_ERR_TIMEOUT : TRIB_ERR_MISMATCH);
}

/* other_job in processes: hall is shared, so a copy of the own changes nothing for others. */
static void with_own_hall(int index, int n, void *argument)
{
    struct hall *shared = hall;
    static struct hall own;
    own.job = shared->job;
    hall = &own;
    other_job(index, n, argument);
    hall = shared;
}

/* Two jobs that try the same ports: each finds its own. */
static void two_jobs(int index, int n, void *argument)
{
    static struct hall own;
    struct hall *shared = hall;
    (void)n;
    (void)argument;
    own.job = shared->job;
    own.job.token +=
        (uint64_t)(index / 2) * ((TRI_PLACE_HIGHEST + 1 - TRI_PLACE_LOWEST) / TRI_PLACE_PORTS);
    hall = &own;
    CHECK_OK(hall_meet(index, index % 2, HALL_LONG_MS));
    shared->ids[index] = own.ids[index];
}

static void secrets(void)
{
    static char wrong[] = "Sesame", many[] = "x";
    check_begin("a secret that all know");
    hall_new(3);
    hall_run(3, with_secret, NULL);
    hall_check_ids(3);
    check_end();
    check_begin("a rank with another secret");
    hall_new(3);
    hall_run(3, other_secret, wrong);
    check_end();
    check_begin("a rank without the secret");
    hall_new(3);
    hall_run(3, other_secret, NULL);
    check_end();
    check_begin("a secret that is empty");
    hall_new(2);
    hall_run(2, empty_secret, NULL);
    check_end();
    check_begin("a rank of another size");
    hall_new(2);
    hall_run(2, with_own_hall, NULL);
    check_end();
    check_begin("a rank of another job");
    hall_new(2);
    hall_run(2, with_own_hall, many);
    check_end();
    check_begin("two jobs at the same ports");
    hall_new(2);
    hall_run(4, two_jobs, NULL);
    CHECK(!hall_no_id(0) && memcmp(&hall->ids[0], &hall->ids[1], sizeof(trib_id)) == 0);
    CHECK(!hall_no_id(2) && memcmp(&hall->ids[2], &hall->ids[3], sizeof(trib_id)) == 0);
    CHECK(memcmp(&hall->ids[0], &hall->ids[2], sizeof(trib_id)) != 0);
    check_end();
}

/* ------------------------------------------------------------------------------------ double ranks */

/* Processes 1 and 2 are both rank 1; rank 2 waits until one of them has been refused. */
static void double_rank(int index, int n, void *argument)
{
    (void)argument;
    (void)n;
    if (index == 3)
        check_sleep_ms(1000);
    (void)hall_meet(index, index == 3 ? 2 : index == 0 ? 0 : 1, HALL_LONG_MS);
}

static void double_zero(int index, int n, void *argument)
{
    (void)argument;
    (void)n;
    if (index > 0)
        check_sleep_ms(index == 1 ? 300 : 1000);
    (void)hall_meet(index, index == 2, HALL_LONG_MS);
}

static void check_refused(int refused, int first, int rank)
{
    char words[64];
    CHECK(hall->statuses[refused] == TRIB_ERR_INVALID_USAGE && hall_no_id(refused));
    (void)snprintf(words, sizeof words, "two processes have come as rank %d of", rank);
    CHECK_MSG(strstr(hall->what[refused], words) != NULL, "\"%s\"", hall->what[refused]);
    (void)snprintf(words, sizeof words, ": rank %d (process ", rank);
    CHECK_MSG(strstr(hall->what[refused], words) != NULL, "\"%s\"", hall->what[refused]);
    CHECK(hall->statuses[first] == TRIB_OK);
}

static void doubles(void)
{
    check_begin("two processes with one rank: the second is refused, by name");
    hall_new(3);
    hall_run(4, double_rank, NULL);
    const int refused = hall->statuses[1] == TRIB_OK ? 2 : 1;
    check_refused(refused, 3 - refused, 1);
    CHECK(hall->statuses[0] == TRIB_OK && hall->statuses[3] == TRIB_OK);
    CHECK(memcmp(&hall->ids[0], &hall->ids[3 - refused], sizeof(trib_id)) == 0);
    check_end();
    check_begin("two processes with rank 0");
    hall_new(2);
    hall_run(3, double_zero, NULL);
    check_refused(1, 0, 0);
    CHECK(hall->statuses[2] == TRIB_OK);
    check_end();
}

/* ---------------------------------------------------------------------------------------- strangers */

static int open_socket(uint16_t port, bool listens)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    if (listens)
        CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 64) == 0);
    else if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Waits until rank 0 listens. */
static int connect_when_there(uint16_t port)
{
    const double end = check_now_ms() + HALL_LONG_MS;
    int fd = -1;
    while (fd < 0 && check_now_ms() < end) {
        fd = open_socket(port, false);
        check_sleep_ms(5);
    }
    CHECK(fd >= 0);
    return fd;
}

/* Process 2 connects: silently, and with bytes of its own, and is no obstacle to rank 1. */
static void stranger_connects(int index, int n, void *argument)
{
    char bytes[500];
    (void)argument;
    (void)n;
    if (index < 2) {
        if (index == 1)
            children_meet(&hall->arrived[0], 2);
        const double start = check_now_ms();
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        CHECK(index == 0 || check_now_ms() - start < 3000);
        return;
    }
    for (int i = 0; i < 60; i++) {
        const int fd = connect_when_there(hall_port());
        memset(bytes, 11 * i, sizeof bytes);
        if (i % 2 != 0)
            (void)!send(fd, bytes, (size_t)i * 8, MSG_NOSIGNAL);
    }
    children_meet(&hall->arrived[0], 2);
}

/* Process 2 holds the first port, and answers with bytes of its own, or not at all. */
static void stranger_listens(int index, int n, void *argument)
{
    static const char page[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 10000\r\n\r\n<html> ";
    const bool speaks = argument != NULL;
    (void)n;
    if (index < 2) {
        children_meet(&hall->arrived[0], 3);
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        children_meet(&hall->arrived[1], 3);
        return;
    }
    const int listener = open_socket(hall_port(), true);
    struct pollfd comes = {.fd = listener, .events = POLLIN};
    children_meet(&hall->arrived[0], 3);
    while (atomic_load(&hall->arrived[1]) < 2)
        if (poll(&comes, 1, 20) == 1) {
            const int fd = accept(listener, NULL, NULL);
            if (speaks)
                (void)!send(fd, page, sizeof page - 1, MSG_NOSIGNAL);
        }
    children_meet(&hall->arrived[1], 3);
}

/* All ports of rank 0 are taken. */
static void no_port(int index, int n, void *argument)
{
    int fds[TRI_PLACE_PORTS];
    const int ports = hall->job.port == 0 ? TRI_PLACE_PORTS : 1;
    (void)argument;
    (void)n;
    for (int i = 0; i < ports; i++)
        fds[i] = open_socket((uint16_t)(hall_port() + i), true);
    CHECK_STATUS(hall_meet(index, 0, HALL_SHORT_MS), TRIB_ERR_SYSTEM);
    CHECK_DETAIL(ports == 1 ? "rank 0 of 2 cannot listen at port 6"
                            : "rank 0 of 2 cannot listen at ports 6");
    CHECK_DETAIL("Address already in use");
    for (int i = 0; i < ports; i++)
        (void)close(fds[i]);
}

/* Who looks for rank 0 and finds something else says so. */
static void wrong_service(int index, int n, void *argument)
{
    const int fd = open_socket(hall_port(), true);
    (void)argument;
    (void)n;
    CHECK_STATUS(hall_meet(index, 1, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("something else answers there");
    (void)close(fd);
}

/* Nobody answers at all, as where a firewall drops what comes: here the listener is full. */
static void silence(int index, int n, void *argument)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(hall_port())};
    const int listener = open_socket(hall_port(), true);
    int fds[4];
    (void)argument;
    (void)n;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(listen(listener, 0) == 0);
    for (int i = 0; i < 4; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fds[i], (struct sockaddr *)&at, sizeof at);
    }
    CHECK_STATUS(hall_meet(index, 1, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("nobody listens there: Connection timed out");
    for (int i = 0; i < 4; i++)
        (void)close(fds[i]);
    (void)close(listener);
}

static void strangers(void)
{
    static char speaks[] = "yes";
    check_begin("strangers connect");
    hall_new(2);
    hall_run(3, stranger_connects, NULL);
    hall_check_ids(2);
    check_end();
    for (int i = 0; i < 2; i++) {
        check_begin("a service that %s has the first port", i == 0 ? "is silent" : "speaks");
        hall_new(2);
        hall_run(3, stranger_listens, i == 0 ? NULL : speaks);
        hall_check_ids(2);
        check_end();
    }
    check_begin("no port is free");
    hall_new(2);
    hall_run(1, no_port, NULL);
    check_end();
    check_begin("the port that was given is not free");
    hall_new(2);
    hall->job.port = hall_port();
    hall_run(1, no_port, NULL);
    check_end();
    check_begin("something else listens where rank 0 should");
    hall_new(2);
    hall->job.port = hall_port();
    hall_run(1, wrong_service, NULL);
    check_end();
    check_begin("nobody answers");
    hall_new(2);
    hall->job.port = hall_port();
    hall_run(1, silence, NULL);
    check_end();
}

int main(void)
{
    hall = children_share(sizeof *hall);
    secrets();
    doubles();
    strangers();
    children_unshare(hall, sizeof *hall);
    return check_finish("refused_test");
}
