/* The memory that the library allocates for itself through a backend. */
#include "csrc/core/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/debug.h"
#include "csrc/base/lock.h"
#include "csrc/base/log.h"
#include "csrc/base/status.h"

/* A device. It stays, because its peaks do. */
struct tri_memory_place {
    const struct tri_backend *backend;
    int32_t device;
    struct tri_use uses[TRI_PURPOSES];
    struct tri_memory_place *next;
};

static const char *const purposes[TRI_PURPOSES] = {"workspace", "sparse", "pinned", "peer"};

/* Guards the two lists and what they refer to, except what of a block never changes. Held during no
 * call of a backend and none of the log. */
static struct tri_lock lock = TRI_LOCK_INIT;
static struct tri_memory_place *places;
static struct tri_block *blocks;

/* ------------------------------------------------------------------------------------ uses */

static void add(struct tri_use *use, uint64_t bytes)
{
    use->bytes += bytes;
    use->peak = use->bytes > use->peak ? use->bytes : use->peak;
}

/* An owner's, and its device's. */
static void grow(struct tri_use *own, struct tri_use *all, uint64_t bytes)
{
    add(own, bytes);
    add(all, bytes);
}

static void shrink(struct tri_use *own, struct tri_use *all, uint64_t bytes)
{
    own->bytes -= bytes;
    all->bytes -= bytes;
}

/* ---------------------------------------------------------------------------------- owners */

static struct tri_memory_place *find_place(const struct tri_backend *backend, int32_t device)
{
    struct tri_memory_place *place = places;
    while (place != NULL && (place->backend != backend || place->device != device))
        place = place->next;
    return place;
}

/* The device's place, made at its first use. NULL if memory is short. Under the lock. */
static struct tri_memory_place *reach_place(const struct tri_backend *backend, int32_t device)
{
    struct tri_memory_place *place = find_place(backend, device);
    if (place != NULL || (place = calloc(1, sizeof *place)) == NULL)
        return place;
    *place = (struct tri_memory_place){.backend = backend, .device = device, .next = places};
    places = place;
    return place;
}

struct tri_owner *tri_owner_create(const struct tri_backend *backend, int32_t device)
{
    struct tri_owner *owner = calloc(1, sizeof *owner);
    if (owner == NULL)
        return NULL;
    tri_lock(&lock);
    *owner = (struct tri_owner){.backend = backend,
                                .device = device,
                                .references = 1,
                                .place = reach_place(backend, device)};
    tri_unlock(&lock);
    if (owner->place != NULL)
        return owner;
    free(owner);
    return NULL;
}

void tri_owner_name(struct tri_owner *owner, uint64_t identity, int32_t rank)
{
    tri_lock(&lock);
    owner->identity = identity;
    owner->rank = rank;
    tri_unlock(&lock);
}

void tri_owner_peers(struct tri_owner *owner, uint64_t bytes)
{
    tri_lock(&lock);
    shrink(&owner->uses[TRI_PEER], &owner->place->uses[TRI_PEER], owner->uses[TRI_PEER].bytes);
    grow(&owner->uses[TRI_PEER], &owner->place->uses[TRI_PEER], bytes);
    tri_unlock(&lock);
}

void tri_owner_release(struct tri_owner *owner)
{
    if (owner == NULL)
        return;
    tri_lock(&lock);
    const bool last = --owner->references == 0;
    tri_unlock(&lock);
    if (last)
        free(owner);
}

/* ------------------------------------------------------------------------------------- log */

/* Its owner has a name: memory is allocated once the communicator is open. */
static void log_block(const struct tri_block *block, const char *verb)
{
    const struct tri_owner *owner = block->owner;
    char whose[64] = "the workspace";
    if (!tri_debug())
        return;
    if (block->sparse_state != TRI_NO_STATE)
        (void)snprintf(whose, sizeof whose, "sparse state %" PRId64, block->sparse_state);
    tri_log(TRIB_LOG_INFO,
            "%s %zu bytes at 0x%" PRIxPTR ": %s%s of rank %d of communicator %016" PRIx64
            ", device %d of %s",
            verb, block->bytes, (uintptr_t)block->data,
            block->purpose == TRI_PINNED ? "pinned memory for " : "", whose, (int)owner->rank,
            owner->identity, (int)owner->device, owner->backend->name);
}

/* ---------------------------------------------------------------------------- alloc and free */

static void count(struct tri_block *block)
{
    struct tri_owner *owner = block->owner;
    tri_lock(&lock);
    grow(&owner->uses[block->purpose], &owner->place->uses[block->purpose], block->bytes);
    owner->references++;
    block->next = blocks;
    block->before = &blocks;
    if (blocks != NULL)
        blocks->before = &block->next;
    blocks = block;
    tri_unlock(&lock);
    log_block(block, "allocated");
}

static void uncount(struct tri_block *block)
{
    struct tri_owner *owner = block->owner;
    log_block(block, "freed"); /* before another block can get the address */
    tri_lock(&lock);
    shrink(&owner->uses[block->purpose], &owner->place->uses[block->purpose], block->bytes);
    *block->before = block->next;
    if (block->next != NULL)
        block->next->before = block->before;
    tri_unlock(&lock);
}

static trib_status alloc(struct tri_block **out, const struct tri_block *wanted)
{
    const struct tri_device_ops *ops = wanted->owner->backend->device;
    struct tri_block *block = malloc(sizeof *block);
    if (block == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for the description of a workspace");
    *block = *wanted;
    const trib_status status = block->purpose == TRI_PINNED
                                   ? ops->alloc_pinned(&block->data, block->bytes)
                                   : ops->alloc(block->owner->device, &block->data, block->bytes);
    if (status != TRIB_OK) {
        free(block);
        return status;
    }
    count(block);
    *out = block;
    return TRIB_OK;
}

trib_status tri_memory_alloc(struct tri_block **out, struct tri_owner *owner, int64_t sparse_state,
                             size_t bytes)
{
    const struct tri_block wanted = {.owner = owner,
                                     .purpose =
                                         sparse_state == TRI_NO_STATE ? TRI_WORKSPACE : TRI_SPARSE,
                                     .sparse_state = sparse_state,
                                     .bytes = bytes};
    return alloc(out, &wanted);
}

trib_status tri_memory_alloc_pinned(struct tri_block **out, struct tri_owner *owner,
                                    int64_t sparse_state, size_t bytes)
{
    const struct tri_block wanted = {
        .owner = owner, .purpose = TRI_PINNED, .sparse_state = sparse_state, .bytes = bytes};
    return alloc(out, &wanted);
}

void tri_memory_free(struct tri_block *block)
{
    const struct tri_owner *owner = block->owner;
    const struct tri_device_ops *ops = owner->backend->device;
    uncount(block);
    if (block->purpose == TRI_PINNED)
        ops->free_pinned(block->data);
    else if (ops->free_later != NULL)
        ops->free_later(owner->device, block->data);
    else
        (void)ops->free(owner->device, block->data);
    tri_owner_release(block->owner);
    free(block);
}

/* ---------------------------------------------------------------------------------- reports */

static void report(trib_memory *out, const struct tri_use *uses)
{
    out->workspace_bytes = uses[TRI_WORKSPACE].bytes;
    out->workspace_peak_bytes = uses[TRI_WORKSPACE].peak;
    out->sparse_bytes = uses[TRI_SPARSE].bytes;
    out->sparse_peak_bytes = uses[TRI_SPARSE].peak;
    out->pinned_bytes = uses[TRI_PINNED].bytes;
    out->pinned_peak_bytes = uses[TRI_PINNED].peak;
    out->peer_bytes = uses[TRI_PEER].bytes;
    out->peer_peak_bytes = uses[TRI_PEER].peak;
}

void tri_memory_of_owner(trib_memory *out, const struct tri_owner *owner)
{
    tri_lock(&lock);
    report(out, owner->uses);
    tri_unlock(&lock);
}

void tri_memory_of_device(trib_memory *out, const struct tri_backend *backend, int32_t device)
{
    static const struct tri_use nothing[TRI_PURPOSES];
    tri_lock(&lock);
    const struct tri_memory_place *place = find_place(backend, device);
    report(out, place == NULL ? nothing : place->uses);
    tri_unlock(&lock);
}

static void add_block(struct tri_text *out, const struct tri_block *block)
{
    tri_text_add(out, "{\"purpose\": \"%s\", \"state\": ", purposes[block->purpose]);
    if (block->sparse_state == TRI_NO_STATE)
        tri_text_add(out, "null");
    else
        tri_text_add(out, "%" PRId64, block->sparse_state);
    tri_text_add(out, ", \"bytes\": %zu, \"address\": \"0x%" PRIxPTR "\"}", block->bytes,
                 (uintptr_t)block->data);
}

/* Under the lock. */
static void add_blocks(struct tri_text *out, const struct tri_owner *owner)
{
    const char *before = "\n    ";
    tri_text_add(out, ", \"blocks\": [");
    for (const struct tri_block *block = blocks; block != NULL; block = block->next) {
        if (block->owner != owner)
            continue;
        tri_text_add(out, "%s", before);
        add_block(out, block);
        before = ",\n    ";
    }
    tri_text_add(out, "]");
}

void tri_memory_format(struct tri_text *out, const struct tri_owner *owner)
{
    const bool each = tri_debug();
    tri_lock(&lock);
    for (int i = 0; i < TRI_PURPOSES; i++)
        tri_text_add(out, "%s\"%s_bytes\": %" PRIu64 ", \"%s_peak_bytes\": %" PRIu64,
                     i == 0 ? "{" : ", ", purposes[i], owner->uses[i].bytes, purposes[i],
                     owner->uses[i].peak);
    if (each)
        add_blocks(out, owner);
    tri_text_add(out, "}");
    tri_unlock(&lock);
}
