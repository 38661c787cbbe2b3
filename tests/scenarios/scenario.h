/* The scenarios that an abort must survive: by number and name, each in a process of its own. No
 * crash, no hang: every rank is back within a bound, with the right error, and afterwards a fresh
 * communicator on the same devices works. */
#ifndef TRI_TESTS_SCENARIOS_SCENARIO_H
#define TRI_TESTS_SCENARIOS_SCENARIO_H

#include "tests/faults/abort.h"

enum {
    SCENARIO_LEAVES = 1, /* the body ends its process, by scenario_leave: no fresh communicator */
    SCENARIO_LONG = 2,   /* run once: it repeats itself */
    SCENARIO_EXACT = 4   /* with figures_exact */
};

struct scenario {
    int number;
    const char *name;
    void (*body)(const struct faults *faults); /* tells faults_returned */
    const char *call;                          /* of struct faults */
    /* Milliseconds from the abort, the death or the deadline to the return of the last rank; 0: it
     * does not apply, and `why`. */
    int host_ms, nccl_ms;
    const char *why;
    unsigned int flags;
};

/* Those of every backend, by number; ends with a number of 0. */
extern const struct scenario scenarios[];
/* Those that need CUDA itself, in the same form; first of all call scenarios_cuda_begin. */
extern const struct scenario scenarios_cuda[];
void scenarios_cuda_begin(void);

/* Bounds. On host: two busy cores with dozens of threads. On nccl warm: ranks wait in kernels that
 * poll a flag; cold: ranks connect or communicators are made, at the pace of NCCL's own threads. */
enum { SCENARIO_HOST_MS = 500, SCENARIO_WARM_MS = 250, SCENARIO_COLD_MS = 5000 };

/* The program: `more` is a second table. Arguments: numbers; none: all. The exit status.
 * From the environment, each a number with TRIB_TEST_SCENARIO_ in front:
 *   RUNS     of each scenario; 3, with a sanitizer 1
 *   RACES    of an abort, a destroy and a collective; 200, on nccl 5
 *   ABORTS   whose latency is measured; 200, a quarter of them with calls queued
 *   SECONDS  of healthy work; 4 */
int scenarios_main(const char *backend, int size, const struct scenario *more, char **arguments);

/* ---------------------------------------------------------------------------- for the bodies */

/* Memory in use on a device; NULL: it is the host's. */
extern long (*scenario_device_kb)(int device);
/* A number from the environment. */
int scenario_number(const char *name, int otherwise);
/* A sentence for the table: what the body has measured beside the time. From any thread; the last
 * one stands. */
void scenario_says(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* End the process with exit(). The time from here to its end counts. */
_Noreturn void scenario_leave(void);

/* A team with which nothing is wrong, but in which all ranks but the last wait in a barrier. */
bool scenario_stuck(struct team *team, const struct faults *faults);
/* Wait until they are free, and tell how long after `raised_at`; all ranks are aborted for
 * `reason`. Destroys the team. */
void scenario_freed(struct team *team, const struct faults *faults, double raised_at,
                    const char *reason);

/* ------------------------------------------------------------------------------- the bodies */

void scenario_first_call(const struct faults *faults);
void scenario_owner(const struct faults *faults); /* call: in what the owner is blocked */
void scenario_gate(const struct faults *faults);
void scenario_refused(const struct faults *faults);
void scenario_poller(const struct faults *faults);
void scenario_each_handle(const struct faults *faults);
void scenario_all_abort(const struct faults *faults);
void scenario_split(const struct faults *faults);
void scenario_sparse_missing(const struct faults *faults); /* call: the algorithm */
void scenario_sparse_spinning(const struct faults *faults);
void scenario_growth(const struct faults *faults);
void scenario_exit(const struct faults *faults); /* call: what is left behind */
void scenario_load(const struct faults *faults);
void scenario_slow(const struct faults *faults);
void scenario_latency(const struct faults *faults); /* call: how many a rank queues, a number */

#endif
