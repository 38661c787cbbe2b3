/* A sparse allreduce's state on one rank: its life. */
#include "csrc/sparse/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/debug.h"
#include "csrc/base/log.h"
#include "csrc/base/size.h"
#include "csrc/base/types.h"
#include "csrc/core/all_ranks.h"
#include "csrc/core/batch.h"
#include "csrc/core/deadline.h"
#include "csrc/core/device.h"
#include "csrc/core/inside.h"
#include "csrc/core/issue.h"
#include "csrc/core/symmetric.h"
#include "csrc/core/validate.h"
#include "csrc/sparse/handshake.h"
#include "csrc/sparse/measure.h"

enum { ALIGN = 256 };

trib_status tri_sparse_ready(const struct trib_sparse *sparse, int operation)
{
    struct trib_comm *comm = sparse->comm;
    trib_status status = tri_comm_usable(comm, operation);
    if (status == TRIB_OK && comm->batch.open)
        status = tri_batch_fail(comm, tri_fail_call(comm, operation, TRIB_ERR_INVALID_USAGE,
                                                    "a batch is open, and a sparse allreduce is "
                                                    "not allowed in one: call trib_batch_end "
                                                    "first"));
    return status;
}

bool tri_sparse_captures(const struct trib_sparse *sparse, trib_stream stream)
{
    const struct tri_device_ops *device = sparse->backend->device;
    return device->capturing != NULL && device->capturing(sparse->device, stream);
}

/* In a capture the state's event has no meaning. */
trib_status tri_sparse_queue(struct trib_sparse *sparse, int operation,
                             void (*function)(void *argument), void *argument, size_t bytes,
                             trib_stream stream)
{
    const struct tri_recorded record = {.count = sparse->params.count,
                                        .operation = operation,
                                        .dtype = sparse->params.dtype,
                                        .algorithm = sparse->algorithm->name,
                                        .peer = -1,
                                        .all_ranks = tri_is_collective(operation)};
    const bool captures = tri_sparse_captures(sparse, stream);
    trib_status status = captures ? TRIB_OK : tri_workspace_wait(&sparse->memory, stream);
    if (status != TRIB_OK)
        return status;
    if (captures) /* the last replay of the graph is unknown */
        tri_abort_keep_flag(sparse->comm->state);
    status = tri_issue_run(sparse->comm, &record, function, argument, bytes, stream);
    /* Also after a failure: the stream may have part of it. */
    const trib_status end =
        captures ? TRIB_OK : tri_workspace_mark(&sparse->memory, sparse->comm->state, stream);
    return status != TRIB_OK ? status : end;
}

/* ---------------------------------------------------------------------------- how much memory */

/* One buffer, if there is one: of as many elements of acc's type as the tensor has. */
static size_t buffer_bytes(const struct tri_sparse_params *params, bool exists)
{
    const size_t bytes = exists ? params->count * trib_dtype_size(params->acc) : 0;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t residual_bytes(const struct tri_sparse_params *params)
{
    return buffer_bytes(params, !params->in_place);
}

bool tri_sparse_keeps_velocity(const struct tri_sparse_params *params)
{
    return params->momentum != 0 && !params->velocity_in_place;
}

static size_t velocity_bytes(const struct tri_sparse_params *params)
{
    return buffer_bytes(params, tri_sparse_keeps_velocity(params));
}

_Static_assert(sizeof(struct tri_sparse_scalars) + sizeof(struct tri_counters) <= ALIGN,
               "scalars and counters share a line");
_Static_assert(sizeof(struct tri_counters) <= 128, "pinned memory has no more");

/* The block that no change of k replaces: scalars and counters, two residuals, two velocities. */
static size_t fixed_bytes(const struct tri_sparse_params *params)
{
    return ALIGN + 2 * residual_bytes(params) + 2 * velocity_bytes(params);
}

static uint32_t most_selected(const struct tri_algorithm *algorithm,
                              const struct tri_sparse_params *params)
{
    const size_t most = algorithm->selects == NULL ? tri_limit(params) : algorithm->selects(params);
    return (uint32_t)(most < params->count ? most : params->count);
}

/* Lay out `own` in the arena, then scratch for kernels, which is returned. */
static void *lay_out(const struct tri_sparse_kernels *kernels,
                     const struct tri_algorithm *algorithm, const struct tri_sparse_params *params,
                     void *own, struct tri_arena *arena)
{
    algorithm->lay_out(own, arena, params);
    const size_t bytes = kernels->scratch_bytes(params->count, most_selected(algorithm, params),
                                                algorithm->entries(params), params->acc);
    return tri_arena_take(arena, bytes);
}

/* The size of the largest `own`. */
static size_t own_bytes(void)
{
    const struct tri_algorithm *algorithm;
    size_t bytes = 0;
    for (size_t i = 0; tri_algorithms[i] != NULL; i++)
        for (algorithm = tri_algorithms[i]; algorithm != NULL; algorithm = algorithm->published)
            bytes = algorithm->own_bytes > bytes ? algorithm->own_bytes : bytes;
    return bytes;
}

static trib_status measure(struct tri_needs *out, const struct tri_backend *backend,
                           const struct tri_algorithm *algorithm,
                           const struct tri_sparse_params *params)
{
    struct tri_arena arena = {.base = NULL};
    void *own = calloc(1, algorithm->own_bytes + 1);
    *out = (struct tri_needs){.arena = 0};
    if (own == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to lay out \"%s\"", algorithm->name);
    (void)lay_out(backend->kernels->sparse, algorithm, params, own, &arena);
    out->arena = arena.used;
    out->near = arena.near_used;
    if (algorithm->persistent != NULL) {
        const struct tri_persistent persistent = algorithm->persistent(own);
        out->persistent_device = persistent.device_bytes;
        out->persistent_host = persistent.host_bytes;
    }
    free(own);
    return TRIB_OK;
}

static const struct tri_algorithm *variant(const struct tri_algorithm *algorithm,
                                           const struct tri_sparse_params *params)
{
    if (algorithm->narrow != NULL && tri_is_narrow(params))
        return algorithm->narrow;
    return params->constants != NULL && algorithm->published != NULL ? algorithm->published
                                                                     : algorithm;
}

/* With k = n every algorithm would return the sum of all acc and leave no residual; dense does that
 * with fewer words and no selection. */
static bool sends_all(const struct tri_sparse_settings *settings)
{
    return settings->params.k == settings->params.count;
}

/* Until a state of all ranks has measured, the backend's usual speed inside one host. */
static struct tri_machine_speed speed_of(const struct trib_comm *comm)
{
    const struct tri_speed *device = &comm->backend->speed;
    if (comm->measured.bandwidth == 0)
        return (struct tri_machine_speed){*device, device->latency, device->bandwidth, false, 1};
    return (struct tri_machine_speed){*device, comm->measured.latency, comm->measured.bandwidth,
                                      true, comm->hosts};
}

/* The algorithm of these settings. */
static struct tri_choice choose(const struct tri_sparse_settings *settings,
                                const struct trib_comm *comm)
{
    const struct tri_machine_speed speed = speed_of(comm);
    struct tri_choice choice = {.algorithm = settings->algorithm};
    if (sends_all(settings) && settings->algorithm != &tri_sparse_dense)
        choice = (struct tri_choice){.algorithm = &tri_sparse_dense,
                                     .reason = "dense: k is n, so all of acc is sent"};
    else if (settings->algorithm == NULL)
        choice = tri_sparse_auto(&settings->params, &speed);
    choice.algorithm = variant(choice.algorithm, &settings->params);
    return choice;
}

/* Measure the link, if auto is to choose by it and no state has yet. The ranks first compare what
 * they are about to do, because those with other options would not measure. */
static trib_status measure_link(struct trib_comm *comm, const struct tri_sparse_settings *settings,
                                int operation, uint32_t number, trib_stream stream)
{
    const struct tri_choice none = {.algorithm = NULL};
    struct tri_measurement measurement = {.start = NULL};
    if (settings->algorithm != NULL || sends_all(settings) || comm->size == 1 ||
        comm->measured.bandwidth != 0)
        return TRIB_OK;
    const struct tri_handshake handshake = tri_handshake_of(settings, &none, operation, number);
    trib_status status = tri_measure_begin(&measurement, comm, operation);
    status = tri_handshake_exchange(comm, &handshake, status, NULL, stream);
    if (status == TRIB_OK)
        status = tri_measure_run(&measurement, stream);
    tri_measure_end(&measurement);
    return status;
}

trib_status tri_sparse_bytes(uint64_t *out, const struct trib_comm *comm, size_t count,
                             trib_dtype dtype, const trib_sparse_options *options)
{
    struct tri_sparse_settings settings;
    struct tri_needs needs;
    TRI_TRY(tri_sparse_settings_read(&settings, comm, TRI_SPARSE_BYTES, count, dtype, options));
    const struct tri_choice choice = choose(&settings, comm);
    TRI_TRY(measure(&needs, comm->backend, choice.algorithm, &settings.params));
    *out = fixed_bytes(&settings.params) + needs.arena + needs.near;
    return TRIB_OK;
}

/* ----------------------------------------------------------------------------------- the device */

struct tri_accumulator tri_sparse_accumulator(const struct trib_sparse *sparse)
{
    return (struct tri_accumulator){
        .buffer = {sparse->residual[0], sparse->residual[1]},
        .current = sparse->params.in_place ? NULL : &sparse->scalars->current,
        .gradient_dtype = sparse->params.dtype,
        .dtype = sparse->params.acc,
        .decay = sparse->params.in_place ? 1 : sparse->params.decay,
        .count = sparse->params.count,
    };
}

struct tri_accumulator tri_sparse_velocity(const struct trib_sparse *sparse)
{
    return (struct tri_accumulator){
        .buffer = {sparse->velocity[0], sparse->velocity[1]},
        .current = tri_sparse_keeps_velocity(&sparse->params) ? &sparse->scalars->velocity : NULL,
        .gradient_dtype = sparse->params.dtype,
        .dtype = sparse->params.acc,
        .decay = sparse->params.momentum,
        .count = sparse->params.count,
    };
}

/* This rank's part of what other ranks read. */
static char *near_of(const struct trib_sparse *sparse)
{
    return sparse->near == NULL ? NULL : sparse->near->of[sparse->params.rank].here;
}

void tri_sparse_lay_out(struct trib_sparse *sparse)
{
    struct tri_arena arena = {.base = sparse->arena, .near = near_of(sparse)};
    memset(sparse->own, 0, sparse->algorithm->own_bytes);
    sparse->scratch = lay_out(sparse->backend->kernels->sparse, sparse->algorithm, &sparse->params,
                              sparse->own, &arena);
}

void tri_sparse_restart(struct trib_sparse *sparse)
{
    tri_sparse_lay_out(sparse);
    sparse->step = 0;
}

struct tri_revocable tri_sparse_revocable(const struct trib_sparse *sparse)
{
    struct tri_sparse_scalars *scalars = sparse->scalars;
    return (struct tri_revocable){
        .decision = &scalars->decision,
        .current = &scalars->current,
        .velocity = tri_sparse_keeps_velocity(&sparse->params) ? &scalars->velocity : NULL};
}

/* The residual of an accumulator with two buffers; nothing if it has none. */
static trib_status zero(const struct trib_sparse *sparse, const struct tri_accumulator *acc,
                        trib_stream stream)
{
    uintptr_t previous = 0;
    if (acc->current == NULL || acc->count == 0)
        return TRIB_OK;
    trib_status status = tri_device_push(sparse->backend, sparse->device, &previous);
    if (status != TRIB_OK)
        return status;
    status = sparse->backend->kernels->sparse->decay(acc, 0, &sparse->scalars->one, stream);
    tri_device_pop(sparse->backend, previous);
    return status;
}

trib_status tri_sparse_zero_residual(const struct trib_sparse *sparse, trib_stream stream)
{
    const struct tri_accumulator residual = tri_sparse_accumulator(sparse);
    return zero(sparse, &residual, stream);
}

trib_status tri_sparse_zero_velocity(const struct trib_sparse *sparse, trib_stream stream)
{
    const struct tri_accumulator velocity = tri_sparse_velocity(sparse);
    return zero(sparse, &velocity, stream);
}

/* Copy to or from the device, and wait. */
static trib_status copy(const struct trib_sparse *sparse, void *dst, const void *src, size_t bytes,
                        trib_stream stream)
{
    return sparse->backend->device->fetch(sparse->device, dst, src, bytes, stream);
}

/* ------------------------------------------------------------------------------------- creation */

static trib_status allocate(struct trib_sparse *sparse)
{
    const struct tri_sparse_params *params = &sparse->params;
    struct tri_workspace *memory = &sparse->memory;
    TRI_TRY(tri_workspace_open(memory, sparse->comm->owner, sparse->comm->sparse_states,
                               sizeof(struct tri_counters)));
    TRI_TRY(measure(&sparse->needs, sparse->backend, sparse->algorithm, params));
    TRI_TRY(tri_workspace_add(memory, fixed_bytes(params)));
    char *fixed = memory->blocks->data;
    sparse->published = memory->pinned;
    sparse->scalars = (struct tri_sparse_scalars *)(void *)fixed;
    sparse->counters = (struct tri_counters *)(void *)(fixed + ALIGN - sizeof *sparse->counters);
    for (size_t i = 0; i < 2 && !params->in_place; i++)
        sparse->residual[i] = fixed + ALIGN + i * residual_bytes(params);
    for (size_t i = 0; i < 2 && tri_sparse_keeps_velocity(params); i++)
        sparse->velocity[i] =
            fixed + ALIGN + 2 * residual_bytes(params) + i * velocity_bytes(params);
    sparse->arena_bytes = sparse->needs.arena;
    TRI_TRY(tri_workspace_add(memory, sparse->arena_bytes));
    sparse->arena = memory->blocks->data;
    return TRIB_OK;
}

/* Reset residual, velocity and scalars. */
static trib_status clear(struct trib_sparse *sparse, trib_stream stream)
{
    const struct tri_sparse_scalars scalars = {.header = {.signature = sparse->signature},
                                               .one = 1,
                                               .all = (uint32_t)sparse->params.count};
    TRI_TRY(copy(sparse, sparse->scalars, &scalars, sizeof scalars, stream));
    TRI_TRY(tri_sparse_zero_residual(sparse, stream));
    TRI_TRY(tri_sparse_zero_velocity(sparse, stream));
    return sparse->backend->device->stream_wait(sparse->device, stream);
}

/* No call has ended. */
static trib_status start_counters(const struct trib_sparse *sparse, trib_stream stream)
{
    struct tri_counters none = {.outcome = TRI_OUTCOME_NONE, .norm = -1};
    none.check = tri_counters_check(&none);
    *sparse->published = none;
    return copy(sparse, sparse->counters, &none, sizeof none, stream);
}

/* Allocate everything on this rank, before the handshake. */
static trib_status prepare(struct trib_sparse **out, struct trib_comm *comm,
                           const struct tri_sparse_settings *settings,
                           const struct tri_choice *choice, uint32_t signature, trib_stream stream)
{
    struct trib_sparse *sparse = calloc(1, sizeof *sparse + own_bytes());
    if (sparse == NULL)
        return tri_fail_call(comm, TRI_SPARSE_CREATE, TRIB_ERR_OUT_OF_MEMORY,
                             "no memory for a state");
    *out = sparse;
    sparse->comm = comm;
    sparse->settings = *settings;
    sparse->backend = comm->backend;
    sparse->transport = comm->transport;
    sparse->device = comm->device;
    sparse->params = settings->params;
    sparse->signature = signature;
    sparse->algorithm = choice->algorithm;
    (void)snprintf(sparse->reason, sizeof sparse->reason, "%s", choice->reason);
    TRI_TRY(allocate(sparse));
    TRI_TRY(start_counters(sparse, stream));
    return clear(sparse, stream);
}

/* Symmetric memory for `needs`, if that is more than *out has: on all ranks, or on none. At least twice what *out
 * has, which is kept (core/symmetric.h), for k may grow step by step. */
static trib_status make_near(struct tri_symmetric **out, struct trib_comm *comm, int operation,
                             const struct tri_needs *needs, trib_stream stream)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.*): of a state that there is, if no rank has failed */
    const size_t had = *out == NULL ? 0 : (*out)->bytes;
    if (needs->near <= had)
        return TRIB_OK;
    return tri_symmetric_make(out, comm, operation, tri_largest(needs->near, 2 * had), stream);
}

/* The same of collectives inside this rank's host, if the algorithm uses them. Those are the communicator's. */
static trib_status open_inside(struct tri_transport **out, struct trib_comm *comm, int operation,
                               const struct tri_algorithm *algorithm,
                               const struct tri_sparse_params *params)
{
    return algorithm->inside && params->inside
               ? tri_inside_open(out, comm, operation, params->host_of)
               : TRIB_OK;
}

void tri_sparse_discard(struct trib_sparse *sparse)
{
    if (sparse == NULL)
        return;
    struct tri_workspace memory = sparse->memory;
    tri_symmetric_drop(sparse->comm, sparse->near, tri_workspace_in_use(&memory));
    memory.host = sparse; /* freed with the rest, when nothing is queued any more */
    tri_workspace_close(&memory);
}

static void log_placement(const struct trib_sparse *sparse)
{
    const struct trib_comm *comm = sparse->comm;
    const size_t near = sparse->near == NULL ? 0 : sparse->near->bytes;
    if (tri_debug())
        tri_log(TRIB_LOG_INFO,
                "sparse state %" PRIu32 " of rank %d of communicator %016" PRIx64
                ": %zu elements of %s, %s, %" PRIu64
                " bytes (%zu of residuals, %zu of velocities, %zu of scratch, %zu that other ranks "
                "read)",
                sparse->number, (int)comm->rank, comm->identity, sparse->params.count,
                trib_dtype_name(sparse->params.dtype), sparse->algorithm->name,
                sparse->memory.held + near, 2 * residual_bytes(&sparse->params),
                2 * velocity_bytes(&sparse->params), sparse->arena_bytes, near);
}

/* The arguments of tri_sparse_create. */
struct create_request {
    struct trib_sparse **out;
    struct trib_comm *comm;
    size_t count;
    trib_dtype dtype;
    const trib_sparse_options *options;
    bool revocable;
};

static trib_status read_create_request(struct tri_sparse_settings *settings,
                                       const struct create_request *request)
{
    const struct trib_sparse nobody = {.comm = request->comm};
    TRI_TRY(tri_sparse_ready(&nobody, TRI_SPARSE_CREATE));
    if (request->out == NULL)
        return tri_fail_call(request->comm, TRI_SPARSE_CREATE, TRIB_ERR_INVALID_ARGUMENT,
                             "`out` is NULL");
    TRI_TRY(tri_sparse_settings_read(settings, request->comm, TRI_SPARSE_CREATE, request->count,
                                     request->dtype, request->options));
    settings->params.revocable = request->revocable;
    return TRIB_OK;
}

static trib_status create(void *argument, trib_stream stream)
{
    const struct create_request *request = argument;
    struct trib_comm *comm = request->comm;
    struct tri_sparse_settings settings;
    struct trib_sparse *sparse = NULL;
    TRI_TRY(tri_handshake_hosts(comm, stream));
    trib_status status = read_create_request(&settings, request);
    if (status != TRIB_OK)
        return tri_handshake_reject(comm, TRI_SPARSE_CREATE, status, stream);
    TRI_TRY(measure_link(comm, &settings, TRI_SPARSE_CREATE, comm->sparse_states, stream));
    const struct tri_choice choice = choose(&settings, comm);
    const struct tri_handshake handshake =
        tri_handshake_of(&settings, &choice, TRI_SPARSE_CREATE, comm->sparse_states);
    status =
        prepare(&sparse, comm, &settings, &choice, tri_handshake_signature(&handshake), stream);
    status = tri_handshake_exchange(comm, &handshake, status, NULL, stream);
    if (status == TRIB_OK)
        status = make_near(&sparse->near, comm, TRI_SPARSE_CREATE, &sparse->needs, stream);
    if (status == TRIB_OK)
        status = open_inside(&sparse->inside, comm, TRI_SPARSE_CREATE, choice.algorithm,
                             &settings.params);
    if (status != TRIB_OK) {
        tri_sparse_discard(sparse);
        return status;
    }
    tri_sparse_lay_out(sparse);
    sparse->number = comm->sparse_states++;
    log_placement(sparse);
    *request->out = sparse;
    return TRIB_OK;
}

static trib_status create_by_all(const struct create_request *request)
{
    struct create_request own = *request;
    struct trib_sparse **out = request->out;
    tri_workspace_sweep();
    TRI_TRY(tri_sparse_check_comm(request->comm, TRI_SPARSE_CREATE));
    if (out != NULL) /* without it the handshake rejects the call, for all ranks */
        *out = NULL;
    trib_status status = tri_all_ranks_run(request->comm, TRI_SPARSE_CREATE, create, &own);
    if (status == TRIB_OK) /* the deadline, or an abort, may have come after the last exchange */
        status = tri_comm_usable(request->comm, TRI_SPARSE_CREATE);
    if (status != TRIB_OK && out != NULL) {
        tri_sparse_discard(*out);
        *out = NULL;
    }
    return status;
}

trib_status tri_sparse_create(struct trib_sparse **out, struct trib_comm *comm, size_t count,
                              trib_dtype dtype, const trib_sparse_options *options)
{
    return create_by_all(&(struct create_request){out, comm, count, dtype, options, false});
}

trib_status tri_sparse_create_revocable(struct trib_sparse **out, struct trib_comm *comm,
                                        size_t count, trib_dtype dtype,
                                        const trib_sparse_options *options)
{
    return create_by_all(&(struct create_request){out, comm, count, dtype, options, true});
}

/* ------------------------------------------------------------------------------------ another k */

/* A state's fields that change with k. */
struct change {
    struct tri_sparse_settings settings;
    struct tri_choice choice;
    uint32_t signature;
    struct tri_needs needs;
    void *arena;                /* NULL: the current one is large enough */
    struct tri_symmetric *near; /* the current one, if that is large enough */
    struct tri_transport *inside;
};

static trib_status plan(struct change *out, struct trib_sparse *sparse)
{
    trib_status status =
        measure(&out->needs, sparse->backend, out->choice.algorithm, &out->settings.params);
    if (status != TRIB_OK || out->needs.arena <= sparse->arena_bytes)
        return status;
    status = tri_workspace_add(&sparse->memory, out->needs.arena);
    if (status == TRIB_OK)
        out->arena = sparse->memory.blocks->data;
    return status;
}

/* What it has of symmetric memory came last: the communicator has ended. */
static void discard_change(struct trib_sparse *sparse, const struct change *change)
{
    if (change->arena != NULL)
        tri_workspace_remove(&sparse->memory, change->arena);
}

static void apply_change(struct trib_sparse *sparse, const struct change *change)
{
    if (change->arena != NULL) {
        tri_workspace_remove(&sparse->memory, sparse->arena);
        sparse->arena = change->arena;
        sparse->arena_bytes = change->needs.arena;
    }
    if (change->near != sparse->near)
        tri_symmetric_drop(sparse->comm, sparse->near, false);
    sparse->near = change->near;
    sparse->inside = change->inside;
    sparse->needs = change->needs;
    sparse->settings = change->settings;
    sparse->params = change->settings.params;
    sparse->algorithm = change->choice.algorithm;
    sparse->signature = change->signature;
    memcpy(sparse->reason, change->choice.reason, sizeof sparse->reason);
    tri_sparse_lay_out(sparse);
}

static void put_first(void *buffers[2], uint32_t current)
{
    void *const first = buffers[current], *const other = buffers[!current];
    buffers[0] = first;
    buffers[1] = other;
}

/* The current residual and velocity become buffer 0, as in a new state; the header gets the new
 * signature. A failure changes nothing. */
static trib_status renew_scalars(struct trib_sparse *sparse, uint32_t signature, trib_stream stream)
{
    struct tri_sparse_scalars scalars;
    TRI_TRY(copy(sparse, &scalars, sparse->scalars, sizeof scalars, stream));
    const uint32_t residual = scalars.current, velocity = scalars.velocity;
    scalars.current = scalars.velocity = 0;
    scalars.header.signature = signature;
    TRI_TRY(copy(sparse, sparse->scalars, &scalars, sizeof scalars, stream));
    put_first(sparse->residual, residual);
    put_first(sparse->velocity, velocity);
    return TRIB_OK;
}

/* The arguments of tri_sparse_set_k and tri_sparse_set_density. */
struct set_request {
    struct trib_sparse *sparse;
    int operation;
    uint64_t k;
    double density;
};

static trib_status read_set_request(uint32_t *k, const struct set_request *request)
{
    const struct trib_sparse *sparse = request->sparse;
    const size_t count = sparse->params.count;
    TRI_TRY(tri_sparse_ready(sparse, request->operation));
    if (request->operation == TRI_SPARSE_SET_DENSITY)
        return tri_sparse_density(k, sparse->comm, request->operation, count, request->density);
    *k = (uint32_t)(request->k < count ? request->k : count);
    return TRIB_OK;
}

static trib_status set(void *argument, trib_stream stream)
{
    const struct set_request *request = argument;
    struct trib_sparse *sparse = request->sparse;
    struct trib_comm *comm = sparse->comm;
    struct change change = {.settings = sparse->settings, .near = sparse->near};
    trib_status status = read_set_request(&change.settings.params.k, request);
    if (status != TRIB_OK)
        return tri_handshake_reject(comm, request->operation, status, stream);
    TRI_TRY(measure_link(comm, &change.settings, request->operation, sparse->number, stream));
    change.choice = choose(&change.settings, comm);
    const struct tri_handshake handshake =
        tri_handshake_of(&change.settings, &change.choice, request->operation, sparse->number);
    change.signature = tri_handshake_signature(&handshake);
    status = tri_deadline_wait(comm, request->operation, &sparse->memory);
    if (status == TRIB_OK)
        status = plan(&change, sparse);
    status = tri_handshake_exchange(comm, &handshake, status, NULL, stream);
    if (status == TRIB_OK)
        status = make_near(&change.near, comm, request->operation, &change.needs, stream);
    if (status == TRIB_OK)
        status = open_inside(&change.inside, comm, request->operation, change.choice.algorithm,
                             &change.settings.params);
    if (status == TRIB_OK) {
        status = renew_scalars(sparse, change.signature, stream);
        if (status != TRIB_OK) /* the others have the new k */
            (void)tri_abort_raise(comm->state, status, tri_detail());
    }
    if (status == TRIB_OK)
        apply_change(sparse, &change);
    else
        discard_change(sparse, &change);
    return status;
}

trib_status tri_sparse_set_density(struct trib_sparse *sparse, double density)
{
    struct set_request request = {
        .sparse = sparse, .operation = TRI_SPARSE_SET_DENSITY, .density = density};
    return tri_all_ranks_run(sparse->comm, request.operation, set, &request);
}

trib_status tri_sparse_set_k(struct trib_sparse *sparse, uint64_t k)
{
    struct set_request request = {.sparse = sparse, .operation = TRI_SPARSE_SET_K, .k = k};
    return tri_all_ranks_run(sparse->comm, request.operation, set, &request);
}

/* ------------------------------------------------------------------------------------------ end */

trib_status tri_sparse_destroy(struct trib_sparse *sparse)
{
    const struct trib_comm *comm = sparse->comm;
    trib_status status = TRIB_OK;
    if (!tri_workspace_await(&sparse->memory, tri_deadline_ns(comm->close_timeout_ms)))
        status = tri_fail_call(comm, TRI_SPARSE_DESTROY, TRIB_ERR_TIMEOUT,
                               "after %u ms a call of this state is still queued; its memory stays "
                               "allocated until the call has run. Synchronize the streams before "
                               "destroying, or abort",
                               comm->close_timeout_ms);
    tri_sparse_discard(sparse);
    tri_workspace_sweep();
    return status;
}
