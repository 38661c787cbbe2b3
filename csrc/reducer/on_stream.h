/* What a reducer does on a stream. */
#ifndef TRI_REDUCER_ON_STREAM_H
#define TRI_REDUCER_ON_STREAM_H

#include "csrc/reducer/reducer.h"

/* On `stream`: pack bucket `b` and reduce it, unless it has a sparse state. `absent[i]`, if not NULL,
 * tells of its gradient i that it is not ready: it counts as 0. */
trib_status tri_reducer_run_bucket(struct trib_reducer *reducer, size_t b, const bool *absent,
                                   trib_stream stream);

/* Decide whether the step is applied, and if so write the gradients; if not, take its sparse calls
 * back. If this cannot be queued the step is not applied. */
trib_status tri_reducer_run_end(struct trib_reducer *reducer, trib_stream stream);
/* The step is not applied: its communicator is closed, and no transport can be used. */
trib_status tri_reducer_take_back(struct trib_reducer *reducer, trib_stream stream);

#endif
