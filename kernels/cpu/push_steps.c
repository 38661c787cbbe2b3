/* The steps of push: see kernels/push.h for their order and why it is right. */
#include "kernels/cpu/push_steps.h"

#include <string.h>

#include "kernels/cpu/kernels_cpu.h"

enum { WORD = 4 }; /* bytes of elements in a granule of either kind */

size_t tri_push_granule_bytes(trib_dtype dtype)
{
    return tri_push_is_wide(dtype) ? 2 * WORD : WORD;
}

uint64_t tri_push_empty(trib_dtype dtype)
{
    return tri_push_is_wide(dtype) ? UINT64_MAX : UINT32_MAX;
}

/* A granule of these elements, which is never EMPTY. */
static uint64_t encode(uint32_t word, trib_dtype dtype)
{
    return word == UINT32_MAX && !tri_push_is_wide(dtype) ? word >> 1 : word;
}

static int peer_of(const struct tri_push_worker *w)
{
    return (w->self->rank + w->distance) % w->job->size;
}

static bool is_two_shot(const struct tri_push_worker *w)
{
    return w->job->kind == TRI_PUSH_TWO_SHOT;
}

/* Are shares of `send` moved, which belong to whoever reduces them? */
static bool to_reduce(const struct tri_push_worker *w)
{
    return is_two_shot(w) && !w->shares;
}

/* Whose part, or share, self sends to rank `to`; and whose is moved, to a peer or from it. */
static int part_for(const struct tri_push_worker *w, int to)
{
    return to_reduce(w) ? to : w->self->rank;
}

static int whose(const struct tri_push_worker *w)
{
    if (w->act == TRI_PUSH_STORE)
        return part_for(w, peer_of(w));
    return to_reduce(w) ? w->self->rank : peer_of(w);
}

/* Chunks before the part of that rank in `send` and the result. */
static size_t before(const struct tri_push_worker *w, int rank)
{
    return is_two_shot(w) ? (size_t)rank * tri_push_each(w->job) : 0;
}

/* Chunks of a part, at most. */
static size_t most_chunks(const struct tri_push_worker *w)
{
    return is_two_shot(w) ? tri_push_each(w->job) : tri_push_chunks(w->job->count, w->job->dtype);
}

/* Bytes of elements in the worker's chunk of the part of that rank. */
static size_t bytes_of_chunk(const struct tri_push_worker *w, int rank)
{
    const size_t all = tri_push_part(w->job, rank) * trib_dtype_size(w->job->dtype);
    const size_t payload = tri_push_payload(w->job->dtype);
    const size_t at = (before(w, rank) + w->chunk) * payload;
    return at >= all ? 0 : all - at < payload ? all - at : payload;
}

/* Granules of that chunk. */
static size_t granules_of_chunk(const struct tri_push_worker *w, int rank)
{
    if (tri_push_part(w->job, rank) == 0)
        return w->chunk == 0 ? TRI_PUSH_CHUNK / tri_push_granule_bytes(w->job->dtype) : 0;
    return (bytes_of_chunk(w, rank) + WORD - 1) / WORD;
}

/* The chunk that self sends to rank `to`. */
static const unsigned char *sent_to(const struct tri_push_worker *w, int to)
{
    const struct tri_push *job = w->job;
    const size_t block = job->count * trib_dtype_size(job->dtype);
    if (w->shares)
        return w->part[w->self->rank];
    return (const unsigned char *)w->self->send +
           (tri_push_scatters(job->kind) ? (size_t)to * block : 0) +
           (before(w, part_for(w, to)) + w->chunk) * tri_push_payload(job->dtype);
}

/* Self's granule for rank `to`: zeros behind the last element. */
static uint64_t own_granule(const struct tri_push_worker *w, size_t granule, int to)
{
    const size_t bytes = bytes_of_chunk(w, part_for(w, to));
    const size_t at = granule * WORD, left = at < bytes ? bytes - at : 0;
    uint32_t word = 0;
    if (left > 0)
        memcpy(&word, sent_to(w, to) + at, left < WORD ? left : WORD);
    return encode(word, w->job->dtype);
}

static void keep(struct tri_push_worker *w, int rank, size_t granule, uint64_t value)
{
    const uint32_t word = (uint32_t)value;
    memcpy(w->part[rank] + granule * WORD, &word, sizeof word);
}

/* Where the chunk of that rank's part is in the result. */
static char *result_of(const struct tri_push_worker *w, int rank)
{
    const struct tri_push *job = w->job;
    const size_t block = tri_push_gathers(job->kind) ? (size_t)rank * job->count : 0;
    return (char *)w->self->recv + block +
           (before(w, rank) + w->chunk) * tri_push_payload(job->dtype);
}

static void reduce_chunk(struct tri_push_worker *w)
{
    const struct tri_push *job = w->job;
    const void *src[TRI_PUSH_RANKS];
    void *dst = result_of(w, w->self->rank);
    for (int r = 0; r < job->size; r++)
        src[r] = w->part[r];
    const struct tri_reduction reduction = {src, (size_t)job->size, job->dtype, job->op, NULL};
    (void)tri_cpu_reduce(&dst, 1, &reduction,
                         bytes_of_chunk(w, w->self->rank) / trib_dtype_size(job->dtype), NULL);
}

/* The reduced chunk becomes what peers will have, and stays with the worker until it is sent. */
static void keep_share(struct tri_push_worker *w)
{
    const int self = w->self->rank;
    const size_t bytes = bytes_of_chunk(w, self);
    char *const result = result_of(w, self);
    memset(w->part, 0, sizeof w->part);
    for (size_t at = 0; at < bytes; at += WORD) {
        const size_t left = bytes - at < WORD ? bytes - at : WORD;
        uint32_t word = 0;
        memcpy(&word, result + at, left);
        keep(w, self, at / WORD, encode(word, w->job->dtype));
        memcpy(result + at, w->part[self] + at, left);
    }
}

/* Of all ranks, or of the peers. */
static void copy_chunk(struct tri_push_worker *w)
{
    for (int r = 0; r < w->job->size; r++) {
        const size_t bytes = bytes_of_chunk(w, r);
        if (bytes > 0 && !(w->shares && r == w->self->rank))
            memcpy(result_of(w, r), w->part[r], bytes);
    }
}

/* The chunk of the result. */
static void finish_chunk(struct tri_push_worker *w)
{
    const int self = w->self->rank;
    for (size_t g = 0; !w->shares && g * WORD < bytes_of_chunk(w, self); g++)
        keep(w, self, g, own_granule(w, g, self));
    if (w->shares || tri_push_copies(w->job->kind))
        copy_chunk(w);
    else
        reduce_chunk(w);
    if (to_reduce(w))
        keep_share(w);
    else
        memset(w->part, 0, sizeof w->part);
}

/* Behind the chunk's last granule. Two shot, a reduced chunk is sent before the next one is read. */
static void end_chunk(struct tri_push_worker *w)
{
    const bool reads = w->act == TRI_PUSH_POLL;
    if (reads)
        finish_chunk(w);
    if (is_two_shot(w) && reads != (w->shares != 0)) {
        w->act = reads ? TRI_PUSH_STORE : TRI_PUSH_POLL;
        w->shares = reads;
        if (reads)
            return;
        memset(w->part, 0, sizeof w->part);
    }
    w->chunk += w->workers;
}

/* Behind the last chunk. */
static void end_pass(struct tri_push_worker *w)
{
    w->chunk = w->index;
    if (w->act == TRI_PUSH_STORE)
        w->act = TRI_PUSH_ARRIVE;
    else if (to_reduce(w))
        w->shares = true;
    else
        w->act = TRI_PUSH_END;
}

/* From here on in the chunk, is there a granule that is to be stored, or polled? */
static bool has_granule(struct tri_push_worker *w)
{
    for (; w->distance < w->job->size; w->distance++) {
        if (w->granule < granules_of_chunk(w, whose(w)))
            return true;
        w->granule = 0;
    }
    w->distance = 1;
    return false;
}

/* To the next granule that is to be stored, or polled; to what follows if there is none. */
static void settle(struct tri_push_worker *w)
{
    while (w->act == TRI_PUSH_STORE || w->act == TRI_PUSH_POLL) {
        if (w->chunk >= most_chunks(w))
            end_pass(w);
        else if (has_granule(w))
            return;
        else
            end_chunk(w);
    }
}

void tri_push_begin(struct tri_push_worker *worker, const struct tri_push *job,
                    const struct tri_push_rank *self, size_t index, size_t workers)
{
    memset(worker, 0, sizeof *worker);
    worker->job = job;
    worker->self = self;
    worker->index = worker->chunk = index;
    worker->workers = workers;
    worker->distance = 1;
    worker->add = 1;
    worker->act = TRI_PUSH_READ;
}

/* Has counted itself; the last one adds as much as begins the next epoch. */
static void arrived(struct tri_push_worker *w, uint32_t turn)
{
    if (w->add == 1 && turn % TRI_PUSH_EPOCH + 1 == w->workers) {
        w->add = TRI_PUSH_EPOCH - (uint32_t)w->workers;
        return;
    }
    w->act = TRI_PUSH_POLL;
    settle(w);
}

/* A granule of the slot of `from` in rank `owner`'s scratch. */
static void *granule_at(const struct tri_push_worker *w, int owner, int from)
{
    const size_t chunk = tri_push_slot(w->job, w->epoch, owner, from) + w->chunk +
                         (w->shares ? tri_push_each(w->job) : 0);
    return (char *)w->job->scratch[owner] + chunk * TRI_PUSH_CHUNK +
           w->granule * tri_push_granule_bytes(w->job->dtype);
}

struct tri_push_access tri_push_next(const struct tri_push_worker *worker)
{
    const struct tri_push_rank *self = worker->self;
    const int peer = peer_of(worker);
    struct tri_push_access access = {.act = worker->act};
    switch (worker->act) {
    case TRI_PUSH_READ:
    case TRI_PUSH_ARRIVE:
        access.at = &self->control->turn;
        access.value = worker->add;
        break;
    case TRI_PUSH_STORE:
        access.at = granule_at(worker, peer, self->rank);
        access.value = own_granule(worker, worker->granule, peer);
        break;
    case TRI_PUSH_POLL:
    case TRI_PUSH_RESTORE:
        access.at = granule_at(worker, self->rank, peer);
        access.value = tri_push_empty(worker->job->dtype);
        break;
    case TRI_PUSH_END:
        break;
    }
    return access;
}

void tri_push_performed(struct tri_push_worker *worker, uint64_t found)
{
    switch (worker->act) {
    case TRI_PUSH_READ:
        worker->epoch = (uint32_t)found / TRI_PUSH_EPOCH;
        worker->act = TRI_PUSH_STORE;
        settle(worker);
        break;
    case TRI_PUSH_ARRIVE:
        arrived(worker, (uint32_t)found);
        break;
    case TRI_PUSH_POLL:
        keep(worker, peer_of(worker), worker->granule, found);
        worker->act = TRI_PUSH_RESTORE;
        break;
    case TRI_PUSH_STORE:
    case TRI_PUSH_RESTORE:
        worker->act = worker->act == TRI_PUSH_STORE ? TRI_PUSH_STORE : TRI_PUSH_POLL;
        worker->granule++;
        settle(worker);
        break;
    case TRI_PUSH_END:
        break;
    }
}
