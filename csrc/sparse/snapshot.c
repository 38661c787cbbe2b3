/* Export, import and reset of a state's residual, velocity, thresholds and schedule.
 *
 * An export is a head, the residual (none in place), the algorithm's persistent memory, and with
 * momentum the velocity (none in place). Without a velocity it is what exports were before there was
 * one. Any state of the same count and type can import the residual, and if it keeps a velocity that
 * too, which is 0 if the export has none. The persistent memory, and the position
 * in the schedule, are imported if algorithm, k, chunk and number of ranks are equal on all ranks;
 * otherwise all ranks start the schedule anew. */
#include "csrc/sparse/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/all_ranks.h"
#include "csrc/core/deadline.h"
#include "csrc/core/validate.h"
#include "csrc/sparse/handshake.h"
#include "csrc/sparse/kept.h"

enum { VERSION = 1, PART_ALIGN = 16 };
static const char magic[8] = {'T', 'R', 'I', 'B', 'S', 'P', 'A', 'R'};

/* In native byte order: only machines of the same kind can import it. */
struct head {
    char magic[8];
    uint32_t version, in_place;
    uint64_t bytes; /* of all of it */
    uint64_t digest;
    uint64_t count, step;
    trib_dtype acc;
    int32_t size;
    uint32_t k, chunk;
    char algorithm[32];
    uint64_t residual, device, host; /* bytes of the parts */
    uint64_t velocity;               /* the last part; they follow, aligned to PART_ALIGN */
};

static size_t padded(uint64_t bytes)
{
    return (size_t)((bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN);
}

/* Offsets of the parts. */
static size_t residual_at(void)
{
    return padded(sizeof(struct head));
}

static size_t device_at(const struct head *head)
{
    return residual_at() + padded(head->residual);
}

static size_t host_at(const struct head *head)
{
    return device_at(head) + padded(head->device);
}

static size_t velocity_at(const struct head *head)
{
    return host_at(head) + padded(head->host);
}

static struct tri_persistent persistent_of(struct trib_sparse *sparse)
{
    return sparse->algorithm->persistent == NULL ? (struct tri_persistent){.device = NULL}
                                                 : sparse->algorithm->persistent(sparse->own);
}

/* Reads only numbers of the state, because a run may be using the algorithm's memory. */
static struct head head_of(const struct trib_sparse *sparse)
{
    const struct tri_sparse_params *params = &sparse->params;
    const uint64_t bytes = params->count * trib_dtype_size(params->acc);
    struct head head = {
        .version = VERSION,
        .in_place = params->in_place,
        .count = params->count,
        .step = sparse->step,
        .acc = params->acc,
        .size = params->size,
        .k = params->k,
        .chunk = params->chunk,
        .residual = params->in_place ? 0 : bytes,
        .velocity = tri_sparse_keeps_velocity(params) ? bytes : 0,
        .device = sparse->needs.persistent_device,
        .host = sparse->needs.persistent_host,
    };
    memcpy(head.magic, magic, sizeof magic);
    (void)snprintf(head.algorithm, sizeof head.algorithm, "%s", sparse->algorithm->name);
    head.bytes = velocity_at(&head) + padded(head.velocity);
    return head;
}

/* Of everything except the digest itself; eight bytes at a time, because residuals are large. The
 * size of each part is a multiple of eight. */
static uint64_t digest_of(const struct head *head, const char *data)
{
    struct head plain = *head;
    plain.digest = 0;
    uint64_t digest = 0x9e3779b97f4a7c15u, word;
    for (size_t at = 0; at < sizeof plain; at += sizeof word) {
        memcpy(&word, (const char *)&plain + at, sizeof word);
        digest = (digest ^ word) * 0x100000001b3u;
    }
    for (size_t at = residual_at(); at < head->bytes; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        digest = (digest ^ word) * 0x100000001b3u;
        digest ^= digest >> 29;
    }
    return digest;
}

/* --------------------------------------------------------------------------- export and import */

static trib_status fail(const struct trib_sparse *sparse, int operation, const char *what)
{
    return tri_fail_call(sparse->comm, operation, TRIB_ERR_INVALID_ARGUMENT, "%s", what);
}

static trib_status fetch(const struct trib_sparse *sparse, void *dst, const void *src, size_t bytes,
                         trib_stream stream)
{
    return bytes == 0 ? TRIB_OK
                      : sparse->backend->device->fetch(sparse->device, dst, src, bytes, stream);
}

/* -------------------------------------------------------------------------------------- export */

uint64_t tri_sparse_export_bytes(const struct trib_sparse *sparse)
{
    return head_of(sparse).bytes;
}

trib_status tri_sparse_export(struct trib_sparse *sparse, void *out, size_t bytes,
                              trib_stream stream)
{
    struct head head = head_of(sparse);
    struct tri_kept kept;
    char *data = out;
    TRI_TRY(tri_check_stream(sparse->comm, TRI_SPARSE_EXPORT, stream));
    if (bytes < head.bytes)
        return tri_fail_call(sparse->comm, TRI_SPARSE_EXPORT, TRIB_ERR_INVALID_ARGUMENT,
                             "`bytes` is %zu; an export takes %llu: trib_sparse_export_bytes says "
                             "how many",
                             bytes, (unsigned long long)head.bytes);
    memset(data, 0, residual_at());
    TRI_TRY(tri_kept_find(&kept, sparse, stream));
    const struct tri_persistent persistent = persistent_of(sparse); /* no run is using it now */
    memset(data + residual_at() + head.residual, 0, head.bytes - residual_at() - head.residual);
    TRI_TRY(fetch(sparse, data + residual_at(), kept.residual, (size_t)head.residual, stream));
    TRI_TRY(fetch(sparse, data + velocity_at(&head), kept.velocity, (size_t)head.velocity, stream));
    TRI_TRY(
        fetch(sparse, data + device_at(&head), persistent.device, persistent.device_bytes, stream));
    if (persistent.host_bytes != 0)
        memcpy(data + host_at(&head), persistent.host, persistent.host_bytes);
    head.digest = digest_of(&head, data);
    memcpy(data, &head, sizeof head);
    return TRIB_OK;
}

/* -------------------------------------------------------------------------------------- import */

/* Checks the sizes one by one, so that no sum of them can overflow. */
static bool is_whole(const struct head *head, const char *data, size_t bytes)
{
    if (memcmp(head->magic, magic, sizeof magic) != 0 || head->version != VERSION ||
        head->bytes != bytes || head->residual > bytes || head->device > bytes ||
        head->host > bytes || head->velocity > bytes ||
        head->bytes != velocity_at(head) + padded(head->velocity))
        return false;
    return head->digest == digest_of(head, data);
}

static trib_status check_import(const struct trib_sparse *sparse, struct head *head,
                                const char *data, size_t bytes)
{
    const struct tri_sparse_params *params = &sparse->params;
    const int operation = TRI_SPARSE_IMPORT;
    if (bytes < residual_at())
        return fail(sparse, operation, "`bytes` is less than the head of an export");
    memcpy(head, data, sizeof *head);
    if (!is_whole(head, data, bytes))
        return fail(sparse, operation,
                    "`data` is not a whole export of trib_sparse_export of this version");
    if (head->count != params->count || head->acc != params->acc)
        return tri_fail_call(sparse->comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "the export is of %llu elements with a residual of %s, and the state "
                             "of %zu with one of %s",
                             (unsigned long long)head->count, trib_dtype_name(head->acc),
                             params->count, trib_dtype_name(params->acc));
    if ((head->in_place != 0) != params->in_place)
        return fail(
            sparse, operation,
            params->in_place
                ? "the export holds a residual, and this state is in place: its residual is "
                  "in the caller's accumulator"
                : "the export is of a state in place and holds no residual: that is in the "
                  "caller's accumulator");
    if (head->residual != (params->in_place ? 0 : params->count * trib_dtype_size(params->acc)))
        return fail(sparse, operation, "the export holds a residual of another length");
    if (head->velocity == 0)
        return TRIB_OK;
    if (!tri_sparse_keeps_velocity(params))
        return fail(sparse, operation,
                    params->momentum == 0
                        ? "the export holds a velocity, and this state has no momentum"
                        : "the export holds a velocity, and this state is in place: its velocity "
                          "is the caller's `gradient`");
    if (head->velocity != params->count * trib_dtype_size(params->acc))
        return fail(sparse, operation, "the export holds a velocity of another length");
    return TRIB_OK;
}

/* The arguments of tri_sparse_import. */
struct import {
    struct trib_sparse *sparse;
    const char *data;
    size_t bytes;
    trib_stream stream;
};

static bool same_schedule(const struct trib_sparse *sparse, const struct head *head)
{
    const struct tri_sparse_params *params = &sparse->params;
    return strncmp(head->algorithm, sparse->algorithm->name, sizeof head->algorithm) == 0 &&
           head->k == params->k && head->chunk == params->chunk && head->size == params->size &&
           head->device == sparse->needs.persistent_device &&
           head->host == sparse->needs.persistent_host;
}

/* Step 0: the schedule starts anew. */
static trib_status import_schedule(struct trib_sparse *sparse, const struct head *head,
                                   const char *data, uint64_t step, trib_stream stream)
{
    tri_sparse_lay_out(sparse);
    sparse->step = step;
    if (step == 0)
        return TRIB_OK;
    const struct tri_persistent persistent = persistent_of(sparse);
    const trib_status status =
        fetch(sparse, persistent.device, data + device_at(head), persistent.device_bytes, stream);
    if (status == TRIB_OK && persistent.host_bytes != 0)
        memcpy(persistent.host, data + host_at(head), persistent.host_bytes);
    return status;
}

/* An export without a velocity has one of 0. */
static trib_status import_velocity(const struct trib_sparse *sparse, const struct head *head,
                                   char *velocity, const char *data, trib_stream stream)
{
    if (head->velocity != 0)
        return fetch(sparse, velocity, data + velocity_at(head), (size_t)head->velocity, stream);
    TRI_TRY(tri_sparse_zero_velocity(sparse, stream));
    return sparse->backend->device->stream_wait(sparse->device, stream);
}

static trib_status read_import(struct head *head, const struct import *import)
{
    const struct trib_sparse *sparse = import->sparse;
    if (import->data == NULL)
        return fail(sparse, TRI_SPARSE_IMPORT, "`data` is NULL");
    TRI_TRY(tri_check_stream(sparse->comm, TRI_SPARSE_IMPORT, import->stream));
    return check_import(sparse, head, import->data, import->bytes);
}

/* Validates what would be imported: a correct digest does not prove that a state wrote it. */
static trib_status check_schedule(const struct trib_sparse *sparse, const struct head *head,
                                  const char *data)
{
    const struct tri_algorithm *algorithm = sparse->algorithm;
    if (algorithm->valid == NULL || !same_schedule(sparse, head) ||
        algorithm->valid(data + device_at(head), data + host_at(head), &sparse->params))
        return TRIB_OK;
    return fail(sparse, TRI_SPARSE_IMPORT,
                "the export's thresholds or counters are out of range: no state has written them");
}

static trib_status prepare_import(struct head *head, const struct import *import)
{
    TRI_TRY(tri_sparse_ready(import->sparse, TRI_SPARSE_IMPORT));
    TRI_TRY(read_import(head, import));
    return check_schedule(import->sparse, head, import->data);
}

/* All ranks import the smallest step of all: it counts queued calls, and after an abort some ranks
 * may have queued more than others. */
static trib_status replace(void *argument, trib_stream stream)
{
    const struct import *import = argument;
    struct trib_sparse *sparse = import->sparse;
    struct trib_comm *comm = sparse->comm;
    const struct tri_choice now = {.algorithm = sparse->algorithm};
    const struct tri_handshake handshake =
        tri_handshake_of(&sparse->settings, &now, TRI_SPARSE_IMPORT, sparse->number);
    struct tri_kept kept = {NULL, NULL};
    struct head head;
    trib_status status = prepare_import(&head, import);
    if (status != TRIB_OK)
        return tri_handshake_reject(comm, TRI_SPARSE_IMPORT, status, stream);
    uint64_t step = same_schedule(sparse, &head) ? head.step : 0;
    status = tri_deadline_wait(comm, TRI_SPARSE_IMPORT, &sparse->memory);
    if (status == TRIB_OK)
        status = tri_kept_find(&kept, sparse, import->stream);
    TRI_TRY(tri_handshake_exchange(comm, &handshake, status, &step, stream));
    status = fetch(sparse, kept.residual, import->data + residual_at(), (size_t)head.residual,
                   import->stream);
    if (status == TRIB_OK)
        status = import_velocity(sparse, &head, kept.velocity, import->data, import->stream);
    if (status == TRIB_OK)
        status = import_schedule(sparse, &head, import->data, step, import->stream);
    if (status != TRIB_OK) /* the others have imported */
        (void)tri_abort_raise(comm->state, status, tri_detail());
    return status;
}

/* On this rank alone. */
static trib_status add(const struct import *import)
{
    struct tri_kept kept;
    struct head head;
    TRI_TRY(read_import(&head, import));
    TRI_TRY(tri_kept_find(&kept, import->sparse, import->stream));
    TRI_TRY(tri_kept_add(import->sparse, TRI_SPARSE_IMPORT, kept.residual,
                         import->data + residual_at(), (size_t)head.residual, import->stream));
    return tri_kept_add(import->sparse, TRI_SPARSE_IMPORT, kept.velocity,
                        import->data + velocity_at(&head), (size_t)head.velocity, import->stream);
}

trib_status tri_sparse_import(struct trib_sparse *sparse, const void *data, size_t bytes, bool adds,
                              trib_stream stream)
{
    struct import import = {sparse, data, bytes, stream};
    return adds ? add(&import)
                : tri_all_ranks_run(sparse->comm, TRI_SPARSE_IMPORT, replace, &import);
}

/* --------------------------------------------------------------------------------------- reset */

struct resetting {
    struct trib_sparse *sparse;
    trib_stream stream;
};

static void reset_state(void *argument)
{
    const struct resetting *resetting = argument;
    struct trib_sparse *sparse = resetting->sparse;
    tri_sparse_lay_out(sparse);
    trib_status status = tri_sparse_zero_residual(sparse, resetting->stream);
    if (status == TRIB_OK)
        status = tri_sparse_zero_velocity(sparse, resetting->stream);
    if (status != TRIB_OK)
        (void)tri_abort_raise(sparse->backend->transport->abort_state(sparse->transport), status,
                              tri_detail());
}

trib_status tri_sparse_reset(struct trib_sparse *sparse, trib_stream stream)
{
    struct resetting resetting = {sparse, stream};
    TRI_TRY(tri_sparse_ready(sparse, TRI_SPARSE_RESET));
    TRI_TRY(tri_check_stream(sparse->comm, TRI_SPARSE_RESET, stream));
    if (tri_sparse_captures(sparse, stream))
        return tri_fail_call(sparse->comm, TRI_SPARSE_RESET, TRIB_ERR_UNSUPPORTED,
                             "`stream` is being captured: reset outside of graphs");
    TRI_TRY(tri_sparse_queue(sparse, TRI_SPARSE_RESET, reset_state, &resetting, sizeof resetting,
                             stream));
    sparse->step = 0;
    return TRIB_OK;
}
