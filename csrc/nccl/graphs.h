/* The CUDA graphs that captured calls of a communicator, counted while they live: until then NCCL
 * does not free the communicator, and a thread inside NCCL would wait for them whatever happens. */
#ifndef TRI_NCCL_GRAPHS_H
#define TRI_NCCL_GRAPHS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* The count. It lives as long as its owner and every graph that it counts. */
struct tri_nccl_graphs;

/* NULL, with the detail set: no memory. */
struct tri_nccl_graphs *tri_nccl_graphs_create(void);
/* The owner needs it no longer. NULL allowed. */
void tri_nccl_graphs_release(struct tri_nccl_graphs *graphs);

/* Count `graph` until it is destroyed, and every copy and every executable graph made from it.
 * False if CUDA does not tell when. */
bool tri_nccl_graphs_add(struct tri_nccl_graphs *graphs, cudaGraph_t graph);

/* `gone(argument)` runs once the graph and all of these are destroyed, on a thread of CUDA's, which
 * must make no CUDA call; after a failure, at once or soon. */
cudaError_t tri_nccl_graph_keep(cudaGraph_t graph, void (*gone)(void *argument), void *argument);

/* The graphs that were added and still live. Any thread. */
uint32_t tri_nccl_graphs_live(const struct tri_nccl_graphs *graphs);

#endif
