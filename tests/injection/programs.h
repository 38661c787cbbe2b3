/* The programs that faults are injected into, by area: arrays that end with a name of NULL. */
#ifndef TRI_TESTS_INJECTION_PROGRAMS_H
#define TRI_TESTS_INJECTION_PROGRAMS_H

#include "tests/injection/trial.h"

extern const struct program programs_dense[]; /* collectives, batches, messages */
extern const struct program programs_lists[];
extern const struct program programs_reducer[];
extern const struct program programs_life[]; /* devices, creation, split, groups, close */

/* sparse.c makes one program of each kind for each algorithm. */
size_t programs_sparse(const struct program **out);

#endif
