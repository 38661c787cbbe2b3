/* Batches of several communicators: one group of NCCL's, which fails as one. */
#ifndef TRI_TESTS_NCCL_FAKE_BATCHES_H
#define TRI_TESTS_NCCL_FAKE_BATCHES_H

/* Every case; nothing is left behind. */
void batches(void);

#endif
