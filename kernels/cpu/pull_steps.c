/* The steps of pull: see kernels/pull.h for their order and why it is right. */
#include "kernels/cpu/pull_steps.h"

#include <string.h>

#include "kernels/cpu/kernels_cpu.h"
#include "kernels/cpu/pull_elements.h"

/* ----------------------------------------------------------------------------------------- peers */

static int peer_of(const struct tri_pull_worker *w)
{
    return tri_pull_worker_peer(w, w->at);
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

/* To a phase that goes over peers. */
static void turn_to(struct tri_pull_worker *w, enum tri_pull_phase phase)
{
    w->phase = phase;
    w->at = 1;
}

/* ------------------------------------------------------------------------------------ the elements */

static void come(struct tri_pull_worker *w)
{
    w->turn++;
    w->next = w->ended ? w->turn : w->turn + 1;
    turn_to(w, TRI_PULL_TO_COME);
}

/* In pieces, each of them a round? */
static bool in_pieces(const struct tri_pull_worker *w)
{
    return w->staged || tri_pull_is_two_shot(w->job);
}

/* To the units that have been found. */
static bool begin_units(struct tri_pull_worker *w, enum tri_pull_phase phase, bool found)
{
    w->phase = phase;
    w->at = 0;
    return found;
}

/* To what the worker stores next before the barrier of a round, or to the barrier. */
static void begin_part(struct tri_pull_worker *w)
{
    for (; w->copied < tri_pull_parts(w); w->copied++)
        if (begin_units(w, TRI_PULL_TO_STAGE, tri_pull_find_part(w)))
            return;
    w->copied = 0;
    come(w);
}

/* To the elements of the round. False if it has none. */
static bool begin_elements(struct tri_pull_worker *w)
{
    const bool some = !tri_pull_copies(w->job->kind) || w->copied < tri_pull_sources(w);
    return begin_units(w, TRI_PULL_TO_FOLD, tri_pull_find(w) && some);
}

/* To the elements of the round that begins, or the last barrier. */
static void begin_round(struct tri_pull_worker *w)
{
    w->copied = 0;
    if (in_pieces(w) && tri_pull_has_round(w)) {
        begin_part(w);
    } else if (in_pieces(w) || w->round > 0 || !begin_elements(w)) {
        w->ended = true;
        come(w);
    }
}

/* Behind its last element. */
static void end_round(struct tri_pull_worker *w)
{
    w->round++;
    begin_round(w);
}

/* Behind a barrier: to the results of the round before that are here, and then to what is next. */
static void begin_results(struct tri_pull_worker *w)
{
    for (; w->copied < tri_pull_results(w); w->copied++)
        if (begin_units(w, TRI_PULL_TO_FETCH, tri_pull_find_result(w)))
            return;
    w->copied = 0;
    if (w->ended)
        w->phase = TRI_PULL_TO_COUNT;
    else if (!begin_elements(w))
        end_round(w);
}

/* To the next unit of the round; false behind the last. */
static bool next_unit(struct tri_pull_worker *w)
{
    const size_t step = in_pieces(w) ? 1 : w->workers;
    w->at = 0;
    w->first += step * tri_pull_unit_elements(w->job->dtype);
    return w->first < w->end;
}

/* A unit of part `copied`, or of result `copied`, is where it is to be. */
static void moved(struct tri_pull_worker *w, enum tri_pull_phase again,
                  void (*begin_next)(struct tri_pull_worker *))
{
    memset(w->part, 0, sizeof w->part);
    w->phase = again;
    if (next_unit(w))
        return;
    w->copied++;
    begin_next(w);
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
    (void)tri_cpu_reduce(&dst, 1, &reduction, tri_pull_unit_bytes(w) / trib_dtype_size(job->dtype),
                         NULL);
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
    if (++w->at < tri_pull_goals(w))
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
        begin_results(w);
    }
    return true;
}

/* To the next peer that had taken our buffers, from `at` on. */
static void begin_parting(struct tri_pull_worker *w)
{
    w->phase = TRI_PULL_TO_PART;
    while (w->at < w->job->size && (w->taken >> w->at & 1) == 0)
        w->at++;
    if (w->at == w->job->size)
        w->phase = TRI_PULL_AT_END;
}

/* The peer knows that we leave; `found` is what its twin had found. All are told before any is waited for, or those
 * who leave would wait for each other in a ring. */
static void told_to_part(struct tri_pull_worker *w, uint64_t found)
{
    w->taken |= (uint32_t)(found & TRI_PULL_TAKEN) << w->at;
    if (next_peer(w, TRI_PULL_TO_LEAVE))
        return;
    w->at = 1;
    begin_parting(w);
}

/* A twin that had taken our buffers has come to the next barrier, or left. */
static bool parted(struct tri_pull_worker *w, uint64_t found)
{
    if (!has_come(found, w->next) && (found & TRI_PULL_LEFT) == 0)
        return false;
    w->at++;
    begin_parting(w);
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
    return (struct tri_pull_access){.act = act,
                                    .at = (void *)(uintptr_t)at,
                                    .data = w->part[part],
                                    .bytes = tri_pull_unit_bytes(w)};
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
        return unit(w, TRI_PULL_LOAD, tri_pull_part_from(w), self);
    case TRI_PULL_TO_STAGE_IT:
        return unit(w, TRI_PULL_STORE, tri_pull_part_to(w), self);
    case TRI_PULL_TO_FOLD:
        return unit(w, TRI_PULL_LOAD, tri_pull_folded(w), w->at);
    case TRI_PULL_TO_STORE:
        return unit(w, TRI_PULL_STORE, tri_pull_result_to(w, peer_of(w)), 0);
    case TRI_PULL_TO_FETCH:
        return unit(w, TRI_PULL_LOAD, tri_pull_result_from(w), self);
    case TRI_PULL_TO_FETCH_IT:
        return unit(w, TRI_PULL_STORE, tri_pull_result_to(w, self), self);
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
        moved(w, TRI_PULL_TO_STAGE, begin_part);
        break;
    case TRI_PULL_TO_FOLD:
        loaded(w);
        break;
    case TRI_PULL_TO_STORE:
        stored(w);
        break;
    case TRI_PULL_TO_FETCH:
        w->phase = TRI_PULL_TO_FETCH_IT;
        break;
    case TRI_PULL_TO_FETCH_IT:
        moved(w, TRI_PULL_TO_FETCH, begin_results);
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
        told_to_part(w, found);
        break;
    case TRI_PULL_TO_PART:
        return parted(w, found);
    case TRI_PULL_AT_END:
        break;
    }
    return true;
}
