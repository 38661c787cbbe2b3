/* How far the calls of a rank have got on its streams.
 *
 * The owner records events around the calls that core has it mark. Events of one communicator
 * complete in the order of its calls, so a completed one tells that every call before it has ended.
 * If the ring is full, the newest mark moves to the newest call.
 *
 * The watchdog must not wait, but a query may: CUDA holds locks while it waits for a device. So the
 * prober (prober.c) makes the queries, and the watchdog reads what it found last. */
#include "csrc/nccl/marks.h"

#include "csrc/nccl/device.h"

void tri_nccl_marks_init(struct tri_nccl_marks *marks, int32_t device)
{
    marks->device = device;
    atomic_init(&marks->started, UINT64_MAX);
}

/* ---------------------------------------------------------------------------------- owner's side */

/* The mark to record next: a new one, or the newest if the ring is full. */
static struct tri_nccl_mark *next_mark(struct tri_nccl_marks *marks)
{
    const uint64_t made = atomic_load_explicit(&marks->made, memory_order_relaxed);
    const uint64_t passed = atomic_load_explicit(&marks->passed, memory_order_acquire);
    return &marks->ring[(made - passed < TRI_NCCL_MARKS ? made : made - 1) % TRI_NCCL_MARKS];
}

static bool record(cudaEvent_t *event, int32_t device, trib_stream stream)
{
    struct tri_nccl_device_guard guard;
    if (tri_nccl_push_device(&guard, device) != TRIB_OK)
        return false;
    cudaError_t error = cudaSuccess;
    if (*event == NULL)
        error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    if (error == cudaSuccess)
        error = cudaEventRecord(*event, stream);
    tri_nccl_pop_device(&guard);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess;
}

/* A stream in capture runs nothing. */
static bool mark_before(struct tri_nccl_marks *marks, trib_stream stream)
{
    if (tri_nccl_in_capture(stream))
        return false;
    marks->open = next_mark(marks);
    const bool begun = record(&marks->open->before, marks->device, stream);
    atomic_store_explicit(&marks->open->begun, begun, memory_order_release);
    return true;
}

/* The prober sees a new mark once `made` counts it. It may see a moved one with its old number or
 * its old event, which says less than is true. */
static bool mark_after(struct tri_nccl_marks *marks, trib_stream stream, uint64_t number)
{
    const uint64_t made = atomic_load_explicit(&marks->made, memory_order_relaxed);
    struct tri_nccl_mark *mark = marks->open;
    if (!record(&mark->after, marks->device, stream))
        return false;
    atomic_store_explicit(&mark->number, number, memory_order_release);
    if (mark == &marks->ring[made % TRI_NCCL_MARKS])
        atomic_store_explicit(&marks->made, made + 1, memory_order_release);
    return true;
}

static bool mark_now(struct tri_nccl_marks *marks, trib_stream stream, uint64_t number)
{
    marks->open = next_mark(marks);
    atomic_store_explicit(&marks->open->begun, false, memory_order_release);
    return mark_after(marks, stream, number);
}

bool tri_nccl_marks_record(struct tri_nccl_marks *marks, uint64_t number, trib_stream stream,
                           enum tri_mark when)
{
    switch (when) {
    case TRI_MARK_BEFORE:
        return mark_before(marks, stream);
    case TRI_MARK_AFTER:
        return mark_after(marks, stream, number);
    default:
        return mark_now(marks, stream, number);
    }
}

/* --------------------------------------------------------------------------------- prober's side */

/* An error of the query is the device's, which runs nothing any more: TRIB_ERR_CUDA is another's to
 * find. */
static bool is_done(cudaEvent_t event)
{
    return tri_nccl_relaxed_event_query(event) != cudaErrorNotReady;
}

static struct tri_nccl_mark *mark_at(struct tri_nccl_marks *marks, uint64_t i)
{
    return &marks->ring[i % TRI_NCCL_MARKS];
}

/* The first of the marks from `passed` on that has not completed. */
static uint64_t first_pending(struct tri_nccl_marks *marks, uint64_t passed, uint64_t made)
{
    while (passed < made) {
        const uint64_t middle = passed + (made - passed) / 2;
        if (is_done(mark_at(marks, middle)->after))
            passed = middle + 1;
        else
            made = middle;
    }
    return passed;
}

/* The number is read before the event is queried: a mark that moves in between is a later one. */
static uint64_t number_of_passed(struct tri_nccl_marks *marks, uint64_t before, uint64_t *passed)
{
    const uint64_t made = atomic_load_explicit(&marks->made, memory_order_acquire);
    uint64_t numbers[TRI_NCCL_MARKS];
    for (uint64_t i = before; i < made; i++)
        numbers[i % TRI_NCCL_MARKS] =
            atomic_load_explicit(&mark_at(marks, i)->number, memory_order_acquire);
    *passed = first_pending(marks, before, made);
    return *passed == before ? 0 : numbers[(*passed - 1) % TRI_NCCL_MARKS];
}

/* The number of the mark behind the passed ones; 0: there is none. */
static uint64_t number_of_pending(struct tri_nccl_marks *marks, uint64_t passed)
{
    return passed < atomic_load_explicit(&marks->made, memory_order_acquire)
               ? atomic_load_explicit(&mark_at(marks, passed)->number, memory_order_acquire)
               : 0;
}

/* A call that has not started, right behind the last one that has ended. */
static bool waits_to_start(struct tri_nccl_marks *marks, uint64_t passed, uint64_t ended)
{
    struct tri_nccl_mark *mark = mark_at(marks, passed);
    return number_of_pending(marks, passed) == ended + 1 &&
           atomic_load_explicit(&mark->begun, memory_order_acquire) && !is_done(mark->before);
}

void tri_nccl_marks_probe(struct tri_nccl_marks *marks)
{
    uint64_t passed = atomic_load_explicit(&marks->passed, memory_order_relaxed);
    const uint64_t number = number_of_passed(marks, passed, &passed);
    if (number != 0)
        atomic_store_explicit(&marks->ended, number, memory_order_release);
    const uint64_t ended = atomic_load_explicit(&marks->ended, memory_order_relaxed);
    atomic_store_explicit(&marks->started,
                          waits_to_start(marks, passed, ended) ? ended : UINT64_MAX,
                          memory_order_release);
    atomic_store_explicit(&marks->pending, number_of_pending(marks, passed), memory_order_release);
    atomic_store_explicit(&marks->passed, passed, memory_order_release);
}

bool tri_nccl_marks_read(struct tri_nccl_marks *marks, struct tri_progress *out)
{
    const uint64_t made = atomic_load_explicit(&marks->made, memory_order_acquire);
    out->ended = atomic_load_explicit(&marks->ended, memory_order_acquire);
    out->started = atomic_load_explicit(&marks->started, memory_order_acquire);
    out->marked = made == 0 ? 0 : atomic_load(&mark_at(marks, made - 1)->number);
    out->bound = atomic_load_explicit(&marks->pending, memory_order_acquire);
    if (out->bound <= out->ended) /* the prober has not seen a later mark */
        out->bound = out->marked;
    return out->ended == out->marked;
}

void tri_nccl_marks_free(struct tri_nccl_marks *marks)
{
    for (int i = 0; i < TRI_NCCL_MARKS; i++) {
        struct tri_nccl_mark *mark = &marks->ring[i];
        if (mark->before != NULL)
            (void)cudaEventDestroy(mark->before);
        if (mark->after != NULL)
            (void)cudaEventDestroy(mark->after);
        mark->before = mark->after = NULL;
    }
}
