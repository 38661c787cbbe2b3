/* The fake's pull: CUDA's kernel as its CPU twin, which runs for all ranks of a call when the last of them
 * has come. Until then their streams wait, but no thread does. It ends the program where the library breaks
 * what kernels/pull.h relies on. */
#include "tests/nccl_fake/fake_pull.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_work.h"

extern const struct tri_kernels tri_kernels_cpu;

enum { LONG = 300000 }; /* elements */

/* One rank's part. */
struct part {
    struct tri_pull job; /* but for `here` */
    struct tri_pull_rank here;
    int device;
    struct call *call; /* NULL: it has not begun */
};

/* The parts that have begun; it is told by its lane, the control of rank 0, and its first barrier. */
struct call {
    struct call *next;
    uint64_t turn;
    int came, left;
    bool done;
    const struct part *parts[TRI_PULL_RANKS];
};

static struct call *calls;
static enum fake_pulling pulling;
static struct fake_pulls counts;
static long failing = -1; /* guarded by fake_lock, as all here */

void fake_pull_as(enum fake_pulling how)
{
    pthread_mutex_lock(&fake_lock);
    pulling = how;
    pthread_mutex_unlock(&fake_lock);
}

void fake_fail_pull(long n)
{
    pthread_mutex_lock(&fake_lock);
    failing = n;
    pthread_mutex_unlock(&fake_lock);
}

struct fake_pulls fake_pulls(void)
{
    pthread_mutex_lock(&fake_lock);
    const struct fake_pulls now = counts;
    pthread_mutex_unlock(&fake_lock);
    return now;
}

static bool overlaps(const void *data, size_t size, const void *begin, size_t bytes)
{
    const char *const at = data, *const from = begin;
    return at < from + bytes && from < at + size;
}

static struct tri_pull_control *control_of(const struct part *part)
{
    return part->job.control[part->here.rank];
}

/* ------------------------------------------------------------------------------------- a call begins */

/* A part of it that is there yet. */
static const struct part *some_part(const struct call *call)
{
    const struct part *found = NULL;
    for (int rank = 0; rank < TRI_PULL_RANKS && found == NULL; rank++)
        found = call->parts[rank];
    return found;
}

/* Calls of two lanes may run at once. */
static void check_apart(const struct tri_pull *one, const struct tri_pull *other)
{
    for (int i = 0; i < one->size; i++)
        for (int j = 0; j < other->size; j++)
            if (overlaps(one->control[i], sizeof *one->control[i], other->control[j],
                         sizeof *other->control[j]) ||
                overlaps(one->control[i], sizeof *one->control[i], other->scratch[j],
                         other->scratch_bytes) ||
                overlaps(one->scratch[i], one->scratch_bytes, other->scratch[j],
                         other->scratch_bytes))
                fake_die("pulls that may run at once share their memory");
}

/* The call in which the part is to be. */
static struct call *call_of(const struct part *part)
{
    const uint64_t turn = control_of(part)->turn[0];
    struct call *found = NULL;
    for (struct call *call = calls; call != NULL; call = call->next) {
        const struct part *some = some_part(call);
        if (some == NULL)
            continue;
        if (some->job.control[0] != part->job.control[0])
            check_apart(&some->job, &part->job);
        else if (call->parts[part->here.rank] != NULL)
            fake_die("two pulls of a rank overlap");
        else if (!call->done && call->turn == turn)
            found = call;
    }
    if (found != NULL)
        return found;
    found = calloc(1, sizeof *found);
    if (found == NULL)
        fake_die("no memory for a pull");
    *found = (struct call){.next = calls, .turn = turn};
    calls = found;
    return found;
}

/* Blocks that wait for their twins stay where they are. */
static void check_room(int device)
{
    int blocks = 0, multiprocessors = 0;
    for (const struct call *call = calls; call != NULL; call = call->next)
        for (int rank = 0; rank < TRI_PULL_RANKS; rank++)
            if (call->parts[rank] != NULL && call->parts[rank]->device == device)
                blocks += call->parts[rank]->job.blocks;
    (void)cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (blocks > 2 * multiprocessors)
        fake_die("blocks of pulls wait for others that have no room");
}

static void begin(struct part *part)
{
    part->call = call_of(part);
    part->call->parts[part->here.rank] = part;
    part->call->came++;
    check_room(part->device);
}

/* ---------------------------------------------------------------------------- what all ranks rely on */

static void check_memory(const struct part *part)
{
    const struct tri_pull *job = &part->job;
    for (int rank = 0; rank < job->size; rank++)
        if (!fake_reaches(part->device, job->control[rank], sizeof *job->control[rank]) ||
            !fake_reaches(part->device, job->scratch[rank], job->scratch_bytes))
            fake_die("a pull uses memory that is not mapped for its device");
    for (int rank = 0; rank < job->size; rank++)
        if (overlaps(job->control[rank], sizeof *job->control[rank], job->scratch[rank],
                     job->scratch_bytes))
            fake_die("a pull has its scratch in its control");
    if (job->scratch_bytes < tri_pull_scratch_least())
        fake_die("a pull has too little scratch");
    if ((uintptr_t)job->control[0] % 256 != 0 || (uintptr_t)job->scratch[0] % 16 != 0)
        fake_die("memory of a pull is not aligned");
}

static void check_alike(const struct tri_pull *job, const struct tri_pull *first)
{
    if (job->size != first->size || job->count != first->count || job->dtype != first->dtype ||
        job->op != first->op || job->way != first->way || job->blocks != first->blocks ||
        job->scratch_bytes != first->scratch_bytes)
        fake_die("the ranks of a pull make different calls");
    for (int rank = 0; rank < job->size; rank++)
        if (job->control[rank] != first->control[rank] ||
            job->scratch[rank] != first->scratch[rank])
            fake_die("the ranks of a pull have different memory");
}

/* All ranks access what one of them says is mapped. */
static void check_mapped(const struct call *call, const struct part *part, const void *data)
{
    const struct tri_pull *job = &part->job;
    const int owner = fake_owner(data, job->count * trib_dtype_size(job->dtype));
    if (owner < 0)
        fake_die("a pull maps memory that cudaMalloc did not make");
    for (int rank = 0; rank < job->size; rank++)
        if (!fake_may_access(call->parts[rank]->device, owner))
            fake_die("a pull maps memory that a device may not access");
}

/* Are the buffers of all ranks mapped? */
static bool check_buffers(const struct call *call, int size)
{
    bool mapped = true;
    for (int rank = 0; rank < size; rank++) {
        const struct part *part = call->parts[rank];
        mapped = mapped && part->here.mapped;
        if (part->job.way == TRI_PULL_ONE_SHOT && part->here.send == part->here.recv)
            fake_die("a pull of one shot is in place");
        if (part->here.mapped) {
            check_mapped(call, part, part->here.send);
            check_mapped(call, part, part->here.recv);
        }
    }
    return mapped;
}

/* -------------------------------------------------------------------------------------- the elements */

/* The result of a long one, without its steps, which take seconds under a sanitizer. There are two barriers
 * at least. */
static trib_status perform_long(const struct tri_pull *job)
{
    const void *send[TRI_PULL_RANKS];
    void *recv[TRI_PULL_RANKS];
    for (size_t i = 0; i < job->n; i++) {
        send[i] = job->here[i].send;
        recv[i] = job->here[i].recv;
        job->control[i]->turn[0] += 2;
    }
    const struct tri_reduction reduction = {send, job->n, job->dtype, job->op, NULL};
    return tri_kernels_cpu.reduce(recv, job->n, &reduction, job->count, NULL);
}

/* All ranks are there. */
static void perform(struct call *call)
{
    struct tri_pull_rank here[TRI_PULL_RANKS];
    struct tri_pull job = call->parts[0]->job;
    for (int rank = 0; rank < job.size; rank++) {
        check_memory(call->parts[rank]);
        check_alike(&call->parts[rank]->job, &job);
        here[rank] = call->parts[rank]->here;
    }
    const bool mapped = check_buffers(call, job.size);
    job.here = here;
    job.n = (size_t)job.size;
    if ((job.count > LONG ? perform_long(&job) : tri_kernels_cpu.pull(&job, NULL)) != TRIB_OK)
        fake_die("the CPU's pull fails");
    if (pulling == FAKE_PULL_GARBLES || (pulling == FAKE_PULL_GARBLES_STAGED && !mapped))
        *(char *)here[job.size - 1].recv ^= 1;
    call->done = true;
    counts.done++;
    counts.staged += !mapped;
}

/* ------------------------------------------------------------------------------------ in a stream */

static void leave(struct part *part)
{
    struct call *call = part->call, **link = &calls;
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
    if (over == 0 && pulling == FAKE_PULL_LOSES && part->job.patience_ns != 0) {
        over = TRI_PUSH_LATE;
        __atomic_store_n(part->job.abort_flag, over, __ATOMIC_RELEASE);
    }
    if (over != 0)
        control_of(part)->over = over;
    return over != 0;
}

static bool step(void *argument)
{
    struct part *part = argument;
    if (part->call == NULL) {
        if (control_of(part)->over != 0)
            return true;
        begin(part);
        if (part->call->came == part->job.size && pulling != FAKE_PULL_LOSES)
            perform(part->call);
    }
    if (!part->call->done && !is_over(part))
        return false;
    leave(part);
    return true;
}

static bool uses(const void *argument, const void *begin, size_t bytes)
{
    const struct part *part = argument;
    const struct tri_pull *job = &part->job;
    const size_t data = job->count * trib_dtype_size(job->dtype);
    bool found = overlaps(part->here.send, data, begin, bytes) ||
                 overlaps(part->here.recv, data, begin, bytes);
    for (int rank = 0; rank < job->size; rank++)
        found = found || overlaps(job->control[rank], sizeof *job->control[rank], begin, bytes) ||
                overlaps(job->scratch[rank], job->scratch_bytes, begin, bytes);
    return found;
}

trib_status fake_pull(const struct tri_pull *job, trib_stream stream)
{
    static const struct fake_work_kind kind = {step, uses};
    const struct part part = {.job = *job, .here = job->here[0], .device = fake_current()};
    pthread_mutex_lock(&fake_lock);
    const bool fails = failing == 0;
    failing -= failing >= 0;
    counts.blocks = job->blocks;
    pthread_mutex_unlock(&fake_lock);
    if (job->n != 1)
        fake_die("a pull of several ranks of one device");
    if (stream != NULL && fake_stream_device(stream) != part.device)
        fake_die("a pull is launched on another device's stream");
    if (fails)
        return TRIB_ERR_CUDA;
    fake_submit(stream, &kind, &part, sizeof part);
    return TRIB_OK;
}
