/* The steps of pull: see kernels/pull.h for their order and why it is right. */
#include "kernels/cpu/pull_steps.h"

#include <string.h>

#include "kernels/cpu/kernels_cpu.h"

/* ------------------------------------------------------------------------------------- addresses */

static int peer_of(const struct tri_pull_worker *w)
{
    return (w->self->rank + w->at) % w->job->size;
}

/* What this worker tells that rank, and what its twin there tells here. */
static struct tri_pull_post *own_post(const struct tri_pull_worker *w)
{
    return &w->job->control[peer_of(w)]->posts[w->index][w->self->rank];
}

static struct tri_pull_post *twins_post(const struct tri_pull_worker *w)
{
    return &w->job->control[w->self->rank]->posts[w->index][peer_of(w)];
}

static size_t size_of(const struct tri_pull_worker *w)
{
    return trib_dtype_size(w->job->dtype);
}

static size_t bytes_of_unit(const struct tri_pull_worker *w)
{
    const size_t left = (w->end - w->first) * size_of(w);
    return left < TRI_PULL_UNIT ? left : TRI_PULL_UNIT;
}

static size_t piece_of(const struct tri_pull_worker *w)
{
    return tri_pull_piece(w->job, (uint32_t)w->workers);
}

/* The first element of the round's piece. */
static size_t piece_at(const struct tri_pull_worker *w)
{
    return (w->index + w->round * w->workers) * piece_of(w);
}

/* Where the unit of that block of send is in a rank's half of scratch. */
static char *staged_at(const struct tri_pull_worker *w, int rank, int block)
{
    const size_t half = tri_pull_half(w->job->scratch_bytes, (uint32_t)w->workers);
    return (char *)w->job->scratch[rank] + (2 * w->index + w->round % 2) * half +
           ((size_t)block * piece_of(w) + w->first - piece_at(w)) * size_of(w);
}

/* ---------------------------------------------------------------------------------- the elements */

static int goals_of(const struct tri_pull_worker *w)
{
    return w->staged ? 1 : tri_pull_goals(w->job);
}

/* The one of which the rank's result is made. */
static int own_block(const struct tri_pull_worker *w)
{
    return tri_pull_scatters(w->job->kind) ? w->self->rank : 0;
}

/* Where the unit of that block is in the send that begins there. */
static const char *sent_at(const struct tri_pull_worker *w, const char *send, int block)
{
    return send + ((size_t)block * w->job->count + w->first) * size_of(w);
}

/* The rank whose unit is next. Of a copy the last one is this. */
static int source_of(const struct tri_pull_worker *w)
{
    if (w->job->kind == TRI_PULL_BROADCAST)
        return w->job->root;
    return tri_pull_copies(w->job->kind) ? (w->self->rank + 1 + w->copied) % w->job->size : w->at;
}

/* Where the unit is to be in the recv that begins there. */
static char *place_of(const struct tri_pull_worker *w, char *recv)
{
    const size_t block = tri_pull_gathers(w->job->kind) ? (size_t)source_of(w) : 0;
    return recv + (block * w->job->count + w->first) * size_of(w);
}

/* Is the part of this rank in its place already? Of a copy. */
static bool is_in_place(const struct tri_pull_worker *w)
{
    const size_t block = tri_pull_gathers(w->job->kind) ? (size_t)w->self->rank : 0;
    return (const char *)w->self->send ==
           (const char *)w->self->recv + block * w->job->count * size_of(w);
}

/* Ranks whose parts are copied. */
static int sources_of(const struct tri_pull_worker *w)
{
    if (w->job->kind == TRI_PULL_BROADCAST)
        return w->self->rank != w->job->root || !is_in_place(w);
    return w->job->size - is_in_place(w);
}

/* To a phase that goes over peers. */
static void turn_to(struct tri_pull_worker *w, enum tri_pull_phase phase)
{
    w->phase = phase;
    w->at = 1;
}

static void come(struct tri_pull_worker *w)
{
    w->turn++;
    w->next = w->turn;
    turn_to(w, TRI_PULL_TO_COME);
}

/* Does this rank's send count? */
static bool sends(const struct tri_pull_worker *w)
{
    return w->job->kind != TRI_PULL_BROADCAST || w->self->rank == w->job->root;
}

/* The elements of a block that this worker makes in the round. Staged they are its piece; otherwise it has each
 * `workers`-th unit, from the first on. */
static void find_elements(struct tri_pull_worker *w)
{
    const size_t unit = tri_pull_unit_elements(w->job->dtype), count = w->job->count;
    const size_t each = tri_pull_each(w->job) * unit;
    size_t first = 0, end = count;
    if (w->staged) {
        first = piece_at(w);
        end = first + piece_of(w) < count ? first + piece_of(w) : count;
    } else if (goals_of(w) > 1) {
        first = (size_t)w->self->rank * each;
        end = first + each < count ? first + each : count;
    }
    w->first = first + (w->staged ? 0 : w->index * unit);
    w->end = end;
}

/* To the elements of the round. False if it has none. */
static bool begin_elements(struct tri_pull_worker *w)
{
    find_elements(w);
    w->phase = TRI_PULL_TO_FOLD;
    w->at = 0;
    return w->first < w->end && (!tri_pull_copies(w->job->kind) || w->copied < sources_of(w));
}

/* To the piece of the round that begins. False if there is none. */
static bool begin_piece(struct tri_pull_worker *w)
{
    find_elements(w);
    w->phase = TRI_PULL_TO_STAGE;
    w->at = 0;
    if (w->first < w->end && !sends(w))
        come(w);
    return w->first < w->end;
}

/* To the elements of the round that begins, or the last barrier. */
static void begin_round(struct tri_pull_worker *w)
{
    w->copied = 0;
    if (w->staged ? begin_piece(w) : w->round == 0 && begin_elements(w))
        return;
    w->ended = true;
    come(w);
}

/* Behind its last element. */
static void end_round(struct tri_pull_worker *w)
{
    w->round++;
    begin_round(w);
}

/* To the next unit of the round; false behind the last. */
static bool next_unit(struct tri_pull_worker *w)
{
    const size_t step = w->staged ? 1 : w->workers;
    w->at = 0;
    w->first += step * tri_pull_unit_elements(w->job->dtype);
    return w->first < w->end;
}

/* A unit of block `copied` is in scratch. */
static void staged_it(struct tri_pull_worker *w)
{
    w->phase = TRI_PULL_TO_STAGE;
    if (next_unit(w))
        return;
    find_elements(w);
    if (++w->copied < tri_pull_blocks_sent(w->job->kind, w->job->size))
        return;
    w->copied = 0;
    come(w);
}

/* All ranks' parts of the unit become the result, in place of the first. */
static void reduce_unit(struct tri_pull_worker *w)
{
    const struct tri_pull *job = w->job;
    const void *src[TRI_PULL_RANKS];
    void *dst = w->part[0];
    for (int r = 0; r < job->size; r++)
        src[r] = w->part[r];
    const struct tri_reduction reduction = {src, (size_t)job->size, job->dtype, job->op, NULL};
    (void)tri_cpu_reduce(&dst, 1, &reduction, bytes_of_unit(w) / size_of(w), NULL);
    memset(w->part[1], 0, sizeof w->part - sizeof w->part[0]);
}

/* The unit of one rank has come. */
static void loaded(struct tri_pull_worker *w)
{
    const bool copies = tri_pull_copies(w->job->kind);
    if (!copies && ++w->at < w->job->size)
        return;
    if (!copies)
        reduce_unit(w);
    w->phase = TRI_PULL_TO_STORE;
    w->at = 0;
}

static void stored(struct tri_pull_worker *w)
{
    if (++w->at < goals_of(w))
        return;
    memset(w->part, 0, sizeof w->part);
    w->phase = TRI_PULL_TO_FOLD;
    if (next_unit(w))
        return;
    w->copied++;
    if (!tri_pull_copies(w->job->kind) || !begin_elements(w))
        end_round(w);
}

/* ---------------------------------------------------------------------------------- the barriers */

static bool has_come(uint64_t state, uint64_t turn)
{
    return (state & ~TRI_PULL_LEFT) / TRI_PULL_TURN >= turn;
}

/* Next peer of the phase; false if there was none left. */
static bool next_peer(struct tri_pull_worker *w, enum tri_pull_phase again)
{
    w->phase = again;
    return ++w->at < w->job->size;
}

/* Own pointers as the peer has them, if peers map them. */
static uint64_t pointer(const struct tri_pull_worker *w, const void *data, const ptrdiff_t *shift)
{
    return w->self->mapped ? (uint64_t)(uintptr_t)data + (uint64_t)shift[peer_of(w)] : 0;
}

static void found_pointers(struct tri_pull_worker *w)
{
    w->send[w->self->rank] = w->self->mapped ? w->self->send : NULL;
    w->recv[w->self->rank] = w->self->recv;
    for (int r = 0; r < w->job->size; r++)
        w->staged = w->staged || w->send[r] == NULL;
    begin_round(w);
}

/* The twin's state is `found`: have its buffers been taken? */
static bool took(struct tri_pull_worker *w, uint64_t found)
{
    if (found == w->expected) {
        w->phase = TRI_PULL_TO_FIND_SEND;
        return true;
    }
    if ((found & TRI_PULL_LEFT) != 0) {
        tri_pull_give_up(w);
        return true;
    }
    if (has_come(found, w->turn)) /* it waits at the next barrier already */
        w->expected = found;
    return has_come(found, w->turn);
}

/* Or has it come, to a later barrier? */
static bool awaited(struct tri_pull_worker *w, uint64_t found)
{
    const bool came = has_come(found, w->turn);
    if (!came && (found & TRI_PULL_LEFT) == 0)
        return false;
    if (!came) {
        tri_pull_give_up(w);
    } else if (!next_peer(w, TRI_PULL_TO_AWAIT)) {
        if (w->ended)
            w->phase = TRI_PULL_TO_COUNT;
        else if (!begin_elements(w))
            end_round(w);
    }
    return true;
}

/* A twin that had taken our buffers has come to the next barrier, or left. */
static bool parted(struct tri_pull_worker *w, uint64_t found)
{
    if (!has_come(found, w->next) && (found & TRI_PULL_LEFT) == 0)
        return false;
    if (!next_peer(w, TRI_PULL_TO_LEAVE))
        w->phase = TRI_PULL_AT_END;
    return true;
}

/* ------------------------------------------------------------------------------------- the steps */

void tri_pull_begin(struct tri_pull_worker *worker, const struct tri_pull *job,
                    const struct tri_pull_rank *self, size_t index, size_t workers)
{
    memset(worker, 0, sizeof *worker);
    worker->job = job;
    worker->self = self;
    worker->index = index;
    worker->workers = workers;
    worker->phase = TRI_PULL_TO_BEGIN;
}

bool tri_pull_waits(const struct tri_pull_worker *worker)
{
    return worker->phase == TRI_PULL_TO_TAKE || worker->phase == TRI_PULL_TO_AWAIT;
}

void tri_pull_give_up(struct tri_pull_worker *worker)
{
    worker->left = true;
    turn_to(worker, TRI_PULL_TO_LEAVE);
}

static struct tri_pull_access word(enum tri_pull_act act, void *at, uint64_t value)
{
    return (struct tri_pull_access){.act = act, .at = at, .value = value};
}

static struct tri_pull_access unit(struct tri_pull_worker *w, enum tri_pull_act act, const void *at,
                                   int part)
{
    return (struct tri_pull_access){
        .act = act, .at = (void *)(uintptr_t)at, .data = w->part[part], .bytes = bytes_of_unit(w)};
}

struct tri_pull_access tri_pull_next(struct tri_pull_worker *worker)
{
    struct tri_pull_worker *const w = worker;
    const int self = w->self->rank;
    uint64_t *const turn = &w->job->control[self]->turn[w->index];
    switch ((enum tri_pull_phase)w->phase) {
    case TRI_PULL_TO_BEGIN:
        return word(TRI_PULL_READ, turn, 0);
    case TRI_PULL_TO_SEND:
        return word(TRI_PULL_WRITE, &own_post(w)->send,
                    pointer(w, w->self->send, w->job->send_shift));
    case TRI_PULL_TO_RECV:
        return word(TRI_PULL_WRITE, &own_post(w)->recv,
                    pointer(w, w->self->recv, w->job->recv_shift));
    case TRI_PULL_TO_TELL:
        return word(TRI_PULL_RELEASE, &own_post(w)->state, w->turn * TRI_PULL_TURN);
    case TRI_PULL_TO_TAKE: {
        struct tri_pull_access swap =
            word(TRI_PULL_SWAP, &twins_post(w)->state, w->expected | TRI_PULL_TAKEN);
        swap.expected = w->expected;
        return swap;
    }
    case TRI_PULL_TO_FIND_SEND:
        return word(TRI_PULL_READ, &twins_post(w)->send, 0);
    case TRI_PULL_TO_FIND_RECV:
        return word(TRI_PULL_READ, &twins_post(w)->recv, 0);
    case TRI_PULL_TO_STAGE:
        return unit(w, TRI_PULL_LOAD, sent_at(w, w->self->send, w->copied), self);
    case TRI_PULL_TO_STAGE_IT:
        return unit(w, TRI_PULL_STORE, staged_at(w, self, w->copied), self);
    case TRI_PULL_TO_FOLD: {
        const int from = source_of(w), block = own_block(w);
        return unit(w, TRI_PULL_LOAD,
                    w->staged ? staged_at(w, from, block) : sent_at(w, w->send[from], block),
                    w->at);
    }
    case TRI_PULL_TO_STORE:
        return unit(w, TRI_PULL_STORE, place_of(w, w->recv[peer_of(w)]), 0);
    case TRI_PULL_TO_COME:
        return word(TRI_PULL_ADD, &own_post(w)->state, TRI_PULL_TURN);
    case TRI_PULL_TO_AWAIT:
    case TRI_PULL_TO_PART:
        return word(TRI_PULL_READ, &twins_post(w)->state, 0);
    case TRI_PULL_TO_COUNT:
        return word(TRI_PULL_WRITE, turn, w->turn);
    case TRI_PULL_TO_LEAVE:
        return word(TRI_PULL_OR, &own_post(w)->state, TRI_PULL_LEFT);
    case TRI_PULL_AT_END:
        break;
    }
    return word(TRI_PULL_END, NULL, 0);
}

bool tri_pull_performed(struct tri_pull_worker *worker, uint64_t found)
{
    struct tri_pull_worker *const w = worker;
    switch ((enum tri_pull_phase)w->phase) {
    case TRI_PULL_TO_BEGIN:
        w->turn = found + 1;
        w->next = w->turn + 1;
        w->expected = w->turn * TRI_PULL_TURN;
        turn_to(w, TRI_PULL_TO_SEND);
        break;
    case TRI_PULL_TO_SEND:
        w->phase = TRI_PULL_TO_RECV;
        break;
    case TRI_PULL_TO_RECV:
        w->phase = TRI_PULL_TO_TELL;
        break;
    case TRI_PULL_TO_TELL:
        if (!next_peer(w, TRI_PULL_TO_SEND))
            turn_to(w, TRI_PULL_TO_TAKE);
        break;
    case TRI_PULL_TO_TAKE:
        return took(w, found);
    case TRI_PULL_TO_FIND_SEND:
        w->send[peer_of(w)] = (const char *)(uintptr_t)found; /* NOLINT */
        w->phase = TRI_PULL_TO_FIND_RECV;
        break;
    case TRI_PULL_TO_FIND_RECV:
        w->recv[peer_of(w)] = (char *)(uintptr_t)found; /* NOLINT */
        w->expected = w->turn * TRI_PULL_TURN;
        if (!next_peer(w, TRI_PULL_TO_TAKE))
            found_pointers(w);
        break;
    case TRI_PULL_TO_STAGE:
        w->phase = TRI_PULL_TO_STAGE_IT;
        break;
    case TRI_PULL_TO_STAGE_IT:
        memset(w->part, 0, sizeof w->part);
        staged_it(w);
        break;
    case TRI_PULL_TO_FOLD:
        loaded(w);
        break;
    case TRI_PULL_TO_STORE:
        stored(w);
        break;
    case TRI_PULL_TO_COME:
        if (!next_peer(w, TRI_PULL_TO_COME))
            turn_to(w, TRI_PULL_TO_AWAIT);
        break;
    case TRI_PULL_TO_AWAIT:
        return awaited(w, found);
    case TRI_PULL_TO_COUNT:
        w->phase = TRI_PULL_AT_END;
        break;
    case TRI_PULL_TO_LEAVE:
        w->phase = TRI_PULL_TO_PART;
        return (found & TRI_PULL_TAKEN) != 0 || parted(w, TRI_PULL_LEFT);
    case TRI_PULL_TO_PART:
        return parted(w, found);
    case TRI_PULL_AT_END:
        break;
    }
    return true;
}
