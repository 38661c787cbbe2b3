/* Scratch memory of a communicator on its device, which grows on demand and is freed with it. Also
 * other device memory that queued work uses, kept in the same way until nothing uses it. */
#ifndef TRI_CORE_WORKSPACE_H
#define TRI_CORE_WORKSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/core/memory.h"

/* Nothing is allocated before the first use. */
struct tri_workspace {
    const struct tri_device_ops *ops; /* NULL before the first use */
    int32_t device;
    struct tri_owner *owner;  /* of the blocks, which hold references */
    int64_t sparse_state;     /* its number, if it is the memory of one; or TRI_NO_STATE */
    struct tri_block *blocks; /* newer ones are larger and come first */
    uint64_t held;            /* bytes in all of them */
    struct tri_block *cell;   /* pinned memory, */
    void *pinned;             /* where it begins; a communicator's: struct tri_workspace_pinned */
    trib_event event;         /* recorded where the last use ends */
    bool used;                /* the event was recorded */
    bool lost;                /* its end is unknown: never reuse or free the memory */
    struct trib_abort *state; /* queued work may read its abort flag: a reference, or NULL */
    void *host;               /* host memory that queued work may read; freed with the rest */
};

/* A communicator's pinned memory: as much as a backend allocates at once. */
enum { TRI_STAGED_BYTES = 112 };
struct tri_workspace_pinned {
    struct tri_list_counts counts;
    uint32_t reserved;
    unsigned char
        staged[TRI_STAGED_BYTES]; /* small_allgather.c: bytes on their way to the device */
};
_Static_assert(sizeof(struct tri_workspace_pinned) <= 128, "a backend allocates it at once");

/* The scalars at the beginning of the newest block, and the room for them. */
enum { TRI_SCALARS_BYTES = 256 };
struct tri_workspace_scalars {
    uint32_t decision; /* of the list that is running */
    double factors[4]; /* of a list, as f16, bf16, f32 and f64 elements */
};

/* Open an empty one on the owner's device, with `pinned_bytes` of pinned memory. */
trib_status tri_workspace_open(struct tri_workspace *workspace, struct tri_owner *owner,
                               int64_t sparse_state, size_t pinned_bytes);
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
/* The same for one of several workspaces, which wait 0.1 s at most together: *deadline_ns is 0 before
 * the first of them. */
trib_status tri_workspace_mark_by(struct tri_workspace *workspace, struct trib_abort *state,
                                  trib_stream stream, uint64_t *deadline_ns);
/* The caller has found that every use has ended, as the stream shows: none is lost. */
void tri_workspace_passed(struct tri_workspace *workspace);
/* Has the last use not ended? */
bool tri_workspace_in_use(const struct tri_workspace *workspace);

/* Give the newest block room for the scalars, the table and `bytes` more; opens the workspace at first use.
 * Larger blocks replace smaller ones, which stay: queued work may still use them, and freeing waits
 * for the device. May wait. */
trib_status tri_workspace_reserve(struct tri_workspace *workspace, struct tri_owner *owner,
                                  size_t bytes);

/* Behind them: the table of the communicator's last list (kernels.h), which no other call uses. */
enum { TRI_TABLE_BYTES = 32768 };

/* In the newest block, after a reserve. data is aligned to 256. A newer block has other bytes. */
struct tri_workspace_scalars *tri_workspace_scalars(const struct tri_workspace *workspace);
void *tri_workspace_table(const struct tri_workspace *workspace);
void *tri_workspace_data(const struct tri_workspace *workspace);

/* The counts of the communicator's lists. Any time. */
struct tri_list_counts tri_workspace_lists(const struct tri_workspace *workspace);

/* Wait until the last use has ended, at most until `deadline_ns`; false if it has not, or its end is
 * unknown. This naps. */
bool tri_workspace_await(const struct tri_workspace *workspace, uint64_t deadline_ns);
/* The same for at most `timeout_ns`, and spins. */
void tri_workspace_drain(const struct tri_workspace *workspace, uint64_t timeout_ns);
/* Free everything, if the last use has ended. Otherwise set it aside for a later sweep: this never
 * waits for work that is stuck. */
void tri_workspace_close(struct tri_workspace *workspace);
/* Free the workspaces that were set aside and are no longer in use; returns how many are left. Any
 * thread. */
uint32_t tri_workspace_sweep(void);

#endif
