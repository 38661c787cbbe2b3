/* Processes that meet as the ranks of a job, and what they share. */
#ifndef TRI_TESTS_JOB_HALL_H
#define TRI_TESTS_JOB_HALL_H

#include "tests/check.h"
#include "tests/children.h"

enum {
    HALL_RANKS = 12,
    HALL_LONG_MS = 30000,
    HALL_SHORT_MS = 1200,
    HALL_CASE_MS = 60000,
    HALL_MEETINGS = 8
};

struct hall {
    trib_job job; /* of all, but for the rank */
    trib_id ids[HALL_RANKS];
    trib_status statuses[HALL_RANKS];
    _Atomic int arrived[HALL_MEETINGS]; /* for children_meet */
    char what[HALL_RANKS][640];         /* details */
};
/* In memory that the processes share; main makes it. */
extern struct hall *hall;

/* Another job, of `n_ranks` on loopback; everything else is 0. */
void hall_new(int n_ranks);
/* The first port of the job. */
uint16_t hall_port(void);
/* Run `body` in n processes, and check that all end well. */
void hall_run(int n, void (*body)(int index, int n, void *argument), void *argument);
/* Process `index` meets as `rank`; what comes of it is kept. */
trib_status hall_meet(int index, int rank, uint32_t timeout_ms);
/* Has process `index` no id; have the first n all the same? */
bool hall_no_id(int index);
void hall_check_ids(int n);

#endif
