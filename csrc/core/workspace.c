/* Device memory that queued work uses. */
#include "csrc/core/workspace.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/base/stopped.h"

enum { NAP_NS = 100000, FIRST_NAP_NS = 20000, LONGEST_NAP_NS = 1000000 };
static const size_t granule = 65536;

trib_status tri_workspace_open(struct tri_workspace *workspace, struct tri_owner *owner,
                               int64_t sparse_state, size_t pinned_bytes)
{
    const struct tri_device_ops *ops = owner->backend->device;
    struct tri_block *cell = NULL;
    TRI_TRY(tri_memory_alloc_pinned(&cell, owner, sparse_state, pinned_bytes));
    const trib_status status = ops->event_create(owner->device, &workspace->event);
    if (status != TRIB_OK) {
        tri_memory_free(cell);
        return status;
    }
    workspace->cell = cell;
    workspace->pinned = cell->data;
    workspace->owner = owner;
    workspace->sparse_state = sparse_state;
    workspace->device = owner->device;
    workspace->ops = ops;
    return TRIB_OK;
}

trib_status tri_workspace_add(struct tri_workspace *workspace, size_t bytes)
{
    struct tri_block *block = NULL;
    TRI_TRY(tri_memory_alloc(&block, workspace->owner, workspace->sparse_state, bytes));
    block->older = workspace->blocks;
    workspace->blocks = block;
    workspace->held += bytes;
    return TRIB_OK;
}

void tri_workspace_remove(struct tri_workspace *workspace, const void *data)
{
    struct tri_block **link = &workspace->blocks;
    while (*link != NULL && (*link)->data != data)
        link = &(*link)->older;
    struct tri_block *block = *link;
    if (block == NULL)
        return;
    *link = block->older;
    workspace->held -= block->bytes;
    tri_memory_free(block);
}

trib_status tri_workspace_reserve(struct tri_workspace *workspace, struct tri_owner *owner,
                                  size_t bytes)
{
    const size_t old = workspace->blocks == NULL ? 0 : workspace->blocks->bytes;
    size_t need = TRI_SCALARS_BYTES + TRI_TABLE_BYTES + bytes;
    if (need <= old)
        return TRIB_OK;
    if (workspace->ops == NULL)
        TRI_TRY(tri_workspace_open(workspace, owner, TRI_NO_STATE,
                                   sizeof(struct tri_workspace_pinned)));
    /* Growing by half at least: the blocks together stay below three times the largest need. */
    if (need < old + old / 2)
        need = old + old / 2;
    return tri_workspace_add(workspace, (need + granule - 1) / granule * granule);
}

struct tri_workspace_scalars *tri_workspace_scalars(const struct tri_workspace *workspace)
{
    return workspace->blocks->data;
}

void *tri_workspace_table(const struct tri_workspace *workspace)
{
    return (char *)workspace->blocks->data + TRI_SCALARS_BYTES;
}

void *tri_workspace_data(const struct tri_workspace *workspace)
{
    return (char *)tri_workspace_table(workspace) + TRI_TABLE_BYTES;
}

trib_status tri_workspace_wait(const struct tri_workspace *workspace, trib_stream stream)
{
    if (!workspace->used)
        return TRIB_OK;
    /* Also on the same stream: a new stream may have the handle of an old one. */
    return workspace->ops->stream_wait_event(workspace->device, workspace->event, stream);
}

/* Does all work queued on `stream` end soon? The communicator is over, so no collective holds it
 * up for long. */
static bool runs_out(const struct tri_workspace *workspace, trib_stream stream,
                     uint64_t *deadline_ns)
{
    const struct tri_device_ops *ops = workspace->ops;
    bool done = false;
    if (*deadline_ns == 0)
        *deadline_ns = tri_deadline_ns(TRI_RUN_OUT_MS);
    if (ops->stream_query == NULL ||
        (ops->capturing != NULL && ops->capturing(workspace->device, stream)))
        return false;
    while (ops->stream_query(workspace->device, stream, &done) == TRIB_OK && !done &&
           tri_now_ns() < *deadline_ns)
        tri_nap_ns(NAP_NS);
    return done;
}

/* Without an event nothing shows later when the last use has ended, and the stream may be destroyed
 * by then. So this looks now. The event still covers earlier uses, which came before this one. */
static trib_status unmarked(struct tri_workspace *workspace, struct trib_abort *state,
                            trib_status status, trib_stream stream, uint64_t *deadline_ns)
{
    const struct tri_detail_copy detail = tri_detail_copy();
    (void)tri_abort_raise(state, status, detail.text);
    workspace->lost = !runs_out(workspace, stream, deadline_ns);
    return tri_fail(status, "%s", detail.text);
}

trib_status tri_workspace_mark_by(struct tri_workspace *workspace, struct trib_abort *state,
                                  trib_stream stream, uint64_t *deadline_ns)
{
    const trib_status status =
        workspace->ops->event_record(workspace->device, workspace->event, stream);
    workspace->used = true;
    if (workspace->state == NULL)
        workspace->state = tri_abort_retain(state);
    return status == TRIB_OK ? TRIB_OK : unmarked(workspace, state, status, stream, deadline_ns);
}

trib_status tri_workspace_mark(struct tri_workspace *workspace, struct trib_abort *state,
                               trib_stream stream)
{
    uint64_t deadline_ns = 0;
    return tri_workspace_mark_by(workspace, state, stream, &deadline_ns);
}

void tri_workspace_passed(struct tri_workspace *workspace)
{
    workspace->lost = false;
}

struct tri_list_counts tri_workspace_lists(const struct tri_workspace *workspace)
{
    const struct tri_workspace_pinned *pinned = workspace->pinned;
    if (pinned == NULL)
        return (struct tri_list_counts){.committed = 0};
    const struct tri_list_counts *counts = &pinned->counts;
    return (struct tri_list_counts){.committed =
                                        __atomic_load_n(&counts->committed, __ATOMIC_ACQUIRE),
                                    .refused = __atomic_load_n(&counts->refused, __ATOMIC_ACQUIRE)};
}

/* Workspaces that were still in use when their communicators were destroyed. Threads push one at a
 * time and take all at once, so one thread owns an entry, without a lock. */
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

/* An event that the device cannot query (it is lost) counts as not passed. */
bool tri_workspace_in_use(const struct tri_workspace *workspace)
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
        tri_memory_free(block);
    }
    if (workspace->ops != NULL) {
        (void)workspace->ops->event_destroy(workspace->device, workspace->event);
        tri_memory_free(workspace->cell);
    }
    tri_abort_release(workspace->state);
    free(workspace->host);
}

void tri_workspace_drain(const struct tri_workspace *workspace, uint64_t timeout_ns)
{
    const uint64_t deadline = tri_now_ns() + timeout_ns;
    while (tri_workspace_in_use(workspace) && tri_now_ns() < deadline) {}
}

bool tri_workspace_await(const struct tri_workspace *workspace, uint64_t deadline_ns)
{
    bool in_use = tri_workspace_in_use(workspace);
    for (uint64_t nap = FIRST_NAP_NS; in_use && !workspace->lost && tri_now_ns() < deadline_ns;
         nap = nap < LONGEST_NAP_NS ? 2 * nap : nap) {
        tri_nap_ns(nap);
        in_use = tri_workspace_in_use(workspace);
    }
    return !in_use;
}

void tri_workspace_close(struct tri_workspace *workspace)
{
    const bool stuck = tri_workspace_in_use(workspace);
    struct aside *entry = stuck ? malloc(sizeof *entry) : NULL;
    if (!stuck) {
        free_all(workspace);
    } else if (entry != NULL) {
        entry->workspace = *workspace;
        push(entry);
    } /* otherwise the memory leaks: freeing memory in use would be worse */
    *workspace = (struct tri_workspace){0};
}

uint32_t tri_workspace_sweep(void)
{
    uint32_t left = 0;
    struct aside *entry = atomic_exchange_explicit(&put_aside, NULL, memory_order_acquire);
    while (entry != NULL) {
        struct aside *next = entry->next;
        if (tri_workspace_in_use(&entry->workspace)) {
            push(entry);
            left++;
        } else {
            free_all(&entry->workspace);
            free(entry);
        }
        entry = next;
    }
    return left;
}
