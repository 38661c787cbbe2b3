/* Reads trib_sparse_options. */
#include "csrc/sparse/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "csrc/core/inside.h"
#include "csrc/core/symmetric.h"
#include "csrc/core/validate.h"
#include "csrc/sparse/hosts.h"

enum { CHUNK = 4096, CHUNK_MOST = 65536 };
static const double default_density = 0.01;
static const uint32_t all_flags = TRIB_SPARSE_AVERAGE | TRIB_SPARSE_ENTRIES | TRIB_SPARSE_IN_PLACE |
                                  TRIB_SPARSE_USE_K | TRIB_SPARSE_F32_RESULT |
                                  TRIB_SPARSE_NO_MASKING;

trib_status tri_sparse_density(uint32_t *out, const struct trib_comm *comm, int operation,
                               size_t count, double density)
{
    if (density == 0)
        density = default_density;
    if (!(density > 0 && density <= 1))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`density` is %g; expected a number above 0, at most 1, or 0 for %g",
                             density, default_density);
    const size_t k = (size_t)((double)count * density);
    *out = (uint32_t)(k > count ? count : k == 0 && count != 0 ? 1 : k);
    return TRIB_OK;
}

trib_status tri_sparse_check_comm(const struct trib_comm *comm, int operation)
{
    if (comm->backend->kernels->sparse == NULL)
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "backend \"%s\" has no sparse kernels", comm->backend->name);
    if (comm->size > TRI_MAX_LISTS)
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "the communicator has %d ranks; a sparse allreduce takes %d at most",
                             comm->size, (int)TRI_MAX_LISTS);
    return TRIB_OK;
}

static trib_status check_tensor(const struct trib_comm *comm, int operation, size_t count,
                                trib_dtype dtype)
{
    if (dtype < TRIB_F16 || dtype > TRIB_F64)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`dtype` is %d (%s); a sparse allreduce takes f16, bf16, f32 and f64",
                             dtype, trib_dtype_name(dtype));
    if (count > UINT32_MAX)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`count` is %zu; expected at most %u: split the tensor", count,
                             UINT32_MAX);
    return TRIB_OK;
}

static trib_status check_flags(const struct trib_comm *comm, int operation, trib_dtype dtype,
                               const trib_sparse_options *options)
{
    if ((options->flags & ~all_flags) != 0)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.flags is 0x%x; expected TRIB_SPARSE_... flags, all of which "
                             "together are 0x%x",
                             options->flags, all_flags);
    if ((options->flags & TRIB_SPARSE_IN_PLACE) != 0 && dtype != TRIB_F32 && dtype != TRIB_F64)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`dtype` is %s; TRIB_SPARSE_IN_PLACE takes f32 and f64, since the "
                             "gradient buffer keeps the residual",
                             trib_dtype_name(dtype));
    if ((options->flags & TRIB_SPARSE_F32_RESULT) != 0 && dtype == TRIB_F64)
        return tri_fail_call(
            comm, operation, TRIB_ERR_INVALID_ARGUMENT,
            "`dtype` is f64; TRIB_SPARSE_F32_RESULT takes f16, bf16 and f32, whose "
            "sums are f32");
    return TRIB_OK;
}

/* The momentum as it is used. */
static double rounded(double momentum, trib_dtype dtype)
{
    return dtype == TRIB_F64 ? momentum : (double)(float)momentum;
}

static trib_status check_momentum(const struct trib_comm *comm, int operation, trib_dtype dtype,
                                  const trib_sparse_options *options)
{
    const double momentum = options->momentum, clip = options->clip_norm;
    const bool none = momentum == 0;
    if (!none && !(rounded(momentum, dtype) > 0 && rounded(momentum, dtype) < 1))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.momentum is %.17g; expected a number of the residual's type, "
                             "at least 0, below 1",
                             momentum);
    if (none && (options->flags & TRIB_SPARSE_NO_MASKING) != 0)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.flags has TRIB_SPARSE_NO_MASKING, and options.momentum is 0: "
                             "there is no velocity to mask");
    if (clip != 0 && !(clip > 0 && isfinite(clip)))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.clip_norm is %g; expected a finite number above 0, or 0 for "
                             "none",
                             clip);
    if (clip != 0 && (none || (options->flags & TRIB_SPARSE_IN_PLACE) != 0))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.clip_norm is %g %s: clip the gradients before the call", clip,
                             none ? "without options.momentum"
                                  : "with TRIB_SPARSE_IN_PLACE, where gradients are added by the "
                                    "caller");
    return TRIB_OK;
}

static trib_status check_options(const struct trib_comm *comm, int operation, trib_dtype dtype,
                                 const trib_sparse_options *options)
{
    if (options->size != sizeof *options)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.size is %u, expected %zu: start from "
                             "TRIB_SPARSE_OPTIONS_INIT, and build with the header of the library "
                             "that is loaded",
                             options->size, sizeof *options);
    TRI_TRY(check_flags(comm, operation, dtype, options));
    if (options->decay != 0 && !(options->decay > 0 && options->decay <= 1))
        return tri_fail_call(
            comm, operation, TRIB_ERR_INVALID_ARGUMENT,
            "options.decay is %g; expected a number above 0, at most 1, or 0 for 1",
            options->decay);
    if (options->wire != 0 && (options->wire != TRIB_BF16 || dtype == TRIB_F64))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.wire is %d (%s) for a tensor of %s; expected 0, or TRIB_BF16 "
                             "unless it is f64",
                             options->wire, trib_dtype_name(options->wire), trib_dtype_name(dtype));
    if (options->chunk > CHUNK_MOST || (options->chunk & (options->chunk - 1)) != 0)
        return tri_fail_call(
            comm, operation, TRIB_ERR_INVALID_ARGUMENT,
            "options.chunk is %u; expected a power of two, at most %d, or 0 for %d", options->chunk,
            (int)CHUNK_MOST, (int)CHUNK);
    for (int32_t rank = 0; options->hosts != NULL && rank < comm->size; rank++)
        if (options->hosts[rank] < 0)
            return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                                 "options.hosts[%d] is %d; expected the number of rank %d's host, "
                                 "at least 0: one for each of the %d ranks, equal on the ranks of "
                                 "one host",
                                 (int)rank, (int)options->hosts[rank], (int)rank, (int)comm->size);
    if (options->reserved != 0)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.reserved is %u; expected 0", options->reserved);
    return check_momentum(comm, operation, dtype, options);
}

/* "a, b, c" */
static void list_names(char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "auto");
    for (size_t i = 0; tri_algorithms[i] != NULL && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, ", %s", tri_algorithms[i]->name);
}

static trib_status find_names(struct tri_sparse_settings *out, const struct trib_comm *comm,
                              int operation, const trib_sparse_options *options)
{
    char names[256];
    if (options->constants != NULL) {
        out->params.constants = tri_constants_find(options->constants);
        if (out->params.constants == NULL)
            return tri_fail_call(comm, operation, TRIB_ERR_UNKNOWN_NAME,
                                 "options.constants is \"%s\"; expected vgg, lstm or bert",
                                 options->constants);
    }
    if (options->algorithm == NULL || strcmp(options->algorithm, "auto") == 0)
        return TRIB_OK;
    out->algorithm = tri_algorithm_find(options->algorithm);
    if (out->algorithm != NULL)
        return TRIB_OK;
    list_names(names, sizeof names);
    return tri_fail_call(comm, operation, TRIB_ERR_UNKNOWN_NAME,
                         "options.algorithm is \"%s\"; expected one of %s", options->algorithm,
                         names);
}

/* Until the ranks have told each other, they are taken to be on one host. */
static void read_hosts(struct tri_sparse_params *params, const struct trib_comm *comm,
                       const trib_sparse_options *options)
{
    uint64_t identities[TRI_MAX_LISTS];
    for (int32_t rank = 0; rank < comm->size; rank++)
        identities[rank] =
            options->hosts == NULL ? comm->host_of[rank] : (uint64_t)options->hosts[rank];
    (void)tri_hosts_number(params->host_of, identities, comm->size);
    params->inside = tri_inside_exists(comm, params->host_of);
}

static trib_status read_k(uint32_t *out, const struct trib_comm *comm, int operation, size_t count,
                          const trib_sparse_options *options)
{
    if ((options->flags & TRIB_SPARSE_USE_K) == 0)
        return tri_sparse_density(out, comm, operation, count, options->density);
    *out = (uint32_t)(options->k < count ? options->k : count);
    return TRIB_OK;
}

trib_status tri_sparse_settings_read(struct tri_sparse_settings *out, const struct trib_comm *comm,
                                     int operation, size_t count, trib_dtype dtype,
                                     const trib_sparse_options *options)
{
    const trib_sparse_options defaults = TRIB_SPARSE_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    TRI_TRY(tri_sparse_check_comm(comm, operation));
    TRI_TRY(check_tensor(comm, operation, count, dtype));
    /* Nothing but the size of a struct of another size may be read: its memory may end there. */
    TRI_TRY(check_options(comm, operation, dtype, options));
    const trib_dtype acc = dtype == TRIB_F64 ? TRIB_F64 : TRIB_F32;
    const bool in_place = (options->flags & TRIB_SPARSE_IN_PLACE) != 0;
    const bool momentum = options->momentum != 0;
    const bool entries = (options->flags & TRIB_SPARSE_ENTRIES) != 0;
    *out = (struct tri_sparse_settings){
        .params = {.rank = comm->rank,
                   .size = comm->size,
                   .count = count,
                   .dtype = dtype,
                   .acc = acc,
                   .result = options->flags & TRIB_SPARSE_F32_RESULT ? acc : dtype,
                   .wire = options->wire == 0 ? acc : options->wire,
                   .average = (options->flags & TRIB_SPARSE_AVERAGE) != 0,
                   .entries = entries,
                   .in_place = in_place && !momentum,
                   .decay = options->decay == 0 ? 1 : options->decay,
                   .momentum = options->momentum,
                   .clip = options->clip_norm / sqrt(comm->size),
                   .masks = momentum && (options->flags & TRIB_SPARSE_NO_MASKING) == 0,
                   .velocity_in_place = in_place && momentum,
                   .chunk = options->chunk == 0 ? CHUNK : options->chunk,
                   .near_from = entries ? SIZE_MAX : tri_symmetric_near_from(comm)},
        .flags = options->flags & ~(uint32_t)TRIB_SPARSE_USE_K, /* k itself is compared */
        .norm_every = options->norm_every,
    };
    TRI_TRY(find_names(out, comm, operation, options));
    read_hosts(&out->params, comm, options);
    return read_k(&out->params.k, comm, operation, count, options);
}
