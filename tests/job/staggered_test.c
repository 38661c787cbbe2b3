/* The ranks of a job meet that do not start together: whose time is over first, whose port becomes free
 * later, who was refused by somebody that has gone, and connections that end on one side. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "csrc/job/place.h"
#include "tests/job/hall.h"

enum {
    PROVEN = 2 * (48 + 32),   /* bytes of a rank's hello and its proof */
    COME = PROVEN + 48 + 224, /* and its arrival */
    EARLY_MS = 1500,
    LATE_MS = 7000,
    GROUPS = (TRI_PLACE_HIGHEST + 1 - TRI_PLACE_LOWEST) / TRI_PLACE_PORTS
};

/* --------------------------------------------------------------------------------- whose time is over */

/* Rank 1 comes first and has little time, rank 0 later; rank 2 never, or when rank 1 has gone. */
static void early(int index, int n, void *argument)
{
    const bool never = argument != NULL;
    (void)n;
    if (index == 1) {
        CHECK_STATUS(hall_meet(index, 1, EARLY_MS), TRIB_ERR_TIMEOUT);
        CHECK_DETAIL("trib_job_meet: rank 2 of 3 did not come to rank 0 at 127.0.0.1, port ");
        CHECK_DETAIL("before the time of rank 1 was over; rank 0 is process ");
        return;
    }
    check_sleep_ms(index == 0 ? 700 : 4500);
    CHECK_STATUS(hall_meet(index, index, index == 0 ? LATE_MS : HALL_LONG_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL(never ? "trib_job_meet: rank 2 of 3 did not come to rank 0 at 127.0.0.1, port "
                       : "trib_job_meet: rank 1 of 3 came to rank 0 at 127.0.0.1, port ");
    CHECK_DETAIL(never ? "within 7000 ms; rank 1 came and left"
                       : "and left before all were there, within 7000 ms");
}

static void whose_time(void)
{
    static char never[] = "rank 2";
    check_begin("a rank whose time is over hears from rank 0 who is missing");
    hall_new(3);
    hall_run(2, early, never);
    check_end();
    check_begin("a rank that has left is not called one that did not come");
    hall_new(3);
    hall_run(3, early, NULL);
    check_end();
}

/* -------------------------------------------------------------------------------- what is there first */

/* Process 2 is rank 0 of another job at the same ports, which ends; the own comes when a refusal that
 * stays would be believed. */
static void refused_once(int index, int n, void *argument)
{
    static struct hall other;
    struct hall *shared = hall;
    (void)n;
    (void)argument;
    if (index == 0)
        check_sleep_ms(12000);
    if (index < 2) {
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        return;
    }
    other.job = shared->job;
    other.job.token += GROUPS;
    hall = &other;
    CHECK_STATUS(hall_meet(0, 0, EARLY_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("one that claimed to be rank 1 was refused");
    hall = shared;
}

static struct sockaddr_in here(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return at;
}

static int listen_at(uint16_t port)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    const struct sockaddr_in at = here(port);
    CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 64) == 0);
    return fd;
}

/* Process 2 still has the port when rank 0 comes, as the last attempt of the same job may. */
static void port_for_a_while(int index, int n, void *argument)
{
    (void)argument;
    if (index < 2) {
        children_meet(&hall->arrived[0], n);
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        return;
    }
    const int fd = listen_at(hall_port());
    children_meet(&hall->arrived[0], n);
    check_sleep_ms(700);
    (void)close(fd);
}

static void there_first(void)
{
    check_begin("a refusal by somebody who has gone");
    hall_new(2);
    hall_run(3, refused_once, NULL);
    hall_check_ids(2);
    check_end();
    check_begin("a port that becomes free");
    hall_new(2);
    hall->job.port = hall_port();
    hall_run(3, port_for_a_while, NULL);
    hall_check_ids(2);
    check_end();
}

/* --------------------------------------------------------------------------- ends of a connection */

/* Pass on what comes from either end; until `most` bytes of the first have passed, or either ends. */
static void pass_on(int first, int second, size_t most)
{
    struct pollfd ends[] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
    for (size_t passed = 0; passed < most;) {
        char bytes[512];
        CHECK(poll(ends, 2, HALL_LONG_MS) > 0);
        for (int i = 0; i < 2; i++) {
            const bool limited = i == 0 && most - passed < sizeof bytes;
            if (ends[i].revents == 0)
                continue;
            const ssize_t n = recv(ends[i].fd, bytes, limited ? most - passed : sizeof bytes, 0);
            if (n <= 0)
                return;
            (void)!send(ends[1 - i].fd, bytes, (size_t)n, MSG_NOSIGNAL);
            passed += i == 0 ? (size_t)n : 0;
        }
    }
}

static int connect_to(uint16_t port)
{
    const double end = check_now_ms() + HALL_LONG_MS;
    const struct sockaddr_in at = here(port);
    for (;;) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0)
            return fd;
        (void)close(fd);
        if (!CHECK(check_now_ms() < end))
            return -1;
        check_sleep_ms(10);
    }
}

/* Rank 1 reaches rank 0 through process 3, at the next port. Of its first connection rank 0 hears no
 * more after `argument` bytes, and not that it has ended; the next goes through. Then comes rank 2. */
static void one_side_ends(int index, int n, void *argument)
{
    (void)n;
    if (index < 3) {
        struct hall *shared = hall;
        static struct hall own;
        own.job = shared->job;
        own.job.port = hall_port() + (index == 1);
        hall = &own;
        if (index == 2)
            children_meet(&shared->arrived[0], 2);
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        shared->ids[index] = own.ids[index];
        hall = shared;
        return;
    }
    const int listener = listen_at(hall_port() + 1);
    const int first = accept(listener, NULL, NULL), kept = connect_to(hall_port());
    pass_on(first, kept, *(const size_t *)argument);
    (void)close(first);
    const int second = accept(listener, NULL, NULL), other = connect_to(hall_port());
    pass_on(second, other, COME);
    children_meet(&hall->arrived[0], 2);
    pass_on(second, other, SIZE_MAX);
    (void)close(kept);
}

static void ends_apart(void)
{
    static size_t bytes[] = {PROVEN, COME};
    for (int i = 0; i < 2; i++) {
        check_begin("a rank comes again, after a connection that rank 0 believes in; it has %s",
                    i == 0 ? "proved itself" : "come");
        hall_new(3);
        hall_run(4, one_side_ends, &bytes[i]);
        hall_check_ids(3);
        check_end();
    }
}

int main(void)
{
    hall = children_share(sizeof *hall);
    whose_time();
    there_first();
    ends_apart();
    children_unshare(hall, sizeof *hall);
    return check_finish("staggered_test");
}
