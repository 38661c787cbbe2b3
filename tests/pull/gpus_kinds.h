/* Reduce_scatters, allgathers, alltoalls and broadcasts by pull between GPUs: every byte of all buffers. */
#ifndef TRI_TESTS_PULL_GPUS_KINDS_H
#define TRI_TESTS_PULL_GPUS_KINDS_H

#include "tests/pull/ranks.h"

/* In place and not, from every root, mapped and staged, wherever buffers begin. */
void gpus_kinds(struct ranks *ranks);

#endif
