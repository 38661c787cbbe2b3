/* Do all ranks go on? */
#include "csrc/reducer/agree.h"

#include <stdlib.h>

#include "csrc/core/small_allgather.h"
#include "csrc/core/validate.h"

trib_status tri_reducer_agree(const struct trib_reducer *reducer, int operation, trib_status own,
                              trib_stream stream)
{
    struct trib_comm *comm = reducer->comm;
    const struct tri_detail_copy why = tri_detail_copy();
    const int32_t sent = own;
    int32_t *all = calloc((size_t)comm->size, sizeof *all);
    if (all == NULL) {
        (void)tri_abort_raise(comm->state, TRIB_ERR_OUT_OF_MEMORY,
                              "no memory to compare the calls of all ranks");
        return tri_comm_usable(comm, operation);
    }
    trib_status status = tri_small_allgather(comm, operation, &sent, sizeof sent, all, stream);
    for (int32_t rank = 0; status == TRIB_OK && rank < comm->size; rank++)
        if (all[rank] != TRIB_OK)
            status = tri_fail_call(comm, operation, TRIB_ERR_MISMATCH,
                                   "rank %d failed (%s), so no rank goes on", rank,
                                   trib_status_name(all[rank]));
    free(all);
    return own == TRIB_OK ? status : tri_fail(own, "%s", why.text);
}
