/* The fake's pull: CUDA's kernel as its CPU twin, which runs for all ranks of a call when the last of them
 * has come. Until then their streams wait, but no thread does. It ends the program where the library breaks
 * what kernels/pull.h relies on. */
#include "tests/nccl_fake/fake_pull.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "kernels/kernels.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_kernels.h"
#include "tests/nccl_fake/fake_meeting.h"
#include "tests/nccl_fake/fake_work.h"

enum {
    LONG = 300000,      /* elements */
    FAKE_PULL_HURRY = 5 /* a rank has so much less patience */
};

/* One rank's part. Its lane is told by the control of rank 0, and its turn is the number of its first
 * barrier. */
struct part {
    struct fake_part met;
    struct tri_pull job; /* but for `here` */
    struct tri_pull_rank here;
    struct tri_slice *slices; /* what it packs; its own */
    uint64_t began_ns;
};

static struct fake_meeting *calls;
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

static const struct part *part_of(const struct fake_meeting *call, int rank)
{
    return (const struct part *)(const void *)call->parts[rank];
}

static struct tri_pull_control *control_of(const struct part *part)
{
    return part->job.control[part->here.rank];
}

static size_t bytes_sent(const struct tri_pull *job)
{
    return tri_pull_sent(job) * trib_dtype_size(job->dtype);
}

static size_t bytes_received(const struct tri_pull *job)
{
    return tri_pull_received(job) * trib_dtype_size(job->dtype);
}

/* ------------------------------------------------------------------------------------- a call begins */

/* Calls of two lanes may run at once. */
static void check_apart(const struct tri_pull *one, const struct tri_pull *other)
{
    for (int i = 0; i < one->size; i++)
        for (int j = 0; j < other->size; j++)
            if (fake_overlaps(one->control[i], sizeof *one->control[i], other->control[j],
                              sizeof *other->control[j]) ||
                fake_overlaps(one->control[i], sizeof *one->control[i], other->scratch[j],
                              other->scratch_bytes) ||
                fake_overlaps(one->scratch[i], one->scratch_bytes, other->scratch[j],
                              other->scratch_bytes))
                fake_die("pulls that may run at once share their memory");
}

static void check_lanes(const struct part *part)
{
    for (const struct fake_meeting *call = calls; call != NULL; call = call->next) {
        const struct fake_part *some = fake_meeting_part(call);
        if (some != NULL && some->lane != part->met.lane)
            check_apart(&part_of(call, some->rank)->job, &part->job);
    }
}

/* Blocks that wait for their twins stay where they are. */
static void check_room(int device)
{
    int blocks = 0, multiprocessors = 0;
    for (const struct fake_meeting *call = calls; call != NULL; call = call->next)
        for (int rank = 0; rank < TRI_PULL_RANKS; rank++)
            if (call->parts[rank] != NULL && call->parts[rank]->device == device)
                blocks += part_of(call, rank)->job.blocks;
    (void)cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (blocks > 2 * multiprocessors)
        fake_die("blocks of pulls wait for others that have no room");
}

static void begin(struct part *part)
{
    check_lanes(part);
    fake_meet(&calls, &part->met, control_of(part)->turn[0]);
    check_room(part->met.device);
}

/* ---------------------------------------------------------------------------- what all ranks rely on */

static void check_memory(const struct part *part)
{
    const struct tri_pull *job = &part->job;
    for (int rank = 0; rank < job->size; rank++)
        if (!fake_reaches(part->met.device, job->control[rank], sizeof *job->control[rank]) ||
            !fake_reaches(part->met.device, job->scratch[rank], job->scratch_bytes))
            fake_die("a pull uses memory that is not mapped for its device");
    for (int rank = 0; rank < job->size; rank++)
        if (fake_overlaps(job->control[rank], sizeof *job->control[rank], job->scratch[rank],
                          job->scratch_bytes))
            fake_die("a pull has its scratch in its control");
    if (job->scratch_bytes < tri_pull_scratch_least(job->kind, job->size))
        fake_die("a pull has too little scratch");
    if ((uintptr_t)job->control[0] % 256 != 0 || (uintptr_t)job->scratch[0] % 16 != 0)
        fake_die("memory of a pull is not aligned");
}

static void check_alike(const struct tri_pull *job, const struct tri_pull *first)
{
    if (job->kind != first->kind || (job->kind == TRI_PULL_BROADCAST && job->root != first->root))
        fake_die("the ranks of a pull make calls of different kinds");
    if (tri_pull_copies(job->kind) && job->dtype != TRIB_U8)
        fake_die("a pull copies something else than bytes");
    if (job->size != first->size || job->count != first->count || job->dtype != first->dtype ||
        job->op != first->op || job->way != first->way || job->blocks != first->blocks ||
        job->scratch_bytes != first->scratch_bytes)
        fake_die("the ranks of a pull make different calls");
    for (int rank = 0; rank < job->size; rank++)
        if (fake_home(job->control[rank], sizeof *job->control[rank]) !=
                fake_home(first->control[rank], sizeof *first->control[rank]) ||
            fake_home(job->scratch[rank], job->scratch_bytes) !=
                fake_home(first->scratch[rank], first->scratch_bytes))
            fake_die("the ranks of a pull have different memory");
}

/* All ranks access what one of them says is mapped, each where it has that. */
static void check_mapped(const struct fake_meeting *call, const struct part *part, const void *data,
                         size_t bytes, const ptrdiff_t *shift)
{
    const struct tri_pull *job = &part->job;
    for (int rank = 0; rank < job->size; rank++) {
        const char *there = (const char *)data + shift[rank];
        if (!fake_may_access(call->parts[rank]->device, there, bytes))
            fake_die("a pull maps memory that a device may not access");
        if (shift[rank] != 0 && fake_home(there, bytes) != fake_home(data, bytes))
            fake_die("a pull tells a rank where other memory is");
    }
}

/* Those that peers access. */
static void check_buffers_of(const struct fake_meeting *call, const struct part *part)
{
    const struct tri_pull *job = &part->job;
    if (tri_pull_is_two_shot(job))
        check_mapped(call, part, part->here.recv, bytes_received(job), job->recv_shift);
    else if (job->kind != TRI_PULL_BROADCAST || job->root == part->here.rank)
        check_mapped(call, part, part->here.send, bytes_sent(job), job->send_shift);
}

/* Are the buffers of all ranks mapped? */
static bool check_buffers(const struct fake_meeting *call, int size)
{
    bool mapped = true;
    for (int rank = 0; rank < size; rank++) {
        const struct part *part = part_of(call, rank);
        const struct tri_pull *job = &part->job;
        mapped = mapped && part->here.mapped;
        if (part->here.send == NULL || part->here.recv == NULL)
            fake_die("a pull without a buffer");
        if (job->kind == TRI_PULL_ALLREDUCE && job->way == TRI_PULL_ONE_SHOT &&
            part->here.send == part->here.recv)
            fake_die("a pull of one shot is in place");
        if (part->here.mapped)
            check_buffers_of(call, part);
    }
    return mapped;
}

/* -------------------------------------------------------------------------------------- the elements */

static void pack(const struct part *part)
{
    const struct tri_pull *job = &part->job;
    const struct tri_bucket bucket = {part->here.recv, job->count, job->dtype};
    const struct tri_packing *list = &part->here.list;
    if (part->slices == NULL)
        return;
    if (!tri_pull_is_two_shot(job) || part->here.send != part->here.recv)
        fake_die("a pull packs a list, and is not of two shots in place");
    if (tri_kernels_cpu.pack(part->slices, list->slices, &bucket,
                             list->weighted ? &list->weight : NULL, NULL) != TRIB_OK)
        fake_die("the CPU's pack fails");
    counts.packed++;
}

/* Of all ranks, or of their blocks for one of them. */
static trib_status reduce_long(const struct tri_pull *job, size_t first, void *const *recv,
                               size_t n)
{
    const void *send[TRI_PULL_RANKS];
    const size_t width = trib_dtype_size(job->dtype);
    for (size_t i = 0; i < job->n; i++)
        send[i] = (const char *)job->here[i].send + first * width;
    const struct tri_reduction reduction = {send, job->n, job->dtype, job->op, NULL};
    return tri_kernels_cpu.reduce(recv, n, &reduction, job->count, NULL);
}

static void copy_long(const struct tri_pull *job, const struct tri_pull_rank *to)
{
    const bool gathers = tri_pull_gathers(job->kind);
    const size_t own = tri_pull_scatters(job->kind) ? (size_t)to->rank * job->count : 0;
    for (size_t i = 0; i < job->n; i++)
        if (gathers || job->here[i].rank == job->root)
            memmove((char *)to->recv + (gathers ? i * job->count : 0),
                    (const char *)job->here[i].send + own, job->count);
}

/* The result of a long one, without its steps, which take seconds under a sanitizer. There are two barriers
 * at least. */
static trib_status perform_long(const struct tri_pull *job)
{
    trib_status status = TRIB_OK;
    void *recv[TRI_PULL_RANKS];
    for (size_t i = 0; i < job->n; i++) {
        recv[i] = job->here[i].recv;
        job->control[i]->turn[0] += 2;
    }
    if (job->kind == TRI_PULL_ALLREDUCE)
        return reduce_long(job, 0, recv, job->n);
    for (size_t i = 0; i < job->n && status == TRIB_OK; i++)
        if (tri_pull_copies(job->kind))
            copy_long(job, &job->here[i]);
        else
            status = reduce_long(job, i * job->count, &recv[i], 1);
    return status;
}

static bool garbles(bool mapped, enum tri_pull_way way)
{
    const enum fake_pulling kind = !mapped                    ? FAKE_PULL_GARBLES_STAGED
                                   : way == TRI_PULL_ONE_SHOT ? FAKE_PULL_GARBLES_READS
                                                              : FAKE_PULL_GARBLES_STORES;
    return pulling == FAKE_PULL_GARBLES || pulling == kind;
}

/* All ranks are there. */
static void perform(struct fake_meeting *call)
{
    struct tri_pull_rank here[TRI_PULL_RANKS];
    struct tri_pull job = part_of(call, 0)->job;
    for (int rank = 0; rank < job.size; rank++) {
        const struct part *part = part_of(call, rank);
        check_memory(part);
        check_alike(&part->job, &job);
        here[rank] = part->here;
        here[rank].list.table = NULL;
    }
    const bool mapped = check_buffers(call, job.size);
    for (int rank = 0; rank < job.size; rank++)
        pack(part_of(call, rank));
    job.here = here;
    job.n = (size_t)job.size;
    memset(job.send_shift, 0, sizeof job.send_shift); /* here all reach what each has */
    memset(job.recv_shift, 0, sizeof job.recv_shift);
    if ((tri_pull_sent(&job) > LONG ? perform_long(&job) : tri_kernels_cpu.pull(&job, NULL)) !=
        TRIB_OK)
        fake_die("the CPU's pull fails");
    if (garbles(mapped, job.way))
        *(char *)here[job.size - 1].recv ^= 1;
    call->done = true;
    counts.done++;
    counts.staged += !mapped;
    counts.one_shot += job.kind == TRI_PULL_ALLREDUCE && job.way == TRI_PULL_ONE_SHOT;
}

/* ------------------------------------------------------------------------------------ in a stream */

/* Has it waited for longer than it may? */
static bool is_late(const struct part *part)
{
    const uint64_t patience = part->job.patience_ns / FAKE_PULL_HURRY;
    return patience != 0 &&
           (pulling == FAKE_PULL_LOSES || tri_now_ns() - part->began_ns > patience);
}

static bool step(void *argument)
{
    struct part *part = argument;
    uint32_t *const over = &control_of(part)->over;
    const bool loses = pulling == FAKE_PULL_LOSES;
    if (part->met.meeting == NULL) {
        if (*over != 0) {
            free(part->slices);
            return true;
        }
        begin(part);
        part->began_ns = tri_now_ns();
        if (part->met.meeting->came == part->job.size && part->met.meeting->left == 0 && !loses)
            perform(part->met.meeting);
    }
    if (!part->met.meeting->done && !fake_is_over(part->job.abort_flag, is_late(part), over))
        return false;
    fake_leave(&calls, &part->met);
    free(part->slices);
    return true;
}

static bool uses(const void *argument, const void *begin, size_t bytes)
{
    const struct part *part = argument;
    const struct tri_pull *job = &part->job;
    bool found = fake_overlaps(part->here.send, bytes_sent(job), begin, bytes) ||
                 fake_overlaps(part->here.recv, bytes_received(job), begin, bytes);
    for (size_t i = 0; part->slices != NULL && i < part->here.list.slices; i++)
        found =
            found || fake_overlaps(part->slices[i].data,
                                   part->slices[i].count * trib_dtype_size(part->slices[i].dtype),
                                   begin, bytes);
    for (int rank = 0; rank < job->size; rank++)
        found = found ||
                fake_overlaps(job->control[rank], sizeof *job->control[rank], begin, bytes) ||
                fake_overlaps(job->scratch[rank], job->scratch_bytes, begin, bytes);
    return found;
}

trib_status fake_pull(const struct tri_pull *job, trib_stream stream)
{
    static const struct fake_work_kind kind = {step, uses};
    const struct tri_bucket bucket = {job->here[0].recv, job->count, job->dtype};
    struct part part = {
        {NULL, job->here[0].rank, fake_current(), NULL}, *job, job->here[0], NULL, 0};
    pthread_mutex_lock(&fake_lock);
    part.met.lane = fake_home(job->control[0], sizeof *job->control[0]);
    const bool fails = failing == 0;
    failing -= failing >= 0;
    counts.blocks = job->blocks;
    pthread_mutex_unlock(&fake_lock);
    if (job->n != 1)
        fake_die("a pull of several ranks of one device");
    if (stream != NULL && fake_stream_device(stream) != part.met.device)
        fake_die("a pull is launched on another device's stream");
    if (fails)
        return TRIB_ERR_CUDA;
    if (job->here[0].list.table != NULL)
        part.slices =
            fake_slices_in(job->here[0].list.table, job->here[0].list.slices, &bucket, stream);
    fake_submit(stream, &kind, &part, sizeof part);
    return TRIB_OK;
}
