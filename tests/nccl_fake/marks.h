/* How far calls have got, on the nccl backend over the fake. */
#ifndef TRI_TESTS_NCCL_FAKE_MARKS_H
#define TRI_TESTS_NCCL_FAKE_MARKS_H

/* Every case; nothing is left behind. */
void marks(void);

#endif
