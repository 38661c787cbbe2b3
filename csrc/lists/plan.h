/* The layout of a list in its buckets, and the plan that the stream runs. */
#ifndef TRI_LISTS_PLAN_H
#define TRI_LISTS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/backend.h"
#include "csrc/core/communicator.h"
#include "csrc/core/options.h"
#include "csrc/core/room.h"

enum { TRI_MAX_BUCKETS = 10 }; /* one per element type */

/* One rank's arguments of a list call. */
struct tri_list {
    int operation; /* TRI_ALLREDUCE_LIST, .._WITH, TRI_BROADCAST_LIST or TRI_WEIGHTED_AVERAGE */
    const trib_tensor *tensors;
    size_t n;
    trib_op op;               /* allreduce */
    int32_t root;             /* broadcast */
    struct tri_weight weight; /* weighted average */
    float *total_out;
    struct tri_call_settings settings; /* allreduce */
    trib_stream stream;
};

/* The buckets and where each begins in the scratch. Empty tensors have no slice; slices begin at
 * multiples of 16 bytes, buckets at multiples of 256. */
struct tri_layout {
    struct {
        trib_dtype dtype;
        size_t count;  /* elements, the weight included */
        size_t slices; /* tensors */
        size_t offset; /* bytes */
    } buckets[TRI_MAX_BUCKETS];
    size_t nbuckets;
    size_t slices;       /* in all buckets */
    size_t tensor_bytes; /* of the tensors */
    size_t bytes;        /* of the scratch */
};

/* Everything that the stream runs. It refers to no memory of the caller but the tensors, so a
 * host-executed backend may copy it and run it later. */
struct tri_plan {
    const struct tri_backend *backend;
    struct tri_transport *transport;
    int32_t device;
    trib_stream stream;
    bool direct;  /* the backend works on the tensors where they lie: there are no buckets */
    bool packs;   /* reads this rank's tensors */
    bool unpacks; /* writes this rank's tensors */
    bool weighted;
    struct tri_weight weight;
    float *total_out;
    uint32_t *decision;
    const uint32_t *abort_flag;
    struct tri_list_counts *counts;
    uint64_t capture; /* of its scratch: see room.h */
    size_t nbuckets;
    struct tri_bucket buckets[TRI_MAX_BUCKETS];
    struct tri_call calls[TRI_MAX_BUCKETS]; /* the collective of each bucket */
    /* The table of each bucket's slices on the device; NULL: there is none. Where they are few they are passed with
     * each launch of pack and unpack all the same. */
    void *tables[TRI_MAX_BUCKETS];
    const void *table;                 /* where the first of them is; NULL: there is none */
    bool keeps;                        /* first writes the tables */
    size_t first[TRI_MAX_BUCKETS + 1]; /* the slices of bucket b are [first[b], first[b + 1]) */
    struct tri_slice slices[];
};

/* The layout of a valid list, which is the same on all ranks; nbuckets is 0 if there is nothing to
 * do. False if it is larger than any memory. */
bool tri_layout_make(struct tri_layout *out, const struct tri_list *list);

/* Bytes of the plan of that layout. */
size_t tri_plan_bytes(const struct tri_layout *layout);

/* Does the backend work on the tensors where they lie? The same on all ranks. */
bool tri_plan_is_direct(const struct trib_comm *comm, const struct tri_list *list,
                        const struct tri_layout *layout);

/* Fill in a plan but for its slices. `room` is as large as the layout says. Without tables. */
void tri_plan_make(struct tri_plan *out, struct trib_comm *comm, const struct tri_list *list,
                   const struct tri_layout *layout, const struct tri_room *room);

/* Fill in its slices, which depend on the tensors and the layout alone. */
void tri_plan_slice(struct tri_plan *out, const struct tri_list *list,
                    const struct tri_layout *layout);

/* The plan reads the slices of long buckets from tables in `table`, which has TRI_TABLE_BYTES bytes, as
 * far as they have room there and if the kernels know such; and those of a bucket that the collective packs. `keeps`:
 * and writes them before. */
void tri_plan_use_table(struct tri_plan *plan, const struct tri_layout *layout, void *table,
                        bool keeps);

/* The steps on the stream before and after the collective. */
trib_status tri_plan_pack(const struct tri_plan *plan);
trib_status tri_plan_unpack(const struct tri_plan *plan); /* commit, then unpack */

/* A direct plan: instead of all that. */
trib_status tri_plan_run_direct(const struct tri_plan *plan);

#endif
