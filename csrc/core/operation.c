/* The operations that users call, and the traits of each. */
#include "csrc/core/operation.h"

#include <stddef.h>

const struct tri_operation tri_operations[TRI_OPERATIONS] = {
    /* name, partner, reduces, send, recv, send_blocks, recv_blocks, place */
    [TRI_ALLREDUCE] = {"allreduce", NULL, true, TRI_EVERYWHERE, TRI_EVERYWHERE, false, false,
                       TRI_SAME},
    [TRI_BROADCAST] = {"broadcast", "root", false, TRI_AT_ROOT, TRI_EVERYWHERE, false, false,
                       TRI_SAME},
    [TRI_REDUCE] = {"reduce", "root", true, TRI_EVERYWHERE, TRI_AT_ROOT, false, false, TRI_SAME},
    [TRI_ALLGATHER] = {"allgather", NULL, false, TRI_EVERYWHERE, TRI_EVERYWHERE, false, true,
                       TRI_SEND_IN_RECV},
    [TRI_REDUCE_SCATTER] = {"reduce_scatter", NULL, true, TRI_EVERYWHERE, TRI_EVERYWHERE, true,
                            false, TRI_RECV_IN_SEND},
    [TRI_SEND] = {"send", "peer", false, TRI_EVERYWHERE, TRI_NOWHERE, false, false, TRI_APART},
    [TRI_RECV] = {"recv", "peer", false, TRI_NOWHERE, TRI_EVERYWHERE, false, false, TRI_APART},
    [TRI_BARRIER] = {"barrier", NULL, false, TRI_NOWHERE, TRI_NOWHERE, false, false, TRI_APART},
    [TRI_ALLTOALL] = {"alltoall", NULL, false, TRI_EVERYWHERE, TRI_EVERYWHERE, true, true,
                      TRI_SAME},
    [TRI_GATHER] = {"gather", "root", false, TRI_EVERYWHERE, TRI_AT_ROOT, false, true,
                    TRI_SEND_IN_RECV},
    [TRI_SCATTER] = {"scatter", "root", false, TRI_AT_ROOT, TRI_EVERYWHERE, true, false,
                     TRI_RECV_IN_SEND},
    [TRI_ALLREDUCE_WITH] = {"allreduce_with", NULL, true, TRI_EVERYWHERE, TRI_EVERYWHERE, false,
                            false, TRI_SAME},
    /* The rest have arguments of their own; only name and partner are used. */
    [TRI_ALLGATHERV] = {.name = "allgatherv"},
    [TRI_ALLTOALLV] = {.name = "alltoallv"},
    [TRI_ALLREDUCE_LIST] = {.name = "allreduce_list", .reduces = true},
    [TRI_ALLREDUCE_LIST_WITH] = {.name = "allreduce_list_with", .reduces = true},
    [TRI_BROADCAST_LIST] = {.name = "broadcast_list", .partner = "root"},
    [TRI_WEIGHTED_AVERAGE] = {.name = "weighted_average"},
    [TRI_SPARSE_BYTES] = {.name = "sparse_bytes"},
    [TRI_SPARSE_CREATE] = {.name = "sparse_create"},
    [TRI_SPARSE_SET_DENSITY] = {.name = "sparse_set_density"},
    [TRI_SPARSE_SET_K] = {.name = "sparse_set_k"},
    [TRI_SPARSE_ALLREDUCE] = {.name = "sparse_allreduce"},
    [TRI_SPARSE_ALLREDUCE_ENTRIES] = {.name = "sparse_allreduce_entries"},
    [TRI_SPARSE_STATUS] = {.name = "sparse_status"},
    [TRI_SPARSE_RESIDUAL] = {.name = "sparse_residual"},
    [TRI_SPARSE_EXPORT] = {.name = "sparse_export"},
    [TRI_SPARSE_IMPORT] = {.name = "sparse_import"},
    [TRI_SPARSE_RESET] = {.name = "sparse_reset"},
    [TRI_SPARSE_DESTROY] = {.name = "sparse_destroy"},
    [TRI_REDUCER_CREATE] = {.name = "reducer_create"},
    [TRI_REDUCER_VIEW] = {.name = "reducer_view"},
    [TRI_REDUCER_READY] = {.name = "reducer_ready", .reduces = true},
    [TRI_REDUCER_FINISH] = {.name = "reducer_finish"},
    [TRI_REDUCER_WAIT] = {.name = "reducer_wait"},
    [TRI_REDUCER_STATUS] = {.name = "reducer_status"},
    [TRI_REDUCER_SET_DENSITY] = {.name = "reducer_set_density"},
    [TRI_REDUCER_STATISTICS] = {.name = "reducer_statistics"},
    [TRI_REDUCER_EXPORT] = {.name = "reducer_export"},
    [TRI_REDUCER_IMPORT] = {.name = "reducer_import"},
    [TRI_REDUCER_DESTROY] = {.name = "reducer_destroy"},
    [TRI_SYMMETRIC_ALLOC] = {.name = "symmetric_alloc"},
    [TRI_SYMMETRIC_IMPORT] = {.name = "symmetric_import"},
    [TRI_SYMMETRIC_QUERY] = {.name = "symmetric_query"},
    [TRI_SYMMETRIC_FREE] = {.name = "symmetric_free"},
    [TRI_BATCH_BEGIN] = {.name = "batch_begin"},
    [TRI_BATCH] = {.name = "batch_end"},
    [TRI_BATCH_END_ALL] = {.name = "batch_end_all"},
    [TRI_WAIT] = {.name = "comm_wait"},
    [TRI_GROUP_WAIT] = {.name = "group_wait"},
    [TRI_GROUP_RUN] = {.name = "group_run"},
    [TRI_SHRINK] = {.name = "comm_shrink"},
    [TRI_CREATE] = {.name = "comm_create"},
    [TRI_ADOPT] = {.name = "comm_adopt"},
    [TRI_SPLIT] = {.name = "comm_split"},
};

bool tri_is_collective(int operation)
{
    return operation != TRI_SEND && operation != TRI_RECV && operation != TRI_SPARSE_RESIDUAL &&
           operation != TRI_SPARSE_EXPORT;
}
