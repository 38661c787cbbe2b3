/* Memory of the host backend: process memory, registered by device and range. */
#define _DEFAULT_SOURCE /* madvise */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "csrc/base/status.h"
#include "csrc/host/ops.h"
#include "csrc/host/registry.h"
#include "csrc/host/stream.h"

enum {
    ALIGNMENT = 256,
    LINE = 64,
    HUGE_PAGE = 2 << 20,
    HUGE_FROM = 4 << 20 /* allocations from this size ask for huge pages */
};

static struct tri_registry memory = TRI_REGISTRY_INIT;

/* Aligned memory, at least one byte; NULL when memory is short. */
static void *alloc_aligned(size_t alignment, size_t bytes)
{
    if (bytes > (size_t)PTRDIFF_MAX - alignment)
        return NULL;
    const size_t whole = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
    return aligned_alloc(alignment, whole);
}

/* With huge pages an allreduce of 64 MiB takes two thirds of the time. */
static void *alloc_huge(size_t bytes)
{
    void *data = alloc_aligned(HUGE_PAGE, bytes);
#ifdef MADV_HUGEPAGE
    if (data != NULL)
        (void)madvise(data, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return data;
}

trib_status tri_host_alloc(int32_t device, void **out, size_t bytes)
{
    *out = bytes >= HUGE_FROM ? alloc_huge(bytes) : alloc_aligned(ALIGNMENT, bytes);
    if (*out != NULL && tri_registry_add(&memory, *out, bytes, device))
        return TRIB_OK;
    free(*out);
    *out = NULL;
    return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "device_alloc: no %zu bytes for host device %d", bytes,
                    (int)device);
}

trib_status tri_host_free(int32_t device, void *data)
{
    if (data == NULL)
        return TRIB_OK;
    if (!tri_registry_remove(&memory, data, device))
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "device_free: data %p is not the start of an allocation of host device %d; "
                        "pass a pointer from trib_device_alloc of that device, once",
                        data, (int)device);
    free(data);
    return TRIB_OK;
}

trib_status tri_host_alloc_pinned(void **out, size_t bytes)
{
    *out = alloc_aligned(LINE, bytes);
    if (*out == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no %zu bytes of pinned memory", bytes);
    memset(*out, 0, bytes);
    return TRIB_OK;
}

void tri_host_free_pinned(void *data)
{
    free(data);
}

struct copy {
    void *dst;
    const void *src;
    size_t bytes;
};

static void run_copy(void *item)
{
    const struct copy *copy = item;
    if (copy->bytes != 0 && copy->dst != copy->src)
        memcpy(copy->dst, copy->src, copy->bytes);
}

trib_status tri_host_copy(int32_t device, void *dst, const void *src, size_t bytes,
                          trib_stream stream)
{
    struct tri_queue *queue = NULL;
    TRI_TRY(tri_stream_find(&queue, device, stream, "device_copy"));
    struct copy *copy = tri_queue_item(queue, sizeof *copy);
    if (copy == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "device_copy: no memory for the queue item");
    *copy = (struct copy){dst, src, bytes};
    tri_queue_push(queue, copy, run_copy);
    return TRIB_OK;
}

trib_status tri_host_fetch(int32_t device, void *dst, const void *src, size_t bytes,
                           trib_stream stream)
{
    TRI_TRY(tri_host_copy(device, dst, src, bytes, stream));
    return tri_host_stream_wait(device, stream);
}

/* Every device may use memory that this backend has not allocated. A range that starts outside an
 * allocation and reaches into one has run past the end of its own. */
enum tri_fault tri_host_check_buffer(int32_t device, const void *data, size_t bytes, size_t *found)
{
    struct tri_extent range;
    if (!tri_registry_find(&memory, data, bytes, &range))
        return TRI_FAULT_NONE;
    if (range.start > (uintptr_t)data) {
        *found = range.start - (uintptr_t)data;
        return TRI_FAULT_TOO_SHORT;
    }
    if (range.device != device) {
        *found = (size_t)range.device;
        return TRI_FAULT_OTHER_DEVICE;
    }
    *found = range.bytes - ((uintptr_t)data - range.start);
    return *found >= bytes ? TRI_FAULT_NONE : TRI_FAULT_TOO_SHORT;
}
