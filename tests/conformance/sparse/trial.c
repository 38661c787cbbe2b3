/* A trial: one sparse state on every rank, called step after step, judged after each. */
#define _POSIX_C_SOURCE 200809L
#include "tests/conformance/sparse/sparse.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/reference.h"

struct sparse_barrier {
    pthread_barrier_t threads;
};

static trib_dtype dtype_of(const struct sparse_plan *plan)
{
    return plan->dtype == 0 ? TRIB_F32 : plan->dtype;
}

static trib_dtype acc_of(const struct sparse_plan *plan)
{
    return dtype_of(plan) == TRIB_F64 ? TRIB_F64 : TRIB_F32;
}

static void *need(size_t n, size_t size)
{
    void *memory = calloc(n + 1, size);
    if (memory == NULL)
        abort();
    return memory;
}

uint64_t sparse_hash(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        seed = (seed ^ byte[i]) * 0x100000001b3u;
    return seed ^ seed >> 29;
}

trib_dtype sparse_result_dtype(const struct sparse_plan *plan)
{
    return plan->flags & TRIB_SPARSE_F32_RESULT ? TRIB_F32 : dtype_of(plan);
}

bool sparse_in_place(const struct sparse_plan *plan)
{
    return (plan->flags & TRIB_SPARSE_IN_PLACE) != 0 && plan->momentum == 0;
}

trib_sparse_options sparse_options(const struct sparse_plan *plan)
{
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    options.flags = plan->flags | TRIB_SPARSE_USE_K;
    options.algorithm = plan->algorithm;
    options.k = plan->k;
    options.decay = plan->decay;
    options.momentum = plan->momentum;
    options.clip_norm = plan->clip;
    options.wire = plan->wire;
    options.chunk = plan->chunk;
    options.constants = plan->constants;
    options.hosts = plan->hosts;
    return options;
}

const char *sparse_describe(const struct sparse_plan *plan, int size, char *text, size_t bytes)
{
    enum { LISTED = 12 }; /* hosts of ranks */
    const uint32_t flags = plan->flags;
    char hosts[8 * LISTED] = "";
    for (int rank = 0; plan->hosts != NULL && rank < size && rank < LISTED; rank++)
        snprintf(hosts + strlen(hosts), sizeof hosts - strlen(hosts), "%s%d", rank == 0 ? "" : " ",
                 (int)plan->hosts[rank]);
    snprintf(text, bytes, "%s%s%s, %d ranks%s%s%s, k %llu of %zu %s, %s%s%s%s%s%s%s%s%s%s%s",
             plan->algorithm, plan->constants != NULL ? " " : "",
             plan->constants != NULL ? plan->constants : "", size,
             plan->hosts != NULL ? " on hosts " : "", plan->hosts != NULL ? hosts : "",
             size > LISTED && plan->hosts != NULL ? "..." : "", (unsigned long long)plan->k,
             plan->count, trib_dtype_name(dtype_of(plan)), sparse_input_name(plan->input),
             flags & TRIB_SPARSE_IN_PLACE ? ", in place" : "",
             flags & TRIB_SPARSE_ENTRIES ? ", entries" : "",
             flags & TRIB_SPARSE_AVERAGE ? ", average" : "",
             flags & TRIB_SPARSE_F32_RESULT ? ", f32 result" : "",
             plan->wire == TRIB_BF16 ? ", wire bf16" : "",
             plan->decay != 0 && plan->decay != 1 ? ", decay" : "",
             plan->momentum != 0 ? ", momentum" : "",
             flags & TRIB_SPARSE_NO_MASKING ? ", no masking" : "",
             plan->clip != 0 ? ", clipped" : "", plan->turn ? ", turned" : "");
    return text;
}

/* An export begins with a head of so many bytes (csrc/sparse/snapshot.c), then comes the
 * residual. */
enum { EXPORT_HEAD = 128 };

bool sparse_residual(trib_sparse *state, size_t count, trib_dtype acc, trib_stream stream,
                     char *snapshot, double *out)
{
    const uint64_t bytes = trib_sparse_export_bytes(state);
    if (!CHECK(bytes >= EXPORT_HEAD + count * trib_dtype_size(acc)) ||
        !CHECK_OK(trib_sparse_export(state, snapshot, (size_t)bytes, stream)))
        return false;
    for (size_t i = 0; i < count; i++)
        out[i] = reference_load(snapshot + EXPORT_HEAD, acc, i);
    return true;
}

/* It is the last part, padded to 16 bytes. */
void sparse_velocity(const trib_sparse *state, size_t count, trib_dtype acc, const char *snapshot,
                     double *out)
{
    const size_t bytes = (count * trib_dtype_size(acc) + 15) / 16 * 16;
    const char *data = snapshot + trib_sparse_export_bytes(state) - bytes;
    for (size_t i = 0; i < count; i++)
        out[i] = reference_load(data, acc, i);
}

/* A rank that failed alone would leave the others waiting. */
static void give_up(struct sparse_trial *trial, int rank)
{
    trib_abort *handle = NULL;
    atomic_store(&trial->stop, true);
    if (trib_comm_abort_handle(&handle, trial->ranks[rank].comm) == TRIB_OK)
        trib_abort_raise(handle, "a test failed on one rank");
    trib_abort_release(handle);
}

/* ------------------------------------------------------------------------- opening and closing */

static bool make_room(struct sparse_trial *trial, struct sparse_rank *self)
{
    const struct sparse_plan *plan = &trial->plan;
    const size_t size = trib_dtype_size(dtype_of(plan)), room = (plan->count + 16) * 8,
                 result = trib_dtype_size(sparse_result_dtype(plan));
    self->held = need(plan->count, sizeof(double));
    self->velocity = need(plan->count, sizeof(double));
    self->pushed = need(plan->count, sizeof(double));
    self->left = need(plan->count, sizeof(double));
    self->acc = need(plan->count, sizeof(double));
    self->residual = need(plan->count, sizeof(double));
    self->applied = need(plan->count, sizeof(double));
    self->listed = need(plan->count, 1);
    return guarded_create(&self->gradient, self->device, plan->count * size + room) &&
           guarded_create(&self->result, self->device, plan->count * result + room) &&
           guarded_create(&self->index, self->device, plan->count * 4 + room) &&
           guarded_create(&self->count, self->device, 64);
}

static void open_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    struct sparse_rank *self = &trial->ranks[rank];
    const trib_sparse_options options = sparse_options(&trial->plan);
    uint64_t bytes = 0;
    (void)size;
    self->comm = trial->team->comms[rank];
    self->device = trial->team->devices[rank];
    self->stream = trial->team->streams[rank];
    self->after = (trib_sparse_statistics)TRIB_SPARSE_STATISTICS_INIT;
    if (!make_room(trial, self) ||
        !CHECK_OK(trib_sparse_bytes(&bytes, self->comm, trial->plan.count, dtype_of(&trial->plan),
                                    &options)) ||
        !CHECK_OK(trib_sparse_create(&self->state, self->comm, trial->plan.count,
                                     dtype_of(&trial->plan), &options)))
        give_up(trial, rank);
    else
        self->snapshot = need((size_t)trib_sparse_export_bytes(self->state), 1);
}

bool sparse_trial_open(struct sparse_trial *trial, struct team *team,
                       const struct sparse_plan *plan)
{
    struct sparse_reference *reference = &trial->reference;
    memset(trial, 0, sizeof *trial);
    trial->plan = *plan;
    trial->team = team;
    *reference =
        (struct sparse_reference){.algorithm = plan->algorithm,
                                  .constants = plan->constants,
                                  .size = team->size,
                                  .count = plan->count,
                                  .k = plan->k < plan->count ? plan->k : plan->count,
                                  .acc_dtype = acc_of(plan),
                                  .wire = plan->wire == 0 ? acc_of(plan) : plan->wire,
                                  .narrow = plan->wire == TRIB_BF16 && !sparse_in_place(plan) &&
                                            (plan->flags & TRIB_SPARSE_ENTRIES) == 0,
                                  .chunk = plan->chunk == 0 ? 4096 : plan->chunk,
                                  .hosts = plan->hosts};
    sparse_reference_create(reference);
    trial->barrier = need(1, sizeof *trial->barrier);
    pthread_barrier_init(&trial->barrier->threads, NULL, team->apart ? 1 : (unsigned)team->size);
    team_ranks(team, open_rank, trial);
    for (int rank = 0; rank < team->size; rank++)
        reference->acc[rank] = trial->ranks[rank].acc;
    return !atomic_load(&trial->stop);
}

static void close_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    struct sparse_rank *self = &trial->ranks[rank];
    (void)size;
    CHECK_OK(trib_sparse_destroy(self->state));
    guarded_destroy(&self->gradient);
    guarded_destroy(&self->result);
    guarded_destroy(&self->index);
    guarded_destroy(&self->count);
    free(self->held);
    free(self->velocity);
    free(self->pushed);
    free(self->left);
    free(self->acc);
    free(self->residual);
    free(self->applied);
    free(self->listed);
    free(self->snapshot);
}

void sparse_trial_close(struct sparse_trial *trial)
{
    team_ranks(trial->team, close_rank, trial);
    sparse_reference_destroy(&trial->reference);
    pthread_barrier_destroy(&trial->barrier->threads);
    free(trial->barrier);
}

/* -------------------------------------------------------------------------------------- steps */

/* By what the gradient in self->pushed is multiplied. */
static double clipping(const struct sparse_trial *trial, const struct sparse_rank *self)
{
    const struct sparse_plan *plan = &trial->plan;
    const double limit = plan->clip / sqrt(trial->team->size);
    double squares = 0; /* exact: of small multiples of a power of two */
    for (size_t i = 0; i < plan->count; i++)
        squares += self->pushed[i] * self->pushed[i];
    if (!isfinite(squares))
        return NAN;
    return plan->clip == 0 || sqrt(squares) <= limit
               ? 1
               : sparse_round(limit / sqrt(squares), acc_of(plan));
}

/* With momentum the gradient in self->pushed becomes the new velocity. In place the caller has
 * added it, to what the call before has multiplied by the momentum. */
static void push(const struct sparse_trial *trial, struct sparse_rank *self)
{
    const struct sparse_plan *plan = &trial->plan;
    const trib_dtype acc = acc_of(plan);
    const bool in_place = plan->flags & TRIB_SPARSE_IN_PLACE;
    const double momentum = in_place ? 1 : sparse_round(plan->momentum, acc);
    const double factor = plan->momentum == 0 || in_place ? 1 : clipping(trial, self);
    for (size_t i = 0; i < plan->count && plan->momentum != 0; i++)
        self->pushed[i] = sparse_round(sparse_round(factor * self->pushed[i], acc) +
                                           sparse_round(momentum * self->velocity[i], acc),
                                       acc);
}

/* The gradient, and what acc becomes by it. */
static void prepare(struct sparse_trial *trial, int rank, struct sparse_rank *self)
{
    const struct sparse_plan *plan = &trial->plan;
    const trib_dtype dtype = dtype_of(plan), acc = acc_of(plan);
    const size_t size = trib_dtype_size(dtype), shift = plan->shift * size % 16;
    const bool in_place = sparse_in_place(plan), kept = plan->flags & TRIB_SPARSE_IN_PLACE;
    const double decay = plan->decay == 0 || in_place ? 1 : sparse_round(plan->decay, acc);
    const int from = (rank + plan->turn) % trial->team->size;
    guarded_reset(&self->gradient, plan->count * size, shift);
    guarded_reset(&self->result, plan->count * trib_dtype_size(sparse_result_dtype(plan)),
                  plan->shift * trib_dtype_size(sparse_result_dtype(plan)) % 16);
    guarded_reset(&self->index, plan->count * 4, plan->shift * 4 % 16);
    guarded_reset(&self->count, 4, 0);
    for (size_t i = 0; i < plan->count; i++) {
        self->pushed[i] = sparse_input(plan->input, plan->seed, trial->step, from,
                                       trial->team->size, i, plan->count);
        reference_store(guarded_image(&self->gradient, 0), dtype, i, self->pushed[i]);
    }
    push(trial, self);
    for (size_t i = 0; i < plan->count; i++) {
        self->acc[i] =
            in_place && self->held[i] == 0 /* the caller's -0 stays one */
                ? self->pushed[i]
                : sparse_round(self->pushed[i] + sparse_round(decay * self->held[i], acc), acc);
        if (kept)
            reference_store(guarded_image(&self->gradient, 0), dtype, i,
                            in_place ? self->acc[i] : self->pushed[i]);
    }
}

/* The list, made dense: `listed` and `applied`. */
static bool unpack(struct sparse_trial *trial, struct sparse_rank *self)
{
    const uint64_t capacity = trib_sparse_capacity(self->state);
    uint32_t n, before = 0, index;
    bool good = true;
    memcpy(&n, guarded_found(&self->count, 0), sizeof n);
    memset(self->listed, 0, trial->plan.count);
    memset(self->applied, 0, trial->plan.count * sizeof(double));
    if (!CHECK_MSG(n <= capacity && n <= trial->plan.count, "%u entries, capacity %llu", n,
                   (unsigned long long)capacity))
        return false;
    for (uint32_t i = 0; i < n && good; i++) {
        memcpy(&index, guarded_found(&self->index, i * sizeof index), sizeof index);
        good = CHECK_MSG(index < trial->plan.count && (i == 0 || index > before),
                         "entry %u has index %u after %u", i, index, before);
        if (good) {
            self->listed[index] = 1;
            self->applied[index] = reference_load(guarded_found(&self->result, 0),
                                                  sparse_result_dtype(&trial->plan), i);
        }
        before = index;
    }
    return good;
}

/* What the call may have written is what it may: nothing outside of the result. */
static void accept(struct guarded *buffer, size_t bytes)
{
    memcpy(guarded_image(buffer, 0), guarded_found(buffer, 0), bytes);
}

static bool bring_back(struct sparse_trial *trial, struct sparse_rank *self)
{
    const struct sparse_plan *plan = &trial->plan;
    const trib_dtype dtype = dtype_of(plan), result = sparse_result_dtype(plan);
    const size_t bytes = plan->count * trib_dtype_size(dtype);
    const bool in_place = sparse_in_place(plan), kept = plan->flags & TRIB_SPARSE_IN_PLACE;
    accept(&self->result, plan->count * trib_dtype_size(result));
    accept(&self->index, plan->flags & TRIB_SPARSE_ENTRIES ? plan->count * 4 : 0);
    accept(&self->count, plan->flags & TRIB_SPARSE_ENTRIES ? 4 : 0);
    if (kept)
        accept(&self->gradient, bytes);
    bool good = guarded_same(&self->gradient, __FILE__, __LINE__, "the gradient") &
                guarded_same(&self->result, __FILE__, __LINE__, "the result") &
                guarded_same(&self->index, __FILE__, __LINE__, "the indices") &
                guarded_same(&self->count, __FILE__, __LINE__, "the count");
    for (size_t i = 0; i < plan->count; i++) {
        self->applied[i] = reference_load(guarded_found(&self->result, 0), result, i);
        self->residual[i] =
            in_place ? reference_load(guarded_found(&self->gradient, 0), dtype, i) : 0;
        self->left[i] = kept && plan->momentum != 0
                            ? reference_load(guarded_found(&self->gradient, 0), dtype, i)
                            : 0;
    }
    if (plan->flags & TRIB_SPARSE_ENTRIES)
        good &= unpack(trial, self);
    if (!in_place)
        good &= sparse_residual(self->state, plan->count, acc_of(plan), self->stream,
                                self->snapshot, self->residual);
    if (!kept && plan->momentum != 0)
        sparse_velocity(self->state, plan->count, acc_of(plan), self->snapshot, self->left);
    self->residual_hash = sparse_hash(1, self->residual, plan->count * sizeof *self->residual);
    self->residual_hash =
        sparse_hash(self->residual_hash, self->left, plan->count * sizeof *self->left);
    return good;
}

static bool call(struct sparse_trial *trial, struct sparse_rank *self)
{
    trib_sparse *state = self->state;
    void *gradient = guarded_data(&self->gradient, 0), *result = guarded_data(&self->result, 0);
    if (trial->plan.flags & TRIB_SPARSE_ENTRIES)
        return CHECK_OK(trib_sparse_allreduce_entries(state, gradient,
                                                      guarded_data(&self->index, 0), result,
                                                      guarded_data(&self->count, 0), self->stream));
    return CHECK_OK(trib_sparse_allreduce(state, gradient, result, self->stream));
}

static bool one_step(struct sparse_trial *trial, int rank)
{
    struct sparse_rank *self = &trial->ranks[rank];
    trib_device *device = self->device;
    const uint32_t *outcome = trib_sparse_outcome(self->state);
    prepare(trial, rank, self);
    self->before = self->after;
    if (!(guarded_push(&self->gradient, self->stream) &&
          guarded_push(&self->result, self->stream) && guarded_push(&self->index, self->stream) &&
          guarded_push(&self->count, self->stream) && call(trial, self) &&
          guarded_pull(&self->gradient, self->stream) &&
          guarded_pull(&self->result, self->stream) && guarded_pull(&self->index, self->stream) &&
          guarded_pull(&self->count, self->stream) &&
          CHECK_OK(trib_device_copy(device, &self->outcome, outcome, sizeof self->outcome,
                                    self->stream)) &&
          CHECK_OK(trib_stream_wait(device, self->stream)) &&
          CHECK_OK(trib_comm_status(self->comm))))
        return false;
    self->status = trib_sparse_status(self->state);
    self->says_overflow = strstr(trib_last_detail(), "does not hold all of the result") != NULL;
    return CHECK_OK(trib_sparse_statistics_get(&self->after, self->state)) &&
           bring_back(trial, self);
}

/* Between steps: what are residual and velocity now? */
static void keep(struct sparse_trial *trial, struct sparse_rank *self)
{
    /* In place, the caller takes out what he should not have added. */
    if (trial->poisoned)
        return;
    memcpy(self->held, self->residual, trial->plan.count * sizeof *self->held);
    memcpy(self->velocity, self->left, trial->plan.count * sizeof *self->velocity);
}

static void step_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    (void)size;
    for (int i = 0; i < trial->todo; i++) {
        if (!one_step(trial, rank))
            give_up(trial, rank);
        pthread_barrier_wait(&trial->barrier->threads);
        if ((rank == 0 || trial->team->apart) && !atomic_load(&trial->stop)) {
            if (!sparse_judge(trial))
                atomic_store(&trial->stop, true);
            trial->step++;
        }
        pthread_barrier_wait(&trial->barrier->threads);
        if (atomic_load(&trial->stop))
            return;
        keep(trial, &trial->ranks[rank]);
    }
}

bool sparse_trial_steps(struct sparse_trial *trial, int steps)
{
    if (atomic_load(&trial->stop))
        return false;
    trial->todo = steps;
    team_ranks(trial->team, step_rank, trial);
    return !atomic_load(&trial->stop);
}

/* ------------------------------------------------------------------------------ between steps */

static void set_k_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    (void)size;
    if (!CHECK_OK(trib_sparse_set_k(trial->ranks[rank].state, trial->plan.k)))
        give_up(trial, rank);
}

bool sparse_trial_set_k(struct sparse_trial *trial, uint64_t k)
{
    if (atomic_load(&trial->stop))
        return false;
    trial->plan.k = k;
    team_ranks(trial->team, set_k_rank, trial);
    sparse_reference_set_k(&trial->reference, k);
    return !atomic_load(&trial->stop);
}

static void reset_rank(int rank, int size, void *argument)
{
    struct sparse_trial *trial = argument;
    struct sparse_rank *self = &trial->ranks[rank];
    (void)size;
    if (!CHECK_OK(trib_sparse_reset(self->state, self->stream)))
        give_up(trial, rank);
    memset(self->held, 0, trial->plan.count * sizeof *self->held);
    memset(self->velocity, 0, trial->plan.count * sizeof *self->velocity);
}

bool sparse_trial_reset(struct sparse_trial *trial)
{
    if (atomic_load(&trial->stop))
        return false;
    team_ranks(trial->team, reset_rank, trial);
    sparse_reference_reset(&trial->reference);
    return !atomic_load(&trial->stop);
}

bool sparse_same_bytes(const struct team *team, const struct sparse_seen *trace,
                       const struct sparse_seen *twin, int steps, const char *other)
{
    for (int step = 0; step < steps; step++)
        for (int rank = 0; rank < team->size; rank++)
            if (team_has(team, rank) &&
                !CHECK_MSG(trace[step].hash[rank] == twin[step].hash[rank],
                           "step %d, rank %d: other bytes than %s", step, rank, other))
                return false;
    return true;
}

void sparse_same_words(const struct team *team, const struct sparse_seen *trace,
                       const struct sparse_seen *twin, int steps)
{
    for (int step = 0; step < steps; step++)
        for (int rank = 0; rank < team->size; rank++)
            if (team_has(team, rank))
                CHECK_MSG(trace[step].words[rank] == twin[step].words[rank],
                          "step %d, rank %d: %llu words, not %llu", step, rank,
                          (unsigned long long)trace[step].words[rank],
                          (unsigned long long)twin[step].words[rank]);
}

bool sparse_trial(struct team *team, const struct sparse_plan *plan, int steps,
                  struct sparse_seen *trace)
{
    struct sparse_trial *trial = need(1, sizeof *trial);
    bool good = sparse_trial_open(trial, team, plan) && sparse_trial_steps(trial, steps);
    if (trace != NULL)
        memcpy(trace, trial->trace, (size_t)steps * sizeof *trace);
    sparse_trial_close(trial);
    free(trial);
    return good;
}
