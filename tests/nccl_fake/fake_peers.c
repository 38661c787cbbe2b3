/* The fake's memory that several devices use, and push over it: a call's parts are reduced, by the CPU's
 * kernel, when the last rank has made it. Until then the streams of the others are not done. */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/push.h"
#include "tests/nccl_fake/fake.h"

enum { GRANULARITY = 1 << 21, RANGES = 64, LANES = 64, AHEAD = 32 };

static bool reach, losing, waits, numbered = true;
static int memory_left = -1; /* allocations that succeed; -1: all */

/* ----------------------------------------------------------------------------------------- push */

/* Calls over one scratch: those that all ranks have made have ended. */
struct fake_lane {
    const void *scratch; /* rank 0's; NULL: not used */
    const uint32_t *abort_flag;
    int size;
    long issued[TRI_PUSH_RANKS], ended;
    fake_push_kernel *kernel;
    struct {
        struct tri_push call;
        struct tri_push_rank here[TRI_PUSH_RANKS];
    } calls[AHEAD];
};
static struct fake_lane lanes[LANES]; /* guarded by fake_lock, as everything here */

static bool is_aborted(const struct fake_lane *lane)
{
    return __atomic_load_n(lane->abort_flag, __ATOMIC_ACQUIRE) != 0;
}

bool fake_push_done(const struct fake_lane *lane, long sequence)
{
    return lane->scratch == NULL || lane->ended >= sequence || is_aborted(lane);
}

static struct fake_lane *lane_of(const struct tri_push *call)
{
    struct fake_lane *lane = lanes, *free_lane = NULL;
    for (; lane < lanes + LANES; lane++)
        if (lane->scratch == call->scratch[0])
            return lane;
        else if (lane->scratch == NULL && free_lane == NULL)
            free_lane = lane;
    if (free_lane == NULL)
        fake_die("push has too many lanes for the fake");
    *free_lane = (struct fake_lane){.scratch = call->scratch[0], .size = call->size};
    return free_lane;
}

static bool all_issued(const struct fake_lane *lane, long sequence)
{
    for (int rank = 0; rank < lane->size; rank++)
        if (lane->issued[rank] < sequence)
            return false;
    return true;
}

static void end_call(struct fake_lane *lane)
{
    struct tri_push *call = &lane->calls[++lane->ended % AHEAD].call;
    call->here = lane->calls[lane->ended % AHEAD].here;
    call->n = (size_t)lane->size;
    if (!losing && lane->kernel(call, NULL) != TRIB_OK)
        fake_die("push fails");
}

struct part {
    struct tri_push call;
    struct tri_push_rank here;
    fake_push_kernel *kernel;
    cudaStream_t stream;
};

static void run_part(void *argument)
{
    const struct part *part = argument;
    const int rank = part->here.rank;
    pthread_mutex_lock(&fake_lock);
    struct fake_lane *lane = lane_of(&part->call);
    const long sequence = ++lane->issued[rank];
    lane->abort_flag = part->call.abort_flag;
    lane->kernel = part->kernel;
    if (sequence - lane->ended >= AHEAD)
        fake_die("push is too far ahead for the fake");
    lane->calls[sequence % AHEAD].call = part->call;
    lane->calls[sequence % AHEAD].here[rank] = part->here;
    if (part->stream != NULL)
        fake_queue_push(part->stream, lane, sequence);
    while (all_issued(lane, lane->ended + 1))
        end_call(lane);
    pthread_cond_broadcast(&fake_changed);
    while (waits && part->call.patience_ns == 0 && !fake_push_done(lane, sequence))
        fake_wait();
    pthread_mutex_unlock(&fake_lock);
}

trib_status fake_push(const struct tri_push *call, fake_push_kernel *kernel, trib_stream stream)
{
    struct part part = {*call, call->here[0], kernel, stream};
    if (call->n != 1)
        fake_die("a device has one rank");
    if (!fake_record(stream, run_part, &part, sizeof part))
        run_part(&part);
    return TRIB_OK;
}

/* --------------------------------------------------------------------------------------- memory */

static struct range {
    char *start;
    size_t bytes;
    bool mapped;
    size_t devices; /* that may use it */
} ranges[RANGES];
static int created;

int fake_peer_memory(void)
{
    int n = 0;
    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < RANGES; i++)
        n += ranges[i].start != NULL;
    n += created;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static CUresult granularity(size_t *out, const CUmemAllocationProp *wanted,
                            CUmemAllocationGranularity_flags flags)
{
    (void)wanted, (void)flags;
    *out = GRANULARITY;
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *out, size_t bytes,
                       const CUmemAllocationProp *wanted, unsigned long long flags)
{
    (void)flags;
    pthread_mutex_lock(&fake_lock);
    const bool good = memory_left != 0 && bytes % GRANULARITY == 0;
    memory_left -= memory_left > 0;
    created += good;
    pthread_mutex_unlock(&fake_lock);
    *out = (CUmemGenericAllocationHandle)wanted->location.id;
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    pthread_mutex_lock(&fake_lock);
    created--;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* The lock is held. */
static struct range *range_at(CUdeviceptr address)
{
    for (struct range *range = ranges; range < ranges + RANGES; range++)
        if (range->start == (char *)(uintptr_t)address)
            return range;
    fake_die("an address that was not reserved");
}

static CUresult reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    (void)alignment, (void)wanted, (void)flags;
    pthread_mutex_lock(&fake_lock);
    struct range *range = ranges;
    while (range < ranges + RANGES && range->start != NULL)
        range++;
    if (range == ranges + RANGES)
        fake_die("too many ranges for the fake");
    *range = (struct range){.start = aligned_alloc(256, bytes), .bytes = bytes};
    *out = (CUdeviceptr)(uintptr_t)range->start;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static CUresult unreserve(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct range *range = range_at(address);
    if (range->mapped || range->bytes != bytes)
        fake_die("an address is given back while memory is mapped there");
    free(range->start);
    range->start = NULL;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)bytes, (void)offset, (void)handle, (void)flags;
    pthread_mutex_lock(&fake_lock);
    range_at(address)->mapped = true;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* A call that some ranks have made, and that no abort has ended, still writes. */
static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct range *range = range_at(address);
    for (struct fake_lane *lane = lanes; lane < lanes + LANES; lane++) {
        if ((uintptr_t)lane->scratch - (uintptr_t)range->start >= bytes)
            continue;
        for (int rank = 0; rank < lane->size; rank++)
            if (lane->issued[rank] > lane->ended && !is_aborted(lane))
                fake_die("memory is unmapped while push uses it");
        lane->scratch = NULL;
    }
    range->mapped = false;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                           size_t n)
{
    (void)bytes, (void)access;
    pthread_mutex_lock(&fake_lock);
    range_at(address)->devices = n;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* -------------------------------------------------------------------------------------- switches */

void fake_reach(bool reaches)
{
    pthread_mutex_lock(&fake_lock);
    reach = reaches;
    pthread_mutex_unlock(&fake_lock);
}

void fake_lose_writes(bool loses)
{
    pthread_mutex_lock(&fake_lock);
    losing = loses;
    pthread_mutex_unlock(&fake_lock);
}

void fake_push_waits(bool on)
{
    pthread_mutex_lock(&fake_lock);
    waits = on;
    pthread_mutex_unlock(&fake_lock);
}

void fake_peer_memory_left(int n)
{
    pthread_mutex_lock(&fake_lock);
    memory_left = n;
    pthread_mutex_unlock(&fake_lock);
}

void fake_number_streams(bool numbers)
{
    pthread_mutex_lock(&fake_lock);
    numbered = numbers;
    pthread_mutex_unlock(&fake_lock);
}

cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
    (void)device, (void)peer;
    pthread_mutex_lock(&fake_lock);
    *out = reach;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

/* All over NVLink. */
cudaError_t cudaDeviceGetP2PAttribute(int *out, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    (void)attribute;
    return cudaDeviceCanAccessPeer(out, device, peer);
}

static CUresult stream_number(CUstream stream, unsigned long long *out)
{
    *out = fake_stream_number(stream);
    pthread_mutex_lock(&fake_lock);
    const bool good = numbered;
    pthread_mutex_unlock(&fake_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

fake_function *fake_peer_function(const char *name)
{
    static const struct {
        const char *name;
        fake_function *function;
    } known[] = {
        {"cuMemGetAllocationGranularity", (fake_function *)granularity},
        {"cuMemCreate", (fake_function *)create},
        {"cuMemRelease", (fake_function *)release},
        {"cuMemAddressReserve", (fake_function *)reserve},
        {"cuMemAddressFree", (fake_function *)unreserve},
        {"cuMemMap", (fake_function *)map},
        {"cuMemUnmap", (fake_function *)unmap},
        {"cuMemSetAccess", (fake_function *)set_access},
        {"cuStreamGetId", (fake_function *)stream_number},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].function;
    return NULL;
}
