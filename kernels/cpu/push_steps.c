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

/* Bytes of elements in the worker's chunk. */
static size_t bytes_of_chunk(const struct tri_push_worker *w)
{
    const size_t all = w->job->count * trib_dtype_size(w->job->dtype);
    const size_t payload = tri_push_payload(w->job->dtype), at = w->chunk * payload;
    return all - at < payload ? all - at : payload;
}

/* Self's granule: elements of `send`, zeros behind the last. */
static uint64_t own_granule(const struct tri_push_worker *w, size_t granule)
{
    const size_t bytes = bytes_of_chunk(w), at = granule * WORD;
    const size_t begin = w->chunk * tri_push_payload(w->job->dtype) + at;
    uint32_t word = 0;
    memcpy(&word, (const char *)w->self->send + begin, bytes - at < WORD ? bytes - at : WORD);
    return encode(word, w->job->dtype);
}

static void keep(struct tri_push_worker *w, int rank, size_t granule, uint64_t value)
{
    const uint32_t word = (uint32_t)value;
    memcpy(w->part[rank] + granule * WORD, &word, sizeof word);
}

/* The chunk of the result. */
static void reduce_chunk(struct tri_push_worker *w)
{
    const struct tri_push *job = w->job;
    const void *src[TRI_PUSH_RANKS];
    const size_t bytes = bytes_of_chunk(w);
    void *dst = (char *)w->self->recv + w->chunk * tri_push_payload(job->dtype);
    for (size_t g = 0; g * WORD < bytes; g++)
        keep(w, w->self->rank, g, own_granule(w, g));
    for (int r = 0; r < job->size; r++)
        src[r] = w->part[r];
    const struct tri_reduction reduction = {src, (size_t)job->size, job->dtype, job->op, NULL};
    (void)tri_cpu_reduce(&dst, 1, &reduction, bytes / trib_dtype_size(job->dtype), NULL);
    memset(w->part, 0, sizeof w->part);
}

/* To the next granule and the next peer; true at the end of the chunk, which is then the next. */
static bool step(struct tri_push_worker *w)
{
    if (++w->granule * WORD < bytes_of_chunk(w))
        return false;
    w->granule = 0;
    if (++w->distance < w->job->size)
        return false;
    w->distance = 1;
    return true;
}

static bool has_chunk(const struct tri_push_worker *w)
{
    return w->chunk < tri_push_chunks(w->job->count, w->job->dtype);
}

/* To the next chunk, or to what follows all of them. */
static void next_chunk(struct tri_push_worker *w, enum tri_push_act again, enum tri_push_act then)
{
    w->chunk += w->workers;
    w->act = again;
    if (has_chunk(w))
        return;
    w->chunk = w->index;
    w->act = then;
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
    if (w->add == 1 && turn % TRI_PUSH_EPOCH + 1 == w->workers)
        w->add = TRI_PUSH_EPOCH - (uint32_t)w->workers;
    else
        w->act = has_chunk(w) ? TRI_PUSH_POLL : TRI_PUSH_END;
}

/* A granule of slot `slot` in rank `owner`'s scratch. */
static void *granule_at(const struct tri_push_worker *w, int owner, int slot)
{
    const size_t chunk = tri_push_slot(w->job, w->epoch, slot) + w->chunk;
    return (char *)w->job->scratch[owner] + chunk * TRI_PUSH_CHUNK +
           w->granule * tri_push_granule_bytes(w->job->dtype);
}

struct tri_push_access tri_push_next(const struct tri_push_worker *worker)
{
    const struct tri_push_rank *self = worker->self;
    const int peer = (self->rank + worker->distance) % worker->job->size;
    struct tri_push_access access = {.act = worker->act};
    switch (worker->act) {
    case TRI_PUSH_READ:
    case TRI_PUSH_ARRIVE:
        access.at = &self->control->turn;
        access.value = worker->add;
        break;
    case TRI_PUSH_STORE:
        access.at = granule_at(worker, peer, self->rank);
        access.value = own_granule(worker, worker->granule);
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
        worker->act = has_chunk(worker) ? TRI_PUSH_STORE : TRI_PUSH_ARRIVE;
        break;
    case TRI_PUSH_ARRIVE:
        arrived(worker, (uint32_t)found);
        break;
    case TRI_PUSH_STORE:
        if (step(worker))
            next_chunk(worker, TRI_PUSH_STORE, TRI_PUSH_ARRIVE);
        break;
    case TRI_PUSH_POLL:
        keep(worker, (worker->self->rank + worker->distance) % worker->job->size, worker->granule,
             found);
        worker->act = TRI_PUSH_RESTORE;
        break;
    case TRI_PUSH_RESTORE:
        worker->act = TRI_PUSH_POLL;
        if (step(worker)) {
            reduce_chunk(worker);
            next_chunk(worker, TRI_PUSH_POLL, TRI_PUSH_END);
        }
        break;
    case TRI_PUSH_END:
        break;
    }
}
