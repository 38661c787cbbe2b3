/* Scratch memory of a communicator, on its device: grown when needed, freed with it. And other
 * device memory that queued work uses, kept in the same way until nothing does. */
#ifndef TRI_CORE_WORKSPACE_H
#define TRI_CORE_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"

/* One allocation; newer ones are larger and come first. */
struct tri_block {
    struct tri_block *older;
    void *data;
    size_t bytes;
};

/* Nothing is allocated before the first use. */
struct tri_workspace {
    const struct tri_device_ops *ops; /* NULL before the first use */
    int32_t device;
    struct tri_block *blocks;
    uint64_t held;            /* bytes in all blocks */
    void *shared;             /* shared memory; a communicator's: struct tri_workspace_shared */
    trib_event event;         /* where the last use ends, */
    bool used;                /* if there was one, */
    bool lost;                /* and its end is not known: then it is never used again, nor freed */
    struct trib_abort *state; /* whose word queued work may look at: a reference, or NULL */
    void *host;               /* host memory that queued work may look at; freed with the rest */
};

/* A communicator's shared memory: all that a backend gives at once. */
enum { TRI_STAGED_BYTES = 112 };
struct tri_workspace_shared {
    struct tri_list_counts counts;
    uint32_t reserved[2];
    unsigned char
        staged[TRI_STAGED_BYTES]; /* small_allgather.c: what is on its way to the device */
};

/* The words at the beginning of the newest block. */
struct tri_workspace_words {
    uint32_t decision; /* of the list that is running */
    uint32_t barrier;  /* what a barrier made of allreduce adds up */
    double factors[4]; /* of a list: as elements of f16, bf16, f32 and f64 */
};

/* Open an empty one, with `shared` bytes of shared memory. */
trib_status tri_workspace_open(struct tri_workspace *workspace, const struct tri_device_ops *ops,
                               int32_t device, size_t shared);
/* Add a newest block of `bytes` bytes. */
trib_status tri_workspace_add(struct tri_workspace *workspace, size_t bytes);
/* Free the block at `data`, which nothing uses any more. Never waits. */
void tri_workspace_remove(struct tri_workspace *workspace, const void *data);

/* wait before, and mark after, everything that is queued on `stream` and uses the workspace: uses
 * on different streams run one after the other. */
trib_status tri_workspace_wait(const struct tri_workspace *workspace, trib_stream stream);
/* Record that the last use ends here. If the event cannot be recorded, this raises `state` and
 * waits for the stream, 0.1 s at most. Work that still runs then (a kernel of the caller's, a
 * graph) makes the workspace a lost one. */
trib_status tri_workspace_mark(struct tri_workspace *workspace, struct trib_abort *state,
                               trib_stream stream);
/* Has the last use not ended? */
bool tri_workspace_in_use(const struct tri_workspace *workspace);

/* Give the newest block room for the words and `bytes` more; opens the workspace at its first use.
 * Larger blocks replace smaller ones, which stay: queued work may still use them, and freeing waits
 * for the device. May wait. */
trib_status tri_workspace_reserve(struct tri_workspace *workspace, const struct tri_device_ops *ops,
                                  int32_t device, size_t bytes);

/* In the newest block, after a reserve. data is aligned to 256. */
struct tri_workspace_words *tri_workspace_words(const struct tri_workspace *workspace);
void *tri_workspace_data(const struct tri_workspace *workspace);

/* What became of the communicator's lists so far. Any time. */
struct tri_list_counts tri_workspace_lists(const struct tri_workspace *workspace);

/* Let the last use end, for at most `patience_ns`. */
void tri_workspace_settle(const struct tri_workspace *workspace, uint64_t patience_ns);
/* Give everything back: now if the last use has ended. Otherwise put it aside, until a later sweep
 * finds that it has: work that is stuck is not waited for. */
void tri_workspace_close(struct tri_workspace *workspace);
/* Free what was put aside and is no longer in use; returns how many are left. Any thread. */
uint32_t tri_workspace_sweep(void);

#endif
