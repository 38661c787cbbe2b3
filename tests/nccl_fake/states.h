/* The state of an abort, on the nccl backend over the fake. */
#ifndef TRI_TESTS_NCCL_FAKE_STATES_H
#define TRI_TESTS_NCCL_FAKE_STATES_H

/* Every case; nothing is left behind. */
void states(void);

#endif
