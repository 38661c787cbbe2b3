/* Small pinned memory that host threads and all GPUs can read and write: pages, cut into cells.
 * Freed cells are used again; the pages are never freed. */
#include "csrc/nccl/pinned.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "csrc/base/debug.h"
#include "csrc/base/log.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"

enum { PAGE = 4096 };

/* A free cell points to the next one. */
struct cell {
    struct cell *next;
};

/* Guards the list, nothing else. Not held during CUDA calls. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cell *cells;

static void *pop(void)
{
    pthread_mutex_lock(&lock);
    struct cell *cell = cells;
    if (cell != NULL)
        cells = cell->next;
    pthread_mutex_unlock(&lock);
    return cell;
}

static void push(void *data)
{
    struct cell *cell = data;
    pthread_mutex_lock(&lock);
    cell->next = cells;
    cells = cell;
    pthread_mutex_unlock(&lock);
}

trib_status tri_nccl_grow_pinned(void)
{
    struct tri_nccl_device_guard guard;
    void *page = NULL;
    TRI_TRY(tri_nccl_push_any_device(&guard));
    const enum cudaStreamCaptureMode before = tri_nccl_relax_capture();
    cudaError_t error = cudaHostAlloc(&page, PAGE, cudaHostAllocPortable | cudaHostAllocMapped);
    tri_nccl_restore_capture(before);
    tri_nccl_pop_device(&guard);
    if (error != cudaSuccess)
        return tri_nccl_cuda_fail(error, "allocating pinned host memory", -1);
    if (tri_debug())
        tri_log(TRIB_LOG_INFO,
                "allocated %d bytes of pinned memory at 0x%" PRIxPTR
                ", which abort flags, workspaces and sparse states share; never freed",
                (int)PAGE, (uintptr_t)page);
    for (size_t at = 0; at < PAGE; at += TRI_NCCL_CELL)
        push((char *)page + at);
    return TRIB_OK;
}

bool tri_nccl_try_alloc_pinned(void **out)
{
    *out = pop();
    if (*out != NULL)
        memset(*out, 0, TRI_NCCL_CELL);
    return *out != NULL;
}

trib_status tri_nccl_alloc_pinned(void **out, size_t bytes)
{
    *out = NULL;
    if (bytes > TRI_NCCL_CELL)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT, "%zu bytes of pinned memory: the limit is %d",
                        bytes, (int)TRI_NCCL_CELL);
    while (!tri_nccl_try_alloc_pinned(out)) {
        TRI_TRY(tri_nccl_grow_pinned());
    }
    return TRIB_OK;
}

void tri_nccl_free_pinned(void *data)
{
    if (data != NULL)
        push(data);
}
