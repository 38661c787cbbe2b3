/* The fake's push: CUDA's kernel as its CPU twin, which runs for all ranks of a call when the last of
 * them has come. Until then their streams wait, but no thread does. */
#include "tests/nccl_fake/fake_push.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "kernels/cpu/push_steps.h"
#include "kernels/kernels.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_meeting.h"
#include "tests/nccl_fake/fake_work.h"

extern const struct tri_kernels tri_kernels_cpu;

enum { LONG = 1024 }; /* elements */

/* One rank's part. Its lane is told by the scratch of rank 0, wherever the rank has mapped that, and its
 * turn is the epoch. */
struct part {
    struct fake_part met;
    struct tri_push job; /* but for `here` */
    struct tri_push_rank here;
    uint64_t began_ns;
};

static struct fake_meeting *calls;
static uint64_t hurry = 1;
static enum fake_pushing pushing;
static struct {
    int from, to;
    long after; /* as many calls are whole yet */
} lost;
static enum tri_push_kind newest;
static long launches, done, failing = -1; /* guarded by fake_lock, as all here */

void fake_push_as(enum fake_pushing how)
{
    pthread_mutex_lock(&fake_lock);
    pushing = how;
    pthread_mutex_unlock(&fake_lock);
}

void fake_lose_part(int from, int to, long n)
{
    pthread_mutex_lock(&fake_lock);
    pushing = FAKE_PUSH_LOSES_PART;
    lost.from = from;
    lost.to = to;
    lost.after = n;
    pthread_mutex_unlock(&fake_lock);
}

void fake_hurry(uint64_t part)
{
    pthread_mutex_lock(&fake_lock);
    hurry = part;
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

enum tri_push_kind fake_push_kind(void)
{
    pthread_mutex_lock(&fake_lock);
    const enum tri_push_kind kind = newest;
    pthread_mutex_unlock(&fake_lock);
    return kind;
}

static const struct part *part_of(const struct fake_meeting *call, int rank)
{
    return (const struct part *)(const void *)call->parts[rank];
}

static void check_part(const struct part *part, const struct tri_push *first)
{
    const struct tri_push *job = &part->job;
    if (job->size != first->size || job->count != first->count || job->dtype != first->dtype ||
        job->op != first->op || job->capacity != first->capacity || job->kind != first->kind ||
        job->root != first->root)
        fake_die("the ranks of a push make different calls");
    const size_t bytes = tri_push_scratch_bytes(job->size, job->capacity);
    for (int rank = 0; rank < job->size; rank++) {
        if (!fake_reaches(part->met.device, job->scratch[rank], bytes))
            fake_die("a push uses scratch that is not mapped for its device");
        if (fake_home(job->scratch[rank], bytes) != fake_home(first->scratch[rank], bytes))
            fake_die("the ranks of a push have different scratch");
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
                            (tri_push_gathers(job->kind) ? from * job->count : 0),
                        (const char *)job->here[from].send +
                            (tri_push_scatters(job->kind) ? to * job->count : 0),
                        job->count);
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

/* The next access of a worker. False: it waits, or it has ended. */
static bool advance(struct tri_push_worker *worker)
{
    const struct tri_push_access access = tri_push_next(worker);
    const bool of_control = access.act == TRI_PUSH_READ || access.act == TRI_PUSH_ARRIVE;
    const size_t bytes = of_control ? sizeof(uint32_t) : tri_push_granule_bytes(worker->job->dtype);
    uint64_t found = 0, value = access.value;
    if (access.act == TRI_PUSH_END)
        return false;
    memcpy(&found, access.at, bytes);
    if (access.act == TRI_PUSH_POLL && found == value)
        return false;
    if (access.act == TRI_PUSH_ARRIVE)
        value += found;
    if (access.act != TRI_PUSH_READ && access.act != TRI_PUSH_POLL)
        memcpy(access.at, &value, bytes);
    tri_push_performed(worker, found);
    return true;
}

/* One rank stores a part where nobody reads it. Returns who waits for ever, a bit each. */
static unsigned int perform_lossy(const struct tri_push *job)
{
    struct tri_push_worker workers[TRI_PUSH_RANKS];
    struct tri_push lossy = *job;
    unsigned int stuck = 0;
    bool moved = true;
    lossy.scratch[lost.to] = malloc(tri_push_scratch_bytes(job->size, job->capacity));
    if (lossy.scratch[lost.to] == NULL)
        fake_die("no memory for what a push loses");
    for (int rank = 0; rank < job->size; rank++)
        tri_push_begin(&workers[rank], rank == lost.from ? &lossy : job, &job->here[rank], 0, 1);
    while (moved) {
        moved = false;
        for (int rank = 0; rank < job->size; rank++)
            while (advance(&workers[rank]))
                moved = true;
    }
    for (int rank = 0; rank < job->size; rank++)
        stuck |= (unsigned int)(workers[rank].act != TRI_PUSH_END) << rank;
    free(lossy.scratch[lost.to]);
    return stuck;
}

/* Is some of this call lost? */
static bool loses_part(void)
{
    if (pushing != FAKE_PUSH_LOSES_PART)
        return false;
    const bool loses = lost.after <= 0;
    lost.after--;
    return loses;
}

/* All ranks are there. */
static void perform(struct fake_meeting *call)
{
    struct tri_push_rank here[TRI_PUSH_RANKS];
    struct tri_push job = part_of(call, 0)->job;
    for (int rank = 0; rank < job.size; rank++) {
        check_part(part_of(call, rank), &job);
        here[rank] = part_of(call, rank)->here;
    }
    job.here = here;
    job.n = (size_t)job.size;
    if (tri_push_slot_chunks(&job) > job.capacity)
        fake_die("a push does not fit into its slots");
    if (loses_part())
        call->stuck = perform_lossy(&job);
    else if ((job.count > LONG ? perform_long(&job) : tri_kernels_cpu.push(&job, NULL)) != TRIB_OK)
        fake_die("the CPU's push fails");
    if (pushing == FAKE_PUSH_GARBLES)
        *(char *)here[job.size - 1].recv ^= 1;
    call->done = true;
    newest = job.kind;
    done++;
}

/* Are all ranks there? One that has given up does not come back. */
static bool is_complete(const struct fake_meeting *call, int size)
{
    return call->came == size && call->left == 0;
}

/* Does it wait for what never comes? */
static bool is_stuck(const struct part *part)
{
    return (part->met.meeting->stuck >> part->met.rank & 1) != 0;
}

/* Has it waited for longer than it may? */
static bool is_late(const struct part *part)
{
    const uint64_t patience = part->job.patience_ns / hurry;
    return patience != 0 && (pushing == FAKE_PUSH_LOSES || is_stuck(part) ||
                             tri_now_ns() - part->began_ns > patience);
}

static bool step(void *argument)
{
    struct part *part = argument;
    uint32_t *const over = &part->here.control->over;
    if (part->met.meeting == NULL) {
        if (*over != 0)
            return true;
        fake_meet(&calls, &part->met, part->here.control->turn / TRI_PUSH_EPOCH);
        part->began_ns = tri_now_ns();
        if (is_complete(part->met.meeting, part->job.size) && pushing != FAKE_PUSH_LOSES)
            perform(part->met.meeting);
    }
    const bool ended = part->met.meeting->done && !is_stuck(part);
    if (!ended && !fake_is_over(part->job.abort_flag, is_late(part), over))
        return false;
    fake_leave(&calls, &part->met);
    return true;
}

static bool uses(const void *argument, const void *begin, size_t bytes)
{
    const struct part *part = argument;
    const struct tri_push *job = &part->job;
    bool found = fake_overlaps(part->here.control, sizeof *part->here.control, begin, bytes);
    for (int rank = 0; rank < job->size; rank++)
        found =
            found || fake_overlaps(job->scratch[rank],
                                   tri_push_scratch_bytes(job->size, job->capacity), begin, bytes);
    return found;
}

trib_status fake_push(const struct tri_push *job, trib_stream stream)
{
    static const struct fake_work_kind kind = {step, uses};
    const size_t bytes = tri_push_scratch_bytes(job->size, job->capacity);
    struct fake_part met = {NULL, job->here[0].rank, fake_current(), NULL};
    pthread_mutex_lock(&fake_lock);
    met.lane = fake_home(job->scratch[0], bytes);
    const bool fails = failing == 0;
    failing -= failing >= 0;
    launches += !fails;
    pthread_mutex_unlock(&fake_lock);
    const struct part part = {met, *job, job->here[0], 0};
    if (met.lane == NULL)
        fake_die("a push uses scratch that is not mapped");
    if (job->n != 1)
        fake_die("a push of several ranks of one device");
    if (stream != NULL && fake_stream_device(stream) != met.device)
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
