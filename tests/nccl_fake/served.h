/* Who has served the calls, over the fake. */
#ifndef TRI_TESTS_NCCL_FAKE_SERVED_H
#define TRI_TESTS_NCCL_FAKE_SERVED_H

#include <stdbool.h>

struct served {
    long nccl, pushes; /* calls that NCCL has got, each rank's counted; and that push has served */
};

/* Since *before, which becomes now, they are so many. `nccl` -1: however many. */
bool served_since(struct served *before, long nccl, long pushes);

#endif
