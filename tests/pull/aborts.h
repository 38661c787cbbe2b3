/* Aborts amid large allreduces, of communicators made for that. */
#ifndef TRI_TESTS_PULL_ABORTS_H
#define TRI_TESTS_PULL_ABORTS_H

#include <stdbool.h>

/* Of 2 to 4 ranks, whose communicators have pull. False if there is none, or a device is not free afterwards: what
 * comes next might wait for it for ever. */
bool aborts(int ranks);

#endif
