/* The ranks of one communicator that live in this process: who they are, how long they live. */
#include "csrc/nccl/clique.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/nccl/convert.h"
#include "csrc/nccl/device.h"
#include "csrc/nccl/leave.h"
#include "csrc/nccl/quiesce.h"
#include "csrc/nccl/shared.h"
#include "csrc/nccl/word.h"

/* Guards the list of cliques that ranks may still join, and the letting go of references: so a rank
 * that finds a clique in the list finds it alive. Held for a look through the list, never during a
 * call of CUDA or NCCL. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct tri_nccl_clique *joinable;
static uint64_t serials;

/* A clique without ranks, known to nobody. The abort word goes with the state's last reference: a
 * kernel queued before the communicator went may still read it, and must find there what was true for
 * its communicator; the workspace that it uses keeps a reference until it has ended. */
static trib_status create(struct tri_nccl_clique **out, int32_t device, uint64_t deadline_ns)
{
    struct tri_nccl_clique *clique = calloc(1, sizeof *clique);
    void *word = NULL;
    if (clique == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for a communicator");
    tri_nccl_watch_exit(-1);
    trib_status status = tri_nccl_reaper_hold();
    if (status == TRIB_OK) {
        status = tri_nccl_word_create(&word, device, deadline_ns);
        if (status != TRIB_OK)
            tri_nccl_reaper_let_go();
    }
    if (status != TRIB_OK) {
        free(clique);
        return status;
    }
    clique->state = tri_abort_create(word, tri_nccl_on_abort, clique);
    if (clique->state == NULL || pthread_mutex_init(&clique->lock, NULL) != 0) {
        tri_abort_release(clique->state);
        tri_nccl_free_shared(word);
        tri_nccl_reaper_let_go();
        free(clique);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for an abort state");
    }
    tri_abort_set_poll(clique->state, tri_nccl_on_poll);
    tri_abort_own_word(clique->state, tri_nccl_free_shared);
    clique->word = word;
    *out = clique;
    return TRIB_OK;
}

/* One that no rank has joined. */
static void discard(struct tri_nccl_clique *clique)
{
    tri_abort_release(clique->state);
    pthread_mutex_destroy(&clique->lock);
    tri_nccl_reaper_let_go();
    free(clique);
}

/* The clique of `key`; NULL if there is none. The registry is locked. */
static struct tri_nccl_clique *find(const struct tri_nccl_key *key)
{
    struct tri_nccl_clique *clique = joinable;
    while (clique != NULL && memcmp(&clique->key, key, sizeof *key) != 0)
        clique = clique->next;
    return clique;
}

/* A new clique gets its number, and its name if it has one. The registry is locked. */
static void enlist(struct tri_nccl_clique *clique, const struct tri_nccl_key *key)
{
    clique->serial = ++serials;
    if (key == NULL)
        return;
    clique->key = *key;
    clique->next = joinable;
    clique->listed = true;
    joinable = clique;
}

/* The registry is locked. */
static void unlist(struct tri_nccl_clique *clique)
{
    if (!clique->listed)
        return;
    struct tri_nccl_clique **at = &joinable;
    while (*at != clique)
        at = &(*at)->next;
    *at = clique->next;
    clique->listed = false;
}

/* What NCCL would answer with a hang or an unexplained error. The clique is locked. */
static trib_status compatible(const struct tri_nccl_clique *clique, int32_t rank, int32_t size,
                              int32_t device)
{
    for (const struct tri_transport *other = clique->ranks; other != NULL; other = other->next) {
        if (rank >= 0 && other->size != size)
            return tri_fail(TRIB_ERR_MISMATCH,
                            "rank %d says that there are %d ranks, rank %d of the same id says %d",
                            (int)rank, (int)size, (int)other->rank, (int)other->size);
        if (rank >= 0 && other->rank == rank)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "rank %d of this id is taken by another thread of this process; every "
                            "rank of an id joins once, and an id serves once",
                            (int)rank);
        if (other->device == device)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "rank %d cannot use device %d: rank %d of the same communicator is on "
                            "it; NCCL wants a device of its own for every rank",
                            (int)rank, (int)device, (int)other->rank);
    }
    return TRIB_OK;
}

/* The registry is locked. */
static trib_status add(struct tri_nccl_clique *clique, struct tri_transport *transport)
{
    pthread_mutex_lock(&clique->lock);
    trib_status status =
        clique->stage != TRI_NCCL_OPEN
            ? tri_abort_status(clique->state) /* another rank gave up */
            : compatible(clique, transport->rank, transport->size, transport->device);
    if (status == TRIB_OK) {
        transport->clique = clique;
        transport->next = clique->ranks;
        clique->ranks = transport;
        clique->joined++;
        tri_nccl_retain(clique);
    }
    pthread_mutex_unlock(&clique->lock);
    return status;
}

static struct tri_transport *new_transport(int32_t rank, int32_t size, int32_t device)
{
    struct tri_transport *transport = calloc(1, sizeof *transport);
    if (transport == NULL) {
        (void)tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for rank %d", (int)rank);
        return NULL;
    }
    transport->rank = rank;
    transport->size = size;
    transport->device = device;
    return transport;
}

/* At most half of the time that there is. */
static void await_errands(uint64_t deadline_ns)
{
    const uint64_t now = tri_now_ns();
    if (now < deadline_ns)
        tri_nccl_await_errands(now + (deadline_ns - now) / 2);
}

trib_status tri_nccl_join(struct tri_transport **out, const struct tri_nccl_key *key, int32_t rank,
                          int32_t size, int32_t device, uint64_t deadline_ns)
{
    *out = NULL;
    struct tri_transport *transport = new_transport(rank, size, device);
    if (transport == NULL)
        return TRIB_ERR_OUT_OF_MEMORY;
    /* Made before the registry is locked, whether it will be needed or not: destroying locks it
     * too, and must not wait. */
    struct tri_nccl_clique *made = NULL;
    await_errands(deadline_ns);
    trib_status status = create(&made, device, deadline_ns);
    if (status != TRIB_OK) {
        free(transport);
        return status;
    }
    pthread_mutex_lock(&registry);
    struct tri_nccl_clique *clique = key == NULL ? NULL : find(key);
    const bool found = clique != NULL;
    if (!found) {
        clique = made;
        enlist(clique, key);
    }
    status = add(clique, transport);
    pthread_mutex_unlock(&registry);
    if (found)
        discard(made);
    if (status == TRIB_OK)
        *out = transport;
    else
        free(transport);
    return status;
}

trib_status tri_nccl_join_same(struct tri_transport **out, struct tri_transport *first,
                               int32_t rank, int32_t device)
{
    *out = NULL;
    struct tri_transport *transport = new_transport(rank, first->size, device);
    if (transport == NULL)
        return TRIB_ERR_OUT_OF_MEMORY;
    pthread_mutex_lock(&registry);
    trib_status status = add(first->clique, transport);
    pthread_mutex_unlock(&registry);
    if (status == TRIB_OK)
        *out = transport;
    else
        free(transport);
    return status;
}

void tri_nccl_settle(struct tri_nccl_clique *clique)
{
    pthread_mutex_lock(&registry);
    unlist(clique);
    pthread_mutex_unlock(&registry);
}

void tri_nccl_publish(struct tri_transport *transport, ncclComm_t comm)
{
    pthread_mutex_lock(&transport->clique->lock);
    transport->comm = comm;
    pthread_mutex_unlock(&transport->clique->lock);
}

/* Counters for every peer. */
static trib_status equip_mail(struct tri_transport *transport)
{
    if (transport->size == 1)
        return TRIB_OK;
    struct tri_nccl_mail *mail = calloc((size_t)transport->size, sizeof *mail);
    if (mail == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no host memory for %d ranks",
                        (int)transport->size);
    pthread_mutex_lock(&transport->clique->lock);
    transport->mail = mail;
    pthread_mutex_unlock(&transport->clique->lock);
    return TRIB_OK;
}

trib_status tri_nccl_equip(struct tri_transport *transport)
{
    trib_status status = equip_mail(transport);
    if (status != TRIB_OK)
        return status;
    struct tri_nccl_scope scope;
    status = tri_nccl_enter(&scope, transport->device);
    if (status != TRIB_OK)
        return status;
    cudaError_t error = cudaStreamCreateWithFlags(&transport->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess && transport->size == 1)
        error = cudaEventCreateWithFlags(&transport->event, cudaEventDisableTiming);
    tri_nccl_leave(&scope);
    if (error != cudaSuccess)
        return tri_nccl_cuda_fail(error, "preparing a communicator", transport->device);
    tri_nccl_watch_exit(transport->device);
    return status;
}

void tri_nccl_strip(struct tri_nccl_clique *clique)
{
    struct tri_nccl_scope scope;
    for (struct tri_transport *rank = clique->ranks; rank != NULL; rank = rank->next) {
        if (tri_nccl_enter(&scope, rank->device) != TRIB_OK)
            continue;
        if (rank->stream != NULL)
            (void)cudaStreamDestroy(rank->stream);
        if (rank->event != NULL)
            (void)cudaEventDestroy(rank->event);
        tri_nccl_leave(&scope);
        rank->stream = NULL;
        rank->event = NULL;
    }
}

trib_status tri_nccl_stop(struct tri_nccl_clique *clique, trib_status status)
{
    (void)tri_abort_raise(clique->state, status, tri_detail());
    return tri_abort_status(clique->state);
}

bool tri_nccl_advance(struct tri_nccl_clique *clique, enum tri_nccl_stage from,
                      enum tri_nccl_stage to)
{
    pthread_mutex_lock(&clique->lock);
    bool good = clique->stage == from;
    if (good)
        clique->stage = to;
    pthread_mutex_unlock(&clique->lock);
    return good;
}

void tri_nccl_retain(struct tri_nccl_clique *clique)
{
    (void)atomic_fetch_add_explicit(&clique->references, 1, memory_order_relaxed);
}

static void free_clique(struct tri_nccl_clique *clique)
{
    tri_abort_release(clique->state);
    while (clique->ranks != NULL) {
        struct tri_transport *rank = clique->ranks;
        clique->ranks = rank->next;
        free(rank->mail);
        free(rank);
    }
    pthread_mutex_destroy(&clique->lock);
    tri_nccl_reaper_let_go();
    free(clique);
}

/* Give the reference back unless it is the last one (or, with `last_too`, even then). True if it
 * was the last one. */
static bool let_go(struct tri_nccl_clique *clique, bool last_too)
{
    pthread_mutex_lock(&registry);
    const bool last = atomic_load(&clique->references) == 1;
    if (last)
        unlist(clique);
    if (!last || last_too)
        (void)atomic_fetch_sub(&clique->references, 1);
    pthread_mutex_unlock(&registry);
    return last;
}

/* The last reference is kept while an abort may still be on its way: its hook is waited for, and
 * adds a reference if it calls the reaper. If it has not begun, it never will, and this does its
 * work. */
void tri_nccl_release(struct tri_nccl_clique *clique)
{
    if (!let_go(clique, false))
        return;
    tri_abort_detach(clique->state);
    tri_nccl_on_abort(clique);
    if (let_go(clique, true))
        free_clique(clique);
}
