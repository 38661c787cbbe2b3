/* Lists of tensors and weighted averages. All tensors of a rank lie, scattered and unaligned, in
 * one guarded buffer with poison between them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/backend/backend.h"
#include "tests/conformance/reference.h"

enum { TENSORS_MAX = 256, GAP = 24 };

/* One rank's list. */
struct list {
    struct suite *suite;
    int rank, size;
    trib_comm *comm;
    trib_stream stream;
    struct guarded tensors, scalars; /* scalars: weight, then total */
    size_t n, bytes, counts[TENSORS_MAX], offsets[TENSORS_MAX];
    trib_dtype dtypes[TENSORS_MAX];
    uint64_t seed;
};

enum form { MIXED, MANY, ONE, EMPTY, FLOATS, FORMS };
static const char *const form_names[FORMS] = {"mixed", "many", "one", "empty", "floats"};

static size_t count_of(enum form form, size_t i)
{
    static const size_t counts[] = {17, 1, 0, 1023, 5, 130};
    if (form == ONE)
        return 4099;
    return form == MANY ? i * 37 % 300 : counts[i % 6] + (i % 6 == 2 ? 0 : i / 6);
}

static trib_dtype dtype_of(enum form form, size_t i)
{
    static const trib_dtype floats[] = {TRIB_BF16, TRIB_F32, TRIB_F64, TRIB_F16};
    if (form == FLOATS)
        return floats[i % 4];
    return form == MIXED ? (trib_dtype)(i % 10 + 1) : TRIB_F32;
}

static size_t length_of(enum form form, int size)
{
    static const size_t lengths[FORMS] = {23, 200, 1, 0, 27};
    return form == MANY && size > 8 ? 30 : lengths[form];
}

/* Where everything lies. Aligned to the element, and to no more on every other tensor. */
static void plan(struct list *list, enum form form)
{
    size_t offset = 0;
    list->n = length_of(form, list->size);
    for (size_t i = 0; i < list->n; i++) {
        const size_t element = trib_dtype_size(dtype_of(form, i));
        list->dtypes[i] = dtype_of(form, i);
        list->counts[i] = count_of(form, i);
        offset = (offset + 15) / 16 * 16 + i % 2 * element;
        list->offsets[i] = offset;
        offset += list->counts[i] * element + GAP;
    }
    list->bytes = offset;
}

static void describe_tensors(const struct list *list, trib_tensor *tensors)
{
    for (size_t i = 0; i < list->n; i++)
        tensors[i] = (trib_tensor){
            list->counts[i] == 0 ? NULL : guarded_data(&list->tensors, list->offsets[i]),
            list->counts[i], list->dtypes[i], 0};
}

static bool finish(struct list *list, const char *what)
{
    return guarded_pull(&list->tensors, list->stream) &&
           guarded_pull(&list->scalars, list->stream) &&
           CHECK_OK(trib_stream_wait(list->suite->team.devices[list->rank], list->stream)) &&
           CHECK_MSG(list->bytes <= list->tensors.capacity, "%s: too long for its buffer", what);
}

static bool compare(struct list *list, const char *what)
{
    return backend_compare(list->suite, list->rank, &list->tensors, &list->scalars, what);
}

/* The call, with a description that is gone when it returns. */
static bool call(struct list *list, trib_op op, int root)
{
    trib_tensor *tensors = calloc(list->n + 1, sizeof *tensors);
    if (tensors == NULL)
        abort();
    describe_tensors(list, tensors);
    const bool good =
        op == REFERENCE_MOVED
            ? CHECK_OK(trib_broadcast_list(list->comm, tensors, list->n, root, list->stream))
            : CHECK_OK(trib_allreduce_list(list->comm, tensors, list->n, op, list->stream));
    memset(tensors, 0xff, list->n * sizeof *tensors);
    free(tensors);
    return good;
}

/* Of tensor `i`. */
static struct reference inputs_of(const struct list *list, trib_op op, size_t i)
{
    return (struct reference){
        .dtype = list->dtypes[i], .op = op, .size = list->size, .seed = list->seed + i};
}

static void expect(struct list *list, trib_op op, int root)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct reference inputs = inputs_of(list, op, i);
        void *image = guarded_image(&list->tensors, list->offsets[i]);
        if (op == REFERENCE_MOVED)
            reference_input(image, &inputs, root, 0, list->counts[i]);
        else
            reference_reduced(image, &inputs, 0, list->counts[i]);
    }
}

/* As in collectives.c: an average that NCCL cannot make exactly only has to be close. */
static void accept_close(struct list *list, trib_op op)
{
    if (op != TRIB_AVG || strcmp(list->suite->team.backend, "nccl") != 0 ||
        (list->size & (list->size - 1)) == 0)
        return;
    for (size_t i = 0; i < list->n; i++) {
        void *image = guarded_image(&list->tensors, list->offsets[i]);
        const void *found = guarded_found(&list->tensors, list->offsets[i]);
        if (list->dtypes[i] <= TRIB_F64 &&
            reference_close(found, image, list->dtypes[i], list->counts[i], list->size))
            memcpy(image, found, list->counts[i] * trib_dtype_size(list->dtypes[i]));
    }
}

static bool try_list(struct list *list, enum form form, trib_op op, int root)
{
    char what[96];
    (void)snprintf(what, sizeof what, "%s list, %s, root %d, rank %d", form_names[form],
                   op == REFERENCE_MOVED ? "broadcast" : trib_op_name(op), root, list->rank);
    list->seed += 1000;
    plan(list, form);
    guarded_reset(&list->tensors, list->bytes, 0);
    guarded_reset(&list->scalars, 8, 0);
    for (size_t i = 0; i < list->n; i++) {
        const struct reference inputs = inputs_of(list, op, i);
        reference_input(guarded_image(&list->tensors, list->offsets[i]), &inputs, list->rank, 0,
                        list->counts[i]);
    }
    if (!guarded_push(&list->tensors, list->stream) ||
        !guarded_push(&list->scalars, list->stream) || !call(list, op, root) || !finish(list, what))
        return false;
    expect(list, op, root);
    accept_close(list, op);
    return compare(list, what);
}

/* --------------------------------------------------------------------------- weighted average */

enum weights { UNEVEN, ONE_ONLY, HALVES, NONE, NEGATIVE, NOT_A_NUMBER, INFINITE, WEIGHTS };
static const char *const weight_names[WEIGHTS] = {"uneven",   "one only", "halves",  "none",
                                                  "negative", "NaN",      "infinite"};

static float weight_of(enum weights weights, int rank, int size)
{
    static const float uneven[] = {2, 0, 1, 3, 0, 1, 0, 1};
    const bool last = rank == size - 1;
    switch (weights) {
    case UNEVEN:
        return rank < 8 ? uneven[rank] : 0;
    case ONE_ONLY:
        return last ? 3 : 0;
    case HALVES:
        return 0.5f;
    case NONE:
        return 0;
    case NEGATIVE:
        return last ? -1.0f : 2.0f;
    case NOT_A_NUMBER:
        return last ? NAN : 1.0f;
    default:
        return last ? INFINITY : 1.0f;
    }
}

static float total_of(enum weights weights, int size)
{
    float total = 0;
    for (int rank = 0; rank < size; rank++)
        total += weight_of(weights, rank, size);
    return total;
}

/* Multiples of twice the total, so that the average is an integer and exact in every type; those
 * of a rank without weight are poison or NaN, which must not spread. */
static double weighted_input(float weight, float total, int rank, size_t i)
{
    const double unit = total > 0 && total < 1000 ? 2 * total : 1;
    const int reach = total > 8 ? 1 : 3;
    if (weight == 0)
        return i % 2 == 0 ? NAN : 999;
    return unit * ((int)(i * 7 + (size_t)rank * 5) % (2 * reach + 1) - reach);
}

static double weighted_answer(const float *weights, float total, int size, size_t i)
{
    double sum = 0;
    for (int rank = 0; rank < size; rank++)
        if (weights[rank] != 0)
            sum += weights[rank] * weighted_input(weights[rank], total, rank, i);
    return sum / total;
}

static void store_weighted(void *dst, trib_dtype dtype, size_t index, double value)
{
    static const uint16_t half_nan = 0x7e00, bfloat_nan = 0x7fc0;
    if (!isnan(value) || dtype == TRIB_F32 || dtype == TRIB_F64)
        reference_store(dst, dtype, index, value);
    else
        memcpy((char *)dst + 2 * index, dtype == TRIB_F16 ? &half_nan : &bfloat_nan, 2);
}

static void fill_weighted(struct list *list, enum weights weights, bool answer)
{
    float all[TEAM_MAX];
    const float total = total_of(weights, list->size);
    for (int rank = 0; rank < list->size; rank++)
        all[rank] = weight_of(weights, rank, list->size);
    for (size_t t = 0; t < list->n; t++)
        for (size_t i = 0; i < list->counts[t]; i++)
            store_weighted(guarded_image(&list->tensors, list->offsets[t]), list->dtypes[t], i,
                           answer ? weighted_answer(all, total, list->size, i)
                                  : weighted_input(all[list->rank], total, list->rank, i));
}

static bool call_weighted(struct list *list, enum weights weights, bool on_device)
{
    trib_tensor tensors[TENSORS_MAX];
    describe_tensors(list, tensors);
    const float weight = weight_of(weights, list->rank, list->size);
    return CHECK_OK(trib_weighted_average(list->comm, tensors, list->n, on_device ? -7.0f : weight,
                                          on_device ? guarded_data(&list->scalars, 0) : NULL,
                                          guarded_data(&list->scalars, 4), list->stream));
}

static void check_total(struct list *list, enum weights weights, bool written, const char *what)
{
    float found;
    const float total = total_of(weights, list->size);
    memcpy(&found, guarded_found(&list->scalars, 4), sizeof found);
    if (written || weights == NONE)
        CHECK_MSG(found == total, "%s: the total is %g, not %g", what, found, total);
    else
        CHECK_MSG(isnan(found), "%s: the total is %g, not NaN", what, found);
    memcpy(guarded_image(&list->scalars, 4), &found, sizeof found);
}

static bool try_weights(struct list *list, enum form form, enum weights weights, bool on_device)
{
    char what[96];
    const bool written = weights < NONE;
    const float weight = weight_of(weights, list->rank, list->size);
    trib_counters before = TRIB_COUNTERS_INIT, after = TRIB_COUNTERS_INIT;
    (void)snprintf(what, sizeof what, "weights %s on the %s, %s, rank %d", weight_names[weights],
                   on_device ? "device" : "host", form_names[form], list->rank);
    plan(list, form);
    guarded_reset(&list->tensors, list->bytes, 0);
    guarded_reset(&list->scalars, 8, 0);
    memcpy(guarded_image(&list->scalars, 0), &weight, sizeof weight);
    fill_weighted(list, weights, false);
    if (!CHECK_OK(trib_comm_counters(&before, list->comm)) ||
        !guarded_push(&list->tensors, list->stream) ||
        !guarded_push(&list->scalars, list->stream) || !call_weighted(list, weights, on_device) ||
        !finish(list, what))
        return false;
    if (written)
        fill_weighted(list, weights, true);
    check_total(list, weights, written, what);
    CHECK_OK(trib_comm_counters(&after, list->comm));
    CHECK_MSG(after.lists_queued == before.lists_queued + 1 &&
                  after.lists_committed == before.lists_committed + written &&
                  after.lists_refused == before.lists_refused + (weights > NONE),
              "%s: %d lists queued, %d committed, %d refused", what,
              (int)(after.lists_queued - before.lists_queued),
              (int)(after.lists_committed - before.lists_committed),
              (int)(after.lists_refused - before.lists_refused));
    return compare(list, what);
}

/* --------------------------------------------------------------------------------------- walk */

struct round {
    struct suite *suite;
    enum form form;
};

static bool every_list(struct list *list, enum form form)
{
    bool good = true;
    for (trib_op op = TRIB_SUM; op <= TRIB_AVG && good; op++)
        good = try_list(list, form, op, -1);
    for (int root = 0; root < list->size && good; root++)
        if (backend_root(list->suite, root, (int)form))
            good = try_list(list, form, REFERENCE_MOVED, root);
    return good;
}

static bool every_weight(struct list *list)
{
    bool good = true;
    for (int weights = 0; weights < WEIGHTS && good; weights++)
        for (int on_device = 0; on_device < 2 && good; on_device++)
            good = try_weights(list, FLOATS, (enum weights)weights, on_device != 0);
    return good && try_weights(list, ONE, UNEVEN, false) && try_weights(list, EMPTY, UNEVEN, true);
}

static void list_rank(int rank, int size, void *argument)
{
    const struct round *round = argument;
    struct list *list = calloc(1, sizeof *list);
    if (list == NULL)
        abort();
    list->suite = round->suite;
    list->rank = rank;
    list->size = size;
    list->comm = round->suite->team.comms[rank];
    list->stream = round->suite->team.streams[rank];
    list->seed = round->suite->seed;
    plan(list, round->form == FLOATS ? ONE : round->form);
    size_t capacity = list->bytes;
    plan(list, round->form);
    capacity = list->bytes > capacity ? list->bytes : capacity;
    bool good = guarded_create(&list->tensors, round->suite->team.devices[rank], capacity);
    good = guarded_create(&list->scalars, round->suite->team.devices[rank], 8) && good;
    good = good && every_list(list, round->form);
    if (round->form == FLOATS)
        good = good && every_weight(list);
    backend_go_on(round->suite, rank, good);
    guarded_destroy(&list->tensors);
    guarded_destroy(&list->scalars);
    free(list);
}

void backend_lists(struct suite *suite)
{
    for (int form = 0; form < FORMS; form++) {
        struct round round = {suite, (enum form)form};
        check_begin("%s, %d ranks by %s: %s lists%s", suite->team.backend, suite->team.size,
                    suite->how, form_names[form], form == FLOATS ? " and weighted averages" : "");
        check_ranks(suite->team.size, list_rank, &round);
        suite->seed += 100000;
        check_end();
    }
}
