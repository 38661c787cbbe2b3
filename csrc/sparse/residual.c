/* A state's residual, copied for the caller. */
#include "csrc/sparse/residual.h"

#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/device.h"
#include "csrc/core/validate.h"

struct reading {
    const struct trib_sparse *sparse;
    void *out;
    trib_stream stream;
};

static void copy_residual(void *argument)
{
    const struct reading *reading = argument;
    const struct trib_sparse *sparse = reading->sparse;
    const struct tri_accumulator residual = tri_sparse_accumulator(sparse);
    uintptr_t previous = 0;
    trib_status status = tri_device_push(sparse->backend, sparse->device, &previous);
    if (status == TRIB_OK) {
        status =
            sparse->backend->kernels->sparse->residual(&residual, reading->out, reading->stream);
        tri_device_pop(sparse->backend, previous);
    }
    if (status != TRIB_OK)
        (void)tri_abort_raise(sparse->backend->transport->abort_state(sparse->transport), status,
                              tri_detail());
}

static trib_status check_copy(const struct trib_sparse *sparse, void *out, trib_stream stream)
{
    const struct trib_comm *comm = sparse->comm;
    const struct tri_sparse_params *params = &sparse->params;
    const int operation = TRI_SPARSE_RESIDUAL;
    const struct tri_buffer buffer = {.argument = {"out", TRI_NO_INDEX},
                                      .data = out,
                                      .blocks = 1,
                                      .count = params->count,
                                      .dtype = params->acc};
    size_t bytes = 0;
    TRI_TRY(tri_sparse_ready(sparse, operation));
    TRI_TRY(tri_check_stream(comm, operation, stream));
    if (params->in_place)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_USAGE,
                             "the state is in place: its residual is the accumulator passed as "
                             "`gradient`");
    if (params->count == 0)
        return TRIB_OK;
    return tri_check_buffer(comm, operation, &buffer, &bytes);
}

trib_status tri_sparse_residual(struct trib_sparse *sparse, void *out, trib_stream stream)
{
    struct reading reading = {sparse, out, stream};
    const trib_status status = check_copy(sparse, out, stream);
    if (status != TRIB_OK)
        return tri_batch_fail(sparse->comm, status);
    return tri_sparse_queue(sparse, TRI_SPARSE_RESIDUAL, copy_residual, &reading, sizeof reading,
                            stream);
}
