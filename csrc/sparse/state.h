/* A sparse allreduce's state on one rank: what it is made of, its life.
 *
 * The fields are of two kinds: those that only the caller's thread looks at, and those that runs look
 * at, on the stream of a host-executed backend. The latter change only while no run is queued, or by a run.
 * A run never looks at `comm`, which may be gone if destroying the state had to give up waiting. */
#ifndef TRI_SPARSE_STATE_H
#define TRI_SPARSE_STATE_H

#include "csrc/core/communicator.h"
#include "csrc/sparse/options.h"
#include "csrc/sparse/run.h"

/* The device scalars of a state. */
struct tri_sparse_scalars {
    struct tri_header header;
    double norm;
    uint32_t current, decision, outcome, overflow, selected, applied, fallbacks, zero, one, all;
};

/* What follows from algorithm and parameters, in bytes. */
struct tri_needs {
    size_t room;                   /* the block that depends on k */
    size_t kept_device, kept_host; /* what an export takes along besides the residual */
};

struct trib_sparse {
    /* the caller's thread */
    struct trib_comm *comm;
    struct tri_sparse_settings settings; /* with k as it is now */
    char reason[160];                    /* why auto chose; "" */
    struct tri_workspace memory;         /* two blocks: what stays, and what depends on k */
    size_t room_bytes;                   /* of the second */
    struct tri_needs needs;              /* with k as it is now */
    uint64_t step;                       /* calls queued since creation or reset */

    /* runs */
    const struct tri_backend *backend;
    struct tri_transport *transport;
    int32_t device;
    uint32_t signature;
    struct tri_sparse_params params;
    const struct tri_algorithm *algorithm;
    uint32_t number;
    void *residual[2]; /* NULL in place */
    struct tri_sparse_scalars *scalars;
    void *room, *scratch;
    struct tri_counters *counters;
    _Alignas(16) unsigned char own[]; /* the algorithm's: room for that of any */
};

/* The functions of the header of the same name; pointers that must not be NULL are not NULL, but for
 * `out` of create, which is refused as what one rank alone may pass. */
trib_status tri_sparse_bytes(uint64_t *out, const struct trib_comm *comm, size_t count,
                             trib_dtype dtype, const trib_sparse_options *options);
trib_status tri_sparse_create(struct trib_sparse **out, struct trib_comm *comm, size_t count,
                              trib_dtype dtype, const trib_sparse_options *options);
trib_status tri_sparse_set_density(struct trib_sparse *sparse, double density);
trib_status tri_sparse_set_k(struct trib_sparse *sparse, uint64_t k);
trib_status tri_sparse_destroy(struct trib_sparse *sparse);

/* TRIB_OK if a call may be made now: usable, and no batch is open. */
trib_status tri_sparse_ready(const struct trib_sparse *sparse, int operation);

/* The residual and acc of this state, without a gradient. In place: NULL buffers. */
struct tri_accumulator tri_sparse_accumulator(const struct trib_sparse *sparse);

/* The algorithm as new: `own` zeroed, its memory laid out. By a run, or while none is queued. */
void tri_sparse_lay_out(struct trib_sparse *sparse);

/* Queue `function` with a copy of its argument, as tri_issue_run does: after the state's last use on any
 * stream, and as its last use. In a capture the order is that of the graph alone. */
trib_status tri_sparse_queue(struct trib_sparse *sparse, void (*function)(void *argument),
                             void *argument, size_t bytes, trib_stream stream);
/* Is the stream being captured into a graph? */
bool tri_sparse_captures(const struct trib_sparse *sparse, trib_stream stream);

/* Queue zeros into the residual that is current; nothing in place. Within the gate or while no run is
 * queued. */
trib_status tri_sparse_zero_residual(const struct trib_sparse *sparse, trib_stream stream);

#endif
