/* Calls that CUDA graphs capture: replayed, among eager ones, and given up. With CUDA and NCCL, and
 * over the fake of both. */
#ifndef TRI_TESTS_NCCL_CAPTURED_H
#define TRI_TESTS_NCCL_CAPTURED_H

#include <stdbool.h>

/* Every case with up to `ranks` ranks; `fake`: without what the fake of NCCL cannot do. */
void captured_cases(int ranks, bool fake);

#endif
