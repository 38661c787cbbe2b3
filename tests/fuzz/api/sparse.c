/* Step: the sparse allreduce of one tensor, through its life. */
#include <string.h>

#include "tests/fuzz/api/velocity.h"

enum { COUNT = SPARSE_COUNT };

struct request {
    struct world *world;
    size_t count[FUZZ_RANKS];
    trib_dtype dtype;
    trib_sparse_options options[FUZZ_RANKS];
    uint64_t k[FUZZ_RANKS];
    double density;
    bool by_density;
    bool missing; /* the last rank does not call */
    struct verdicts verdicts;
};

/* -------------------------------------------------------------------------------- create, destroy */

static void create(int r, void *argument)
{
    struct request *request = argument;
    struct rank *rank = &request->world->ranks[r];
    if (request->missing && r == request->world->size - 1) {
        request->verdicts.status[r] = TRIB_ERR_TIMEOUT;
        return;
    }
    rank->sparse = (trib_sparse *)1;
    request->verdicts.status[r] = STATUS(trib_sparse_create(
        &rank->sparse, rank->comm, request->count[r], request->dtype, &request->options[r]));
    FUZZ_CHECK((request->verdicts.status[r] == TRIB_OK) == (rank->sparse != NULL));
}

void sparse_drop(struct world *world)
{
    for (int r = 0; r < world->size; r++) {
        struct rank *rank = &world->ranks[r];
        if (rank->sparse != NULL)
            world_judge_end(world, STATUS(trib_sparse_destroy(rank->sparse)));
        rank->sparse = NULL;
    }
}

static trib_sparse_options pick_options(struct world *world)
{
    struct bytes *in = world->in;
    static const char *const constants[] = {NULL, "vgg", "lstm", "bert"};
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.algorithm = trib_sparse_algorithm_name(
        (int32_t)bytes_below(in, (uint32_t)trib_sparse_algorithm_count()));
    options.flags = bytes_rare(in, 2) ? bytes_below(in, 32) & ~(uint32_t)TRIB_SPARSE_USE_K : 0;
    options.density = bytes_below(in, 101) / 100.0;
    if (bytes_rare(in, 4)) {
        options.flags |= TRIB_SPARSE_USE_K;
        options.k = bytes_below(in, COUNT + 8);
    }
    options.decay = bytes_rare(in, 8) ? 0.5 : 0;
    options.wire = bytes_rare(in, 8) ? TRIB_BF16 : 0;
    options.chunk = bytes_rare(in, 4) ? 1u << bytes_below(in, 8) : 0;
    options.constants = constants[bytes_rare(in, 4) ? bytes_below(in, 4) : 0];
    options.norm_every = bytes_rare(in, 4) ? 1 + bytes_below(in, 3) : 0;
    if (bytes_rare(in, 2)) {
        options.momentum = 0.5;
        options.flags |= bytes_rare(in, 4) ? (uint32_t)TRIB_SPARSE_NO_MASKING : 0;
    }
    return options;
}

static bool options_are_valid(const struct request *request, int r)
{
    const trib_sparse_options *options = &request->options[r];
    const trib_dtype dtype = request->dtype;
    if (dtype < TRIB_F16 || dtype > TRIB_F64 || options->reserved != 0)
        return false;
    if ((options->flags & TRIB_SPARSE_IN_PLACE) != 0 && dtype != TRIB_F32 && dtype != TRIB_F64)
        return false;
    return dtype != TRIB_F64 ||
           ((options->flags & TRIB_SPARSE_F32_RESULT) == 0 && options->wire == 0);
}

/* What one rank passes may be invalid, or differ from what the others pass. */
static void spoil(struct request *request)
{
    struct world *world = request->world;
    const int r = (int)bytes_below(world->in, (uint32_t)world->size);
    switch (bytes_below(world->in, 4)) {
    case 0:
        request->options[r].reserved = 1;
        break;
    case 2:
        request->verdicts.differs = world->size > 1;
        request->options[r].momentum = 0.25;
        break;
    case 1:
        request->verdicts.differs = world->size > 1 && request->count[r] > 0;
        request->count[r] -= request->verdicts.differs;
        break;
    default:
        request->missing = world->hasty && world->size > 1;
    }
}

static void remember(struct world *world, const struct request *request)
{
    const trib_sparse_options *options = &request->options[0];
    const bool wide = (options->flags & TRIB_SPARSE_F32_RESULT) != 0;
    world->sparse.count = request->count[0];
    world->sparse.dtype = request->dtype;
    world->sparse.result = wide ? TRIB_F32 : request->dtype;
    world->sparse.flags = options->flags;
    world->sparse.decay = options->decay == 0 ? 1 : options->decay;
    world->sparse.momentum = options->momentum;
    world->sparse.wire = options->wire != 0;
    world->sparse.exact = options->decay == 0 && (options->flags & TRIB_SPARSE_AVERAGE) == 0 &&
                          world->sparse.result != TRIB_BF16 &&
                          (options->momentum == 0 || world->sparse.result != TRIB_F16);
    velocity_set(world, 0);
}

static void begin(struct world *world)
{
    struct request request = {.world = world};
    const trib_sparse_options options = pick_options(world);
    const size_t count = bytes_rare(world->in, 4) ? bytes_below(world->in, COUNT) : COUNT;
    request.dtype =
        bytes_rare(world->in, 32) ? TRIB_I32 : 1 + (trib_dtype)bytes_below(world->in, 4);
    for (int r = 0; r < world->size; r++) {
        request.options[r] = options;
        request.count[r] = count;
    }
    if (bytes_rare(world->in, 8))
        spoil(&request);
    for (int r = 0; r < world->size; r++)
        request.verdicts.valid[r] = options_are_valid(&request, r);
    request.verdicts.differs = request.verdicts.differs || request.missing;
    fuzz_ranks(world->size, create, &request);
    if (world_judge_handshake(world, &request.verdicts)) {
        remember(world, &request);
        return;
    }
    sparse_drop(world);
}

/* ----------------------------------------------------------------------------- k, exports, resets */

static void set(int r, void *argument)
{
    struct request *request = argument;
    trib_sparse *sparse = request->world->ranks[r].sparse;
    request->verdicts.status[r] = request->by_density
                                      ? STATUS(trib_sparse_set_density(sparse, request->density))
                                      : STATUS(trib_sparse_set_k(sparse, request->k[r]));
}

static void change(struct world *world)
{
    struct request request = {.world = world, .by_density = bytes_rare(world->in, 2)};
    const uint64_t k = bytes_below(world->in, COUNT + 8);
    const bool differs = world->size > 1 && k < world->sparse.count && bytes_rare(world->in, 16);
    request.density = (double)k / COUNT;
    for (int r = 0; r < world->size; r++) {
        request.k[r] = k;
        request.verdicts.valid[r] = !request.by_density || request.density <= 1;
    }
    if (differs && !request.by_density) {
        request.k[world->size - 1]++;
        request.verdicts.differs = true;
    }
    fuzz_ranks(world->size, set, &request);
    (void)world_judge_handshake(world, &request.verdicts);
}

static void export_all(struct world *world)
{
    for (int r = 0; r < world->size; r++) {
        const trib_sparse *sparse = world->ranks[r].sparse;
        world->saved.bytes[r] = (size_t)trib_sparse_export_bytes(sparse);
        world->saved.data[r] = world_keep(world, world->saved.bytes[r]);
        MUST(trib_sparse_export(world->ranks[r].sparse, world->saved.data[r], world->saved.bytes[r],
                                NULL));
        FUZZ_CHECK(STATUS(trib_sparse_export(world->ranks[r].sparse, world->saved.data[r],
                                             world->saved.bytes[r] - 1, NULL)) ==
                   TRIB_ERR_INVALID_ARGUMENT);
    }
    world->saved.count = world->sparse.count;
    world->saved.f64 = world->sparse.dtype == TRIB_F64;
    world->saved.residual = world_sparse_residual(world);
    velocity_save(world);
}

static void import(int r, void *argument)
{
    struct request *request = argument;
    struct world *world = request->world;
    request->verdicts.status[r] = STATUS(trib_sparse_import(
        world->ranks[r].sparse, world->saved.data[r], world->saved.bytes[r], 0, NULL));
}

static void import_all(struct world *world)
{
    struct request request = {.world = world};
    const bool fits = world->saved.count == world->sparse.count &&
                      world->saved.f64 == (world->sparse.dtype == TRIB_F64) &&
                      world->saved.residual == world_sparse_residual(world) &&
                      (!world->saved.has_velocity || world_sparse_velocity(world));
    for (int r = 0; r < world->size; r++)
        request.verdicts.valid[r] = fits && world->saved.data[r] != NULL;
    fuzz_ranks(world->size, import, &request);
    if (world_judge_handshake(world, &request.verdicts))
        velocity_restore(world);
}

static void import_one(struct world *world)
{
    const int r = (int)bytes_below(world->in, (uint32_t)world->size);
    const trib_status status = STATUS(trib_sparse_import(
        world->ranks[r].sparse, world->saved.data[r], world->saved.bytes[r], 1, NULL));
    FUZZ_CHECK(status == TRIB_OK || fuzz_is_mistake(status));
    if (status == TRIB_OK)
        velocity_add(world, r);
}

static void reset(int r, void *argument)
{
    struct request *request = argument;
    request->verdicts.status[r] = STATUS(trib_sparse_reset(request->world->ranks[r].sparse, NULL));
}

static void reset_all(struct world *world)
{
    struct request request = {.world = world};
    for (int r = 0; r < world->size; r++)
        request.verdicts.valid[r] = true;
    world_each(world, false, reset, &request);
    if (world_judge(world, &request.verdicts))
        velocity_set(world, 0);
}

void step_sparse(struct world *world)
{
    if (!world_can_wait(world))
        return;
    if (world->ranks[0].sparse == NULL) {
        begin(world);
        return;
    }
    const uint32_t which = bytes_below(world->in, 12);
    fuzz_trace("  sparse %u: count %zu, dtype %d, flags %u, momentum %g\n", which,
               world->sparse.count, world->sparse.dtype, world->sparse.flags,
               world->sparse.momentum);
    switch (which) {
    case 6:
        change(world);
        break;
    case 7:
        export_all(world);
        break;
    case 8:
        import_all(world);
        break;
    case 9:
        import_one(world);
        break;
    case 10:
        reset_all(world);
        break;
    case 11:
        sparse_drop(world);
        break;
    default:
        sparse_call(world);
    }
}
