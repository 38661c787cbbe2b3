/* Allreduces of push and of pull while another kernel fills the devices. */
#ifndef TRI_TESTS_PULL_BUSY_H
#define TRI_TESTS_PULL_BUSY_H

#include "tests/team.h"

/* The team has 2 to 4 ranks, and pull. */
void busy(const struct team *team);

#endif
