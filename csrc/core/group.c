/* All ranks of one process, driven by one thread. */
#include "csrc/core/group.h"

#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/machine.h"
#include "csrc/base/types.h"
#include "csrc/core/batch.h"
#include "csrc/core/batches.h"
#include "csrc/core/collective.h"
#include "csrc/core/device.h"
#include "csrc/core/issue.h"
#include "csrc/core/lifecycle.h"
#include "csrc/core/match.h"
#include "csrc/core/validate.h"
#include "csrc/core/wait.h"

/* Free a group, but not its communicators. */
static void discard(struct trib_group *group)
{
    tri_team_destroy(group->team);
    free(group->comms);
    free(group->calls);
    free(group);
}

/* All devices exist; rank_of[device], -1 before, becomes the rank that has the device. */
static trib_status check_distinct(const int32_t *devices, int32_t size, int32_t *rank_of)
{
    for (int32_t i = 0; i < size; i++) {
        int32_t *rank = &rank_of[devices[i]];
        /* NOLINTNEXTLINE(clang-analyzer-core.*): devices[i] is below their number */
        if (*rank >= 0)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "trib_group_create: devices[%d] and devices[%d] are both %d: give "
                            "every rank a device of its own",
                            *rank, i, devices[i]);
        *rank = i;
    }
    return TRIB_OK;
}

static trib_status check_devices(const struct tri_backend *backend, const int32_t *devices,
                                 int32_t size)
{
    for (int32_t i = 0; i < size; i++)
        TRI_TRY(tri_backend_has(backend, devices[i]));
    const int32_t count = backend->device->count();
    int32_t *rank_of = malloc((size_t)count * sizeof *rank_of);
    if (rank_of == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "trib_group_create: no memory for %d devices",
                        count);
    for (int32_t i = 0; i < count; i++)
        rank_of[i] = -1;
    const trib_status status = check_distinct(devices, size, rank_of);
    free(rank_of);
    return status;
}

/* The first backend that has all devices. */
static trib_status choose_backend(const struct tri_backend **out, const int32_t *devices,
                                  int32_t size)
{
    int32_t least = 0, most = 0;
    for (int32_t i = 0; i < size; i++) {
        least = devices[i] < least ? devices[i] : least;
        most = devices[i] > most ? devices[i] : most;
    }
    return tri_backend_with(out, least < 0 ? least : most);
}

static trib_status prepare(struct trib_group **out, const struct tri_backend *backend,
                           const int32_t *devices, int32_t size,
                           const struct tri_settings *settings)
{
    struct trib_group *group = calloc(1, sizeof *group);
    if (group != NULL) {
        group->comms = calloc((size_t)size, sizeof(struct trib_comm *));
        group->calls = calloc((size_t)size, sizeof *group->calls);
    }
    if (group == NULL || group->comms == NULL || group->calls == NULL) {
        if (group != NULL)
            discard(group);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "trib_group_create: no memory for a group");
    }
    trib_status status = TRIB_OK;
    while (group->size < size && status == TRIB_OK) {
        const int32_t i = group->size;
        status = tri_comm_prepare(&group->comms[i], backend, devices[i], size, settings);
        group->size += status == TRIB_OK;
    }
    if (status == TRIB_OK) {
        *out = group;
        return TRIB_OK;
    }
    for (int32_t i = 0; i < group->size; i++)
        tri_comm_discard(group->comms[i]);
    discard(group);
    return status;
}

/* No other group has it, in this process or another of this machine. */
static uint64_t new_identity(void)
{
    static _Atomic uint64_t groups;
    const uint64_t whose[4] = {tri_machine(), (uint64_t)tri_machine_process(), tri_now_ns(),
                               atomic_fetch_add(&groups, 1)};
    return tri_digest(0, whose, sizeof whose);
}

/* Join all prepared communicators, or free them and the group. */
static trib_status join(struct trib_group *group, const int32_t *devices,
                        const struct tri_settings *settings)
{
    const struct tri_backend *backend = group->comms[0]->backend;
    struct tri_transport **transports = calloc((size_t)group->size, sizeof(struct tri_transport *));
    trib_status status =
        transports == NULL
            ? tri_fail(TRIB_ERR_OUT_OF_MEMORY, "trib_group_create: no memory for a group")
            : backend->transport->open_group(transports, devices, group->size, &settings->config,
                                             settings->timeout_ms);
    const uint64_t identity = new_identity();
    for (int32_t i = 0; i < group->size; i++) {
        if (status == TRIB_OK)
            tri_comm_attach(group->comms[i], transports[i], identity);
        else
            tri_comm_discard(group->comms[i]);
    }
    free(transports);
    if (status != TRIB_OK)
        discard(group);
    return status;
}

static trib_status create(struct trib_group **out, const int32_t *devices, int32_t size,
                          const struct tri_settings *settings)
{
    const struct tri_backend *backend = settings->backend;
    struct trib_group *group = NULL;
    if (backend == NULL)
        TRI_TRY(choose_backend(&backend, devices, size));
    TRI_TRY(check_devices(backend, devices, size));
    TRI_TRY(prepare(&group, backend, devices, size, settings));
    TRI_TRY(join(group, devices, settings)); /* frees the group if it fails */
    *out = group;
    return TRIB_OK;
}

trib_status tri_group_create(struct trib_group **out, const int32_t *devices, int32_t size,
                             const trib_options *options)
{
    struct tri_settings settings;
    TRI_TRY(tri_settings_read(&settings, "trib_group_create", options));
    if (size < 1)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "trib_group_create: `size` is %d; expected 1 or more", size);
    if (devices == NULL) { /* before allocating for so many */
        const struct tri_backend *any = settings.backend;
        TRI_TRY(any == NULL ? tri_backend_with(&any, size - 1) : tri_backend_has(any, size - 1));
    }
    int32_t *ordinals = malloc((size_t)size * sizeof *ordinals);
    if (ordinals == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "trib_group_create: no memory for %d ranks", size);
    for (int32_t i = 0; i < size; i++)
        ordinals[i] = devices == NULL ? i : devices[i];
    const trib_status status = create(out, ordinals, size, &settings);
    free(ordinals);
    return status;
}

/* Rank i's part of a group's call. */
static struct tri_call part(const struct tri_call *call, int operation, const void *const *send,
                            void *const *recv, size_t i)
{
    struct tri_call mine = *call;
    mine.kind = (enum tri_kind)operation;
    mine.send = send == NULL ? NULL : send[i];
    mine.recv = recv == NULL ? NULL : recv[i];
    return mine;
}

static void count(struct trib_group *group, int operation, const struct tri_call *call)
{
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    for (int32_t i = 0; i < group->size; i++) {
        struct trib_comm *comm = group->comms[i];
        comm->calls++;
        comm->backend_calls++;
        comm->bytes += operation == TRI_BROADCAST && i != call->peer ? 0 : bytes;
    }
}

static int32_t open_batches(const struct trib_group *group)
{
    int32_t open = 0;
    for (int32_t i = 0; i < group->size; i++)
        open += group->comms[i]->batch.open;
    return open;
}

trib_status tri_group_fail(struct trib_group *group, trib_status status)
{
    for (int32_t i = 0; i < group->size; i++)
        if (group->comms[i]->batch.open)
            (void)tri_batch_fail(group->comms[i], status);
    return status;
}

/* Each rank's part joins its batch, which checks it. `open` ranks have one. */
static trib_status join_batches(struct trib_group *group, int operation, int32_t open)
{
    trib_status status = TRIB_OK;
    if (open < group->size)
        return tri_group_fail(
            group, tri_fail_call(group->comms[0], operation, TRIB_ERR_INVALID_USAGE,
                                 "a batch is open on %d of the group's %d ranks: open it on all, "
                                 "by trib_group_batch_begin, or end it first",
                                 open, group->size));
    for (int32_t i = 0; i < group->size && status == TRIB_OK; i++)
        status = tri_collective(group->comms[i], operation, &group->calls[i]);
    return status;
}

trib_status tri_group_collective(struct trib_group *group, int operation,
                                 const struct tri_call *call, const void *const *send,
                                 void *const *recv, const trib_stream *streams)
{
    const size_t n = (size_t)group->size;
    TRI_TRY(tri_comm_usable(group->comms[0], operation));
    for (size_t i = 0; i < n; i++) {
        struct tri_call *mine = &group->calls[i];
        *mine = part(call, operation, send, recv, i);
        mine->transport = group->comms[i]->transport;
        mine->stream = streams == NULL ? NULL : streams[i];
    }
    const int32_t open = open_batches(group);
    if (open != 0)
        return join_batches(group, operation, open);
    for (size_t i = 0; i < n; i++)
        TRI_TRY(tri_check_call(group->comms[i], operation, &group->calls[i]));
    if (call->count == 0)
        return TRIB_OK;
    const struct tri_issuing issuing = {group->comms, streams, n};
    TRI_TRY(tri_issue_group(&issuing, operation, group->calls));
    count(group, operation, call);
    return TRIB_OK;
}

trib_status tri_group_batch_begin(struct trib_group *group)
{
    trib_status status = TRIB_OK;
    int32_t begun = 0;
    while (begun < group->size && status == TRIB_OK) {
        status = tri_batch_begin(group->comms[begun]);
        begun += status == TRIB_OK;
    }
    while (status != TRIB_OK && begun-- > 0)
        tri_batch_drop(group->comms[begun]);
    return status;
}

trib_status tri_group_batch_end(struct trib_group *group)
{
    return tri_batches_end(group->comms, (size_t)group->size);
}

trib_status tri_group_status(struct trib_group *group)
{
    for (int32_t i = 0; i < group->size; i++)
        TRI_TRY(tri_comm_status(group->comms[i]));
    return TRIB_OK;
}

trib_status tri_group_wait(struct trib_group *group, const trib_stream *streams,
                           uint32_t timeout_ms)
{
    const struct tri_issuing ranks = {group->comms, streams, (size_t)group->size};
    return tri_wait(&ranks, TRI_GROUP_WAIT, timeout_ms);
}

trib_status tri_group_split(struct trib_comm **out, struct trib_group *group)
{
    for (int32_t i = 0; i < group->size; i++)
        out[i] = group->comms[i];
    discard(group);
    return TRIB_OK;
}

trib_status tri_group_destroy(struct trib_group *group)
{
    /* Close all before freeing any: they may wait for each other. */
    trib_status status = TRIB_OK;
    for (int32_t i = 0; i < group->size; i++) {
        struct trib_comm *comm = group->comms[i];
        const trib_status closed = tri_comm_close(comm, comm->close_timeout_ms);
        if (status == TRIB_OK && closed != TRIB_ERR_ABORTED) /* the caller wants its end */
            status = closed;
    }
    for (int32_t i = 0; i < group->size; i++)
        (void)tri_comm_destroy(group->comms[i]);
    discard(group);
    return status;
}
