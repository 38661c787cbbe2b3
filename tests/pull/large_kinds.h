/* Large reduce_scatters, allgathers, alltoalls and broadcasts through the library, on 2 GPUs of this process. */
#ifndef TRI_TESTS_PULL_LARGE_KINDS_H
#define TRI_TESTS_PULL_LARGE_KINDS_H

#include "tests/team.h"

/* The team has two ranks, whose large calls pull serves. */
void large_kinds(struct team *team);

#endif
