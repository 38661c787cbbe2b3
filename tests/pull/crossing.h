/* Large allreduces of two communicators at once on the same GPUs. */
#ifndef TRI_TESTS_PULL_CROSSING_H
#define TRI_TESTS_PULL_CROSSING_H

#include "tests/team.h"

/* The team has 2 to 4 ranks, and pull; a second one with pull is made beside it. Calls of the first are on two
 * streams in turn. */
void crossing(const struct team *team);

#endif
