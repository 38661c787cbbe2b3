/* Calls of pull in long rows, over memory that earlier calls have left. */
#ifndef TRI_TESTS_PULL_ROWS_H
#define TRI_TESTS_PULL_ROWS_H

#include "tests/pull/ranks.h"

/* `calls` of random types, sizes, places and blocks, one shot and two shot in turn, sometimes staged, while
 * devices are late by chance. Every bit of every result is looked at. */
void rows_alternate(struct ranks *ranks, int calls);
/* A graph with a call of every way, launched `launches` times on other data, eager calls between. */
void rows_graph(struct ranks *ranks, int launches);
/* The flag is set amid calls, `rounds` times, and the last device lacks the last call. */
void rows_abort(struct ranks *ranks, int rounds);

#endif
