/* A reducer's memory: its workspace, and buckets that lie in it or in symmetric memory. */
#ifndef TRI_REDUCER_MEMORY_H
#define TRI_REDUCER_MEMORY_H

#include "csrc/reducer/reducer.h"

/* All that this rank needs by itself; buckets that are to be shared stay NULL. reducer->layout is made. After a failure the caller discards the reducer. */
trib_status tri_reducer_allocate(struct trib_reducer *reducer);

/* All ranks have done that: what they make together, if anything, on the stream of the call that makes the
 * reducer. All of them get it, or none. */
trib_status tri_reducer_share(struct trib_reducer *reducer, trib_stream stream);

#endif
