/* Calls of push in long rows, a thread for each GPU. */
#ifndef TRI_TESTS_PUSH_SOAK_H
#define TRI_TESTS_PUSH_SOAK_H

#include "tests/push/gpus.h"

/* `calls` back to back, of random kinds, types, sizes and places in memory, while ranks are late by chance:
 * the host with a launch, or the stream. Every bit of every result is looked at. */
void soak_random(struct gpus *gpus, int calls);
/* `calls` small allreduces back to back, in a graph of a thousand that is launched again and again. Every
 * bit of every result is looked at. */
void soak_small(struct gpus *gpus, int calls);
/* A graph of some calls, launched `launches` times, with eager calls between. */
void soak_graphs(struct gpus *gpus, int launches);
/* The flag is set while all ranks make calls, `rounds` times. */
void soak_aborts(struct gpus *gpus, int rounds);

#endif
