/* Reducers: a step writes every gradient of a rank, or none, and so it changes residuals. After each
 * step the gradients and an export are what they were after that step of the run without a fault;
 * or, if the step was not applied, what they were before it. */
#include <stdlib.h>
#include <string.h>

#include "tests/injection/programs.h"

enum { GRADIENTS = 3, N = 60, STEPS = 3, EXPORT = 4096, BUCKET = 2 * N * (int)sizeof(float) };

struct variant {
    uint32_t flags;
    bool sparse;
};

struct view {
    float data[GRADIENTS][N];
    size_t bytes;
    char exported[EXPORT]; /* of sparse gradients */
};

static struct view expected[RANKS_MAX][STEPS]; /* of the run without a fault */

struct reducing {
    struct rank *rank;
    const struct variant *variant;
    trib_reducer *reducer;
    float *gradients[GRADIENTS];
};

static bool create(struct reducing *reducing)
{
    struct rank *rank = reducing->rank;
    trib_tensor tensors[GRADIENTS];
    trib_sparse_options sparse = TRIB_SPARSE_OPTIONS_INIT;
    trib_reducer_options options = TRIB_REDUCER_OPTIONS_INIT;
    sparse.algorithm = "topka";
    sparse.density = 0.2;
    sparse.momentum = 0.5;
    options.flags = reducing->variant->flags | TRIB_REDUCER_SUM;
    options.bucket_bytes = options.first_bytes = BUCKET;
    options.sparse = reducing->variant->sparse ? &sparse : NULL;
    for (int i = 0; i < GRADIENTS; i++) {
        reducing->gradients[i] = rank->data[i];
        tensors[i] = (trib_tensor){rank->data[i], N, TRIB_F32, 0};
    }
    const bool good = WENT_TOGETHER(
        rank, trib_reducer_create(&reducing->reducer, rank->comm, tensors, GRADIENTS, &options));
    CHECK(good == (reducing->reducer != NULL));
    return good;
}

/* Views move when the order is learnt. */
static void find_views(struct reducing *reducing)
{
    for (size_t i = 0; (reducing->variant->flags & TRIB_REDUCER_VIEWS) != 0 && i < GRADIENTS; i++) {
        void *view = NULL;
        CHECK_OK(trib_reducer_view(&view, reducing->reducer, i));
        reducing->gradients[i] = view;
    }
}

static void put(struct reducing *reducing, int step, float given[GRADIENTS][N])
{
    for (int i = 0; i < GRADIENTS; i++)
        for (int e = 0; e < N; e++)
            reducing->gradients[i][e] = given[i][e] =
                (float)((reducing->rank->rank * 5 + step * 3 + i * 7 + e * e) % 16 + 1);
}

/* Without faults, after all that is queued. */
static void look(struct reducing *reducing, struct view *view)
{
    struct rank *rank = reducing->rank;
    injection_leave();
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    find_views(reducing);
    for (int i = 0; i < GRADIENTS; i++)
        memcpy(view->data[i], reducing->gradients[i], sizeof view->data[i]);
    view->bytes = (size_t)trib_reducer_export_bytes(reducing->reducer);
    if (view->bytes > sizeof view->exported)
        abort();
    if (reducing->variant->sparse)
        CHECK_OK(trib_reducer_export(reducing->reducer, view->exported, view->bytes));
    injection_enter(rank->rank, rank->handle);
}

static bool same_export(const struct view *a, const struct view *b)
{
    return a->bytes == b->bytes && memcmp(a->exported, b->exported, a->bytes) == 0;
}

/* The step's word cannot be set. */
static bool is_blind(bool good)
{
    return !good && (strcmp(where(), "device.copy") == 0 || strcmp(where(), "malloc") == 0);
}

/* Without faults, for all that the step has queued: a finish that fails may not make the stream wait
 * for it. */
static void await(struct reducing *reducing, bool good)
{
    struct rank *rank = reducing->rank;
    injection_leave();
    if (!good)
        CHECK_OK(trib_reducer_wait(reducing->reducer, TRIB_NO_TIMEOUT));
    CHECK_OK(trib_stream_wait(rank->device, rank->stream));
    injection_enter(rank->rank, rank->handle);
}

static void judge(struct reducing *reducing, int step, bool good, float given[GRADIENTS][N])
{
    if (is_blind(good))
        return;
    const struct view *clean = &expected[reducing->rank->rank][step];
    const uint32_t applied = *trib_reducer_outcome(reducing->reducer);
    struct view now;
    look(reducing, &now);
    CHECK_MSG(applied <= 1 && (applied == 1 || !good), "%s: step %d: the outcome is %u", where(),
              step, applied);
    /* What an end that fails has written nothing takes back. */
    const bool wrote =
        !good && (strcmp(where(), "kernels.unpack") == 0 || strcmp(where(), "kernels.forget") == 0);
    CHECK_MSG(wrote || memcmp(now.data, applied ? clean->data : (const void *)given,
                              sizeof now.data) == 0,
              "%s: step %d, outcome %u: torn, or wrong", where(), step, applied);
    if (reducing->variant->sparse && (applied || step > 0))
        CHECK_MSG(same_export(&now, applied ? clean : clean - 1),
                  "%s: step %d, outcome %u: other residuals", where(), step, applied);
}

static bool run_step(struct reducing *reducing, int step)
{
    struct rank *rank = reducing->rank;
    float given[GRADIENTS][N];
    put(reducing, step, given);
    for (size_t i = GRADIENTS; i-- > 0;)
        CHECK_OK(trib_reducer_ready(reducing->reducer, i, rank->stream));
    const bool good = WENT(rank, trib_reducer_finish(reducing->reducer, rank->stream)) &&
                      settled(rank) && WENT(rank, trib_reducer_status(reducing->reducer));
    if (rank->trial->clean)
        look(reducing, &expected[rank->rank][step]);
    await(reducing, good);
    judge(reducing, step, good, given);
    return good;
}

static void steps(struct rank *rank)
{
    struct reducing reducing = {.rank = rank, .variant = rank->trial->program->argument};
    if (!create(&reducing))
        return;
    find_views(&reducing);
    for (int step = 0; step < STEPS && run_step(&reducing, step); step++)
        ;
    (void)WENT(rank, trib_reducer_destroy(reducing.reducer));
}

static const struct variant copies = {0, false},
                            twins = {TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS, false},
                            sparse = {0, true},
                            sparse_twins = {TRIB_REDUCER_VIEWS | TRIB_REDUCER_TWINS, true};

/* (Without memory to learn an order it stays, and nobody hears of it but the log: not walked.) */
const struct program programs_reducer[] = {
    {.name = "reducer", .run = steps, .argument = &copies},
    {.name = "reducer of views", .run = steps, .argument = &twins},
    {.name = "reducer, sparse", .run = steps, .argument = &sparse},
    {.name = "reducer of views, sparse", .run = steps, .argument = &sparse_twins},
    {.name = NULL},
};
