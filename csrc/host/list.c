/* Lists: collectives on tensors where they lie, in place, without a bucket.
 *
 * Each rank posts its list and waits at a barrier. Then the ranks decide whether the list takes
 * effect, all together: the first one to say so decides, by one word. It takes effect if that rank
 * has met all others, their lists match, and there was no abort by then. If so, each rank folds its
 * chunk into all ranks' tensors, and waits for the others, whatever is aborted meanwhile: nothing
 * keeps any of them from finishing, not even the one that an abort drew away from the barrier. If
 * not, nothing has been written. So every rank has all results or none. */
#include <string.h>

#include "csrc/base/status.h"
#include "csrc/base/types.h"
#include "csrc/host/barrier.h"
#include "csrc/host/collectives.h"
#include "csrc/host/local.h"
#include "csrc/host/ops.h"
#include "kernels/cpu/kernels_cpu.h"

enum { MOST_CALLS = TRIB_U64 + 1 }; /* one per element type */

/* One rank's list. The other ranks read it between the barriers. */
struct tri_host_list {
    const struct tri_call *calls;
    size_t n;
    const struct tri_slice *slices;
    const size_t *first;
    double factors[MOST_CALLS]; /* of scaled calls: one element of the dtype of each */
};

/* Where every rank's tensors are, and what is done with them. */
struct fold {
    const struct tri_transport *self;
    const struct tri_host_list *lists[TRI_HOST_MAX_RANKS];
    const struct tri_call *call;
    size_t index;   /* of the call */
    size_t element; /* bytes */
    _Alignas(double) unsigned char factors[TRI_HOST_MAX_RANKS * sizeof(double)];
};

static bool same_list(const struct tri_host_list *a, const struct tri_host_list *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; i < a->n && same; i++)
        same = tri_host_same_call(&a->calls[i], &b->calls[i]) && a->first[i + 1] == b->first[i + 1];
    for (size_t i = 0; same && i < a->first[a->n]; i++)
        same = a->slices[i].count == b->slices[i].count;
    return same;
}

static trib_status check_lists(const struct tri_host_list *const *lists, int32_t size)
{
    for (int32_t rank = 1; rank < size; rank++)
        if (!same_list(lists[0], lists[rank]))
            return tri_fail(TRIB_ERR_MISMATCH,
                            "the ranks did not pass the same list: order, counts and types of rank "
                            "0's and of rank %d's differ",
                            (int)rank);
    return TRIB_OK;
}

/* The first rank to come decides about list `number` for all of them. */
static bool decide(struct tri_host_local *local, uint64_t number, bool apply)
{
    const uint64_t mine = 2 * (number + 1) + apply;
    uint64_t decided = atomic_load(&local->decided);
    while (decided / 2 != number + 1)
        if (atomic_compare_exchange_weak(&local->decided, &decided, mine))
            return apply;
    return decided % 2 != 0;
}

/* ----------------------------------------------------------------------------------- execution */

/* Elements [from, from + count) of slice `i`, of all ranks, into all. */
static void reduce(const struct fold *fold, size_t i, size_t from, size_t count)
{
    void *data[TRI_HOST_MAX_RANKS];
    const void *src[TRI_HOST_MAX_RANKS];
    const size_t size = (size_t)fold->self->local->size;
    const struct tri_reduction reduction = {.src = src,
                                            .n = size,
                                            .dtype = fold->call->dtype,
                                            .op = fold->call->op,
                                            .factors = fold->call->scaled ? fold->factors : NULL};
    for (size_t rank = 0; rank < size; rank++)
        /* NOLINTNEXTLINE(clang-analyzer-core.*): a list per rank, from agree */
        src[rank] = data[rank] = (char *)fold->lists[rank]->slices[i].data + from * fold->element;
    (void)tri_kernels_cpu.reduce(data, size, &reduction, count, NULL);
}

/* This rank's chunk of the bucket that there is not. */
static void reduce_chunk(const struct fold *fold)
{
    const struct tri_host_list *mine = fold->lists[fold->self->rank];
    size_t count;
    const size_t begin = tri_host_chunk(fold->self, fold->call->count, fold->element, &count);
    const size_t end = begin + count;
    for (size_t i = mine->first[fold->index]; i < mine->first[fold->index + 1]; i++) {
        const struct tri_slice *slice = &mine->slices[i];
        const size_t from = begin > slice->offset ? begin - slice->offset : 0;
        const size_t to = end < slice->offset                  ? 0
                          : end - slice->offset < slice->count ? end - slice->offset
                                                               : slice->count;
        if (from < to)
            reduce(fold, i, from, to - from);
    }
}

/* What this rank receives. */
static void copy(const struct fold *fold)
{
    const struct tri_host_list *mine = fold->lists[fold->self->rank];
    const struct tri_host_list *root = fold->lists[fold->call->peer];
    for (size_t i = mine->first[fold->index]; i < mine->first[fold->index + 1] && mine != root; i++)
        if (mine->slices[i].data != root->slices[i].data)
            memcpy(mine->slices[i].data, root->slices[i].data,
                   mine->slices[i].count * fold->element);
}

static void fold_all(struct fold *fold)
{
    const struct tri_host_list *mine = fold->lists[fold->self->rank];
    for (fold->index = 0; fold->index < mine->n; fold->index++) {
        fold->call = &mine->calls[fold->index];
        fold->element = trib_dtype_size(fold->call->dtype);
        for (int32_t rank = 0; rank < fold->self->local->size && fold->call->scaled; rank++)
            /* NOLINTNEXTLINE(clang-analyzer-core.*): a list per rank, from agree */
            memcpy(fold->factors + (size_t)rank * fold->element,
                   &fold->lists[rank]->factors[fold->index], fold->element);
        if (fold->call->kind == TRI_BROADCAST)
            copy(fold);
        else
            reduce_chunk(fold);
    }
}

/* ------------------------------------------------------------------------------------- protocol */

static void collect(const struct tri_host_list **out, const struct tri_transport *self, int buffer)
{
    for (int32_t rank = 0; rank < self->local->size; rank++)
        out[rank] = self->local->ranks[rank].list[buffer];
}

/* *lists: of all ranks, if this returns TRIB_OK: then all of them stay until the end of the call.
 * Before, a rank may leave because of an abort, and takes its list along; not while another one
 * accesses it. `met`: all ranks have posted theirs, as far as this one knows. */
static trib_status agree(const struct tri_host_list **lists, struct tri_transport *self,
                         uint64_t number, int buffer, bool met)
{
    trib_status status = TRIB_OK;
    const bool accesses = met && tri_host_local_access_begin(self);
    if (accesses) {
        collect(lists, self, buffer);
        status = check_lists(lists, self->local->size);
    }
    const bool apply = status == TRIB_OK && decide(self->local, number, accesses);
    if (accesses)
        tri_host_local_access_end(self);
    if (status != TRIB_OK)
        return tri_host_local_fail(self, status);
    if (!apply)
        return tri_host_local_finish_abort(self);
    collect(lists, self, buffer);
    return TRIB_OK;
}

static trib_status run_list(struct tri_transport *self, struct tri_host_list *list)
{
    struct fold fold = {.self = self};
    const uint64_t number = self->collectives;
    const int buffer = tri_host_post(self, &list->calls[0], list);
    const bool met = tri_host_barrier(self, &list->calls[0], TRI_AT_START);
    const trib_status status = met ? tri_host_check_match(self, buffer) : TRIB_OK;
    if (status != TRIB_OK)
        return tri_host_local_fail(self, status);
    TRI_TRY(agree(fold.lists, self, number, buffer, met));
    fold_all(&fold);
    tri_host_barrier_always(self, &list->calls[0]);
    return TRIB_OK;
}

trib_status tri_host_collective_list(const struct tri_call *calls, size_t n,
                                     const struct tri_slice *slices, const size_t *first)
{
    struct tri_transport *self = calls[0].transport;
    struct tri_host_list list = {.calls = calls, .n = n, .slices = slices, .first = first};
    if (!tri_host_local_live(self->local))
        return tri_abort_status(self->local->abort);
    self->last = calls[n - 1];
    for (size_t i = 0; i < n; i++)
        if (calls[i].scaled) /* read the factor now that the stream has reached the call */
            (void)tri_kernels_cpu.scale(&list.factors[i], NULL, 1, calls[i].dtype, &calls[i].factor,
                                        NULL);
    return run_list(self, &list);
}
