/* Where devices of the fake map memory: the driver's functions for virtual memory. A reservation is a
 * range of addresses; where memory is mapped in a part of it, that becomes one of its own. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "tests/nccl_fake/fake_mapping.h"

#include <stdint.h>
#include <sys/mman.h>

#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_windows.h"
#include "tests/nccl_fake/fake_work.h"

enum { MAPPINGS = 512 };

/* A reservation, and what is mapped there. */
static struct mapping {
    char *start; /* NULL: free */
    size_t bytes;
    struct fake_memory *memory;   /* NULL: nothing is mapped */
    const struct fake_handle *by; /* NULL: released since */
    unsigned int devices;         /* that may access it, a bit each */
    unsigned int readers;         /* that may read it alone */
} mappings[MAPPINGS];
static int live, failing = -1;

void fake_fail_mapping(int call)
{
    pthread_mutex_lock(&fake_lock);
    failing = call;
    pthread_mutex_unlock(&fake_lock);
}

int fake_mappings(void)
{
    pthread_mutex_lock(&fake_lock);
    const int n = live;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

bool fake_mapping_fails(void)
{
    const bool now = failing == 0;
    failing -= failing >= 0;
    return now;
}

void fake_mapping_count(int change)
{
    live += change;
}

bool fake_mapping_forget(const struct fake_handle *handle)
{
    bool found = false;
    for (struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++)
        if (mapping->start != NULL && mapping->memory != NULL && mapping->by == handle) {
            mapping->by = NULL;
            found = true;
        }
    return found;
}

/* The mapping that has all these bytes, or NULL. */
static const struct mapping *find_mapping(const void *begin, size_t bytes)
{
    const char *const at = begin;
    for (const struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++)
        if (mapping->start != NULL && at >= mapping->start &&
            at + bytes <= mapping->start + mapping->bytes)
            return mapping->memory != NULL ? mapping : NULL;
    return NULL;
}

bool fake_mapped_at(const void *address, CUdeviceptr *start, size_t *bytes, int *device)
{
    const struct mapping *mapping = find_mapping(address, 1);
    if (mapping == NULL)
        return false;
    *start = (CUdeviceptr)(uintptr_t)mapping->start;
    *bytes = mapping->bytes;
    *device = mapping->memory->device;
    return true;
}

bool fake_reaches(int device, const void *begin, size_t bytes)
{
    const char *at = begin, *const end = at + bytes;
    while (at < end) {
        const struct mapping *mapping = find_mapping(at, 1);
        if (mapping == NULL || (mapping->devices >> device & 1) == 0)
            return false;
        at = mapping->start + mapping->bytes;
    }
    return true;
}

bool fake_exportable(const void *begin, size_t bytes)
{
    const struct mapping *mapping = find_mapping(begin, bytes);
    return mapping != NULL && mapping->memory->exportable;
}

void *fake_home(const void *begin, size_t bytes)
{
    const struct mapping *mapping = find_mapping(begin, bytes);
    return mapping == NULL ? NULL : mapping->memory->home + ((const char *)begin - mapping->start);
}

/* ---------------------------------------------------------------------------------- addresses */

static struct mapping *mapping_at(CUdeviceptr address, size_t bytes)
{
    for (struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++)
        if (mapping->start != NULL && (CUdeviceptr)(uintptr_t)mapping->start == address &&
            mapping->bytes == bytes)
            return mapping;
    fake_die("a range that was not reserved");
}

static struct mapping *add_mapping(char *start, size_t bytes)
{
    struct mapping *mapping = mappings;
    while (mapping < mappings + MAPPINGS && mapping->start != NULL)
        mapping++;
    if (mapping == mappings + MAPPINGS || start == MAP_FAILED)
        fake_die("more addresses are reserved than there is room for");
    *mapping = (struct mapping){.start = start, .bytes = bytes};
    live++;
    return mapping;
}

static const struct mapping *new_mapping(size_t bytes)
{
    return add_mapping(mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes);
}

/* What is behind `bytes` bytes becomes a reservation of its own. Returns that. */
static struct mapping *cut_behind(struct mapping *mapping, size_t bytes)
{
    struct mapping *rest = add_mapping(mapping->start + bytes, mapping->bytes - bytes);
    mapping->bytes = bytes;
    return rest;
}

/* A reservation of these bytes alone, cut out of one where nothing is mapped. */
static struct mapping *cut_out(CUdeviceptr address, size_t bytes)
{
    char *const at = (char *)(uintptr_t)address; /* NOLINT: as the driver has it */
    for (struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++) {
        if (mapping->start == NULL || mapping->memory != NULL || at < mapping->start ||
            at + bytes > mapping->start + mapping->bytes)
            continue;
        if (at > mapping->start)
            mapping = cut_behind(mapping, (size_t)(at - mapping->start));
        if (mapping->bytes > bytes)
            (void)cut_behind(mapping, bytes);
        return mapping;
    }
    fake_die("memory is mapped where it does not fit");
}

/* The first part, with no more bytes than these. */
static struct mapping *part_at(CUdeviceptr address, size_t bytes)
{
    for (struct mapping *mapping = mappings; mapping < mappings + MAPPINGS; mapping++)
        if (mapping->start != NULL && (CUdeviceptr)(uintptr_t)mapping->start == address &&
            mapping->bytes <= bytes)
            return mapping;
    fake_die("a range that was not reserved");
}

CUresult fake_mem_reserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                          unsigned long long flags)
{
    if (alignment != 0 || wanted != 0 || flags != 0)
        fake_die("a reservation with wishes");
    pthread_mutex_lock(&fake_lock);
    const bool failed = fake_mapping_fails();
    if (!failed)
        *out = (CUdeviceptr)(uintptr_t)new_mapping(bytes)->start;
    pthread_mutex_unlock(&fake_lock);
    return failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult fake_mem_unreserve(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    for (size_t done = 0; done < bytes;) {
        struct mapping *mapping = part_at(address + done, bytes - done);
        if (mapping->memory != NULL)
            fake_die("a reservation is freed where memory is mapped");
        (void)munmap(mapping->start, mapping->bytes);
        mapping->start = NULL;
        done += mapping->bytes;
        live--;
    }
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

/* In the place of what is there. */
static void place(const struct mapping *mapping, int file)
{
    const int how = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    const int access = file < 0 ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (mmap(mapping->start, mapping->bytes, access, how | MAP_FIXED, file, 0) == MAP_FAILED)
        fake_die("the system maps no memory for the fake");
}

CUresult fake_mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle number, unsigned long long flags)
{
    pthread_mutex_lock(&fake_lock);
    struct mapping *mapping = cut_out(address, bytes);
    const struct fake_handle *handle = fake_handle_of(number);
    if (offset != 0 || flags != 0 || handle->memory->bytes != bytes)
        fake_die("memory is mapped where it does not fit");
    const bool failed = fake_mapping_fails();
    if (!failed) {
        mapping->memory = handle->memory;
        mapping->by = handle;
        mapping->devices = mapping->readers = 0;
        mapping->memory->users++;
        place(mapping, mapping->memory->file);
        live++;
    }
    pthread_mutex_unlock(&fake_lock);
    return failed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult fake_mem_unmap(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct mapping *mapping = mapping_at(address, bytes);
    if (mapping->memory == NULL)
        fake_die("memory is unmapped that is not mapped");
    if (fake_in_use(mapping->start, mapping->bytes))
        fake_die("memory is unmapped while a stream uses it");
    place(mapping, -1);
    fake_memory_leave(mapping->memory);
    mapping->memory = NULL;
    live--;
    pthread_mutex_unlock(&fake_lock);
    return CUDA_SUCCESS;
}

CUresult fake_mem_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                             size_t n)
{
    pthread_mutex_lock(&fake_lock);
    struct mapping *mapping = mapping_at(address, bytes);
    bool good = mapping->memory != NULL && !fake_mapping_fails();
    for (size_t i = 0; i < n && good; i++)
        good = fake_can_reach(access[i].location.id, mapping->memory->device);
    for (size_t i = 0; i < n && good; i++) {
        const unsigned int device = 1u << access[i].location.id;
        mapping->devices &= ~device;
        mapping->readers &= ~device;
        if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            mapping->devices |= device;
        else if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
            mapping->readers |= device;
    }
    pthread_mutex_unlock(&fake_lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult fake_mem_get_access(unsigned long long *out, const CUmemLocation *location,
                             CUdeviceptr address)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        fake_die("access to a mapping from a place that is no device");
    fake_need_relaxed();
    pthread_mutex_lock(&fake_lock);
    const struct mapping *mapping =
        find_mapping((const void *)(uintptr_t)address, 1); /* NOLINT: as the driver has it */
    if (mapping != NULL)
        *out = (mapping->devices >> location->id & 1) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
               : (mapping->readers >> location->id & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                             : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    pthread_mutex_unlock(&fake_lock);
    return mapping != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_mem_retain(CUmemGenericAllocationHandle *out, void *address)
{
    fake_need_relaxed();
    pthread_mutex_lock(&fake_lock);
    const struct mapping *mapping = find_mapping(address, 1);
    if (mapping != NULL)
        *out = fake_handle_again(mapping->memory);
    pthread_mutex_unlock(&fake_lock);
    return mapping != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
