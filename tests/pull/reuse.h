/* Buffers that are freed and allocated as memory of another kind between large calls. */
#ifndef TRI_TESTS_PULL_REUSE_H
#define TRI_TESTS_PULL_REUSE_H

#include "tests/team.h"

/* The team has 2 to 4 ranks, and pull. */
void reuse(const struct team *team);

#endif
