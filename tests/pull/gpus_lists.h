/* Lists that pull packs, between GPUs: every byte of the buckets. */
#ifndef TRI_TESTS_PULL_GPUS_LISTS_H
#define TRI_TESTS_PULL_GPUS_LISTS_H

#include "tests/pull/ranks.h"

/* Of few tensors and many, on all ranks or all but one, mapped and staged, again and again with other elements. */
void gpus_lists(struct ranks *ranks);

#endif
