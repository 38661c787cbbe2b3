/* The fake's push: CUDA's kernel as its CPU twin, which runs for all ranks of a call when the last of
 * them has come. Until then their streams wait, but no thread does. */
#include "tests/nccl_fake/fake_push.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_work.h"

extern const struct tri_kernels tri_kernels_cpu;

enum { LONG = 1024 }; /* elements */

/* One rank's part. */
struct part {
    struct tri_push job; /* but for `here` */
    struct tri_push_rank here;
    int device;
    struct call *call; /* NULL: it has not begun */
};

/* The parts that have begun; it is told by its lane, the scratch of rank 0, and its epoch. */
struct call {
    struct call *next;
    uint32_t epoch;
    int came, left;
    bool done;
    const struct part *parts[TRI_PUSH_RANKS];
};

static struct call *calls;
static enum fake_pushing pushing;
static long launches, done, failing = -1; /* guarded by fake_lock, as all here */

void fake_push_as(enum fake_pushing how)
{
    pthread_mutex_lock(&fake_lock);
    pushing = how;
    pthread_mutex_unlock(&fake_lock);
}

void fake_fail_push(long n)
{
    pthread_mutex_lock(&fake_lock);
    failing = n;
    pthread_mutex_unlock(&fake_lock);
}

long fake_pushes(void)
{
    pthread_mutex_lock(&fake_lock);
    const long n = done;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static uint32_t epoch_of(const struct part *part)
{
    return part->here.control->turn / TRI_PUSH_EPOCH;
}

/* The call in which the part is to be. */
static struct call *call_of(const struct part *part)
{
    const uint32_t epoch = epoch_of(part);
    struct call **link = &calls;
    for (; *link != NULL; link = &(*link)->next) {
        const struct call *call = *link;
        const struct part *some = NULL;
        for (int rank = 0; rank < TRI_PUSH_RANKS && some == NULL; rank++)
            some = call->parts[rank];
        if (some == NULL || some->job.scratch[0] != part->job.scratch[0])
            continue;
        if (call->parts[part->here.rank] != NULL)
            fake_die("two pushes of a rank overlap");
        if (!call->done && call->epoch == epoch)
            return *link;
    }
    *link = calloc(1, sizeof **link);
    if (*link == NULL)
        fake_die("no memory for a push");
    (*link)->epoch = epoch;
    return *link;
}

static void check_part(const struct part *part, const struct tri_push *first)
{
    const struct tri_push *job = &part->job;
    if (job->size != first->size || job->count != first->count || job->dtype != first->dtype ||
        job->op != first->op || job->capacity != first->capacity || job->kind != first->kind ||
        job->root != first->root)
        fake_die("the ranks of a push make different calls");
    for (int rank = 0; rank < job->size; rank++) {
        if (job->scratch[rank] != first->scratch[rank])
            fake_die("the ranks of a push have different scratch");
        if (!fake_reaches(part->device, job->scratch[rank],
                          tri_push_scratch_bytes(job->size, job->capacity)))
            fake_die("a push uses scratch that is not mapped for its device");
    }
}

/* What rank `rank` gets of a reduce_scatter, or of an allreduce all ranks. */
static trib_status reduce(const struct tri_push *job, size_t rank)
{
    const bool scatters = job->kind == TRI_PUSH_REDUCE_SCATTER;
    const size_t block = job->count * trib_dtype_size(job->dtype);
    const void *send[TRI_PUSH_RANKS];
    void *recv[TRI_PUSH_RANKS];
    for (size_t i = 0; i < job->n; i++) {
        send[i] = (const char *)job->here[i].send + (scatters ? rank * block : 0);
        recv[i] = job->here[scatters ? rank : i].recv;
    }
    const struct tri_reduction reduction = {send, job->n, job->dtype, job->op, NULL};
    return tri_kernels_cpu.reduce(recv, scatters ? 1 : job->n, &reduction, job->count, NULL);
}

static void copy(const struct tri_push *job)
{
    for (size_t to = 0; to < job->n; to++)
        for (size_t from = 0; from < job->n; from++)
            if (tri_push_part(job, (int)from) != 0)
                memmove((char *)job->here[to].recv +
                            (job->kind == TRI_PUSH_ALLGATHER ? from * job->count : 0),
                        job->here[from].send, job->count);
}

/* The result of a long one, without its steps, which take seconds under a sanitizer. */
static trib_status perform_long(const struct tri_push *job)
{
    const size_t parts = job->kind == TRI_PUSH_REDUCE_SCATTER ? job->n : 1;
    trib_status status = TRIB_OK;
    for (size_t i = 0; i < job->n; i++)
        job->here[i].control->turn += TRI_PUSH_EPOCH;
    if (tri_push_copies(job->kind))
        copy(job);
    for (size_t i = 0; i < parts && !tri_push_copies(job->kind) && status == TRIB_OK; i++)
        status = reduce(job, i);
    return status;
}

/* All ranks are there. */
static void perform(struct call *call)
{
    struct tri_push_rank here[TRI_PUSH_RANKS];
    struct tri_push job = call->parts[0]->job;
    for (int rank = 0; rank < job.size; rank++) {
        check_part(call->parts[rank], &job);
        here[rank] = call->parts[rank]->here;
    }
    job.here = here;
    job.n = (size_t)job.size;
    if (tri_push_chunks(job.count, job.dtype) > job.capacity)
        fake_die("a push does not fit into its slots");
    if ((job.count > LONG ? perform_long(&job) : tri_kernels_cpu.push(&job, NULL)) != TRIB_OK)
        fake_die("the CPU's push fails");
    if (pushing == FAKE_PUSH_GARBLES)
        *(char *)here[job.size - 1].recv ^= 1;
    call->done = true;
    done++;
}

static void leave(struct part *part)
{
    struct call *call = part->call, **link = &calls;
    if (call == NULL)
        return;
    call->parts[part->here.rank] = NULL;
    if (++call->left < call->came)
        return;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    free(call);
}

/* CUDA's kernel looks at the flag while it waits. */
static bool is_over(const struct part *part)
{
    uint32_t over = __atomic_load_n(part->job.abort_flag, __ATOMIC_ACQUIRE);
    if (over == 0 && pushing == FAKE_PUSH_LOSES && part->job.patience_ns != 0) {
        over = TRI_PUSH_LATE;
        __atomic_store_n(part->job.abort_flag, over, __ATOMIC_RELEASE);
    }
    if (over != 0)
        part->here.control->over = over;
    return over != 0;
}

static bool step(void *argument)
{
    struct part *part = argument;
    if (part->here.control->over != 0)
        return true;
    if (part->call == NULL) {
        part->call = call_of(part);
        part->call->parts[part->here.rank] = part;
        if (++part->call->came == part->job.size && pushing != FAKE_PUSH_LOSES)
            perform(part->call);
    }
    if (!part->call->done && !is_over(part))
        return false;
    leave(part);
    return true;
}

static bool overlaps(const void *data, size_t size, const void *begin, size_t bytes)
{
    const char *const at = data, *const from = begin;
    return at < from + bytes && from < at + size;
}

static bool uses(const void *argument, const void *begin, size_t bytes)
{
    const struct part *part = argument;
    const struct tri_push *job = &part->job;
    bool found = overlaps(part->here.control, sizeof *part->here.control, begin, bytes);
    for (int rank = 0; rank < job->size; rank++)
        found = found || overlaps(job->scratch[rank],
                                  tri_push_scratch_bytes(job->size, job->capacity), begin, bytes);
    return found;
}

trib_status fake_push(const struct tri_push *job, trib_stream stream)
{
    static const struct fake_work_kind kind = {step, uses};
    const struct part part = {.job = *job, .here = job->here[0], .device = fake_current()};
    pthread_mutex_lock(&fake_lock);
    const bool fails = failing == 0;
    failing -= failing >= 0;
    launches += !fails;
    pthread_mutex_unlock(&fake_lock);
    if (job->n != 1)
        fake_die("a push of several ranks of one device");
    if (stream != NULL && fake_stream_device(stream) != part.device)
        fake_die("a push is launched on another device's stream");
    if (fails)
        return TRIB_ERR_CUDA;
    fake_submit(stream, &kind, &part, sizeof part);
    return TRIB_OK;
}

long fake_push_launches(void)
{
    pthread_mutex_lock(&fake_lock);
    const long n = launches;
    pthread_mutex_unlock(&fake_lock);
    return n;
}
