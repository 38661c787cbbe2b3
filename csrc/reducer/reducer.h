/* A reducer on one rank: what it is made of, and its functions. */
#ifndef TRI_REDUCER_REDUCER_H
#define TRI_REDUCER_REDUCER_H

#include "csrc/base/lock.h"
#include "csrc/base/status.h"
#include "csrc/core/communicator.h"
#include "csrc/reducer/buckets.h"

struct trib_sparse;

enum { TRI_REDUCER_TEXT = 32 };

/* At the beginning of the reducer's memory. */
struct tri_reducer_scalars {
    uint32_t decision; /* of the newest step */
    uint32_t zero, one;
    uint32_t unread; /* a decision that nobody asks for */
};

/* One gradient in the current step. */
struct tri_readiness {
    trib_stream stream;
    bool ready;
};

struct trib_reducer {
    /* Constant once created: what runs on the stream reads these, on a host-executed backend later
     * and on another thread. */
    struct trib_comm *comm; /* but not on the stream: it may be freed if a destroy timed out */
    const struct tri_backend *backend;
    struct tri_transport *transport;
    int32_t device;
    uint32_t flags;
    size_t n;                 /* gradients */
    struct tri_weight weight; /* if limits.weighted */
    struct tri_gradient_limits limits;
    struct tri_gradient_layout layout; /* learn.c makes another one */
    trib_stream stream;                /* of its own; see step.c for what runs on it */
    struct tri_symmetric *near;        /* NULL; or what the buckets and twins lie in */
    char *buckets, *twins;             /* twins NULL: buckets are reduced in place */
    struct tri_reducer_scalars *scalars;
    struct tri_list_counts *counts;   /* pinned memory */
    struct trib_sparse **states;      /* of each bucket; NULL: dense */
    struct tri_revocable *calls;      /* on the device: what of each a commit may take back. Between
                                     * steps all decisions are 0 */
    struct tri_revocable *revocables; /* the same on the host: room for one of each gradient */
    trib_sparse_options sparse; /* of the states, with the current density; it points to these: */
    int32_t hosts[TRI_MAX_LISTS];
    char algorithm[TRI_REDUCER_TEXT], constants[TRI_REDUCER_TEXT];

    struct tri_workspace memory; /* of all that lies on the device; freed with this struct */
    trib_event event;            /* what a bucket waits for, one stream after the other */

    bool apart; /* the newest step ended on another stream, for which this one could not be made to
                 * wait */

    trib_stream known; /* of the newest gradient of this step, and so checked; NULL, the default
                        * stream, always is. Atomic: written under the lock, read without it */

    struct tri_lock lock; /* guards the rest */
    struct tri_readiness *readiness;
    size_t *missing;    /* of each bucket: gradients that are not ready */
    size_t next;        /* the bucket that is queued next */
    bool open;          /* a step has begun */
    uint64_t capture;   /* of that step: see room.h */
    bool learning;      /* with TRIB_REDUCER_LEARN_ORDER, in the first step: */
    uint64_t *order;    /* the gradients as they got ready, */
    size_t nordered;    /* so many */
    bool queuing;       /* a thread queues buckets: the only one that uses the fields below, and the
                      * communicator */
    trib_status failed; /* of the first bucket that could not be queued */
    struct tri_detail_copy detail;
};

/* The public functions of these names; the pointers are not NULL, except for `out` of create: one
 * rank alone may pass NULL, so the ranks compare it. */
trib_status tri_reducer_create(struct trib_reducer **out, struct trib_comm *comm,
                               const trib_tensor *gradients, size_t n,
                               const trib_reducer_options *options);
trib_status tri_reducer_view(void **out, const struct trib_reducer *reducer, size_t i);
trib_status tri_reducer_ready(struct trib_reducer *reducer, size_t i, trib_stream stream);
trib_status tri_reducer_finish(struct trib_reducer *reducer, trib_stream stream);
trib_status tri_reducer_wait(struct trib_reducer *reducer, uint32_t timeout_ms);
trib_status tri_reducer_status(const struct trib_reducer *reducer);
trib_status tri_reducer_set_density(struct trib_reducer *reducer, double density);
trib_status tri_reducer_statistics(trib_sparse_statistics *out, const struct trib_reducer *reducer);
uint64_t tri_reducer_export_bytes(const struct trib_reducer *reducer);
trib_status tri_reducer_export(struct trib_reducer *reducer, void *out, size_t bytes);
trib_status tri_reducer_import(struct trib_reducer *reducer, const void *data, size_t bytes,
                               bool adds);
trib_status tri_reducer_destroy(struct trib_reducer *reducer);

/* Make the reducer's own stream wait for the newest step, if it does not yet; false if it cannot: then
 * nothing else may use the memory, nor its event be recorded again. */
bool tri_reducer_rejoin(struct trib_reducer *reducer);

/* TRIB_OK between two steps of a reducer with sparse states. */
trib_status tri_reducer_check_between(const struct trib_reducer *reducer, int operation);

/* What the gradients of bucket `b` are: the views of it. */
void tri_reducer_set_views(struct trib_reducer *reducer, size_t b);
/* Queue zeros, padding included. */
trib_status tri_reducer_zero_bucket(const struct trib_reducer *reducer, size_t b,
                                    trib_stream stream);

/* The end of the first step: lay out the buckets in the order in which rank 0's gradients got ready.
 * Blocking, on all ranks; what fails must end the communicator. */
trib_status tri_reducer_learn(struct trib_reducer *reducer);

/* Bucket `b` of `base`: the buckets, or their twins. */
struct tri_bucket tri_reducer_bucket(const struct trib_reducer *reducer, char *base, size_t b);
/* Where its reduction goes. */
struct tri_bucket tri_reducer_result(const struct trib_reducer *reducer, size_t b);

#endif
