/* Small memory that host threads and all GPUs can read and write: pinned pages, cut into cells. */
#include "csrc/nccl/shared.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"

enum { PAGE = 4096 };

struct page {
    struct page *next;
    char *data;
};

/* A free cell points to the next one. */
struct cell {
    struct cell *next;
};

/* Guards the two lists below, nothing else. Not held during CUDA calls. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page *pages;
static struct cell *cells;

static trib_status pin(void **out, size_t bytes)
{
    struct tri_nccl_scope scope;
    trib_status status = tri_nccl_enter_any(&scope);
    if (status != TRIB_OK)
        return status;
    cudaError_t error = cudaHostAlloc(out, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    tri_nccl_leave(&scope);
    return error == cudaSuccess ? TRIB_OK
                                : tri_nccl_cuda_fail(error, "allocating pinned host memory", -1);
}

static trib_status add_page(void)
{
    struct page *page = malloc(sizeof *page);
    void *data = NULL;
    if (page == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a page of shared cells");
    trib_status status = pin(&data, PAGE);
    if (status != TRIB_OK) {
        free(page);
        return status;
    }
    page->data = data;
    pthread_mutex_lock(&lock);
    page->next = pages;
    pages = page;
    for (size_t at = 0; at < PAGE; at += TRI_NCCL_CELL) {
        struct cell *cell = (struct cell *)(page->data + at);
        cell->next = cells;
        cells = cell;
    }
    pthread_mutex_unlock(&lock);
    return TRIB_OK;
}

static void *take_cell(void)
{
    pthread_mutex_lock(&lock);
    struct cell *cell = cells;
    if (cell != NULL)
        cells = cell->next;
    pthread_mutex_unlock(&lock);
    return cell;
}

trib_status tri_nccl_alloc_shared(void **out, size_t bytes)
{
    trib_status status = TRIB_OK;
    *out = NULL;
    if (bytes > TRI_NCCL_CELL)
        status = pin(out, bytes);
    else
        while (status == TRIB_OK && (*out = take_cell()) == NULL)
            status = add_page();
    if (status == TRIB_OK)
        memset(*out, 0, bytes > TRI_NCCL_CELL ? bytes : TRI_NCCL_CELL);
    return status;
}

/* The cell's lists are ours if the memory lies in one of our pages. */
static bool give_cell(void *data)
{
    pthread_mutex_lock(&lock);
    struct page *page = pages;
    while (page != NULL && (uintptr_t)data - (uintptr_t)page->data >= PAGE)
        page = page->next;
    if (page != NULL) {
        struct cell *cell = data;
        cell->next = cells;
        cells = cell;
    }
    pthread_mutex_unlock(&lock);
    return page != NULL;
}

void tri_nccl_free_shared(void *data)
{
    struct tri_nccl_scope scope;
    if (data == NULL || give_cell(data) || tri_nccl_enter_any(&scope) != TRIB_OK)
        return;
    (void)cudaFreeHost(data);
    tri_nccl_leave(&scope);
}
