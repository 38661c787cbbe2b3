/* What the library makes once in a process - its first threads, tables and default streams - can
 * fail like everything else, and only once: so each fault has a process of its own. */
#ifndef TRI_TESTS_INJECTION_FIRST_H
#define TRI_TESTS_INJECTION_FIRST_H

#include "tests/injection/injection.h"

/* Run `program` (argv[0]) as first_use(mode, 1), first_use(mode, 2), ... until one passes whole;
 * returns the number of faults. */
long first_walk(const char *program, enum injection_mode mode);

/* In such a process: use the library for the first time, with the n-th fault, then without. The
 * exit status. */
int first_use(enum injection_mode mode, long n);

#endif
