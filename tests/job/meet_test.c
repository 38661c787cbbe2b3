/* The ranks of a job meet, as processes that find each other by address alone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "csrc/job/place.h"
#include "tests/check.h"
#include "tests/children.h"
#include "tests/process.h"

enum { RANKS_MAX = 12, LONG_MS = 30000, SHORT_MS = 1200, CASE_MS = 60000, MEETINGS = 8 };

/* What the processes of a case share. */
struct hall {
    trib_job job; /* of all, but for the rank */
    trib_id ids[RANKS_MAX];
    trib_status statuses[RANKS_MAX];
    _Atomic int arrived[MEETINGS];
    char what[RANKS_MAX][640]; /* details */
};
static struct hall *hall;

static uint64_t new_token(void)
{
    static uint64_t last;
    return ((uint64_t)getpid() << 20) + 7 * ++last;
}

static void new_job(int n_ranks)
{
    memset(hall, 0, sizeof *hall);
    hall->job = (trib_job)TRIB_JOB_INIT;
    hall->job.n_ranks = n_ranks;
    hall->job.token = new_token();
    memcpy(hall->job.host, "127.0.0.1", sizeof "127.0.0.1");
}

static uint16_t first_port(void)
{
    return (uint16_t)tri_place_ports(&hall->job).first;
}

/* Process `index` meets as `rank`; what comes of it is kept. */
static trib_status meet_as(int index, int rank, uint32_t timeout_ms)
{
    trib_job job = hall->job;
    trib_id id = {{0}};
    job.rank = rank;
    const trib_status status = trib_job_meet(&id, &job, "host", timeout_ms);
    hall->ids[index] = id;
    hall->statuses[index] = status;
    if (status != TRIB_OK)
        (void)snprintf(hall->what[index], sizeof hall->what[index], "%s", trib_last_detail());
    return status;
}

static bool no_id(int index)
{
    const trib_id none = {{0}};
    return memcmp(&hall->ids[index], &none, sizeof none) == 0;
}

static void check_same_ids(int n)
{
    CHECK(!no_id(0));
    for (int i = 1; i < n; i++)
        CHECK_MSG(memcmp(&hall->ids[i], &hall->ids[0], sizeof(trib_id)) == 0, "process %d", i);
}

static void run(int n, void (*body)(int index, int n, void *argument), void *argument)
{
    struct child_end ends[RANKS_MAX];
    children_run(ends, n, CASE_MS, body, argument);
    for (int i = 0; i < n; i++)
        (void)children_check(&ends[i], i);
}

/* ---------------------------------------------------------------------------------- all that come */

static void all(int index, int n, void *argument)
{
    const int late = *(const int *)argument;
    (void)n;
    if (index == late)
        check_sleep_ms(300);
    CHECK_OK(meet_as(index, index, LONG_MS));
}

static void of_sizes(void)
{
    static const int sizes[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int late = -1;
        check_begin("%d ranks", sizes[i]);
        new_job(sizes[i]);
        run(sizes[i], all, &late);
        check_same_ids(sizes[i]);
        check_end();
    }
    for (int late = 0; late < 3; late++) {
        check_begin("rank %d of 3 comes late", late);
        new_job(3);
        run(3, all, &late);
        check_same_ids(3);
        check_end();
    }
}

/* At once after each other, on the same ports, and nothing stays open. */
static void thrice(int index, int n, void *argument)
{
    trib_id first;
    (void)n;
    (void)argument;
    CHECK_OK(meet_as(index, index, LONG_MS));
    first = hall->ids[index];
    const long descriptors = process_descriptors(), threads = process_threads();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(meet_as(index, index, LONG_MS));
        CHECK(memcmp(&first, &hall->ids[index], sizeof first) != 0);
    }
    CHECK(process_descriptors() == descriptors && process_threads() == threads);
}

static void again(void)
{
    check_begin("three meetings in a row");
    new_job(3);
    run(3, thrice, NULL);
    check_same_ids(3);
    check_end();
}

/* By name, and by the address of rank 0's choice. */
static void by_place(void)
{
    int late = -1;
    check_begin("at localhost, and a port that was given");
    new_job(2);
    hall->job.port = first_port() == 61000 ? 61007 : first_port() - 1;
    memcpy(hall->job.host, "localhost", sizeof "localhost");
    run(2, all, &late);
    check_same_ids(2);
    check_end();
    check_begin("at this machine's name");
    new_job(3);
    CHECK(gethostname(hall->job.host, sizeof hall->job.host - 1) == 0);
    if (tri_place_resolve(&(struct tri_peer_address){0}, hall->job.host) == NULL) {
        run(3, all, &late);
        check_same_ids(3);
    } else {
        check_skip("nobody knows the address of %s", hall->job.host);
    }
    check_end();
}

/* ----------------------------------------------------------------------------------------- missing */

/* Ranks 1 and 3 of 5 do not come. */
static void without_two(int index, int n, void *argument)
{
    static const int ranks[] = {0, 2, 4};
    const double start = check_now_ms();
    (void)n;
    (void)argument;
    CHECK_STATUS(meet_as(index, ranks[index], SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("ranks 1, 3 of 5 did not come to rank 0 at 127.0.0.1, port ");
    CHECK_DETAIL("within 1200 ms");
    CHECK(no_id(index));
    CHECK(check_now_ms() - start > SHORT_MS / 2 && check_now_ms() - start < SHORT_MS + 2500);
}

static void without_many(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK_STATUS(meet_as(index, 3 * index, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("ranks 1, 2, 4 to 6 of 7 did not come");
}

static void without_one(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK_STATUS(meet_as(index, index, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 2 of 3 did not come");
}

/* Alone: rank 0 is not there. */
static void without_0(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK_STATUS(meet_as(index, 1, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 1 of 2 got no id from rank 0 at 127.0.0.1, port ");
    CHECK_DETAIL("nobody listens there: Connection refused");
}

static void nowhere(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    memcpy(hall->job.host, "nowhere.invalid", sizeof "nowhere.invalid");
    CHECK_STATUS(meet_as(index, 1, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("from rank 0 at nowhere.invalid");
}

/* A rank that has come dies before the others have; one with its number comes after it. */
static void one_dies(int index, int n, void *argument)
{
    (void)argument;
    if (index == 1 && fork() == 0) {
        alarm(1);
        (void)meet_as(RANKS_MAX - 1, 1, LONG_MS);
        _exit(0);
    }
    if (index != 0)
        check_sleep_ms(index == 1 ? 1500 : 2000);
    CHECK_OK(meet_as(index, index, LONG_MS));
    (void)n;
}

static void missing(void)
{
    check_begin("two of five ranks do not come, and all others hear which");
    new_job(5);
    run(3, without_two, NULL);
    check_end();
    check_begin("several ranks in a row do not come");
    new_job(7);
    run(2, without_many, NULL);
    check_end();
    check_begin("one rank does not come");
    new_job(3);
    run(2, without_one, NULL);
    check_end();
    check_begin("rank 0 does not come");
    new_job(2);
    run(1, without_0, NULL);
    check_end();
    check_begin("a host that nobody knows");
    new_job(2);
    run(1, nowhere, NULL);
    check_end();
    check_begin("a rank that has come dies, and comes again");
    new_job(3);
    run(3, one_dies, NULL);
    check_same_ids(3);
    check_end();
}

/* ----------------------------------------------------------------------------------------- secrets */

static void with_secret(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK(setenv("TRIBUTARY_SECRET", "sesame", 1) == 0);
    CHECK_OK(meet_as(index, index, LONG_MS));
}

/* Rank 2 has another one, or none. */
static void other_secret(int index, int n, void *argument)
{
    const char *other = argument;
    (void)n;
    if (index < 2 || other != NULL)
        CHECK(setenv("TRIBUTARY_SECRET", index < 2 ? "sesame" : other, 1) == 0);
    if (index == 2) {
        CHECK_STATUS(meet_as(index, index, SHORT_MS), TRIB_ERR_MISMATCH);
        CHECK_DETAIL("at 127.0.0.1 a rank 0 refused rank 2 of 3: it has another TRIBUTARY_SECRET");
        CHECK(no_id(index));
        return;
    }
    CHECK_STATUS(meet_as(index, index, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 2 of 3 did not come");
    CHECK_DETAIL("one that claimed to be rank 2 was refused");
}

/* Rank 1 believes in another number of ranks, or in another job at the same ports. */
static void other_job(int index, int n, void *argument)
{
    (void)n;
    if (index == 1 && argument == NULL)
        hall->job.n_ranks = 3;
    else if (index == 1)
        hall->job.token += (TRI_PLACE_HIGHEST + 1 - TRI_PLACE_LOWEST) / TRI_PLACE_PORTS;
    CHECK_STATUS(meet_as(index, index, SHORT_MS),
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
    CHECK_OK(meet_as(index, index % 2, LONG_MS));
    shared->ids[index] = own.ids[index];
}

static void secrets(void)
{
    static char wrong[] = "Sesame", many[] = "x";
    check_begin("a secret that all know");
    new_job(3);
    run(3, with_secret, NULL);
    check_same_ids(3);
    check_end();
    check_begin("a rank with another secret");
    new_job(3);
    run(3, other_secret, wrong);
    check_end();
    check_begin("a rank without the secret");
    new_job(3);
    run(3, other_secret, NULL);
    check_end();
    check_begin("a rank of another size");
    new_job(2);
    run(2, with_own_hall, NULL);
    check_end();
    check_begin("a rank of another job");
    new_job(2);
    run(2, with_own_hall, many);
    check_end();
    check_begin("two jobs at the same ports");
    new_job(2);
    run(4, two_jobs, NULL);
    CHECK(!no_id(0) && memcmp(&hall->ids[0], &hall->ids[1], sizeof(trib_id)) == 0);
    CHECK(!no_id(2) && memcmp(&hall->ids[2], &hall->ids[3], sizeof(trib_id)) == 0);
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
    (void)meet_as(index, index == 3 ? 2 : index == 0 ? 0 : 1, LONG_MS);
}

static void double_zero(int index, int n, void *argument)
{
    (void)argument;
    (void)n;
    if (index > 0)
        check_sleep_ms(index == 1 ? 300 : 1000);
    (void)meet_as(index, index == 2, LONG_MS);
}

static void check_refused(int refused, int first, int rank)
{
    char words[64];
    CHECK(hall->statuses[refused] == TRIB_ERR_INVALID_USAGE && no_id(refused));
    (void)snprintf(words, sizeof words, "two processes have come as rank %d of", rank);
    CHECK_MSG(strstr(hall->what[refused], words) != NULL, "\"%s\"", hall->what[refused]);
    (void)snprintf(words, sizeof words, ": rank %d (process ", rank);
    CHECK_MSG(strstr(hall->what[refused], words) != NULL, "\"%s\"", hall->what[refused]);
    CHECK(hall->statuses[first] == TRIB_OK);
}

static void doubles(void)
{
    check_begin("two processes with one rank: the second is refused, by name");
    new_job(3);
    run(4, double_rank, NULL);
    const int refused = hall->statuses[1] == TRIB_OK ? 2 : 1;
    check_refused(refused, 3 - refused, 1);
    CHECK(hall->statuses[0] == TRIB_OK && hall->statuses[3] == TRIB_OK);
    CHECK(memcmp(&hall->ids[0], &hall->ids[3 - refused], sizeof(trib_id)) == 0);
    check_end();
    check_begin("two processes with rank 0");
    new_job(2);
    run(3, double_zero, NULL);
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
    const double end = check_now_ms() + LONG_MS;
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
        CHECK_OK(meet_as(index, index, LONG_MS));
        CHECK(index == 0 || check_now_ms() - start < 3000);
        return;
    }
    for (int i = 0; i < 60; i++) {
        const int fd = connect_when_there(first_port());
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
        CHECK_OK(meet_as(index, index, LONG_MS));
        children_meet(&hall->arrived[1], 3);
        return;
    }
    const int listener = open_socket(first_port(), true);
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
        fds[i] = open_socket((uint16_t)(first_port() + i), true);
    CHECK_STATUS(meet_as(index, 0, SHORT_MS), TRIB_ERR_SYSTEM);
    CHECK_DETAIL("rank 0 of 2 cannot listen at port");
    CHECK_DETAIL("Address already in use");
    for (int i = 0; i < ports; i++)
        (void)close(fds[i]);
}

/* Who looks for rank 0 and finds something else says so. */
static void wrong_service(int index, int n, void *argument)
{
    const int fd = open_socket(first_port(), true);
    (void)argument;
    (void)n;
    CHECK_STATUS(meet_as(index, 1, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("something else answers there");
    (void)close(fd);
}

static void strangers(void)
{
    static char speaks[] = "yes";
    check_begin("strangers connect");
    new_job(2);
    run(3, stranger_connects, NULL);
    check_same_ids(2);
    check_end();
    for (int i = 0; i < 2; i++) {
        check_begin("a service that %s has the first port", i == 0 ? "is silent" : "speaks");
        new_job(2);
        run(3, stranger_listens, i == 0 ? NULL : speaks);
        check_same_ids(2);
        check_end();
    }
    check_begin("no port is free");
    new_job(2);
    run(1, no_port, NULL);
    check_end();
    check_begin("the port that was given is not free");
    new_job(2);
    hall->job.port = first_port();
    run(1, no_port, NULL);
    check_end();
    check_begin("something else listens where rank 0 should");
    new_job(2);
    hall->job.port = first_port();
    run(1, wrong_service, NULL);
    check_end();
}

/* ----------------------------------------------------------------------------------------- mistakes */

static void refuse(trib_job job, const char *words)
{
    trib_id id;
    memset(&id, 7, sizeof id);
    CHECK_STATUS(trib_job_meet(&id, &job, "host", SHORT_MS), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL(words);
    CHECK(id.bytes[0] == 0 && memcmp(id.bytes, id.bytes + 1, sizeof id - 1) == 0);
}

static void bad_jobs(int index, int n, void *argument)
{
    const trib_job good = hall->job;
    trib_job job = good;
    trib_id id;
    (void)index;
    (void)n;
    (void)argument;
    job.size++;
    refuse(job, "the size of the trib_job is");
    job = good, job.n_ranks = 0;
    refuse(job, "job.n_ranks is 0; expected 1 to 65536");
    job.n_ranks = TRIB_JOB_RANKS_MAX + 1;
    refuse(job, "job.n_ranks is 65537");
    job = good, job.rank = 2;
    refuse(job, "job.rank is 2; expected 0 to 1");
    job.rank = -1;
    refuse(job, "job.rank is -1");
    job = good, job.port = 65536;
    refuse(job, "job.port is 65536; expected 0 to 65535");
    job.port = -1;
    refuse(job, "job.port is -1");
    job = good, job.reserved = 1;
    refuse(job, "job.reserved is 1");
    job = good, job.host[0] = '\0';
    refuse(job, "job.host is no name and no address");
    memset(job.host, 'a', sizeof job.host);
    refuse(job, "job.host is no name and no address");
    CHECK_STATUS(trib_job_meet(NULL, &good, "host", 1), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_job_meet(&id, NULL, "host", 1), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_job_meet(&id, &good, "nobody", 1), TRIB_ERR_UNKNOWN_NAME);
}

/* On host, where all ranks of a communicator are threads of one process. */
static void on_host(int index, int n, void *argument)
{
    trib_comm *comm = NULL;
    trib_options options = TRIB_OPTIONS_INIT;
    (void)index;
    (void)n;
    (void)argument;
    options.backend = "host";
    CHECK(setenv("RANK", "0", 1) == 0 && setenv("WORLD_SIZE", "1", 1) == 0);
    CHECK(setenv("LOCAL_RANK", "0", 1) == 0);
    CHECK_OK(trib_comm_from_env(&comm, &options));
    CHECK(comm != NULL && trib_comm_size(comm) == 1 && trib_comm_device(comm) == 0);
    CHECK_OK(trib_comm_destroy(comm));
    CHECK(setenv("WORLD_SIZE", "4", 1) == 0 && setenv("MASTER_ADDR", "127.0.0.1", 1) == 0);
    CHECK(setenv("MASTER_PORT", "1", 1) == 0);
    CHECK_STATUS(trib_comm_from_env(&comm, &options), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("the job has 4 ranks, each a process, and on host all ranks of a communicator are "
                 "threads of one process");
    CHECK(comm == NULL);
}

int main(void)
{
    hall = children_share(sizeof *hall);
    of_sizes();
    again();
    by_place();
    missing();
    secrets();
    doubles();
    strangers();
    check_begin("mistakes");
    new_job(2);
    run(1, bad_jobs, NULL);
    check_end();
    check_begin("a communicator on host");
    run(1, on_host, NULL);
    check_end();
    children_unshare(hall, sizeof *hall);
    return check_finish("meet_test");
}
