/* The text of a call, for messages. */
#ifndef TRI_HOST_DESCRIBE_H
#define TRI_HOST_DESCRIBE_H

#include "csrc/backend.h"

struct tri_description {
    char text[96];
};

/* "allreduce of 10 f32 (sum)", "send of 10 f32 to rank 2" */
struct tri_description tri_describe(const struct tri_call *call);

#endif
