/* Walks: the same program with the fault at one call after the other. */
#ifndef TRI_TESTS_INJECTION_WALK_H
#define TRI_TESTS_INJECTION_WALK_H

#include "tests/injection/trial.h"

/* With TRIB_TEST_QUICK=1 each call is one rank's; of delays and aborts, and beyond the first
 * hundred calls, there is a sample. With N there is one of all, N times as thin. `seed` turns which. */
bool walk_is_quick(void);
void walk_seed(long seed);

/* The first run, without a fault. */
void walk_begin(const struct program *program, int size, bool queued);
/* Then: run the program with this mode's fault at the first call, the second, ... of each rank,
 * until it passes whole. Returns the number of faults. */
long walk(const struct program *program, int size, bool queued, enum injection_mode mode);

#endif
