/* A sparse allreduce's state on one rank: what it is made of, its life.
 *
 * Only the caller's thread uses the first fields; runs use the others, on the stream of a
 * host-executed backend, so they change only while no run is queued, or by a run. No run uses
 * `comm`: it may be freed if trib_sparse_destroy timed out. */
#ifndef TRI_SPARSE_STATE_H
#define TRI_SPARSE_STATE_H

#include "csrc/core/communicator.h"
#include "csrc/sparse/options.h"
#include "csrc/sparse/run.h"

/* The device scalars of a state. */
struct tri_sparse_scalars {
    struct tri_header header;
    double norm;
    uint32_t current, velocity; /* which buffers are the residual, and the velocity */
    uint32_t decision, outcome, overflow, selected, applied, fallbacks, zero, one, all;
};

/* Bytes, as algorithm and parameters determine them. */
struct tri_needs {
    size_t arena;                              /* the block whose size depends on k */
    size_t near;                               /* the same of symmetric memory */
    size_t persistent_device, persistent_host; /* in an export, besides the residual */
};

struct trib_sparse {
    /* the caller's thread */
    struct trib_comm *comm;
    struct tri_sparse_settings settings; /* with the current k */
    char reason[256];                    /* auto's; "" without it */
    struct tri_workspace memory;         /* two blocks: a constant one, and the arena */
    size_t arena_bytes;
    struct tri_needs needs; /* with the current k */
    uint64_t step;          /* calls queued since creation or reset */

    /* runs */
    const struct tri_backend *backend;
    struct tri_transport *transport;
    struct tri_transport *inside; /* NULL: none, or the algorithm has no use for it */
    int32_t device;
    uint32_t signature;
    struct tri_sparse_params params;
    const struct tri_algorithm *algorithm;
    uint32_t number;
    void *residual[2]; /* NULL in place */
    void *velocity[2]; /* NULL without momentum, and in place */
    struct tri_sparse_scalars *scalars;
    void *arena, *scratch;
    struct tri_symmetric *near;                /* NULL: none */
    struct tri_counters *counters, *published; /* record's, on the device and for the host */
    _Alignas(16) unsigned char own[];          /* the algorithm's; large enough for any */
};

/* The functions of the header of the same name; pointers that must not be NULL are not NULL, except
 * for `out` of create: one rank alone may pass NULL, so the handshake reports it. */
trib_status tri_sparse_bytes(uint64_t *out, const struct trib_comm *comm, size_t count,
                             trib_dtype dtype, const trib_sparse_options *options);
trib_status tri_sparse_create(struct trib_sparse **out, struct trib_comm *comm, size_t count,
                              trib_dtype dtype, const trib_sparse_options *options);
/* The same, for calls that a commit may take back (tri_sparse_revocable). Neither in place nor with
 * entries. */
trib_status tri_sparse_create_revocable(struct trib_sparse **out, struct trib_comm *comm,
                                        size_t count, trib_dtype dtype,
                                        const trib_sparse_options *options);
trib_status tri_sparse_set_density(struct trib_sparse *sparse, double density);
trib_status tri_sparse_set_k(struct trib_sparse *sparse, uint64_t k);
trib_status tri_sparse_destroy(struct trib_sparse *sparse);

/* The end without a wait: what calls that are still queued use is freed after them. May be
 * NULL. */
void tri_sparse_discard(struct trib_sparse *sparse);

/* What of its newest call a commit may take back. Constant. */
struct tri_revocable tri_sparse_revocable(const struct trib_sparse *sparse);

/* TRIB_OK if the communicator is usable and no batch is open. */
trib_status tri_sparse_ready(const struct trib_sparse *sparse, int operation);

/* The residual and acc of this state, without a gradient. In place: NULL buffers. */
struct tri_accumulator tri_sparse_accumulator(const struct trib_sparse *sparse);
/* With momentum, the velocity and the next one, as a residual and acc. In place: NULL buffers. */
struct tri_accumulator tri_sparse_velocity(const struct trib_sparse *sparse);
/* True if the state keeps a velocity of its own. */
bool tri_sparse_keeps_velocity(const struct tri_sparse_params *params);

/* Reset the algorithm: zero `own` and lay out its memory. By a run, or while none is queued. */
void tri_sparse_lay_out(struct trib_sparse *sparse);
/* The same, and begin the schedule anew. While no run is queued; all ranks at the same point. */
void tri_sparse_restart(struct trib_sparse *sparse);

/* For `operation`, queue `function` with a copy of its argument, as tri_issue_run does, after the state's previous
 * use on any stream. In a capture only the graph orders it. */
trib_status tri_sparse_queue(struct trib_sparse *sparse, int operation,
                             void (*function)(void *argument), void *argument, size_t bytes,
                             trib_stream stream);
/* True if a graph captures the stream. */
bool tri_sparse_captures(const struct trib_sparse *sparse, trib_stream stream);

/* Queue zeros into the current residual; into the current velocity. Nothing if the state keeps none.
 * In a registered call, or while no run is queued. */
trib_status tri_sparse_zero_residual(const struct trib_sparse *sparse, trib_stream stream);
trib_status tri_sparse_zero_velocity(const struct trib_sparse *sparse, trib_stream stream);

#endif
