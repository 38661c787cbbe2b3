/* Every exported function, in the order of the header: it checks for NULL and calls inward. (The
 * names of statuses, types and reductions are in base/.) */
#include <stdio.h>

#include "csrc/backend.h"
#include "csrc/base/abort.h"
#include "csrc/base/clock.h"
#include "csrc/base/debug.h"
#include "csrc/base/log.h"
#include "csrc/base/process.h"
#include "csrc/base/status.h"
#include "csrc/core/adopt.h"
#include "csrc/core/batch.h"
#include "csrc/core/batches.h"
#include "csrc/core/capabilities.h"
#include "csrc/core/collective.h"
#include "csrc/core/communicator.h"
#include "csrc/core/device.h"
#include "csrc/core/dump.h"
#include "csrc/core/group.h"
#include "csrc/core/group_run.h"
#include "csrc/core/lifecycle.h"
#include "csrc/core/memory.h"
#include "csrc/core/quiesce.h"
#include "csrc/core/reach.h"
#include "csrc/core/shrink.h"
#include "csrc/core/symmetric.h"
#include "csrc/core/wait.h"
#include "csrc/core/watchdog.h"
#include "csrc/job/meet.h"
#include "csrc/lists/list.h"
#include "csrc/reducer/reducer.h"
#include "csrc/sparse/allreduce.h"
#include "csrc/sparse/group.h"
#include "csrc/sparse/residual.h"
#include "csrc/sparse/snapshot.h"
#include "csrc/sparse/statistics.h"
#include "tributary.h"

/* A required pointer is NULL. */
static trib_status missing(const char *function, const char *argument)
{
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT, "%s: `%s` is NULL; expected an object or a place",
                    function, argument);
}

/* A call in a child of fork, which has neither the threads nor the devices of its parent. */
static trib_status forked(const char *function)
{
    return tri_fail(
        TRIB_ERR_INVALID_USAGE,
        "%s: this process was forked from one that had used the library, and threads and "
        "devices stayed there: fork before the first trib_device_get, trib_job_meet, "
        "trib_comm_create or trib_group_create, or start the process with exec",
        function);
}

/* At the beginning of a function: return in a child of fork. */
#define NOT_FORKED()                                                                               \
    do {                                                                                           \
        if (tri_process_forked())                                                                  \
            return forked(__func__);                                                               \
    } while (0)

/* The same, and return if `argument` is NULL. */
#define NEED(argument)                                                                             \
    do {                                                                                           \
        NOT_FORKED();                                                                              \
        if ((argument) == NULL)                                                                    \
            return missing(__func__, #argument);                                                   \
    } while (0)

/* ------------------------------------------------------------------------------------- version */

uint32_t trib_version(void)
{
    return TRIB_VERSION;
}

/* -------------------------------------------------------------------------------------- status */

const char *trib_last_detail(void)
{
    return tri_detail();
}

/* ------------------------------------------------------------------------------------ backends */

int32_t trib_backend_count(void)
{
    int32_t count = 0;
    while (tri_backends[count] != NULL)
        count++;
    return count;
}

const char *trib_backend_name(int32_t index)
{
    return index >= 0 && index < trib_backend_count() ? tri_backends[index]->name : NULL;
}

trib_status trib_backend_version(uint32_t *out, const char *backend)
{
    NEED(out);
    NEED(backend);
    const struct tri_backend *found = NULL;
    *out = 0;
    TRI_TRY(tri_backend_get(&found, backend));
    return found->device->version(out);
}

trib_status trib_backend_devices(int32_t *out, const char *backend)
{
    NEED(out);
    NEED(backend);
    const struct tri_backend *found = NULL;
    *out = 0;
    TRI_TRY(tri_backend_get(&found, backend));
    *out = found->device->count();
    return TRIB_OK;
}

static trib_status check_capabilities(const char *function, const trib_capabilities *out)
{
    if (out->size == sizeof *out)
        return TRIB_OK;
    return tri_fail(
        TRIB_ERR_INVALID_ARGUMENT,
        "%s: out->size is %u, expected %zu: start from TRIB_CAPABILITIES_INIT, and build "
        "with the header of the library that is loaded",
        function, out->size, sizeof *out);
}

trib_status trib_backend_capabilities(trib_capabilities *out, const char *backend)
{
    NEED(out);
    NEED(backend);
    const struct tri_backend *found = NULL;
    TRI_TRY(check_capabilities(__func__, out));
    TRI_TRY(tri_backend_get(&found, backend));
    return tri_backend_capabilities(out, found);
}

/* ------------------------------------------------------- devices, memory, streams, events */

trib_status trib_device_get(trib_device **out, const char *backend, int32_t ordinal)
{
    NEED(out);
    *out = NULL;
    return tri_device_get(out, backend, ordinal);
}

const char *trib_device_backend(const trib_device *device)
{
    return device == NULL ? NULL : device->backend->name;
}

int32_t trib_device_ordinal(const trib_device *device)
{
    return device == NULL ? -1 : device->ordinal;
}

trib_status trib_device_alloc(void **out, trib_device *device, size_t bytes)
{
    NEED(out);
    *out = NULL;
    NEED(device);
    return device->backend->device->alloc(device->ordinal, out, bytes);
}

trib_status trib_device_free(trib_device *device, void *data)
{
    NEED(device);
    return data == NULL ? TRIB_OK : device->backend->device->free(device->ordinal, data);
}

trib_status trib_device_copy(trib_device *device, void *dst, const void *src, size_t bytes,
                             trib_stream stream)
{
    NEED(device);
    return tri_device_copy(device, dst, src, bytes, stream);
}

trib_status trib_stream_create(trib_stream *out, trib_device *device)
{
    NEED(out);
    *out = NULL;
    NEED(device);
    return device->backend->device->stream_create(device->ordinal, out);
}

trib_status trib_stream_wait(trib_device *device, trib_stream stream)
{
    NEED(device);
    TRI_TRY(tri_device_check_stream(device, __func__, stream));
    return device->backend->device->stream_wait(device->ordinal, stream);
}

trib_status trib_stream_query(int32_t *out, trib_device *device, trib_stream stream)
{
    NEED(out);
    *out = 0;
    NEED(device);
    bool done = false;
    TRI_TRY(tri_device_check_stream(device, __func__, stream));
    const trib_status status =
        device->backend->device->stream_query(device->ordinal, stream, &done);
    *out = done;
    return status;
}

trib_status trib_stream_wait_event(trib_device *device, trib_event event, trib_stream stream)
{
    NEED(device);
    NEED(event);
    TRI_TRY(tri_device_check_stream(device, __func__, stream));
    return device->backend->device->stream_wait_event(device->ordinal, event, stream);
}

trib_status trib_stream_submit(trib_device *device, void (*function)(void *argument),
                               void *argument, trib_stream stream)
{
    NEED(device);
    NEED(function);
    TRI_TRY(tri_device_check_stream(device, __func__, stream));
    return device->backend->device->stream_submit(device->ordinal, function, argument, stream);
}

trib_status trib_stream_destroy(trib_device *device, trib_stream stream)
{
    NEED(device);
    if (stream == NULL)
        return TRIB_OK;
    TRI_TRY(tri_device_check_stream(device, __func__, stream));
    return device->backend->device->stream_destroy(device->ordinal, stream);
}

trib_status trib_event_create(trib_event *out, trib_device *device)
{
    NEED(out);
    *out = NULL;
    NEED(device);
    return device->backend->device->event_create(device->ordinal, out);
}

trib_status trib_event_record(trib_device *device, trib_event event, trib_stream stream)
{
    NEED(device);
    NEED(event);
    TRI_TRY(tri_device_check_stream(device, __func__, stream));
    return device->backend->device->event_record(device->ordinal, event, stream);
}

trib_status trib_event_wait(trib_device *device, trib_event event)
{
    NEED(device);
    NEED(event);
    return device->backend->device->event_wait(device->ordinal, event);
}

trib_status trib_event_query(int32_t *out, trib_device *device, trib_event event)
{
    NEED(out);
    *out = 0;
    NEED(device);
    NEED(event);
    bool done = false;
    const trib_status status = device->backend->device->event_query(device->ordinal, event, &done);
    *out = done;
    return status;
}

trib_status trib_event_elapsed(float *out_ms, trib_device *device, trib_event start, trib_event end)
{
    NEED(out_ms);
    *out_ms = 0;
    NEED(device);
    NEED(start);
    NEED(end);
    return device->backend->device->event_elapsed(device->ordinal, start, end, out_ms);
}

trib_status trib_event_destroy(trib_device *device, trib_event event)
{
    NEED(device);
    return event == NULL ? TRIB_OK : device->backend->device->event_destroy(device->ordinal, event);
}

/* --------------------------------------------------------------------------------------- abort */

trib_status trib_abort_clone(trib_abort **out, trib_abort *handle)
{
    NEED(out);
    *out = NULL;
    NEED(handle);
    *out = tri_abort_retain(handle);
    return TRIB_OK;
}

trib_status trib_abort_raise(trib_abort *handle, const char *reason)
{
    NEED(handle);
    char detail[TRI_DETAIL_SIZE];
    (void)snprintf(detail, sizeof detail, "the communicator was aborted: %s",
                   reason == NULL ? "trib_abort_raise was called without a reason" : reason);
    (void)tri_abort_raise(handle, TRIB_ERR_ABORTED, detail);
    tri_watchdog_wake(); /* to report it */
    return TRIB_OK;
}

int32_t trib_abort_raised(const trib_abort *handle)
{
    return handle != NULL && !tri_abort_live(handle);
}

trib_status trib_abort_defer(trib_abort *handle, uint32_t ms)
{
    NEED(handle);
    tri_abort_defer(handle, ms == TRIB_NO_TIMEOUT ? UINT64_MAX : tri_deadline_ns(ms));
    return TRIB_OK;
}

/* An end that a question finds is reported by the watchdog, which may sleep. */
static trib_status answer(bool was_live, trib_status status)
{
    if (was_live && status != TRIB_OK)
        tri_watchdog_wake();
    return status;
}

trib_status trib_abort_status(trib_abort *handle)
{
    NEED(handle);
    const bool live = tri_abort_live(handle);
    return answer(live, tri_abort_ask(handle));
}

trib_status trib_abort_state(trib_comm_state *out, char *waits_for, size_t bytes,
                             trib_abort *handle)
{
    NEED(out);
    NEED(handle);
    if (bytes > 0)
        NEED(waits_for);
    *out = tri_abort_state(handle, waits_for, bytes);
    return TRIB_OK;
}

void trib_abort_release(trib_abort *handle)
{
    tri_abort_release(handle);
}

/* --------------------------------------------------------------------------------------- group */

trib_status trib_group_create(trib_group **out, const int32_t *devices, int32_t size,
                              const trib_options *options)
{
    NEED(out);
    *out = NULL;
    return tri_group_create(out, devices, size, options);
}

int32_t trib_group_size(const trib_group *group)
{
    return group == NULL ? 0 : group->size;
}

int32_t trib_group_device(const trib_group *group, int32_t rank)
{
    if (group == NULL || rank < 0 || rank >= group->size)
        return -1;
    return group->comms[rank]->device;
}

const char *trib_group_backend(const trib_group *group)
{
    return group == NULL ? NULL : group->comms[0]->backend->name;
}

trib_status trib_group_allreduce(trib_group *group, const void *const *send, void *const *recv,
                                 size_t count, trib_dtype dtype, trib_op op,
                                 const trib_stream *streams)
{
    NEED(group);
    const struct tri_call call = {.count = count, .dtype = dtype, .op = op};
    return tri_group_collective(group, TRI_ALLREDUCE, &call, send, recv, streams);
}

trib_status trib_group_broadcast(trib_group *group, const void *const *send, void *const *recv,
                                 size_t count, trib_dtype dtype, int32_t root,
                                 const trib_stream *streams)
{
    NEED(group);
    const struct tri_call call = {.count = count, .dtype = dtype, .peer = root};
    return tri_group_collective(group, TRI_BROADCAST, &call, send, recv, streams);
}

trib_status trib_group_allreduce_list(trib_group *group, const trib_tensor *const *tensors,
                                      size_t n, trib_op op, const trib_stream *streams)
{
    NEED(group);
    const struct tri_list list = {.operation = TRI_ALLREDUCE_LIST, .n = n, .op = op};
    return tri_group_list(group, &list, tensors, streams);
}

trib_status trib_group_broadcast_list(trib_group *group, const trib_tensor *const *tensors,
                                      size_t n, int32_t root, const trib_stream *streams)
{
    NEED(group);
    const struct tri_list list = {.operation = TRI_BROADCAST_LIST, .n = n, .root = root};
    return tri_group_list(group, &list, tensors, streams);
}

trib_comm *trib_group_comm(trib_group *group, int32_t rank)
{
    return group == NULL || rank < 0 || rank >= group->size ? NULL : group->comms[rank];
}

trib_status trib_group_batch_begin(trib_group *group)
{
    NEED(group);
    return tri_group_batch_begin(group);
}

trib_status trib_group_batch_end(trib_group *group)
{
    NEED(group);
    return tri_group_batch_end(group);
}

trib_status trib_group_run(trib_group *group,
                           trib_status (*function)(trib_comm *comm, int32_t rank, void *argument),
                           void *argument)
{
    NEED(group);
    NEED(function);
    return tri_group_run(group, TRI_GROUP_RUN, function, argument);
}

trib_status trib_group_abort_handle(trib_abort **out, trib_group *group)
{
    NEED(out);
    *out = NULL;
    NEED(group);
    *out = tri_abort_retain(group->comms[0]->state);
    return TRIB_OK;
}

trib_status trib_group_status(trib_group *group)
{
    NEED(group);
    return tri_group_status(group);
}

trib_status trib_group_wait(trib_group *group, const trib_stream *streams, uint32_t timeout_ms)
{
    NEED(group);
    return tri_group_wait(group, streams, timeout_ms);
}

trib_status trib_group_split(trib_comm **out, trib_group *group)
{
    NEED(out);
    NEED(group);
    return tri_group_split(out, group);
}

trib_status trib_group_destroy(trib_group *group)
{
    NOT_FORKED();
    return group == NULL ? TRIB_OK : tri_group_destroy(group);
}

/* ----------------------------------------------------------------------- life of a communicator */

trib_status trib_id_create(trib_id *out, const char *backend)
{
    NEED(out);
    *out = (trib_id){{0}};
    return tri_id_create(out, backend);
}

trib_status trib_comm_create(trib_comm **out, const trib_id *id, int32_t rank, int32_t size,
                             int32_t device, const trib_options *options)
{
    NEED(out);
    *out = NULL;
    NEED(id);
    return tri_comm_create(out, id, rank, size, device, options);
}

trib_status trib_comm_adopt(trib_comm **out, void *nccl_comm, const trib_options *options)
{
    NEED(out);
    *out = NULL;
    NEED(nccl_comm);
    return tri_comm_adopt(out, nccl_comm, options);
}

int32_t trib_comm_rank(const trib_comm *comm)
{
    return comm == NULL ? -1 : comm->rank;
}

int32_t trib_comm_size(const trib_comm *comm)
{
    return comm == NULL ? 0 : comm->size;
}

int32_t trib_comm_device(const trib_comm *comm)
{
    return comm == NULL ? -1 : comm->device;
}

const char *trib_comm_backend(const trib_comm *comm)
{
    return comm == NULL ? NULL : comm->backend->name;
}

const char *trib_comm_name(const trib_comm *comm)
{
    return comm == NULL ? NULL : comm->config.name;
}

trib_status trib_comm_capabilities(trib_capabilities *out, const trib_comm *comm)
{
    NEED(out);
    NEED(comm);
    TRI_TRY(check_capabilities(__func__, out));
    return tri_comm_capabilities(out, comm);
}

trib_status trib_comm_split(trib_comm **out, trib_comm *comm, int32_t color, int32_t key)
{
    NEED(out);
    *out = NULL;
    NEED(comm);
    return tri_comm_split(out, comm, color, key);
}

trib_status trib_comm_abort_handle(trib_abort **out, trib_comm *comm)
{
    NEED(out);
    *out = NULL;
    NEED(comm);
    *out = tri_abort_retain(comm->state);
    return TRIB_OK;
}

trib_status trib_comm_status(trib_comm *comm)
{
    NEED(comm);
    const bool live = tri_abort_live(comm->state);
    return answer(live, tri_comm_status(comm));
}

trib_status trib_comm_lost(int32_t *out_n, const trib_comm *comm, int32_t *ranks, int32_t capacity)
{
    NEED(out_n);
    NEED(comm);
    if (capacity < 0 || (capacity > 0 && ranks == NULL))
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_lost on rank %d: `ranks` is %s and `capacity` is %d; expected a "
                        "place for `capacity` numbers",
                        comm->rank, ranks == NULL ? "NULL" : "not NULL", capacity);
    *out_n = tri_comm_lost(comm, ranks, capacity);
    return TRIB_OK;
}

trib_status trib_comm_shrink(trib_comm **out, trib_comm *comm, const int32_t *excluded, int32_t n,
                             uint32_t timeout_ms)
{
    NEED(out);
    *out = NULL;
    NEED(comm);
    return tri_comm_shrink(out, comm, excluded, n, timeout_ms);
}

trib_status trib_comm_counters(trib_counters *out, trib_comm *comm)
{
    NEED(out);
    NEED(comm);
    if (out->size != sizeof *out)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_counters: out->size is %u, expected %zu: start from "
                        "TRIB_COUNTERS_INIT, and build with the header of the library that is "
                        "loaded",
                        out->size, sizeof *out);
    tri_comm_counters(out, comm);
    return TRIB_OK;
}

trib_status trib_comm_wait(trib_comm *comm, trib_stream stream, uint32_t timeout_ms)
{
    NEED(comm);
    const struct tri_issuing rank = {&comm, &stream, 1};
    return tri_wait(&rank, TRI_WAIT, timeout_ms);
}

trib_status trib_comm_set_call_timeout(trib_comm *comm, uint32_t timeout_ms, int32_t timed)
{
    NEED(comm);
    if (timed != 0 && timed != 1)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_comm_set_call_timeout on rank %d: `timed` is %d; expected 0 or 1",
                        comm->rank, timed);
    tri_comm_set_call_timeout(comm, timeout_ms, timed == 1);
    return TRIB_OK;
}

trib_status trib_comm_close(trib_comm *comm, uint32_t timeout_ms)
{
    NEED(comm);
    return tri_comm_close(comm, timeout_ms);
}

trib_status trib_comm_destroy(trib_comm *comm)
{
    NOT_FORKED();
    return comm == NULL ? TRIB_OK : tri_comm_destroy(comm);
}

trib_status trib_quiesce(uint32_t timeout_ms)
{
    NOT_FORKED();
    return tri_quiesce(timeout_ms);
}

/* ----------------------------------------------------------------------------------- launchers */

trib_status trib_job_read(trib_job *out)
{
    NEED(out);
    return tri_job_read(out);
}

trib_status trib_job_meet(trib_id *out, const trib_job *job, const char *backend,
                          uint32_t timeout_ms)
{
    NEED(out);
    *out = (trib_id){{0}};
    NEED(job);
    return tri_job_meet(out, job, backend, timeout_ms);
}

trib_status trib_comm_from_env(trib_comm **out, const trib_options *options)
{
    NEED(out);
    *out = NULL;
    return tri_comm_from_env(out, options);
}

/* ---------------------------------------------------------------------------------- collectives */

trib_status trib_allreduce(trib_comm *comm, const void *send, void *recv, size_t count,
                           trib_dtype dtype, trib_op op, trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .op = op, .stream = stream};
    return tri_collective(comm, TRI_ALLREDUCE, &call);
}

trib_status trib_allreduce_with(trib_comm *comm, const void *send, void *recv, size_t count,
                                trib_dtype dtype, trib_op op, const trib_call_options *options,
                                trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .op = op, .stream = stream};
    return tri_collective_with(comm, TRI_ALLREDUCE_WITH, &call, options);
}

trib_status trib_broadcast(trib_comm *comm, const void *send, void *recv, size_t count,
                           trib_dtype dtype, int32_t root, trib_stream stream)
{
    NEED(comm);
    return trib_broadcast_with(comm, send, recv, count, dtype, root, NULL, stream);
}

trib_status trib_broadcast_with(trib_comm *comm, const void *send, void *recv, size_t count,
                                trib_dtype dtype, int32_t root, const trib_call_options *options,
                                trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .peer = root, .stream = stream};
    return tri_collective_with(comm, TRI_BROADCAST, &call, options);
}

trib_status trib_reduce(trib_comm *comm, const void *send, void *recv, size_t count,
                        trib_dtype dtype, trib_op op, int32_t root, trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {.send = send,
                            .recv = recv,
                            .count = count,
                            .dtype = dtype,
                            .op = op,
                            .peer = root,
                            .stream = stream};
    return tri_collective(comm, TRI_REDUCE, &call);
}

trib_status trib_allgather(trib_comm *comm, const void *send, void *recv, size_t count,
                           trib_dtype dtype, trib_stream stream)
{
    NEED(comm);
    return trib_allgather_with(comm, send, recv, count, dtype, NULL, stream);
}

trib_status trib_allgather_with(trib_comm *comm, const void *send, void *recv, size_t count,
                                trib_dtype dtype, const trib_call_options *options,
                                trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .stream = stream};
    return tri_collective_with(comm, TRI_ALLGATHER, &call, options);
}

trib_status trib_reduce_scatter(trib_comm *comm, const void *send, void *recv, size_t count,
                                trib_dtype dtype, trib_op op, trib_stream stream)
{
    NEED(comm);
    return trib_reduce_scatter_with(comm, send, recv, count, dtype, op, NULL, stream);
}

trib_status trib_reduce_scatter_with(trib_comm *comm, const void *send, void *recv, size_t count,
                                     trib_dtype dtype, trib_op op, const trib_call_options *options,
                                     trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .op = op, .stream = stream};
    return tri_collective_with(comm, TRI_REDUCE_SCATTER, &call, options);
}

trib_status trib_alltoall(trib_comm *comm, const void *send, void *recv, size_t count,
                          trib_dtype dtype, trib_stream stream)
{
    NEED(comm);
    return trib_alltoall_with(comm, send, recv, count, dtype, NULL, stream);
}

trib_status trib_alltoall_with(trib_comm *comm, const void *send, void *recv, size_t count,
                               trib_dtype dtype, const trib_call_options *options,
                               trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .stream = stream};
    return tri_collective_with(comm, TRI_ALLTOALL, &call, options);
}

trib_status trib_gather(trib_comm *comm, const void *send, void *recv, size_t count,
                        trib_dtype dtype, int32_t root, trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .peer = root, .stream = stream};
    return tri_collective(comm, TRI_GATHER, &call);
}

trib_status trib_scatter(trib_comm *comm, const void *send, void *recv, size_t count,
                         trib_dtype dtype, int32_t root, trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .recv = recv, .count = count, .dtype = dtype, .peer = root, .stream = stream};
    return tri_collective(comm, TRI_SCATTER, &call);
}

trib_status trib_send(trib_comm *comm, const void *send, size_t count, trib_dtype dtype,
                      int32_t peer, trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .send = send, .count = count, .dtype = dtype, .peer = peer, .stream = stream};
    return tri_collective(comm, TRI_SEND, &call);
}

trib_status trib_recv(trib_comm *comm, void *recv, size_t count, trib_dtype dtype, int32_t peer,
                      trib_stream stream)
{
    NEED(comm);
    struct tri_call call = {
        .recv = recv, .count = count, .dtype = dtype, .peer = peer, .stream = stream};
    return tri_collective(comm, TRI_RECV, &call);
}

trib_status trib_barrier(trib_comm *comm, trib_stream stream)
{
    NEED(comm);
    return tri_barrier(comm, stream);
}

trib_status trib_allgatherv(trib_comm *comm, const void *send, void *recv, const size_t *counts,
                            const size_t *offsets, trib_dtype dtype, trib_stream stream)
{
    NEED(comm);
    return tri_allgatherv(comm, send, recv, counts, offsets, dtype, stream);
}

trib_status trib_alltoallv(trib_comm *comm, const void *send, const size_t *send_counts,
                           const size_t *send_offsets, void *recv, const size_t *recv_counts,
                           const size_t *recv_offsets, trib_dtype dtype, trib_stream stream)
{
    NEED(comm);
    const struct tri_alltoallv args = {
        .send = send,
        .recv = recv,
        .sends = {.counts = send_counts, .offsets = send_offsets},
        .recvs = {.counts = recv_counts, .offsets = recv_offsets},
        .dtype = dtype,
        .stream = stream,
        .self = true,
    };
    return tri_alltoallv(comm, &args);
}

/* ----------------------------------------------------------------------------- symmetric memory */

/* What alloc, import and free check of this rank's arguments, they tell the others. */
trib_status trib_symmetric_alloc(void **out, trib_comm *comm, size_t bytes)
{
    NOT_FORKED();
    if (out != NULL)
        *out = NULL;
    NEED(comm);
    return tri_symmetric_alloc(out, comm, bytes);
}

trib_status trib_symmetric_import(void **out, trib_comm *comm, const void *data, size_t bytes,
                                  trib_stream stream)
{
    NOT_FORKED();
    if (out != NULL)
        *out = NULL;
    NEED(comm);
    return tri_symmetric_import(out, comm, data, bytes, stream);
}

trib_status trib_symmetric_query(void **out, trib_comm *comm, const void *data, size_t bytes,
                                 int32_t rank)
{
    NEED(out);
    *out = NULL;
    NEED(comm);
    return tri_symmetric_query(out, comm, data, bytes, rank);
}

trib_status trib_symmetric_free(trib_comm *comm, void *data)
{
    NEED(comm);
    return tri_symmetric_free(comm, data);
}

/* ---------------------------------------------------------------------------------------- lists */

trib_status trib_allreduce_list(trib_comm *comm, const trib_tensor *tensors, size_t n, trib_op op,
                                trib_stream stream)
{
    NEED(comm);
    const struct tri_list list = {
        .operation = TRI_ALLREDUCE_LIST, .tensors = tensors, .n = n, .op = op, .stream = stream};
    return tri_list(comm, &list);
}

trib_status trib_allreduce_list_with(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                     trib_op op, const trib_call_options *options,
                                     trib_stream stream)
{
    NEED(comm);
    struct tri_list list = {.tensors = tensors, .n = n, .op = op, .stream = stream};
    return tri_allreduce_list_with(comm, &list, options);
}

trib_status trib_broadcast_list(trib_comm *comm, const trib_tensor *tensors, size_t n, int32_t root,
                                trib_stream stream)
{
    NEED(comm);
    const struct tri_list list = {.operation = TRI_BROADCAST_LIST,
                                  .tensors = tensors,
                                  .n = n,
                                  .root = root,
                                  .stream = stream};
    return tri_list(comm, &list);
}

trib_status trib_weighted_average(trib_comm *comm, const trib_tensor *tensors, size_t n,
                                  float weight, const float *device_weight, float *device_total,
                                  trib_stream stream)
{
    NEED(comm);
    return tri_weighted_average(comm, tensors, n, weight, device_weight, device_total, stream);
}

/* ---------------------------------------------------------------------------- sparse allreduce */

int32_t trib_sparse_algorithm_count(void)
{
    int32_t count = 1; /* auto */
    while (tri_algorithms[count - 1] != NULL)
        count++;
    return count;
}

const char *trib_sparse_algorithm_name(int32_t index)
{
    if (index < 0 || index >= trib_sparse_algorithm_count())
        return NULL;
    return index == 0 ? "auto" : tri_algorithms[index - 1]->name;
}

trib_status trib_sparse_bytes(uint64_t *out, const trib_comm *comm, size_t count, trib_dtype dtype,
                              const trib_sparse_options *options)
{
    NEED(out);
    *out = 0;
    NEED(comm);
    return tri_sparse_bytes(out, comm, count, dtype, options);
}

trib_status trib_sparse_create(trib_sparse **out, trib_comm *comm, size_t count, trib_dtype dtype,
                               const trib_sparse_options *options)
{
    NOT_FORKED();
    if (out != NULL)
        *out = NULL;
    NEED(comm); /* tri_sparse_create checks `out` in the handshake */
    return tri_sparse_create(out, comm, count, dtype, options);
}

trib_status trib_sparse_set_density(trib_sparse *sparse, double density)
{
    NEED(sparse);
    return tri_sparse_set_density(sparse, density);
}

trib_status trib_sparse_set_k(trib_sparse *sparse, uint64_t k)
{
    NEED(sparse);
    return tri_sparse_set_k(sparse, k);
}

trib_status trib_sparse_allreduce(trib_sparse *sparse, void *gradient, void *result,
                                  trib_stream stream)
{
    NEED(sparse);
    struct tri_sparse_call call = {.gradient = gradient, .dense = result, .stream = stream};
    return tri_sparse_allreduce(sparse, TRI_SPARSE_ALLREDUCE, &call);
}

trib_status trib_sparse_allreduce_entries(trib_sparse *sparse, void *gradient, uint32_t *index,
                                          void *value, uint32_t *count, trib_stream stream)
{
    NEED(sparse);
    struct tri_sparse_call call = {
        .gradient = gradient, .index = index, .value = value, .count = count, .stream = stream};
    return tri_sparse_allreduce(sparse, TRI_SPARSE_ALLREDUCE_ENTRIES, &call);
}

trib_status trib_group_sparse_create(trib_sparse **out, trib_group *group, size_t count,
                                     trib_dtype dtype, const trib_sparse_options *options)
{
    NEED(out);
    NEED(group);
    return tri_group_sparse_create(out, group, count, dtype, options);
}

trib_status trib_group_sparse_allreduce(trib_group *group, trib_sparse *const *sparse,
                                        void *const *gradient, void *const *result,
                                        const trib_stream *streams)
{
    NEED(group);
    NEED(sparse);
    NEED(gradient);
    NEED(result);
    return tri_group_sparse_allreduce(group, sparse, gradient, result, streams);
}

uint64_t trib_sparse_capacity(const trib_sparse *sparse)
{
    return sparse == NULL ? 0 : tri_sparse_capacity(sparse);
}

uint64_t trib_sparse_k(const trib_sparse *sparse)
{
    return sparse == NULL ? 0 : sparse->settings.params.k;
}

trib_status trib_sparse_status(trib_sparse *sparse)
{
    NEED(sparse);
    return tri_sparse_status(sparse);
}

const uint32_t *trib_sparse_outcome(const trib_sparse *sparse)
{
    return sparse == NULL ? NULL : &sparse->scalars->decision;
}

static trib_status check_statistics(const char *function, const trib_sparse_statistics *out)
{
    if (out->size == sizeof *out)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                    "%s: out->size is %u, expected %zu: start from TRIB_SPARSE_STATISTICS_INIT, "
                    "and build with the header of the library that is loaded",
                    function, out->size, sizeof *out);
}

trib_status trib_sparse_statistics_get(trib_sparse_statistics *out, trib_sparse *sparse)
{
    NEED(out);
    NEED(sparse);
    TRI_TRY(check_statistics(__func__, out));
    tri_sparse_statistics(out, sparse);
    return TRIB_OK;
}

trib_status trib_sparse_residual(trib_sparse *sparse, void *out, trib_stream stream)
{
    NEED(sparse);
    return tri_sparse_residual(sparse, out, stream);
}

uint64_t trib_sparse_export_bytes(const trib_sparse *sparse)
{
    return sparse == NULL ? 0 : tri_sparse_export_bytes(sparse);
}

trib_status trib_sparse_export(trib_sparse *sparse, void *out, size_t bytes, trib_stream stream)
{
    NEED(sparse);
    NEED(out);
    return tri_sparse_export(sparse, out, bytes, stream);
}

trib_status trib_sparse_import(trib_sparse *sparse, const void *data, size_t bytes, int32_t add,
                               trib_stream stream)
{
    NEED(sparse); /* tri_sparse_import checks `data` in the handshake */
    return tri_sparse_import(sparse, data, bytes, add != 0, stream);
}

trib_status trib_sparse_reset(trib_sparse *sparse, trib_stream stream)
{
    NEED(sparse);
    return tri_sparse_reset(sparse, stream);
}

trib_status trib_sparse_destroy(trib_sparse *sparse)
{
    NOT_FORKED();
    return sparse == NULL ? TRIB_OK : tri_sparse_destroy(sparse);
}

/* -------------------------------------------------------------------------------------- reducer */

trib_status trib_reducer_create(trib_reducer **out, trib_comm *comm, const trib_tensor *gradients,
                                size_t n, const trib_reducer_options *options)
{
    NOT_FORKED();
    if (out != NULL)
        *out = NULL;
    NEED(comm); /* tri_reducer_create compares `out` with the other ranks */
    return tri_reducer_create(out, comm, gradients, n, options);
}

trib_status trib_reducer_view(void **out, const trib_reducer *reducer, size_t i)
{
    NEED(out);
    NEED(reducer);
    return tri_reducer_view(out, reducer, i);
}

uint64_t trib_reducer_buckets(const trib_reducer *reducer)
{
    return reducer == NULL ? 0 : reducer->layout.nbuckets;
}

trib_status trib_reducer_ready(trib_reducer *reducer, size_t i, trib_stream stream)
{
    NEED(reducer);
    return tri_reducer_ready(reducer, i, stream);
}

trib_status trib_reducer_finish(trib_reducer *reducer, trib_stream stream)
{
    NEED(reducer);
    return tri_reducer_finish(reducer, stream);
}

trib_status trib_reducer_wait(trib_reducer *reducer, uint32_t timeout_ms)
{
    NEED(reducer);
    return tri_reducer_wait(reducer, timeout_ms);
}

const uint32_t *trib_reducer_outcome(const trib_reducer *reducer)
{
    return reducer == NULL ? NULL : &reducer->scalars->decision;
}

trib_status trib_reducer_status(const trib_reducer *reducer)
{
    NEED(reducer);
    return tri_reducer_status(reducer);
}

trib_status trib_reducer_set_density(trib_reducer *reducer, double density)
{
    NOT_FORKED();
    NEED(reducer);
    return tri_reducer_set_density(reducer, density);
}

trib_status trib_reducer_statistics(trib_sparse_statistics *out, const trib_reducer *reducer)
{
    NEED(out);
    NEED(reducer);
    TRI_TRY(check_statistics(__func__, out));
    return tri_reducer_statistics(out, reducer);
}

uint64_t trib_reducer_export_bytes(const trib_reducer *reducer)
{
    return reducer == NULL ? 0 : tri_reducer_export_bytes(reducer);
}

trib_status trib_reducer_export(trib_reducer *reducer, void *out, size_t bytes)
{
    NEED(reducer);
    NEED(out);
    return tri_reducer_export(reducer, out, bytes);
}

trib_status trib_reducer_import(trib_reducer *reducer, const void *data, size_t bytes, int32_t add)
{
    NEED(reducer); /* tri_reducer_import compares `data` with the other ranks */
    return tri_reducer_import(reducer, data, bytes, add != 0);
}

trib_status trib_reducer_destroy(trib_reducer *reducer)
{
    NOT_FORKED();
    return reducer == NULL ? TRIB_OK : tri_reducer_destroy(reducer);
}

/* ---------------------------------------------------------------------------------------- batch */

trib_status trib_batch_begin(trib_comm *comm)
{
    NEED(comm);
    return tri_batch_begin(comm);
}

trib_status trib_batch_end(trib_comm *comm)
{
    NEED(comm);
    return tri_batch_end(comm);
}

trib_status trib_batch_end_all(trib_comm *const *comms, size_t n)
{
    NOT_FORKED();
    for (size_t i = 0; i < n; i++)
        if (comms == NULL || comms[i] == NULL)
            return missing(__func__, comms == NULL ? "comms" : "comms[i]");
    return n == 0 ? TRIB_OK : tri_batches_end(comms, n);
}

/* ------------------------------------------------------------------------------------ log */

trib_status trib_log_set(trib_log_fn function, void *context, int32_t level)
{
    NOT_FORKED();
    if (function != NULL && (level < TRIB_LOG_ERROR || level > TRIB_LOG_DEBUG))
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_log_set: `level` is %d; expected TRIB_LOG_ERROR to TRIB_LOG_DEBUG",
                        level);
    tri_log_set(function, context, level);
    return TRIB_OK;
}

/* ------------------------------------------------------------------------------------------ dump */

trib_status trib_dump(const char *path)
{
    NEED(path);
    return tri_watchdog_dump(path);
}

trib_status trib_dump_set(const char *prefix)
{
    NOT_FORKED();
    return tri_dump_set(prefix);
}

/* ----------------------------------------------------------------------------- memory and debug */

static trib_status check_memory(const char *function, trib_memory *out)
{
    if (out->size != sizeof *out)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: out->size is %u, expected %zu: start from TRIB_MEMORY_INIT, and build "
                        "with the header of the library that is loaded",
                        function, out->size, sizeof *out);
    out->reserved = 0;
    return TRIB_OK;
}

trib_status trib_comm_memory(trib_memory *out, trib_comm *comm)
{
    NEED(out);
    NEED(comm);
    TRI_TRY(check_memory(__func__, out));
    tri_memory_of_owner(out, comm->owner);
    return TRIB_OK;
}

trib_status trib_device_memory(trib_memory *out, const trib_device *device)
{
    NEED(out);
    NEED(device);
    TRI_TRY(check_memory(__func__, out));
    tri_memory_of_device(out, device->backend, device->ordinal);
    return TRIB_OK;
}

trib_status trib_debug_set(int32_t on)
{
    NOT_FORKED();
    if (on != 0 && on != 1)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT, "trib_debug_set: `on` is %d; expected 0 or 1",
                        on);
    tri_debug_set(on == 1);
    return TRIB_OK;
}
