/* Allreduces by the name of each variant through the library, on the GPUs of this process. */
#ifndef TRI_TESTS_PULL_BY_NAME_H
#define TRI_TESTS_PULL_BY_NAME_H

#include "tests/team.h"

/* The team has 2 to 4 ranks, and pull: there is every variant. */
void by_name(const struct team *team);

#endif
