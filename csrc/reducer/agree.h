/* Do all ranks go on? */
#ifndef TRI_REDUCER_AGREE_H
#define TRI_REDUCER_AGREE_H

#include "csrc/reducer/reducer.h"

/* For the body of a tri_all_ranks_run: TRIB_OK if it is every rank's `own`. A rank that has failed
 * gets that back, with its detail; the others get TRIB_ERR_MISMATCH. */
trib_status tri_reducer_agree(const struct trib_reducer *reducer, int operation, trib_status own,
                              trib_stream stream);

#endif
