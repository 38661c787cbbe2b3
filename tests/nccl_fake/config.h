/* What the nccl backend tells the fake of new communicators. */
#ifndef TRI_TESTS_NCCL_FAKE_CONFIG_H
#define TRI_TESTS_NCCL_FAKE_CONFIG_H

/* Every case; nothing is left behind. */
void configurations(void);

#endif
