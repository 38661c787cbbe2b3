/* The memory of the fake that several devices map: the driver's functions that create, export and import
 * it. Its bytes are those of a file without a name, which can be mapped in several places, as several
 * processes do that each have their own. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_mapping.h"

enum { MEMORIES = 512, GARBAGE = 0xa5 };

static struct fake_memory memories[MEMORIES]; /* home NULL: free */

/* Number - 1; its number is what the driver hands out. */
static struct fake_handle handles[MEMORIES]; /* memory NULL: free */

static size_t unit_of(const CUmemAllocationProp *wanted)
{
    return (size_t)FAKE_GRANULARITY << (wanted->location.id == FAKE_COARSE);
}

/* Written to the file: of what is stored in a mapping the thread sanitizer notes every byte. */
static bool fill(int file, size_t bytes)
{
    static char garbage[FAKE_GRANULARITY];
    memset(garbage, GARBAGE, sizeof garbage);
    for (size_t at = 0; at < bytes; at += sizeof garbage)
        if (pwrite(file, garbage, sizeof garbage, (off_t)at) != (ssize_t)sizeof garbage)
            return false;
    return true;
}

static struct fake_memory *make_memory(size_t bytes, const CUmemAllocationProp *wanted)
{
    struct fake_memory *memory = memories;
    while (memory < memories + MEMORIES && memory->home != NULL)
        memory++;
    if (memory == memories + MEMORIES)
        fake_die("more memory is created than the fake has room for");
    const int file = memfd_create("memory of the fake", MFD_CLOEXEC);
    char *home = file >= 0 && fill(file, bytes)
                     ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
    if (home == MAP_FAILED)
        fake_die("the system has no memory for the fake's");
    *memory = (struct fake_memory){.home = home,
                                   .bytes = bytes,
                                   .file = file,
                                   .device = wanted->location.id,
                                   .exportable = wanted->requestedHandleTypes != 0};
    return memory;
}

void fake_memory_leave(struct fake_memory *memory)
{
    if (--memory->users > 0)
        return;
    (void)munmap(memory->home, memory->bytes);
    (void)close(memory->file);
    memory->home = NULL;
}

static CUmemGenericAllocationHandle new_handle(struct fake_memory *memory, bool imported)
{
    struct fake_handle *handle = handles;
    while (handle < handles + MEMORIES && handle->memory != NULL)
        handle++;
    if (handle == handles + MEMORIES)
        fake_die("more handles of memory are made than the fake has room for");
    *handle = (struct fake_handle){memory, imported};
    memory->users++;
    fake_mapping_count(1);
    return (CUmemGenericAllocationHandle)(handle - handles) + 1;
}

CUmemGenericAllocationHandle fake_handle_again(struct fake_memory *memory)
{
    return new_handle(memory, true);
}

struct fake_handle *fake_handle_of(CUmemGenericAllocationHandle number)
{
    if (number == 0 || number > MEMORIES || handles[number - 1].memory == NULL)
        fake_die("a handle of memory is used that was not created, or was released");
    return &handles[number - 1];
}

CUresult fake_mem_granularity(size_t *out, const CUmemAllocationProp *wanted,
                              CUmemAllocationGranularity_flags flags)
{
    (void)flags;
    if (wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        fake_die("memory of a kind that no device has");
    pthread_mutex_lock(&fake_lock);
    *out = unit_of(wanted);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult fake_mem_create(CUmemGenericAllocationHandle *out, size_t bytes,
                         const CUmemAllocationProp *wanted, unsigned long long flags)
{
    if (flags != 0 || bytes == 0 || bytes % unit_of(wanted) != 0)
        fake_die("memory to be mapped that is no multiple of the granularity");
    if (wanted->requestedHandleTypes != 0 &&
        wanted->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        fake_die("memory is to be exported in a way that the fake does not have");
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_MAPPING);
    const bool failed = fake_mapping_fails();
    if (!failed)
        *out = new_handle(make_memory(bytes, wanted), false);
    pthread_mutex_unlock(&fake_lock);
    return failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* What is mapped stays until it is unmapped, but whoever has made it and releases it first is not
 * careful. */
CUresult fake_mem_release(CUmemGenericAllocationHandle number)
{
    pthread_mutex_lock(&fake_lock);
    struct fake_handle *handle = fake_handle_of(number);
    if (fake_mapping_forget(handle) && !handle->imported)
        fake_die("memory is released that is mapped");
    fake_memory_leave(handle->memory);
    handle->memory = NULL;
    fake_mapping_count(-1);
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------------- from process to process */

static void check_kind(CUmemAllocationHandleType type)
{
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        fake_die("memory is exported or imported in a way that the fake does not have");
}

CUresult fake_mem_export(void *out, CUmemGenericAllocationHandle number,
                         CUmemAllocationHandleType type, unsigned long long flags)
{
    check_kind(type);
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_MAPPING);
    const struct fake_memory *memory = fake_handle_of(number)->memory;
    if (flags != 0 || !memory->exportable)
        fake_die("memory is exported that was not created for it");
    const int file = fake_mapping_fails() ? -1 : fcntl(memory->file, F_DUPFD_CLOEXEC, 0);
    if (file >= 0)
        *(int *)out = file;
    pthread_mutex_unlock(&fake_lock);
    return file < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The memory whose descriptor this is, or NULL. */
static struct fake_memory *memory_behind(int file)
{
    struct stat found, known;
    if (fstat(file, &found) != 0)
        return NULL;
    for (struct fake_memory *memory = memories; memory < memories + MEMORIES; memory++)
        if (memory->home != NULL && fstat(memory->file, &known) == 0 &&
            known.st_dev == found.st_dev && known.st_ino == found.st_ino)
            return memory;
    return NULL;
}

CUresult fake_mem_import(CUmemGenericAllocationHandle *out, void *file,
                         CUmemAllocationHandleType type)
{
    check_kind(type);
    pthread_mutex_lock(&fake_lock);
    fake_pass(FAKE_MAPPING);
    struct fake_memory *memory = fake_mapping_fails() ? NULL : memory_behind((int)(intptr_t)file);
    if (memory != NULL)
        *out = new_handle(memory, true);
    pthread_mutex_unlock(&fake_lock);
    return memory == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
