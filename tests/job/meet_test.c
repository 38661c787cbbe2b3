/* The ranks of a job meet: those that come, those that do not, and mistakes. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/job/place.h"
#include "tests/job/hall.h"
#include "tests/process.h"

/* How often this process has asked for an address. */
static int resolved;

const char *__real_tri_place_resolve(struct tri_peer_address *out, const char *host);
const char *__wrap_tri_place_resolve(struct tri_peer_address *out, const char *host);
const char *__wrap_tri_place_resolve(struct tri_peer_address *out, const char *host)
{
    resolved++;
    return __real_tri_place_resolve(out, host);
}

/* ---------------------------------------------------------------------------------- all that come */

static void all(int index, int n, void *argument)
{
    const int late = *(const int *)argument;
    (void)n;
    if (index == late)
        check_sleep_ms(300);
    CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
}

static void of_sizes(void)
{
    static const int sizes[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int late = -1;
        check_begin("%d ranks", sizes[i]);
        hall_new(sizes[i]);
        hall_run(sizes[i], all, &late);
        hall_check_ids(sizes[i]);
        check_end();
    }
    for (int late = 0; late < 3; late++) {
        check_begin("rank %d of 3 comes late", late);
        hall_new(3);
        hall_run(3, all, &late);
        hall_check_ids(3);
        check_end();
    }
}

/* At once after each other, on the same ports, and nothing stays open. */
static void thrice(int index, int n, void *argument)
{
    trib_id first;
    (void)n;
    (void)argument;
    CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
    first = hall->ids[index];
    const long descriptors = process_descriptors(), threads = process_threads();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
        CHECK(memcmp(&first, &hall->ids[index], sizeof first) != 0);
    }
    CHECK(process_descriptors() == descriptors && process_threads() == threads);
}

static void again(void)
{
    check_begin("three meetings in a row");
    hall_new(3);
    hall_run(3, thrice, NULL);
    hall_check_ids(3);
    check_end();
}

/* By name, and by the address of rank 0's choice. */
static void by_place(void)
{
    int late = -1;
    check_begin("at localhost, and a port that was given");
    hall_new(2);
    hall->job.port = hall_port() == 61000 ? 61007 : hall_port() - 1;
    memcpy(hall->job.host, "localhost", sizeof "localhost");
    hall_run(2, all, &late);
    hall_check_ids(2);
    check_end();
    check_begin("at this machine's name");
    hall_new(3);
    CHECK(gethostname(hall->job.host, sizeof hall->job.host - 1) == 0);
    if (tri_place_resolve(&(struct tri_peer_address){0}, hall->job.host) == NULL) {
        hall_run(3, all, &late);
        hall_check_ids(3);
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
    CHECK_STATUS(hall_meet(index, ranks[index], HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("ranks 1, 3 of 5 did not come to rank 0 at 127.0.0.1, port ");
    CHECK_DETAIL("within 1200 ms");
    CHECK(hall_no_id(index));
    CHECK(check_now_ms() - start > HALL_SHORT_MS / 2 &&
          check_now_ms() - start < HALL_SHORT_MS + 2500);
}

static void without_many(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK_STATUS(hall_meet(index, 3 * index, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("ranks 1, 2, 4 to 6 of 7 did not come");
}

static void without_one(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    CHECK_STATUS(hall_meet(index, index, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 2 of 3 did not come");
}

/* Alone: rank 0 is not there. The system is not asked for its address at every attempt. */
static void without_0(int index, int n, void *argument)
{
    const int before = resolved;
    (void)n;
    (void)argument;
    CHECK_STATUS(hall_meet(index, 1, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 1 of 2 got no id from rank 0 at 127.0.0.1, ports 6");
    CHECK_DETAIL("nobody listens there: Connection refused");
    CHECK_MSG(resolved - before == 1, "%d times", resolved - before);
}

static void nowhere(int index, int n, void *argument)
{
    (void)n;
    (void)argument;
    memcpy(hall->job.host, "nowhere.invalid", sizeof "nowhere.invalid");
    CHECK_STATUS(hall_meet(index, 1, HALL_SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("from rank 0 at nowhere.invalid");
    CHECK_DETAIL("the address of that host is not known: ");
}

/* A rank that has come dies before the others have; one with its number comes after it. */
static void one_dies(int index, int n, void *argument)
{
    (void)argument;
    if (index == 1 && fork() == 0) {
        alarm(1);
        (void)hall_meet(HALL_RANKS - 1, 1, HALL_LONG_MS);
        _exit(0);
    }
    if (index != 0)
        check_sleep_ms(index == 1 ? 1500 : 2000);
    CHECK_OK(hall_meet(index, index, HALL_LONG_MS));
    (void)n;
}

static void missing(void)
{
    check_begin("two of five ranks do not come, and all others hear which");
    hall_new(5);
    hall_run(3, without_two, NULL);
    check_end();
    check_begin("several ranks in a row do not come");
    hall_new(7);
    hall_run(2, without_many, NULL);
    check_end();
    check_begin("one rank does not come");
    hall_new(3);
    hall_run(2, without_one, NULL);
    check_end();
    check_begin("rank 0 does not come");
    hall_new(2);
    hall_run(1, without_0, NULL);
    check_end();
    check_begin("a host that nobody knows");
    hall_new(2);
    hall_run(1, nowhere, NULL);
    check_end();
    check_begin("a rank that has come dies, and comes again");
    hall_new(3);
    hall_run(3, one_dies, NULL);
    hall_check_ids(3);
    check_end();
}

/* ----------------------------------------------------------------------------------------- mistakes */

static void refuse(trib_job job, const char *words)
{
    trib_id id;
    memset(&id, 7, sizeof id);
    CHECK_STATUS(trib_job_meet(&id, &job, "host", HALL_SHORT_MS), TRIB_ERR_INVALID_ARGUMENT);
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
    check_begin("mistakes");
    hall_new(2);
    hall_run(1, bad_jobs, NULL);
    check_end();
    check_begin("a communicator on host");
    hall_run(1, on_host, NULL);
    check_end();
    children_unshare(hall, sizeof *hall);
    return check_finish("meet_test");
}
