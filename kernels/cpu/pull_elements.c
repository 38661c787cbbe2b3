#include "kernels/cpu/pull_elements.h"

/* ----------------------------------------------------------------------------------------- of a call */

int tri_pull_worker_peer(const struct tri_pull_worker *w, int distance)
{
    return (w->self->rank + distance) % w->job->size;
}

static size_t size_of(const struct tri_pull_worker *w)
{
    return trib_dtype_size(w->job->dtype);
}

static bool is_two_shot(const struct tri_pull_worker *w)
{
    return tri_pull_is_two_shot(w->job);
}

size_t tri_pull_unit_bytes(const struct tri_pull_worker *w)
{
    const size_t left = (w->end - w->first) * size_of(w);
    return left < TRI_PULL_UNIT ? left : TRI_PULL_UNIT;
}

/* Does this rank's send count? */
static bool sends(const struct tri_pull_worker *w)
{
    return w->job->kind != TRI_PULL_BROADCAST || w->self->rank == w->job->root;
}

/* Is the part of this rank in its place already? Of a copy. */
static bool is_in_place(const struct tri_pull_worker *w)
{
    const size_t block = tri_pull_gathers(w->job->kind) ? (size_t)w->self->rank : 0;
    return (const char *)w->self->send ==
           (const char *)w->self->recv + block * w->job->count * size_of(w);
}

int tri_pull_sources(const struct tri_pull_worker *w)
{
    if (w->job->kind == TRI_PULL_BROADCAST)
        return w->self->rank != w->job->root || !is_in_place(w);
    return w->job->size - is_in_place(w);
}

int tri_pull_goals(const struct tri_pull_worker *w)
{
    return is_two_shot(w) ? w->job->size : 1;
}

int tri_pull_parts(const struct tri_pull_worker *w)
{
    if (is_two_shot(w))
        return w->job->size - 1;
    return sends(w) ? tri_pull_blocks_sent(w->job->kind, w->job->size) : 0;
}

int tri_pull_results(const struct tri_pull_worker *w)
{
    return w->staged && is_two_shot(w) && w->round > 0 ? w->job->size - 1 : 0;
}

/* ------------------------------------------------------------------------------------------ elements */

static size_t piece_of(const struct tri_pull_worker *w)
{
    return tri_pull_piece(w->job, (uint32_t)w->workers, w->staged);
}

/* Elements that are divided into pieces: of all, or of a rank. */
static size_t divided(const struct tri_pull_worker *w)
{
    const size_t room = tri_pull_room(w->job, (uint32_t)w->workers, w->staged);
    return is_two_shot(w) ? tri_pull_units(w->job, room) * tri_pull_unit_elements(w->job->dtype)
                          : w->job->count;
}

/* The first of the worker's piece of that round. */
static size_t piece_at(const struct tri_pull_worker *w, size_t round)
{
    return (w->index + round * w->workers) * piece_of(w);
}

bool tri_pull_has_round(const struct tri_pull_worker *w)
{
    return piece_at(w, w->round) < divided(w);
}

/* Those of the piece of `rank`. */
static bool find_piece(struct tri_pull_worker *w, int rank, size_t round)
{
    const size_t at = piece_at(w, round), before = (size_t)rank * divided(w);
    const size_t last = at + piece_of(w) < divided(w) ? at + piece_of(w) : divided(w);
    w->slot = before + at;
    w->first = w->slot;
    w->end = before + last < w->job->count ? before + last : w->job->count;
    return w->first < w->end;
}

bool tri_pull_find(struct tri_pull_worker *w)
{
    if (w->staged || is_two_shot(w))
        return find_piece(w, is_two_shot(w) ? w->self->rank : 0, w->round);
    w->first = w->index * tri_pull_unit_elements(w->job->dtype);
    w->end = w->job->count;
    return w->first < w->end;
}

/* The peer of part or result `copied`, in two shots. */
static int other(const struct tri_pull_worker *w)
{
    return tri_pull_worker_peer(w, w->copied + 1);
}

bool tri_pull_find_part(struct tri_pull_worker *w)
{
    return is_two_shot(w) ? find_piece(w, other(w), w->round) : tri_pull_find(w);
}

bool tri_pull_find_result(struct tri_pull_worker *w)
{
    return find_piece(w, other(w), w->round - 1);
}

/* ----------------------------------------------------------------------------------------- addresses */

/* Where the unit is in slot `slot` that this worker's twin has on a rank. */
static char *slot_at(const struct tri_pull_worker *w, int rank, size_t slot, size_t round)
{
    const size_t half = tri_pull_half(w->job->scratch_bytes, (uint32_t)w->workers);
    return (char *)w->job->scratch[rank] + (2 * w->index + round % 2) * half +
           (slot * piece_of(w) + w->first - w->slot) * size_of(w);
}

/* In two shots: the slot that `rank` has for what `peer` stores there. */
static size_t slot_of(const struct tri_pull_worker *w, int rank, int peer, bool result)
{
    return (size_t)(peer < rank ? peer : peer - 1) + (result ? (size_t)w->job->size - 1 : 0);
}

/* Where the unit of that block is in the send that begins there. */
static const char *sent_at(const struct tri_pull_worker *w, const char *send, int block)
{
    return send + ((size_t)block * w->job->count + w->first) * size_of(w);
}

const char *tri_pull_part_from(const struct tri_pull_worker *w)
{
    return sent_at(w, w->self->send, is_two_shot(w) ? 0 : w->copied);
}

char *tri_pull_part_to(const struct tri_pull_worker *w)
{
    const int self = w->self->rank;
    if (is_two_shot(w))
        return slot_at(w, other(w), slot_of(w, other(w), self, false), w->round);
    return slot_at(w, self, (size_t)w->copied, w->round);
}

/* The rank whose unit is next. Of a copy the last one is this. */
static int source_of(const struct tri_pull_worker *w)
{
    if (w->job->kind == TRI_PULL_BROADCAST)
        return w->job->root;
    return tri_pull_copies(w->job->kind) ? tri_pull_worker_peer(w, 1 + w->copied) : w->at;
}

/* The block of send of which the rank's result is made. */
static int own_block(const struct tri_pull_worker *w)
{
    return tri_pull_scatters(w->job->kind) ? w->self->rank : 0;
}

const char *tri_pull_folded(const struct tri_pull_worker *w)
{
    const int from = source_of(w), self = w->self->rank;
    if (is_two_shot(w) && from != self)
        return slot_at(w, self, slot_of(w, self, from, false), w->round);
    if (is_two_shot(w))
        return sent_at(w, w->self->send, 0);
    return w->staged ? slot_at(w, from, (size_t)own_block(w), w->round)
                     : sent_at(w, w->send[from], own_block(w));
}

/* Where the unit is to be in the recv that begins there. */
static char *place_of(const struct tri_pull_worker *w, char *recv)
{
    const size_t block = tri_pull_gathers(w->job->kind) ? (size_t)source_of(w) : 0;
    return recv + (block * w->job->count + w->first) * size_of(w);
}

char *tri_pull_result_to(const struct tri_pull_worker *w, int rank)
{
    const int self = w->self->rank;
    if (w->staged && rank != self)
        return slot_at(w, rank, slot_of(w, rank, self, true), w->round);
    return place_of(w, w->recv[rank]);
}

const char *tri_pull_result_from(const struct tri_pull_worker *w)
{
    const int self = w->self->rank;
    return slot_at(w, self, slot_of(w, self, other(w), true), w->round - 1);
}
