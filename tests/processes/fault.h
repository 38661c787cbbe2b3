/* Cases in which a step towards symmetric memory fails on one rank of three, or kills its process: the others
 * hear of that. */
#ifndef TRI_TESTS_PROCESSES_FAULT_H
#define TRI_TESTS_PROCESSES_FAULT_H

#include "tests/processes/symmetric.h"

enum { FAULT_RANK = 1 };

struct fault {
    enum symmetric_step step;
    bool kills;
    const void *argument; /* of fault_cases */
};

/* A case each: a step, up to `last`, of `what` fails, or kills. Three processes run `body` with a struct fault. */
void fault_cases(const char *what, enum symmetric_step last,
                 void (*body)(int index, int n, void *fault), const void *argument);

/* By every rank, right before the call that takes the step. */
void fault_set(const struct fault *fault, int rank);
/* Right after the call: its status is that of the fault, says whose it is, and has not come late. */
void fault_check(const struct fault *fault, int rank, trib_status status);

#endif
