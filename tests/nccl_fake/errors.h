/* Errors that NCCL and CUDA report later: whose they are, and that nothing else gets the blame. */
#ifndef TRI_TESTS_NCCL_FAKE_ERRORS_H
#define TRI_TESTS_NCCL_FAKE_ERRORS_H

/* Every case; nothing is left behind. */
void errors(void);

#endif
