#include "csrc/reducer/on_stream.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/device.h"
#include "csrc/core/issue.h"
#include "csrc/core/operation.h"

struct tri_bucket tri_reducer_bucket(const struct trib_reducer *reducer, char *base, size_t b)
{
    const struct tri_gradient_bucket *bucket = &reducer->layout.buckets[b];
    return (struct tri_bucket){.data = bucket->data != NULL ? bucket->data : base + bucket->offset,
                               .count = bucket->count,
                               .dtype = bucket->dtype};
}

struct tri_bucket tri_reducer_result(const struct trib_reducer *reducer, size_t b)
{
    return tri_reducer_bucket(reducer, reducer->twins != NULL ? reducer->twins : reducer->buckets,
                              b);
}

static trib_op op_of(const struct trib_reducer *reducer)
{
    const bool sums = (reducer->flags & TRIB_REDUCER_SUM) != 0 || reducer->limits.weighted;
    return sums ? TRIB_SUM : TRIB_AVG;
}

static const struct tri_weight *weight_of(const struct trib_reducer *reducer)
{
    return reducer->limits.weighted ? &reducer->weight : NULL;
}

/* After a failure this rank is out of step with the others: the communicator is over. */
static void raise_state(const struct trib_reducer *reducer, trib_status status)
{
    if (status != TRIB_OK)
        (void)tri_abort_raise(reducer->backend->transport->abort_state(reducer->transport), status,
                              tri_detail());
}

/* ------------------------------------------------------------------------------------- a bucket */

/* Copied to the stream of a host-executed backend. */
struct bucket_run {
    const struct trib_reducer *reducer;
    trib_stream stream;
    size_t b;
    bool any_absent;
    bool absent[]; /* of each of the bucket's slices, if any is */
};

static trib_status zero_absent(const struct bucket_run *run, const struct tri_bucket *bucket)
{
    const struct trib_reducer *reducer = run->reducer;
    const struct tri_gradient_bucket *of = &reducer->layout.buckets[run->b];
    const struct tri_factor zero = {.value = 0};
    for (size_t i = 0; run->any_absent && i < of->n; i++) {
        const struct tri_slice *slice = &reducer->layout.slices[of->first + i];
        char *data = (char *)bucket->data + slice->offset * trib_dtype_size(bucket->dtype);
        if (run->absent[i])
            TRI_TRY(reducer->backend->kernels->scale(data, NULL, slice->count, bucket->dtype, &zero,
                                                     run->stream));
    }
    return TRIB_OK;
}

static trib_status fill_bucket(const struct bucket_run *run, const struct tri_bucket *bucket)
{
    const struct trib_reducer *reducer = run->reducer;
    const struct tri_gradient_bucket *of = &reducer->layout.buckets[run->b];
    uintptr_t previous = 0;
    TRI_TRY(tri_device_push(reducer->backend, reducer->device, &previous));
    trib_status status = TRIB_OK;
    if ((reducer->flags & TRIB_REDUCER_VIEWS) == 0 && of->data == NULL)
        status = reducer->backend->kernels->pack(&reducer->layout.slices[of->first], of->n, bucket,
                                                 weight_of(reducer), run->stream);
    if (status == TRIB_OK)
        status = zero_absent(run, bucket);
    tri_device_pop(reducer->backend, previous);
    return status;
}

static void run_bucket(void *argument)
{
    const struct bucket_run *run = argument;
    const struct trib_reducer *reducer = run->reducer;
    const struct tri_bucket bucket = tri_reducer_bucket(reducer, reducer->buckets, run->b);
    const struct tri_bucket result = tri_reducer_result(reducer, run->b);
    const struct tri_call call = {.kind = TRI_ALLREDUCE,
                                  .transport = reducer->transport,
                                  .send = bucket.data,
                                  .recv = result.data,
                                  .count = bucket.count,
                                  .dtype = bucket.dtype,
                                  .op = op_of(reducer),
                                  .variant = reducer->near == NULL ? TRIB_VARIANT_AUTO
                                                                   : TRIB_VARIANT_SYMMETRIC,
                                  .stream = run->stream};
    trib_status status = fill_bucket(run, &bucket);
    if (status == TRIB_OK && reducer->states == NULL)
        status = reducer->backend->transport->collective(&call, 1);
    raise_state(reducer, status);
}

trib_status tri_reducer_run_bucket(struct trib_reducer *reducer, size_t b, const bool *absent,
                                   trib_stream stream)
{
    const struct tri_gradient_bucket *bucket = &reducer->layout.buckets[b];
    const size_t bytes = sizeof(struct bucket_run) + (absent != NULL ? bucket->n : 0);
    struct bucket_run *run = calloc(1, bytes);
    if (run == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to queue a bucket");
    run->reducer = reducer;
    run->stream = stream;
    run->b = b;
    run->any_absent = absent != NULL;
    if (absent != NULL)
        memcpy(run->absent, absent, bucket->n * sizeof *absent);
    const struct tri_call call = {
        .count = bucket->count, .dtype = bucket->dtype, .op = op_of(reducer)};
    const struct tri_recorded record = tri_recorded_of(TRI_REDUCER_READY, &call);
    const trib_status status =
        tri_issue_run(reducer->comm, &record, run_bucket, run, bytes, stream);
    free(run);
    return status;
}

/* ---------------------------------------------------------------------------------- the end */

/* Copies get the result if the step is applied; gradients in place are 0 unless it is. */
static trib_status end_bucket(const struct trib_reducer *reducer, size_t b, trib_stream stream)
{
    const struct tri_kernels *kernels = reducer->backend->kernels;
    const struct tri_gradient_bucket *of = &reducer->layout.buckets[b];
    const struct tri_bucket result = tri_reducer_result(reducer, b);
    const uint32_t *decision = &reducer->scalars->decision;
    const struct tri_clearing sums = {.dense = result.data,
                                      .bytes = result.count * trib_dtype_size(result.dtype)};
    if (of->data != NULL)
        return kernels->sparse->clear_result(&sums, decision, stream);
    return kernels->unpack(&reducer->layout.slices[of->first], of->n, &result,
                           reducer->limits.weighted, decision, stream);
}

static trib_status write_gradients(const struct trib_reducer *reducer, trib_stream stream)
{
    const bool are_views = (reducer->flags & TRIB_REDUCER_VIEWS) != 0 && reducer->twins == NULL;
    for (size_t b = 0; !are_views && b < reducer->layout.nbuckets; b++)
        TRI_TRY(end_bucket(reducer, b, stream));
    return TRIB_OK;
}

/* The sum of the weights, of type *dtype; NULL: there are none. If a sum in f32 is finite and above
 * 0, so is that in f64. */
static const void *total_of(const struct trib_reducer *reducer, trib_dtype *dtype)
{
    const struct tri_gradient_layout *layout = &reducer->layout;
    size_t b = 0;
    *dtype = TRIB_F32;
    if (!reducer->limits.weighted || layout->nbuckets == 0)
        return NULL;
    while (b + 1 < layout->nbuckets && layout->buckets[b].dtype != TRIB_F32)
        b++;
    const struct tri_bucket bucket = tri_reducer_bucket(reducer, reducer->buckets, b);
    *dtype = bucket.dtype;
    return (const char *)bucket.data + (bucket.count - 1) * trib_dtype_size(bucket.dtype);
}

static size_t ncalls_of(const struct trib_reducer *reducer)
{
    return reducer->states == NULL ? 0 : reducer->layout.nbuckets;
}

/* Applied unless *abort_flag is set, the weights forbid it, or one of the step's calls was not. */
static trib_status commit(const struct trib_reducer *reducer, const uint32_t *abort_flag,
                          uint32_t *decision, trib_stream stream)
{
    trib_dtype dtype;
    const void *total = total_of(reducer, &dtype);
    const struct tri_commit job = {.abort_flag = abort_flag,
                                   .counts = reducer->counts,
                                   .total = total,
                                   .total_dtype = dtype,
                                   .calls = reducer->calls,
                                   .ncalls = ncalls_of(reducer),
                                   .decision = decision};
    return reducer->backend->kernels->commit(&job, stream);
}

/* Copied to the stream of a host-executed backend. */
struct end_run {
    const struct trib_reducer *reducer;
    trib_stream stream;
    bool *decided; /* is a commit queued that makes the decision? NULL: nobody asks */
};

static trib_status write_step(const struct trib_reducer *reducer, trib_stream stream)
{
    const size_t n = ncalls_of(reducer);
    TRI_TRY(write_gradients(reducer, stream));
    return n == 0 ? TRIB_OK /* between steps all decisions are 0 */
                  : reducer->backend->kernels->forget(reducer->calls, n, stream);
}

/* What has been written when something fails may be no whole step: decide again. */
static bool end_step(const struct trib_reducer *reducer, trib_stream stream)
{
    const uint32_t *abort_flag = reducer->backend->transport->abort_flag(reducer->transport);
    trib_status status = commit(reducer, abort_flag, &reducer->scalars->decision, stream);
    if (status == TRIB_OK)
        status = write_step(reducer, stream);
    if (status == TRIB_OK)
        return true;
    raise_state(reducer, status);
    return commit(reducer, &reducer->scalars->one, &reducer->scalars->decision, stream) == TRIB_OK;
}

static void run_end(void *argument)
{
    const struct end_run *run = argument;
    uintptr_t previous = 0;
    const trib_status status =
        tri_device_push(run->reducer->backend, run->reducer->device, &previous);
    if (status != TRIB_OK) {
        raise_state(run->reducer, status);
        return;
    }
    const bool decided = end_step(run->reducer, run->stream);
    if (run->decided != NULL)
        *run->decided = decided;
    tri_device_pop(run->reducer->backend, previous);
}

static void refuse(const struct trib_reducer *reducer, uint32_t *decision, trib_stream stream)
{
    uintptr_t previous = 0;
    if (tri_device_push(reducer->backend, reducer->device, &previous) != TRIB_OK)
        return;
    (void)commit(reducer, &reducer->scalars->one, decision, stream);
    tri_device_pop(reducer->backend, previous);
}

/* On a host-executed backend these run on their stream, and a kernel where it is called. */
static void refuse_step(void *argument)
{
    const struct trib_reducer *reducer = argument;
    refuse(reducer, &reducer->scalars->decision, NULL);
}

static void refuse_calls(void *argument)
{
    const struct trib_reducer *reducer = argument;
    refuse(reducer, &reducer->scalars->unread, NULL);
}

/* Uses no transport: the communicator may have ended. `takes_calls`: only what the step's calls may
 * take back. After an end that has run that is nothing, and its decision stays. */
static trib_status queue_refusal(struct trib_reducer *reducer, bool takes_calls, trib_stream stream)
{
    struct tri_reducer_scalars *scalars = reducer->scalars;
    if (reducer->backend->transport->submit != NULL)
        return reducer->backend->device->stream_submit(
            reducer->device, takes_calls ? refuse_calls : refuse_step, reducer, stream);
    refuse(reducer, takes_calls ? &scalars->unread : &scalars->decision, stream);
    return TRIB_OK;
}

/* The decision is 0 until a commit makes another one. */
static trib_status clear(struct trib_reducer *reducer, trib_stream stream)
{
    struct tri_reducer_scalars *scalars = reducer->scalars;
    const trib_status status = reducer->backend->device->copy(
        reducer->device, &scalars->decision, &scalars->zero, sizeof scalars->zero, stream);
    if (status != TRIB_OK)
        (void)queue_refusal(reducer, false, stream);
    return status;
}

/* Where the end runs later it may yet not run; else it says whether it has decided, and a step that it applies
 * takes one launch less. */
trib_status tri_reducer_run_end(struct trib_reducer *reducer, trib_stream stream)
{
    const struct tri_call call = {.count = reducer->n};
    const struct tri_recorded record = tri_recorded_of(TRI_REDUCER_FINISH, &call);
    const bool later = reducer->backend->transport->submit != NULL;
    bool decided = later;
    struct end_run run = {reducer, stream, later ? NULL : &decided};
    if (later)
        TRI_TRY(clear(reducer, stream));
    const trib_status status =
        tri_issue_run(reducer->comm, &record, run_end, &run, sizeof run, stream);
    if (!decided)
        (void)clear(reducer, stream);
    if (status != TRIB_OK && ncalls_of(reducer) != 0) /* it may have been queued all the same */
        (void)queue_refusal(reducer, true, stream);
    return status;
}

trib_status tri_reducer_take_back(struct trib_reducer *reducer, trib_stream stream)
{
    return queue_refusal(reducer, false, stream);
}
