/* Calls with a factor: allreduces by themselves, in a batch, and lists. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { TENSORS = 7, WORDS = 3 };

static const trib_dtype floats[] = {TRIB_F16, TRIB_BF16, TRIB_F32, TRIB_F64};

/* One rank. `words` are floats on the device: factors. */
struct factors {
    struct suite *suite;
    int rank, size;
    uint64_t seed;
    trib_comm *comm;
    trib_stream stream;
    struct guarded send, recv, words;
};

/* Sums of these over 64 ranks are integers up to 192: exact in bf16, in every order. */
static float factor_of(int rank)
{
    static const float factors[] = {2, -1, 0.5f, 0, 1, -2, 1.5f, -0.5f};
    return factors[rank % 8];
}

static double input(const struct factors *f, int rank, size_t i)
{
    return 2.0 * ((double)((i * 7 + (size_t)rank * 5 + f->seed) % 3) - 1);
}

static void fill(const struct factors *f, void *image, trib_dtype dtype, size_t count)
{
    for (size_t i = 0; i < count; i++)
        reference_store(image, dtype, i, input(f, f->rank, i));
}

/* `extra` is added to every rank's factor. */
static void expect(const struct factors *f, void *image, trib_dtype dtype, size_t count,
                   double extra)
{
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int rank = 0; rank < f->size; rank++)
            sum += (factor_of(rank) + extra) * input(f, rank, i);
        reference_store(image, dtype, i, sum);
    }
}

/* This rank's factor, from the host or in words[0]; the one that does not count is another. */
static trib_call_options options_of(const struct factors *f, bool on_device)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = on_device ? 0 : TRIB_CALL_FACTOR;
    options.factor = on_device ? 77 : factor_of(f->rank);
    options.device_factor = on_device ? guarded_data(&f->words, 0) : NULL;
    return options;
}

static void set_words(struct factors *f)
{
    guarded_reset(&f->words, WORDS * sizeof(float), 0);
    for (int i = 0; i < WORDS; i++)
        reference_store(guarded_image(&f->words, 0), TRIB_F32, (size_t)i, factor_of(f->rank) + i);
}

static bool push(struct factors *f)
{
    return guarded_push(&f->send, f->stream) && guarded_push(&f->recv, f->stream) &&
           guarded_push(&f->words, f->stream);
}

static bool fetch(struct factors *f)
{
    return guarded_pull(&f->send, f->stream) && guarded_pull(&f->recv, f->stream) &&
           guarded_pull(&f->words, f->stream) &&
           CHECK_OK(trib_stream_wait(f->suite->team.devices[f->rank], f->stream));
}

static bool compare(struct factors *f, const char *what)
{
    return guarded_same(&f->words, __FILE__, __LINE__, what) &&
           backend_compare(f->suite, f->rank, &f->send, &f->recv, what);
}

static bool one_call(struct factors *f, trib_dtype dtype, size_t count, bool on_device,
                     bool in_place)
{
    char what[128];
    const size_t bytes = count * trib_dtype_size(dtype);
    (void)snprintf(what, sizeof what, "%zu %s %s, factor on the %s, rank %d", count,
                   trib_dtype_name(dtype), in_place ? "in place" : "out of place",
                   on_device ? "device" : "host", f->rank);
    const trib_call_options options = options_of(f, on_device);
    f->seed++;
    set_words(f);
    guarded_reset(&f->send, bytes, count % 2 * trib_dtype_size(dtype));
    guarded_reset(&f->recv, bytes, 0);
    fill(f, guarded_image(in_place ? &f->recv : &f->send, 0), dtype, count);
    void *recv = guarded_data(&f->recv, 0);
    if (!push(f) ||
        !CHECK_OK(trib_allreduce_with(f->comm, in_place ? recv : guarded_data(&f->send, 0), recv,
                                      count, dtype, TRIB_SUM, &options, f->stream)) ||
        !fetch(f))
        return false;
    expect(f, guarded_image(&f->recv, 0), dtype, count, 0);
    return compare(f, what);
}

/* In one call to the backend: one of each type, each with another factor, and one without. */
static bool batch(struct factors *f)
{
    enum { COUNT = 33, BLOCK = COUNT * 8 + 8 };
    static const double extra[] = {0, 1, 2, 0.5};
    bool good = true;
    f->seed++;
    set_words(f);
    guarded_reset(&f->send, 5 * BLOCK, 0);
    guarded_reset(&f->recv, 5 * BLOCK, 0);
    for (size_t i = 0; i < 5; i++)
        fill(f, guarded_image(&f->send, i * BLOCK), i < 4 ? floats[i] : TRIB_F32, COUNT);
    if (!push(f) || !CHECK_OK(trib_batch_begin(f->comm)))
        return false;
    for (size_t i = 0; i < 5 && good; i++) {
        trib_call_options options = options_of(f, i < 3);
        if (i < 3)
            options.device_factor += i;
        options.factor += i == 3 ? extra[3] : 0;
        good = CHECK_OK(trib_allreduce_with(
            f->comm, guarded_data(&f->send, i * BLOCK), guarded_data(&f->recv, i * BLOCK), COUNT,
            i < 4 ? floats[i] : TRIB_F32, TRIB_SUM, i < 4 ? &options : NULL, f->stream));
    }
    if (!CHECK_OK(trib_batch_end(f->comm)) || !good || !fetch(f))
        return false;
    for (size_t i = 0; i < 4; i++)
        expect(f, guarded_image(&f->recv, i * BLOCK), floats[i], COUNT, extra[i]);
    for (size_t i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int rank = 0; rank < f->size; rank++)
            sum += input(f, rank, i);
        reference_store(guarded_image(&f->recv, 4 * BLOCK), TRIB_F32, i, sum);
    }
    return compare(f, "factors in a batch");
}

static bool list(struct factors *f, bool on_device)
{
    enum { BLOCK = 1040 };
    static const size_t counts[TENSORS] = {130, 17, 0, 1, 64, 33, 7};
    trib_tensor tensors[TENSORS];
    trib_counters before = TRIB_COUNTERS_INIT, after = TRIB_COUNTERS_INIT;
    const trib_call_options options = options_of(f, on_device);
    f->seed++;
    set_words(f);
    guarded_reset(&f->send, 0, 0);
    guarded_reset(&f->recv, TENSORS * BLOCK, 0);
    for (size_t i = 0; i < TENSORS; i++) {
        tensors[i] = (trib_tensor){guarded_data(&f->recv, i * BLOCK), counts[i], floats[i % 4], 0};
        fill(f, guarded_image(&f->recv, i * BLOCK), floats[i % 4], counts[i]);
    }
    if (!push(f) || !CHECK_OK(trib_comm_counters(&before, f->comm)) ||
        !CHECK_OK(
            trib_allreduce_list_with(f->comm, tensors, TENSORS, TRIB_SUM, &options, f->stream)) ||
        !fetch(f) || !CHECK_OK(trib_comm_counters(&after, f->comm)))
        return false;
    for (size_t i = 0; i < TENSORS; i++)
        expect(f, guarded_image(&f->recv, i * BLOCK), floats[i % 4], counts[i], 0);
    CHECK(after.lists_committed == before.lists_committed + 1);
    return compare(f, on_device ? "list, factor on the device" : "list, factor on the host");
}

/* Nothing is asked for: the plain calls, which other ranks may make. */
static bool plain(struct factors *f)
{
    const trib_call_options none = TRIB_CALL_OPTIONS_INIT;
    const trib_call_options *options = f->rank % 3 == 0 ? NULL : &none;
    const bool with = f->rank % 2 == 0;
    const trib_dtype dtype = TRIB_I32;
    f->seed++;
    guarded_reset(&f->send, 64, 0);
    guarded_reset(&f->recv, 64, 0);
    guarded_reset(&f->words, 0, 0);
    const struct reference inputs = {
        .dtype = dtype, .op = TRIB_MAX, .size = f->size, .seed = f->seed};
    reference_input(guarded_image(&f->send, 0), &inputs, f->rank, 0, 16);
    reference_input(guarded_image(&f->recv, 32), &inputs, f->rank, 8, 8);
    void *send = guarded_data(&f->send, 0), *recv = guarded_data(&f->recv, 0);
    const trib_tensor tensor = {guarded_data(&f->recv, 32), 8, dtype, 0};
    if (!push(f) ||
        !CHECK_OK(
            with ? trib_allreduce_with(f->comm, send, recv, 8, dtype, TRIB_MAX, options, f->stream)
                 : trib_allreduce(f->comm, send, recv, 8, dtype, TRIB_MAX, f->stream)) ||
        !CHECK_OK(with ? trib_allreduce_list_with(f->comm, &tensor, 1, TRIB_MAX, options, f->stream)
                       : trib_allreduce_list(f->comm, &tensor, 1, TRIB_MAX, f->stream)) ||
        !fetch(f))
        return false;
    reference_reduced(guarded_image(&f->recv, 0), &inputs, 0, 16);
    return compare(f, "options that ask for nothing");
}

/* A factor of 0 is a factor: 0 times NaN or infinity is NaN. */
static bool zero(struct factors *f)
{
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    const double numbers[] = {NAN, INFINITY, 3};
    float found[3];
    options.flags = TRIB_CALL_FACTOR;
    guarded_reset(&f->send, sizeof found, 0);
    guarded_reset(&f->recv, sizeof found, 0);
    guarded_reset(&f->words, 0, 0);
    for (size_t i = 0; i < 3; i++)
        reference_store(guarded_image(&f->send, 0), TRIB_F32, i, numbers[i]);
    if (!push(f) ||
        !CHECK_OK(trib_allreduce_with(f->comm, guarded_data(&f->send, 0), guarded_data(&f->recv, 0),
                                      3, TRIB_F32, TRIB_SUM, &options, f->stream)) ||
        !fetch(f))
        return false;
    memcpy(found, guarded_found(&f->recv, 0), sizeof found);
    return CHECK_MSG(isnan(found[0]) && isnan(found[1]) && found[2] == 0,
                     "0 times NaN, infinity and 3 is %g, %g and %g", (double)found[0],
                     (double)found[1], (double)found[2]);
}

static bool every_call(struct factors *f)
{
    bool good = true;
    for (size_t d = 0; d < 4; d++) {
        const struct counts counts = backend_counts(f->suite, TRIB_I8);
        for (size_t i = 0; i < counts.n; i++)
            for (int way = 0; way < 4 && good; way++)
                good = one_call(f, floats[d], counts.at[i], way % 2 != 0, way / 2 != 0);
    }
    return good && batch(f) && list(f, false) && list(f, true) && plain(f) && zero(f);
}

static void factors_rank(int rank, int size, void *argument)
{
    struct suite *suite = argument;
    struct factors f = {.suite = suite,
                        .rank = rank,
                        .size = size,
                        .seed = suite->seed,
                        .comm = suite->team.comms[rank],
                        .stream = suite->team.streams[rank]};
    const struct counts counts = backend_counts(suite, TRIB_I8);
    const size_t most = counts.at[counts.n - 1] * sizeof(double) + TENSORS * 1040;
    trib_device *device = suite->team.devices[rank];
    bool good = guarded_create(&f.send, device, most);
    good = guarded_create(&f.recv, device, most) && good;
    good = guarded_create(&f.words, device, WORDS * sizeof(float)) && good;
    good = good && every_call(&f);
    backend_go_on(suite, rank, good);
    guarded_destroy(&f.send);
    guarded_destroy(&f.recv);
    guarded_destroy(&f.words);
}

void backend_factors(struct suite *suite)
{
    check_begin("%s, %d ranks by %s: factors", suite->team.backend, suite->team.size, suite->how);
    check_ranks(suite->team.size, factors_rank, suite);
    suite->seed += 1000;
    check_end();
}
