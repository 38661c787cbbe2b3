/* What a backend must survive: aborts, ranks that never join, deadlines that pass. Each scenario
 * ends with a fresh communicator on the same devices, which must work. */
#ifndef TRI_TESTS_FAULTS_ABORT_H
#define TRI_TESTS_FAULTS_ABORT_H

#include <stdbool.h>

#include "tests/team.h"

struct faults {
    const char *backend;
    int size;              /* ranks, 2 or more */
    int repetitions;       /* of what races */
    int bound_ms;          /* within which waiting streams must become free, and destroy return */
    bool slow;             /* creation takes a second: the next scenario's team is the fresh one */
    const char *call;      /* of those below that are a scenario for each call */
    _Atomic int *worst_us; /* NULL: nobody asks */
};

/* The last rank was back `ms` after the abort or the deadline that ended its wait. The longest
 * stays in `worst_us`. Any thread. */
void faults_returned(const struct faults *faults, double ms);

/* Every scenario. */
void faults_suite(const struct faults *faults);

/* -------------------------------------------------------------------------- for the scenarios */

enum { FAULT_ELEMENTS = 1000 };

/* One rank's tensor of f32: element i is `rank + i % 7`. */
struct fault_data {
    struct guarded memory;
};
bool fault_data_create(struct fault_data *data, const struct team *team, int rank);
void fault_data_destroy(struct fault_data *data);
void *fault_data_at(const struct fault_data *data);
/* Put the input there, wait. */
bool fault_data_put(struct fault_data *data, const struct team *team, int rank);
/* Is it the input still, or the sum over all ranks? */
bool fault_data_is(struct fault_data *data, const struct team *team, int rank, bool summed,
                   const char *what);

/* A team whose ranks have done an allreduce and a barrier: what is built on first use is there. */
bool faults_team(struct team *team, const struct faults *faults, const trib_options *options);
/* The communicators of `team` work: an allreduce has the right result, and a barrier passes. */
void faults_works(struct team *team, const char *what);
/* A fresh team on the same devices works. (Where creation is slow, this is left to faults_team
 * of the next scenario.) */
void faults_fresh(const struct faults *faults);
/* Abort all ranks, with the handle of rank 0. */
void faults_abort(const struct team *team, const char *reason);
/* Every rank says that it was aborted, and why, and refuses calls. */
void faults_all_aborted(struct team *team, const char *reason);

void faults_idle(const struct faults *faults);      /* nobody is waiting */
void faults_races(const struct faults *faults);     /* many aborters, abort and destroy */
void faults_stuck(const struct faults *faults);     /* a rank never joins, someone aborts */
void faults_deadlines(const struct faults *faults); /* a rank never joins, a deadline passes */
void faults_watchdog(const struct faults *faults);  /* a rank never joins, the watchdog aborts */
void faults_calls(const struct faults *faults);     /* a rank waits in a call, someone aborts */
void faults_states(const struct faults *faults);    /* the state that trib_abort_state reads */
void faults_shrink(const struct faults *faults);    /* ranks are lost, the others go on */
void faults_reducers(const struct faults *faults);  /* someone aborts in the middle of a step */
void faults_batches(const struct faults *faults);   /* one of several, whose batches end together */
void faults_leave(const struct faults *faults);     /* a rank closes while others need it */

/* ------------------------------------------------------------- single ones, for tests/scenarios
 *
 * Each tells faults_returned. */

void faults_unused(const struct faults *faults); /* before any collective */
void faults_after_success(const struct faults *faults);
void faults_twice(const struct faults *faults);
void faults_in_batch(const struct faults *faults);
void faults_eight_at_once(const struct faults *faults);
void faults_against_destroy(const struct faults *faults);
void faults_neighbours(const struct faults *faults);
void faults_family(const struct faults *faults); /* call: "parent" or "child" is aborted */
/* A rank never joins `call`, a name in abort_stuck.c; cold: the first of all. */
void faults_missing_rank(const struct faults *faults);
void faults_missing_rank_cold(const struct faults *faults);
void faults_both_stuck(const struct faults *faults); /* call: "A" or "B" is aborted first */
void faults_behind_a_long_job(const struct faults *faults);
void faults_create_timeout(const struct faults *faults);
void faults_split_aborted(const struct faults *faults);
void faults_watchdog_ends(const struct faults *faults);
void faults_while_waiting(const struct faults *faults); /* `call`: a name in abort_calls.c */
void faults_eight_abort(const struct faults *faults);
void faults_parked(const struct faults *faults);
void faults_shrink_missing(const struct faults *faults);
void faults_shrink_twice(const struct faults *faults);

#endif
