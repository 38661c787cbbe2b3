/* Scratch memory of a communicator. */
#include "csrc/core/workspace.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/core/communicator.h"

enum { WORDS_BYTES = 256 };
static const size_t granule = 65536;

static trib_status open_workspace(struct trib_comm *comm)
{
    struct tri_workspace *workspace = &comm->workspace;
    const struct tri_device_ops *ops = comm->backend->device;
    void *committed = NULL;
    trib_status status = ops->alloc_shared(&committed, sizeof *workspace->committed);
    if (status != TRIB_OK)
        return status;
    status = ops->event_create(comm->device, &workspace->event);
    if (status != TRIB_OK) {
        ops->free_shared(committed);
        return status;
    }
    workspace->committed = committed;
    workspace->device = comm->device;
    workspace->ops = ops;
    return TRIB_OK;
}

static trib_status add_block(struct tri_workspace *workspace, size_t bytes)
{
    struct tri_block *block = malloc(sizeof *block);
    if (block == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for the description of a workspace");
    const trib_status status = workspace->ops->alloc(workspace->device, &block->data, bytes);
    if (status != TRIB_OK) {
        free(block);
        return status;
    }
    block->bytes = bytes;
    block->older = workspace->blocks;
    workspace->blocks = block;
    workspace->held += bytes;
    return TRIB_OK;
}

trib_status tri_workspace_reserve(struct trib_comm *comm, size_t bytes)
{
    struct tri_workspace *workspace = &comm->workspace;
    const size_t old = workspace->blocks == NULL ? 0 : workspace->blocks->bytes;
    size_t need = WORDS_BYTES + bytes;
    if (need <= old)
        return TRIB_OK;
    const trib_status status = workspace->ops == NULL ? open_workspace(comm) : TRIB_OK;
    if (status != TRIB_OK)
        return status;
    /* Growing by half at least: the blocks together stay below three times the largest need. */
    if (need < old + old / 2)
        need = old + old / 2;
    return add_block(workspace, (need + granule - 1) / granule * granule);
}

struct tri_workspace_words *tri_workspace_words(const struct trib_comm *comm)
{
    return comm->workspace.blocks->data;
}

void *tri_workspace_data(const struct trib_comm *comm)
{
    return (char *)comm->workspace.blocks->data + WORDS_BYTES;
}

trib_status tri_workspace_begin(struct trib_comm *comm, trib_stream stream)
{
    const struct tri_workspace *workspace = &comm->workspace;
    if (!workspace->used)
        return TRIB_OK;
    /* Also on the same stream: that it has the same handle does not say that it is the same. */
    return workspace->ops->stream_wait_event(comm->device, workspace->event, stream);
}

trib_status tri_workspace_end(struct trib_comm *comm, trib_stream stream)
{
    struct tri_workspace *workspace = &comm->workspace;
    const trib_status status =
        workspace->ops->event_record(comm->device, workspace->event, stream);
    workspace->used = true;
    if (status != TRIB_OK) {
        workspace->lost = true;
        (void)tri_abort_raise(comm->state, status, tri_detail());
    }
    return status;
}

uint64_t tri_workspace_committed(const struct tri_workspace *workspace)
{
    return workspace->committed == NULL ? 0
                                        : __atomic_load_n(workspace->committed, __ATOMIC_ACQUIRE);
}

/* Workspaces whose communicators are gone and whose last use had not ended. Pushed one by one,
 * taken all at once: so an entry is in one thread's hands only, and no lock is needed. */
struct aside {
    struct aside *next;
    struct tri_workspace workspace;
};
static _Atomic(struct aside *) put_aside;

static void push(struct aside *entry)
{
    entry->next = atomic_load_explicit(&put_aside, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&put_aside, &entry->next, entry,
                                                  memory_order_release, memory_order_relaxed)) {}
}

/* An event that cannot be asked (the device is lost) counts as not passed. */
static bool in_use(const struct tri_workspace *workspace)
{
    bool passed = false;
    if (!workspace->used || workspace->lost)
        return workspace->lost;
    return workspace->ops->event_query(workspace->device, workspace->event, &passed) != TRIB_OK ||
           !passed;
}

static void free_all(struct tri_workspace *workspace)
{
    while (workspace->blocks != NULL) {
        struct tri_block *block = workspace->blocks;
        workspace->blocks = block->older;
        if (workspace->ops->free_later != NULL)
            workspace->ops->free_later(workspace->device, block->data);
        else
            (void)workspace->ops->free(workspace->device, block->data);
        free(block);
    }
    if (workspace->ops != NULL) {
        (void)workspace->ops->event_destroy(workspace->device, workspace->event);
        workspace->ops->free_shared(workspace->committed);
    }
    free(workspace->host);
}

void tri_workspace_settle(const struct tri_workspace *workspace, uint64_t patience_ns)
{
    const uint64_t deadline = tri_now_ns() + patience_ns;
    while (in_use(workspace) && tri_now_ns() < deadline) {}
}

void tri_workspace_close(struct tri_workspace *workspace)
{
    const bool stuck = in_use(workspace);
    struct aside *entry = stuck ? malloc(sizeof *entry) : NULL;
    if (!stuck) {
        free_all(workspace);
    } else if (entry != NULL) {
        entry->workspace = *workspace;
        push(entry);
    } /* otherwise it is lost: giving back memory that is in use would be worse */
    *workspace = (struct tri_workspace){0};
}

void tri_workspace_sweep(void)
{
    struct aside *entry = atomic_exchange_explicit(&put_aside, NULL, memory_order_acquire);
    while (entry != NULL) {
        struct aside *next = entry->next;
        if (in_use(&entry->workspace)) {
            push(entry);
        } else {
            free_all(&entry->workspace);
            free(entry);
        }
        entry = next;
    }
}
