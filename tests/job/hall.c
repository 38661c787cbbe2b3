/* Processes that meet as the ranks of a job. */
#define _POSIX_C_SOURCE 200809L
#include "tests/job/hall.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "csrc/job/place.h"

struct hall *hall;

static uint64_t new_token(void)
{
    static uint64_t last;
    return ((uint64_t)getpid() << 20) + 7 * ++last;
}

void hall_new(int n_ranks)
{
    memset(hall, 0, sizeof *hall);
    hall->job = (trib_job)TRIB_JOB_INIT;
    hall->job.n_ranks = n_ranks;
    hall->job.token = new_token();
    memcpy(hall->job.host, "127.0.0.1", sizeof "127.0.0.1");
}

uint16_t hall_port(void)
{
    return (uint16_t)tri_place_ports(&hall->job).first;
}

trib_status hall_meet(int index, int rank, uint32_t timeout_ms)
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

bool hall_no_id(int index)
{
    const trib_id none = {{0}};
    return memcmp(&hall->ids[index], &none, sizeof none) == 0;
}

void hall_check_ids(int n)
{
    CHECK(!hall_no_id(0));
    for (int i = 1; i < n; i++)
        CHECK_MSG(memcmp(&hall->ids[i], &hall->ids[0], sizeof(trib_id)) == 0, "process %d", i);
}

void hall_run(int n, void (*body)(int index, int n, void *argument), void *argument)
{
    children_run_all(n, HALL_CASE_MS, body, argument);
}
