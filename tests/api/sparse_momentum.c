/* Momentum by hand, what it allocates, and which buffers it takes. */
#include "tests/api/sparse.h"

/* Three calls on two elements, k = 1, momentum 0.5. Gradients (4, 3), (1, 2), (0, 0). */
struct by_hand {
    uint32_t flags;
    int at[3]; /* which element is sent, and */
    float value[3];
    float velocity[2]; /* afterwards; in place, times the momentum */
};

static const struct by_hand cases[] = {
    /* u = (4, 3) -> (0, 3); (1, 3.5) -> (1, 0); (0.5, 0) -> (0, 0), and acc is u + v. */
    {0, {0, 1, 0}, {4, 6.5f, 1.5f}, {0, 0}},
    {TRIB_SPARSE_IN_PLACE, {0, 1, 0}, {4, 6.5f, 1.5f}, {0, 0}},
    /* u = (4, 3), (3, 3.5), (1.5, 1.75) */
    {TRIB_SPARSE_NO_MASKING, {0, 1, 0}, {4, 6.5f, 4.5f}, {1.5f, 1.75f}},
    {TRIB_SPARSE_NO_MASKING | TRIB_SPARSE_IN_PLACE, {0, 1, 0}, {4, 6.5f, 4.5f}, {0.75f, 0.875f}},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static trib_sparse_options options_of(uint32_t flags)
{
    trib_sparse_options options = fixture_options("topka", 1, flags);
    options.momentum = 0.5;
    return options;
}

/* The velocity in place: what the call has left in the gradient. */
static void bring_back(struct fixture *fixture)
{
    CHECK_OK(trib_device_copy(fixture->device, fixture->given, fixture->gradient,
                              sizeof fixture->given, fixture->stream));
    CHECK_OK(trib_stream_wait(fixture->device, fixture->stream));
}

static void by_hand(struct fixture *fixture, const struct by_hand *c)
{
    static const float gradients[3][2] = {{4, 3}, {1, 2}, {0, 0}};
    const bool in_place = (c->flags & TRIB_SPARSE_IN_PLACE) != 0;
    fixture_fill(fixture, 0, 0, 0);
    for (int call = 0; call < 3; call++) {
        for (int i = 0; i < 2; i++)
            fixture->given[i] = gradients[call][i] + (in_place ? fixture->given[i] : 0);
        CHECK_OK(fixture_call(fixture));
        for (int i = 0; i < FIXTURE_COUNT; i++)
            CHECK_MSG(fixture->found[i] ==
                          (i == c->at[call] ? c->value[call] * (float)fixture->size : 0),
                      "flags 0x%x, call %d: element %d is %g", c->flags, call, i,
                      (double)fixture->found[i]);
        if (in_place)
            bring_back(fixture);
    }
    if (in_place)
        CHECK(fixture->given[0] == c->velocity[0] && fixture->given[1] == c->velocity[1]);
}

static void numbers(int rank, int size, void *team)
{
    struct fixture fixture;
    (void)size;
    if (!fixture_open(&fixture, team, rank, NULL))
        return;
    for (int i = 0; i < CASES; i++) {
        const trib_sparse_options options = options_of(cases[i].flags);
        if (!CHECK_OK(trib_sparse_create(&fixture.sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32,
                                         &options)))
            break;
        by_hand(&fixture, &cases[i]);
        CHECK_OK(trib_sparse_destroy(fixture.sparse));
        fixture.sparse = NULL;
    }
    fixture_close(&fixture);
}

/* With k = n dense runs, whatever the name: SGD with momentum, which nothing masks. */
static void whole(int rank, int size, void *team)
{
    trib_sparse_options options = options_of(0);
    struct fixture fixture;
    float velocity = 0;
    options.k = FIXTURE_COUNT;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    for (int call = 0; call < 4; call++) {
        fixture_fill(&fixture, 7, 1, 8);
        velocity = 0.5f * velocity + 8;
        CHECK_OK(fixture_call(&fixture));
        CHECK(fixture.found[7] == velocity * (float)size && fixture.found[8] == 0);
    }
    fixture_close(&fixture);
}

/* *left: what former states have left among the memory that ranks reach, and a state of the same k uses
 * again. */
static uint64_t allocated(struct fixture *fixture, const trib_sparse_options *options,
                          uint64_t *left)
{
    trib_memory before = TRIB_MEMORY_INIT, after = TRIB_MEMORY_INIT;
    uint64_t bytes = 0;
    CHECK_OK(trib_sparse_bytes(&bytes, fixture->comm, FIXTURE_COUNT, TRIB_F32, options));
    CHECK_OK(trib_comm_memory(&before, fixture->comm));
    if (!CHECK_OK(
            trib_sparse_create(&fixture->sparse, fixture->comm, FIXTURE_COUNT, TRIB_F32, options)))
        return 0;
    CHECK_OK(trib_comm_memory(&after, fixture->comm));
    const uint64_t grown = after.peer_bytes - before.peer_bytes;
    const uint64_t taken = after.sparse_bytes - before.sparse_bytes + grown;
    CHECK_MSG(taken + *left == bytes, "%llu bytes and %llu of former states, said were %llu",
              (unsigned long long)taken, (unsigned long long)*left, (unsigned long long)bytes);
    *left += grown;
    CHECK_OK(trib_sparse_destroy(fixture->sparse));
    fixture->sparse = NULL;
    return bytes;
}

/* Two velocities; in place two residuals. */
static void memory(int rank, int size, void *team)
{
    enum { TENSOR = 4096 }; /* 1,000 elements, padded to 256 bytes */
    struct fixture fixture;
    uint64_t left = 0;
    (void)size;
    if (!fixture_open(&fixture, team, rank, NULL))
        return;
    for (int in_place = 0; in_place < 2; in_place++) {
        trib_sparse_options options = options_of(in_place ? TRIB_SPARSE_IN_PLACE : 0);
        const uint64_t with = allocated(&fixture, &options, &left);
        options.momentum = 0;
        const uint64_t without = allocated(&fixture, &options, &left);
        CHECK_MSG(with == without + 2 * TENSOR, "in place %d: %llu bytes, without momentum %llu",
                  in_place, (unsigned long long)with, (unsigned long long)without);
    }
    fixture_close(&fixture);
}

/* The result may take the gradient's place, because the velocity has been made before. In place the
 * gradient is the velocity; the residual is the state's, and can be read. */
static void buffers(int rank, int size, void *team)
{
    const trib_sparse_options options = options_of(0), placed = options_of(TRIB_SPARSE_IN_PLACE);
    struct fixture fixture;
    if (!fixture_open(&fixture, team, rank, &options))
        return;
    for (int call = 0; call < 3; call++) {
        fixture_fill(&fixture, 5, 1, call == 0 ? 8 : 0);
        fixture_push(&fixture);
        CHECK_OK(trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.gradient,
                                       fixture.stream));
        bring_back(&fixture);
        CHECK(fixture.given[5] == (call == 0 ? 8 * (float)size : 0));
    }
    CHECK_OK(trib_sparse_destroy(fixture.sparse));
    fixture.sparse = NULL;
    if (CHECK_OK(
            trib_sparse_create(&fixture.sparse, fixture.comm, FIXTURE_COUNT, TRIB_F32, &placed))) {
        CHECK_STATUS(trib_sparse_allreduce(fixture.sparse, fixture.gradient, fixture.gradient,
                                           fixture.stream),
                     TRIB_ERR_INVALID_BUFFER);
        fixture_fill(&fixture, 5, 2, 8);
        CHECK_OK(fixture_call(&fixture));
        CHECK_OK(trib_sparse_residual(fixture.sparse, fixture.result, fixture.stream));
        fixture_pull(&fixture);
        CHECK(fixture.found[5] == 8 && fixture.found[6] == 0);
    }
    fixture_close(&fixture);
}

void sparse_momentum(const char *backend, int size)
{
    fixture_ranks(backend, size, NULL, numbers, "momentum by hand");
    fixture_ranks(backend, size, NULL, whole, "momentum with k = n");
    fixture_ranks(backend, size, NULL, memory, "memory of momentum");
    fixture_ranks(backend, size, NULL, buffers, "buffers with momentum");
}
