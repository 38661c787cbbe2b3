/* Sparse allreduces of all ranks of a group. An algorithm may exchange several times, and wait for
 * its stream between: so every rank's call is made on a thread of its own, and on a stream-ordered
 * backend they meet there as the calls of ranks with threads of their own do. */
#include "csrc/sparse/group.h"

#include "csrc/core/group_run.h"
#include "csrc/sparse/allreduce.h"

struct creation {
    struct trib_sparse **out;
    size_t count;
    trib_dtype dtype;
    const trib_sparse_options *options;
};

static trib_status create_rank(struct trib_comm *comm, int32_t rank, void *argument)
{
    const struct creation *creation = argument;
    return tri_sparse_create(&creation->out[rank], comm, creation->count, creation->dtype,
                             creation->options);
}

trib_status tri_group_sparse_create(struct trib_sparse **out, struct trib_group *group,
                                    size_t count, trib_dtype dtype,
                                    const trib_sparse_options *options)
{
    struct creation creation = {out, count, dtype, options};
    for (int32_t rank = 0; rank < group->size; rank++)
        out[rank] = NULL;
    const trib_status status = tri_group_run(group, TRI_SPARSE_CREATE, create_rank, &creation);
    for (int32_t rank = 0; rank < group->size && status != TRIB_OK; rank++) {
        tri_sparse_discard(out[rank]);
        out[rank] = NULL;
    }
    return status;
}

struct calls {
    struct trib_sparse *const *sparse;
    void *const *gradient, *const *result;
    const trib_stream *streams;
};

static struct tri_sparse_call call_of(const struct calls *calls, int32_t rank)
{
    return (struct tri_sparse_call){.gradient = calls->gradient[rank],
                                    .dense = calls->result[rank],
                                    .stream = calls->streams == NULL ? NULL : calls->streams[rank]};
}

/* Unless every rank's call is valid, none is queued. */
static trib_status check_ranks(const struct trib_group *group, const struct calls *calls)
{
    for (int32_t rank = 0; rank < group->size; rank++) {
        struct tri_sparse_call call = call_of(calls, rank);
        if (calls->sparse[rank] == NULL || calls->sparse[rank]->comm != group->comms[rank])
            return tri_fail_call(
                group->comms[rank], TRI_SPARSE_ALLREDUCE, TRIB_ERR_INVALID_ARGUMENT,
                "`sparse[%d]` is %s: give each rank's state in the order of the "
                "ranks",
                rank, calls->sparse[rank] == NULL ? "NULL" : "not a state of this rank");
        TRI_TRY(tri_sparse_check_call(calls->sparse[rank], TRI_SPARSE_ALLREDUCE, &call));
    }
    return TRIB_OK;
}

/* The check has found nothing, so what fails here keeps this rank from a call that the others make:
 * unless they have compared their calls, they would wait for it. */
static trib_status call_rank(struct trib_comm *comm, int32_t rank, void *argument)
{
    const struct calls *calls = argument;
    struct tri_sparse_call call = call_of(calls, rank);
    const trib_status status =
        tri_sparse_allreduce(calls->sparse[rank], TRI_SPARSE_ALLREDUCE, &call);
    if (status != TRIB_OK && (comm->flags & TRIB_MATCH) == 0)
        (void)tri_abort_raise(comm->state, status, tri_detail());
    return status;
}

trib_status tri_group_sparse_allreduce(struct trib_group *group, struct trib_sparse *const *sparse,
                                       void *const *gradient, void *const *result,
                                       const trib_stream *streams)
{
    struct calls calls = {sparse, gradient, result, streams};
    const trib_status status = check_ranks(group, &calls);
    if (status != TRIB_OK)
        return tri_group_fail(group, status);
    return tri_group_run(group, TRI_SPARSE_ALLREDUCE, call_rank, &calls);
}
