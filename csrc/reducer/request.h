/* What trib_reducer_create was called with. */
#ifndef TRI_REDUCER_REQUEST_H
#define TRI_REDUCER_REQUEST_H

#include "csrc/reducer/reducer.h"

struct tri_reducer_request {
    struct trib_reducer **out;
    struct trib_comm *comm;
    const trib_tensor *gradients;
    size_t n;
    const trib_reducer_options *passed; /* may be NULL */
    trib_reducer_options options;       /* by tri_reducer_check, as `limits` */
    struct tri_gradient_limits limits;
};

/* Check all of it, and read the options. Fails with the argument at fault. */
trib_status tri_reducer_check(struct tri_reducer_request *request);

#endif
