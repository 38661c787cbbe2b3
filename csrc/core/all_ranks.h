/* Blocking calls that all ranks make together. */
#ifndef TRI_CORE_ALL_RANKS_H
#define TRI_CORE_ALL_RANKS_H

#include "csrc/core/communicator.h"

/* Run `body(argument, stream)` on a stream of its own, within the communicator's timeout_ms and
 * after all uses of its workspace. With TRIB_MATCH the ranks first compare whether all make this
 * call. What fails before the body runs has ended the communicator, unless it is TRIB_ERR_MISMATCH,
 * which all ranks return. */
trib_status tri_all_ranks_run(struct trib_comm *comm, int operation,
                              trib_status (*body)(void *argument, trib_stream stream),
                              void *argument);

#endif
