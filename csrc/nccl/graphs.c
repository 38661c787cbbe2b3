/* Each graph retains a CUDA user object, which CUDA destroys with the last graph that has it: NCCL
 * holds a graph's resources in the same way. */
#include "csrc/nccl/graphs.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "csrc/base/status.h"
#include "csrc/nccl/background.h"

struct tri_nccl_graphs {
    _Atomic uint32_t references; /* the owner's, and one for each graph that lives */
};

struct tri_nccl_graphs *tri_nccl_graphs_create(void)
{
    struct tri_nccl_graphs *graphs = calloc(1, sizeof *graphs);
    if (graphs == NULL)
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for counting CUDA graphs");
    else
        atomic_init(&graphs->references, 1);
    return graphs;
}

void tri_nccl_graphs_release(struct tri_nccl_graphs *graphs)
{
    if (graphs != NULL &&
        atomic_fetch_sub_explicit(&graphs->references, 1, memory_order_acq_rel) == 1)
        free(graphs);
}

uint32_t tri_nccl_graphs_live(const struct tri_nccl_graphs *graphs)
{
    return atomic_load_explicit(&graphs->references, memory_order_acquire) - 1;
}

/* On a thread of CUDA's, which must make no CUDA call. */
static void graph_is_gone(void *graphs)
{
    tri_nccl_graphs_release(graphs);
    tri_nccl_wake_jobs();
}

cudaError_t tri_nccl_graph_keep(cudaGraph_t graph, void (*gone)(void *argument), void *argument)
{
    cudaUserObject_t object = NULL;
    cudaError_t error =
        cudaUserObjectCreate(&object, argument, gone, 1, cudaUserObjectNoDestructorSync);
    if (error != cudaSuccess) {
        gone(argument);
        return error;
    }
    error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
    if (error != cudaSuccess)
        (void)cudaUserObjectRelease(object, 1); /* calls `gone` */
    return error;
}

bool tri_nccl_graphs_add(struct tri_nccl_graphs *graphs, cudaGraph_t graph)
{
    (void)atomic_fetch_add_explicit(&graphs->references, 1, memory_order_relaxed);
    const cudaError_t error = tri_nccl_graph_keep(graph, graph_is_gone, graphs);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess;
}
