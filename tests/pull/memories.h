/* Large allreduces through the library of buffers of every kind of memory. */
#ifndef TRI_TESTS_PULL_MEMORIES_H
#define TRI_TESTS_PULL_MEMORIES_H

#include "tests/team.h"

/* The team has 2 to 4 ranks, and pull. Each call goes through memory of the library or not, as the buffer's kind
 * says. Where one is late or fails, the team is aborted, and the cases end. */
void memories(const struct team *team);

#endif
