/* Adoption of a communicator that the caller keeps.
 *
 * Its ranks find each other as those of an id do: rank 0 makes one, and an allreduce of the
 * communicator itself spreads it. A second one tells every rank whether all have joined. If a rank
 * is missing, nothing here can end these calls: they stay inside NCCL until the caller aborts his
 * communicator. Then their stream is done, too, though nothing was reduced; so in both rank 0 sets a
 * byte, and the others set another one. A rank that does not see both saw an abort. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/nccl/config.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/join.h"
#include "csrc/nccl/ops.h"
#include "csrc/nccl/pinned.h"
#include "csrc/nccl/task.h"
#include "csrc/nccl/teardown.h"

enum { FIRST_NAP_NS = 20000, LAST_NAP_NS = 1000000 };
enum {
    OF_RANK_0 = TRI_NCCL_CELL - 2,
    OF_OTHERS = TRI_NCCL_CELL - 1,
    SET = 0xff
}; /* two bytes of each */

_Static_assert(sizeof(trib_id) == TRI_NCCL_CELL, "an id fills a cell");

/* One of the two allreduces. */
struct exchange {
    struct tri_nccl_task task;
    _Atomic int references; /* the task's and the caller's */
    ncclComm_t comm;
    int32_t rank, device;
    struct tri_transport *transport; /* in the second, if this rank has joined; with a reference to
                                      * its local ranks */
    trib_status own;                 /* this rank's, in the second */
    trib_id bytes;                   /* at last of each byte the largest of all ranks */
};

trib_status tri_nccl_inspect(struct tri_adoptee *out, void *handle)
{
    int rank = -1, size = 0, device = -1;
    ncclResult_t error = ncclSuccess;
    ncclResult_t result = ncclCommUserRank(handle, &rank);
    if (result == ncclSuccess)
        result = ncclCommCount(handle, &size);
    if (result == ncclSuccess)
        result = ncclCommCuDevice(handle, &device);
    if (result == ncclSuccess)
        result = ncclCommGetAsyncError(handle, &error);
    if (result == ncclSuccess)
        result = error;
    if (result != ncclSuccess)
        return tri_nccl_fail(result, "trib_comm_adopt: `nccl_comm`", rank, device);
    *out = (struct tri_adoptee){.handle = handle, .rank = rank, .size = size, .device = device};
    return TRIB_OK;
}

/* Until the stream is done, whatever the deadline: it writes to the cell. CUDA refuses to answer
 * while some thread captures. */
static trib_status await(cudaStream_t stream, int32_t device)
{
    bool done = false;
    for (uint64_t nap_ns = FIRST_NAP_NS;; nap_ns = nap_ns < LAST_NAP_NS ? 2 * nap_ns : nap_ns) {
        const trib_status status = tri_nccl_stream_query(device, stream, &done);
        if (done || (status != TRIB_OK && status != TRIB_ERR_INVALID_USAGE))
            return status;
        tri_nap_ns(nap_ns);
    }
}

/* The device is current. `*out`: what NCCL said. */
static trib_status reduce(struct exchange *exchange, void *cell, cudaStream_t stream,
                          ncclResult_t *out)
{
    uint8_t *bytes = exchange->bytes.bytes;
    bytes[OF_RANK_0] = exchange->rank == 0 ? SET : 0;
    bytes[OF_OTHERS] = exchange->rank == 0 ? 0 : SET;
    memcpy(cell, &exchange->bytes, sizeof exchange->bytes);
    *out = ncclAllReduce(cell, cell, sizeof exchange->bytes, ncclUint8, ncclMax, exchange->comm,
                         stream);
    if (*out != ncclSuccess)
        return tri_nccl_fail(*out, "trib_comm_adopt", exchange->rank, exchange->device);
    TRI_TRY(await(stream, exchange->device));
    memcpy(&exchange->bytes, cell, sizeof exchange->bytes);
    if (bytes[OF_RANK_0] == SET && bytes[OF_OTHERS] == SET)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_ABORTED,
                    "trib_comm_adopt on rank %d (device %d): the communicator was aborted before "
                    "every rank had adopted its own",
                    (int)exchange->rank, (int)exchange->device);
}

static trib_status reduce_bytes(struct exchange *exchange)
{
    struct tri_nccl_device_guard guard;
    void *cell = NULL;
    cudaStream_t stream = NULL;
    ncclResult_t result = ncclSuccess;
    TRI_TRY(tri_nccl_push_device(&guard, exchange->device));
    tri_nccl_load_kernels(exchange->device); /* as where a communicator is made: see open.c */
    trib_status status = tri_nccl_alloc_pinned(&cell, TRI_NCCL_CELL);
    const cudaError_t error =
        status != TRIB_OK ? cudaSuccess : cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess)
        status = tri_nccl_cuda_fail(error, "trib_comm_adopt", exchange->device);
    if (status == TRIB_OK)
        status = reduce(exchange, cell, stream, &result);
    /* What NCCL may still use stays: after a failure the cell, and both where it goes on without this
     * thread. */
    if (stream != NULL && result != ncclInProgress)
        (void)cudaStreamDestroy(stream);
    if (cell != NULL && (result == ncclSuccess || tri_nccl_refused(result)))
        tri_nccl_free_pinned(cell);
    tri_nccl_pop_device(&guard);
    return status;
}

static trib_status run_first(struct tri_nccl_task *task)
{
    return reduce_bytes((struct exchange *)task);
}

/* Get everything ready, and tell the others whether that was possible. */
static trib_status run_second(struct tri_nccl_task *task)
{
    struct exchange *exchange = (struct exchange *)task;
    struct trib_abort *state =
        exchange->transport == NULL ? NULL : exchange->transport->local->state;
    struct tri_detail_copy why = {""};
    if (state != NULL && !tri_abort_register(state))
        return tri_abort_status(state);
    if (state != NULL) {
        tri_nccl_publish(exchange->transport, exchange->comm);
        exchange->own = tri_nccl_alloc_resources(exchange->transport);
        why = tri_detail_copy();
    }
    exchange->bytes.bytes[0] = (uint8_t)exchange->own;
    trib_status status = reduce_bytes(exchange);
    if (state != NULL)
        tri_abort_unregister(state);
    if (exchange->own != TRIB_OK)
        return tri_fail(exchange->own, "%s", why.text);
    const trib_status worst = (trib_status)exchange->bytes.bytes[0];
    if (status == TRIB_OK && worst != TRIB_OK)
        status = tri_fail(worst,
                          "trib_comm_adopt on rank %d (device %d): another rank failed; its "
                          "detail says why",
                          (int)exchange->rank, (int)exchange->device);
    return status;
}

static void release(struct exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->references, 1) != 1)
        return;
    if (exchange->transport != NULL)
        tri_nccl_release(exchange->transport->local);
    free(exchange);
}

static void release_task(struct tri_nccl_task *task)
{
    release((struct exchange *)task);
}

/* Run one of the two: `*bytes` are this rank's, and then those of all. `transport`: NULL in the first,
 * and where this rank has not joined. */
static trib_status run(trib_status (*body)(struct tri_nccl_task *task),
                       const struct tri_adoptee *of, struct tri_transport *transport,
                       trib_status own, trib_id *bytes, uint64_t deadline_ns)
{
    bool timed_out = false;
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for an adoption");
    exchange->task.run = body;
    exchange->task.free = release_task;
    atomic_init(&exchange->references, 2);
    exchange->comm = of->handle;
    exchange->rank = of->rank;
    exchange->device = of->device;
    exchange->transport = transport;
    exchange->own = own;
    exchange->bytes = *bytes;
    if (transport != NULL)
        tri_nccl_retain(transport->local);
    trib_status status =
        tri_nccl_task_run(&exchange->task, transport == NULL ? NULL : transport->local->state,
                          deadline_ns, &timed_out);
    if (status == TRIB_OK)
        *bytes = exchange->bytes;
    release(exchange);
    return timed_out ? TRIB_ERR_TIMEOUT : status;
}

static trib_status late(const struct tri_adoptee *of, uint32_t timeout_ms)
{
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "trib_comm_adopt: rank %d of %d on device %d waited %u ms for the other ranks; "
                    "every rank adopts its communicator. Abort yours (ncclCommAbort): an allreduce "
                    "is queued on it, and waits for them",
                    (int)of->rank, (int)of->size, (int)of->device, (unsigned)timeout_ms);
}

/* All ranks know `id`. Join those of this process, and let every rank know. */
static trib_status join(struct tri_transport **out, const trib_id *id, const struct tri_adoptee *of,
                        const struct tri_config *config, uint64_t deadline_ns)
{
    struct tri_nccl_key key;
    trib_id verdict = {{0}};
    memset(&key, 0, sizeof key);
    key.id = *id;
    key.adopted = 1;
    const trib_status joined =
        tri_nccl_join(out, &key, of->rank, of->size, of->device, deadline_ns);
    const struct tri_detail_copy why = tri_detail_copy();
    if (joined == TRIB_OK && config != NULL)
        tri_nccl_configure(*out, config);
    const trib_status status = run(run_second, of, *out, joined, &verdict, deadline_ns);
    return joined == TRIB_OK ? status : tri_fail(joined, "%s", why.text);
}

trib_status tri_nccl_adopt(struct tri_transport **out, trib_id *id, const struct tri_adoptee *of,
                           const struct tri_config *config, uint32_t timeout_ms)
{
    const uint64_t deadline = tri_deadline_ns(timeout_ms);
    *out = NULL;
    if (of->size == 1) /* needs no NCCL: single.c */
        return tri_nccl_open(out, id, 0, 1, of->device, config, timeout_ms);
    TRI_TRY(tri_nccl_config_check(config, "trib_comm_adopt"));
    trib_status status = run(run_first, of, NULL, TRIB_OK, id, deadline);
    if (status == TRIB_OK)
        status = join(out, id, of, config, deadline);
    if (status == TRIB_ERR_TIMEOUT)
        status = late(of, timeout_ms);
    if (*out == NULL)
        return status;
    tri_nccl_end_joining((*out)->local);
    if (status == TRIB_OK)
        return TRIB_OK;
    status = tri_nccl_raise_abort((*out)->local, status);
    tri_nccl_release((*out)->local);
    *out = NULL;
    return status;
}
