/* The memory that the library allocates for itself through a backend: how much, for whom, where.
 * Counted always; each block is logged if the debug switch is on. */
#ifndef TRI_CORE_MEMORY_H
#define TRI_CORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/base/text.h"

enum tri_purpose {
    TRI_WORKSPACE, /* of a communicator */
    TRI_SPARSE,    /* a sparse state: residuals and scratch */
    TRI_PINNED,    /* pinned host memory of either */
    TRI_PEER,      /* a backend's own, by which ranks reach each other; no block */
    TRI_PURPOSES
};

struct tri_use {
    uint64_t bytes, peak; /* now; the most so far */
};

/* For whom memory is allocated: one rank of one communicator. Reference counted, because blocks may
 * outlive the communicator. */
struct tri_owner {
    const struct tri_backend *backend;
    int32_t device;
    /* Guarded by the lock of memory.c. */
    uint64_t identity; /* of the communicator */
    int32_t rank;
    uint32_t references; /* the communicator's, and one for each block */
    struct tri_use uses[TRI_PURPOSES];
    struct tri_memory_place *place; /* its device, where all owners' memory is counted */
};

/* One allocation. */
struct tri_block {
    struct tri_block *older; /* whoever has it may link it here */
    void *data;
    size_t bytes;
    struct tri_owner *owner;
    enum tri_purpose purpose;
    int64_t sparse_state;             /* number of the sparse state, or TRI_NO_STATE */
    struct tri_block *next, **before; /* of all blocks: guarded by the lock of memory.c */
};
enum { TRI_NO_STATE = -1 };

/* NULL if memory is short. Once the communicator is open, `name` says which one it is, and `peers` what its
 * backend holds for it; until it ends, when that is 0. */
struct tri_owner *tri_owner_create(const struct tri_backend *backend, int32_t device);
void tri_owner_name(struct tri_owner *owner, uint64_t identity, int32_t rank);
void tri_owner_peers(struct tri_owner *owner, uint64_t bytes);
void tri_owner_release(struct tri_owner *owner); /* NULL allowed */

/* Allocate `bytes` bytes for the sparse state of that number, or for the communicator's workspace:
 * on the owner's device, or pinned. May wait. */
trib_status tri_memory_alloc(struct tri_block **out, struct tri_owner *owner, int64_t sparse_state,
                             size_t bytes);
trib_status tri_memory_alloc_pinned(struct tri_block **out, struct tri_owner *owner,
                                    int64_t sparse_state, size_t bytes);
/* Free a block, which nothing uses any more; at the latest in the background. Never waits. */
void tri_memory_free(struct tri_block *block);

/* Any thread. What is held for the owner; for all owners on a device. */
void tri_memory_of_owner(trib_memory *out, const struct tri_owner *owner);
void tri_memory_of_device(trib_memory *out, const struct tri_backend *backend, int32_t device);
/* Append what is held for the owner as a JSON object, with each block if the debug switch is on. */
void tri_memory_format(struct tri_text *out, const struct tri_owner *owner);

#endif
