/* The arguments of a reducer: checked, and completed by the defaults. */
#include "csrc/reducer/request.h"

#include <inttypes.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/communicator.h"
#include "csrc/core/ranges.h"
#include "csrc/core/validate.h"

static const uint64_t bucket_bytes_default = 50 << 20, first_bytes_default = 256 << 10;
static const uint32_t all_flags =
    TRIB_REDUCER_SUM | TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS | TRIB_REDUCER_LEARN_ORDER;

static trib_status fail_argument(const struct tri_reducer_request *request, const char *what)
{
    return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT, "%s", what);
}

static trib_status check_weight(const struct tri_reducer_request *request)
{
    const trib_reducer_options *options = &request->options;
    if (options->device_weight == NULL)
        return TRIB_OK;
    if ((options->flags & (TRIB_REDUCER_SUM | TRIB_REDUCER_VIEWS)) != 0 || options->buckets != NULL)
        return fail_argument(request, "options.device_weight makes averages of copies: not with "
                                      "TRIB_REDUCER_SUM, TRIB_REDUCER_VIEWS or options.buckets");
    return tri_check_scalar(request->comm, TRI_REDUCER_CREATE, "options.device_weight",
                            options->device_weight);
}

static trib_status check_sparse(const struct tri_reducer_request *request)
{
    const trib_sparse_options *sparse = request->options.sparse;
    if (sparse == NULL)
        return TRIB_OK;
    if (sparse->size != sizeof *sparse)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "options.sparse->size is %u, expected %zu: start from "
                             "TRIB_SPARSE_OPTIONS_INIT",
                             sparse->size, sizeof *sparse);
    if ((sparse->flags & ~(uint32_t)TRIB_SPARSE_NO_MASKING) != 0)
        return tri_fail_call(
            request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
            "options.sparse->flags is 0x%x; a reducer takes TRIB_SPARSE_NO_MASKING "
            "alone, and TRIB_REDUCER_SUM chooses sums",
            sparse->flags);
    if (request->options.device_weight != NULL)
        return fail_argument(request, "options.sparse and options.device_weight exclude each "
                                      "other: sparse gradients have no weights");
    return TRIB_OK;
}

/* Where and in which order the gradients lie is said once. */
static trib_status check_together(const struct tri_reducer_request *request)
{
    const trib_reducer_options *options = &request->options;
    if (options->order != NULL && (options->flags & TRIB_REDUCER_LEARN_ORDER) != 0)
        return fail_argument(request, "options.order and TRIB_REDUCER_LEARN_ORDER exclude each "
                                      "other: the order is known, or learnt");
    if (options->buckets != NULL &&
        (options->flags & (TRIB_REDUCER_VIEWS | TRIB_REDUCER_LEARN_ORDER)) != 0)
        return fail_argument(request, "options.buckets with TRIB_REDUCER_VIEWS or "
                                      "TRIB_REDUCER_LEARN_ORDER: in place, the buckets are where "
                                      "and what the caller made them");
    if (options->buckets == NULL && options->nbuckets != 0)
        return fail_argument(request, "options.nbuckets is not 0, and options.buckets is NULL");
    return TRIB_OK;
}

static trib_status read_options(struct tri_reducer_request *request,
                                const trib_reducer_options *options)
{
    const trib_reducer_options defaults = TRIB_REDUCER_OPTIONS_INIT;
    const struct trib_comm *comm = request->comm;
    request->options = options == NULL ? defaults : *options;
    const trib_reducer_options *read = &request->options;
    if (read->size != sizeof *read)
        return tri_fail_call(comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "options.size is %u, expected %zu: start from "
                             "TRIB_REDUCER_OPTIONS_INIT",
                             read->size, sizeof *read);
    if ((read->flags & ~all_flags) != 0)
        return tri_fail_call(comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "options.flags is 0x%x; expected any of TRIB_REDUCER_SUM, "
                             "TRIB_REDUCER_VIEWS, TRIB_REDUCER_TWINS and "
                             "TRIB_REDUCER_LEARN_ORDER",
                             read->flags);
    if ((read->flags & TRIB_REDUCER_TWINS) != 0 && (read->flags & TRIB_REDUCER_VIEWS) == 0)
        return fail_argument(request, "options.flags has TRIB_REDUCER_TWINS without "
                                      "TRIB_REDUCER_VIEWS: without views every step that is not "
                                      "applied leaves the gradients as they were");
    TRI_TRY(check_together(request));
    TRI_TRY(check_weight(request));
    TRI_TRY(check_sparse(request));
    request->limits.bucket_bytes =
        read->bucket_bytes == 0 ? bucket_bytes_default : read->bucket_bytes;
    request->limits.first_bytes = read->first_bytes == 0 ? first_bytes_default : read->first_bytes;
    if (request->limits.first_bytes > request->limits.bucket_bytes)
        request->limits.first_bytes = request->limits.bucket_bytes;
    request->limits.weighted = read->device_weight != NULL;
    return TRIB_OK;
}

static trib_status check_gradient(const struct tri_reducer_request *request, size_t i,
                                  size_t *bytes)
{
    const trib_tensor *tensor = &request->gradients[i];
    const struct tri_buffer buffer = {.argument = {"gradients", i},
                                      .data = tensor->data,
                                      .blocks = 1,
                                      .count = tensor->count,
                                      .dtype = tensor->dtype};
    *bytes = 0;
    if (!tri_dtype_valid(tensor->dtype) || !tri_dtype_is_float(tensor->dtype))
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "`gradients[%zu].dtype` is %d (%s); a reducer takes f16, bf16, f32 "
                             "and f64",
                             i, tensor->dtype, trib_dtype_name(tensor->dtype));
    if (tensor->reserved != 0)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "`gradients[%zu].reserved` is %u; expected 0", i, tensor->reserved);
    if (tensor->count == 0 || (request->options.flags & TRIB_REDUCER_VIEWS) != 0)
        return TRIB_OK;
    return tri_check_buffer(request->comm, TRI_REDUCER_CREATE, &buffer, bytes);
}

/* Gradients `first` to `end` - 1 in the order share a bucket of the caller's: without gaps. */
static trib_status check_bucket(const struct tri_reducer_request *request, size_t first, size_t end)
{
    const trib_tensor *last = NULL;
    for (size_t turn = first; turn < end; turn++) {
        const size_t i = tri_gradient_at(request->options.order, turn);
        const trib_tensor *tensor = &request->gradients[i];
        if (tensor->count == 0)
            continue;
        if (last != NULL &&
            (tensor->dtype != last->dtype ||
             (const char *)tensor->data !=
                 (const char *)last->data + last->count * trib_dtype_size(last->dtype)))
            return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                                 "`gradients[%zu]` shares a bucket of options.buckets with the one "
                                 "before it; expected the same type, and memory right behind it",
                                 i);
        last = tensor;
    }
    return TRIB_OK;
}

/* None is empty, so there are no more than gradients. */
static trib_status check_buckets(const struct tri_reducer_request *request)
{
    const trib_reducer_options *options = &request->options;
    size_t first = 0;
    if (options->buckets == NULL)
        return TRIB_OK;
    for (uint64_t b = 0; b < options->nbuckets; b++) {
        if (options->buckets[b] == 0 || options->buckets[b] > request->n - first)
            return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                                 "options.buckets[%" PRIu64 "] is %" PRIu64
                                 "; expected at least 1, "
                                 "and at most the %zu gradients that are left",
                                 b, options->buckets[b], request->n - first);
        TRI_TRY(check_bucket(request, first, first + (size_t)options->buckets[b]));
        first += (size_t)options->buckets[b];
    }
    if (first == request->n)
        return TRIB_OK;
    return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                         "options.buckets has %zu gradients, of %zu", first, request->n);
}

static trib_status check_apart(const struct tri_reducer_request *request, struct tri_range *ranges,
                               size_t n)
{
    struct tri_range pair[2];
    if (!tri_ranges_collide(ranges, n, pair))
        return TRIB_OK;
    if (pair[0].index == request->n || pair[1].index == request->n)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_BUFFER,
                             "`gradients[%zu]` overlaps options.device_weight, which is read while "
                             "gradients are written",
                             pair[pair[0].index == request->n].index);
    return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_BUFFER,
                         "`gradients[%zu]` overlaps `gradients[%zu]`: every gradient needs memory "
                         "of its own",
                         pair[0].index, pair[1].index);
}

static trib_status check_gradients(const struct tri_reducer_request *request)
{
    struct tri_range *ranges = NULL;
    size_t used = 0;
    if (request->gradients == NULL && request->n != 0)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "`gradients` is NULL; expected %zu tensors", request->n);
    if (request->n > SIZE_MAX / 64 / sizeof *ranges ||
        (ranges = tri_comm_scratch(request->comm, (request->n + 1) * sizeof *ranges)) == NULL)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to check %zu gradients", request->n);
    for (size_t i = 0; i < request->n; i++) {
        size_t bytes = 0;
        TRI_TRY(check_gradient(request, i, &bytes));
        const uintptr_t begin = (uintptr_t)request->gradients[i].data;
        if (bytes != 0)
            ranges[used++] = (struct tri_range){
                .begin = begin, .end = begin + bytes, .index = i, .written = true};
    }
    const float *weight = request->options.device_weight;
    if (weight != NULL)
        ranges[used++] = (struct tri_range){
            .begin = (uintptr_t)weight, .end = (uintptr_t)(weight + 1), .index = request->n};
    return check_apart(request, ranges, used);
}

/* Each gradient once. */
static trib_status check_order(const struct tri_reducer_request *request)
{
    const uint64_t *order = request->options.order;
    if (order == NULL)
        return TRIB_OK;
    bool *seen = tri_comm_scratch(request->comm, request->n + 1);
    if (seen == NULL)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory to check the order of %zu gradients", request->n);
    memset(seen, 0, request->n);
    for (size_t turn = 0; turn < request->n; turn++) {
        if (order[turn] >= request->n || seen[order[turn]])
            return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                                 "options.order[%zu] is %" PRIu64 "; expected each of 0 to n - 1 "
                                 "once, and n is %zu",
                                 turn, order[turn], request->n);
        seen[order[turn]] = true;
    }
    return TRIB_OK;
}

trib_status tri_reducer_check(struct tri_reducer_request *request)
{
    if (request->out == NULL)
        return fail_argument(request, "`out` is NULL");
    if (request->comm->batch.open)
        return tri_fail_call(request->comm, TRI_REDUCER_CREATE, TRIB_ERR_INVALID_USAGE,
                             "a batch is open: call trib_batch_end first");
    TRI_TRY(read_options(request, request->passed));
    TRI_TRY(check_gradients(request));
    TRI_TRY(check_order(request));
    return check_buckets(request);
}
