/* Reduce_scatters, allgathers and broadcasts between GPUs, against arithmetic on the host. */
#ifndef TRI_TESTS_PUSH_GPUS_KINDS_H
#define TRI_TESTS_PUSH_GPUS_KINDS_H

#include "tests/push/gpus.h"

void gpus_kinds(const struct gpus *gpus);

#endif
