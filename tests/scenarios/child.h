/* One scenario in a process of its own, and what that tells the process that started it. */
#ifndef TRI_TESTS_SCENARIOS_CHILD_H
#define TRI_TESTS_SCENARIOS_CHILD_H

#include "tests/scenarios/scenario.h"

struct outcome {
    int runs, worst_us;
    double left_at; /* when exit() was called; 0: after the last check */
    char says[200];
};

struct child {
    const struct scenario *scenario;
    const char *backend;
    int size, runs;
    int pipe; /* for the outcome */
};

/* Runs it. The exit status. */
int child_run(const struct child *child);

#endif
