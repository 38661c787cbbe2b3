/* Which devices of the fake reach each other's memory, and the names by which processes tell each other of
 * them. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_mapping.h"

static bool reach, nvlink = true;
static bool hidden[FAKE_DEVICES];
static unsigned int
    enabled[FAKE_DEVICES]; /* devices that this one may access the memory of, a bit each */
static bool has_pools = true;
static struct pool {
    unsigned int opened; /* to which devices, a bit each */
} pools[2 * FAKE_DEVICES];

void fake_reach(bool reaches, bool by_nvlink)
{
    pthread_mutex_lock(&fake_lock);
    reach = reaches;
    nvlink = by_nvlink;
    pthread_mutex_unlock(&fake_lock);
}

void fake_hide(int device, bool hides)
{
    pthread_mutex_lock(&fake_lock);
    hidden[device] = hides;
    pthread_mutex_unlock(&fake_lock);
}

bool fake_can_reach(int device, int peer)
{
    return device == peer || reach;
}

/* A process has at least the device that it uses. */
static bool is_known(int device)
{
    return !hidden[device] || device == fake_current();
}

/* To a question about two devices: the process knows both, or is refused. */
static cudaError_t answer(int *out, int device, int peer, bool is_so)
{
    if (!is_known(device) || !is_known(peer))
        return cudaErrorInvalidDevice;
    *out = is_so && device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = answer(out, device, peer, reach);
    pthread_mutex_unlock(&fake_lock);
    return error;
}

cudaError_t cudaDeviceGetP2PAttribute(int *out, enum cudaDeviceP2PAttr attribute, int device,
                                      int peer)
{
    if (attribute != cudaDevP2PAttrNativeAtomicSupported)
        fake_die("an attribute of two devices that the fake does not have");
    pthread_mutex_lock(&fake_lock);
    const cudaError_t error = answer(out, device, peer, reach && nvlink);
    pthread_mutex_unlock(&fake_lock);
    return error;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    const int device = fake_current();
    if (flags != 0 || device == peer)
        fake_die("peer access with wishes, or to itself");
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_MAPPING);
    const bool known = (enabled[device] >> peer & 1) != 0;
    const bool good = reach && !fake_mapping_fails();
    if (good)
        enabled[device] |= 1u << peer;
    pthread_mutex_unlock(&fake_lock);
    return !good   ? cudaErrorPeerAccessUnsupported
           : known ? cudaErrorPeerAccessAlreadyEnabled
                   : cudaSuccess;
}

bool fake_has_access(int device, int peer)
{
    return device == peer || (enabled[device] >> peer & 1) != 0;
}

/* ---------------------------------------------------------------------------------------- pools */

CUmemoryPool fake_pool_of(int device, bool is_default)
{
    return (CUmemoryPool)&pools[2 * device + !is_default];
}

/* Of the device's own, in the order of fake_pool_of. */
static int pool_number(CUmemoryPool pool)
{
    const ptrdiff_t number = (struct pool *)pool - pools;
    if (number < 0 || number >= 2 * FAKE_DEVICES)
        fake_die("a pool that is none");
    return (int)number;
}

bool fake_pool_opens(CUmemoryPool pool, int device)
{
    const int number = pool_number(pool);
    return number / 2 == device || (pools[number].opened >> device & 1) != 0;
}

CUresult fake_pool_access(CUmemAccess_flags *out, CUmemoryPool pool, CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        fake_die("access to a pool from a place that is no device");
    fake_need_relaxed();
    pthread_mutex_lock(&fake_lock);
    *out = fake_pool_opens(pool, location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

void fake_have_pools(bool has)
{
    pthread_mutex_lock(&fake_lock);
    has_pools = has;
    memset(pools, 0, sizeof pools);
    pthread_mutex_unlock(&fake_lock);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device)
{
    *out = fake_pool_of(device, true);
    return has_pools ? cudaSuccess : cudaErrorNotSupported;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access,
                                 size_t n)
{
    pthread_mutex_lock(&fake_lock);
    const int number = pool_number(pool);
    for (size_t i = 0; i < n; i++) {
        if (access[i].location.type != cudaMemLocationTypeDevice ||
            access[i].location.id == number / 2 ||
            access[i].flags != cudaMemAccessFlagsProtReadWrite)
            fake_die("a pool is opened to itself, or not as a device's");
        pools[number].opened |= 1u << access[i].location.id;
    }
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------ their names */

/* As the driver writes them: the domain, the bus, the device, the function. Too long for `bytes`: false. */
static bool write_name(char *out, int bytes, int device)
{
    return snprintf(out, (size_t)bytes, "0000:%02X:00.0", 0x1a + device) < bytes;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    if (device < 0 || device >= FAKE_DEVICES)
        return cudaErrorInvalidDevice;
    return write_name(out, bytes, device) ? cudaSuccess : cudaErrorInvalidValue;
}

/* A device that is hidden is not among those of the process. */
cudaError_t cudaDeviceGetByPCIBusId(int *out, const char *name)
{
    char own[16];
    int device = 0;
    while (device < FAKE_DEVICES &&
           !(write_name(own, sizeof own, device) && strcmp(own, name) == 0))
        device++;
    pthread_mutex_lock(&fake_lock);
    const bool known = device < FAKE_DEVICES && is_known(device);
    pthread_mutex_unlock(&fake_lock);
    if (!known)
        return cudaErrorInvalidDevice;
    *out = device;
    return cudaSuccess;
}
